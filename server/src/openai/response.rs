//! Responses of the OpenAI API: pure functions from what was generated to JSON.
//!
//! Beside OpenAI's fields there are `llm_ratio`, the share of the tokens that the entry model did not write, and
//! `token_routing`, which says who wrote what.

use crate::catalog::{Catalog, Route};
use serde_json::{Map, Value, json};
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Finish, Outcome, Progress, Share};

/// Which of the two APIs answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

/// What all parts of one response share.
#[derive(Clone, Debug)]
pub struct Head {
    /// Which API.
    pub kind: Kind,
    /// Unique, the same in all chunks.
    pub id: String,
    /// Seconds since 1970, the same in all chunks.
    pub created: u64,
    /// The route.
    pub route: Route,
    /// Whether every chunk has `usage: null` because one with the usage comes at the end.
    pub include_usage: bool,
}

/// A finished choice.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The whole text.
    pub text: String,
    /// How it ended and who wrote it.
    pub outcome: Outcome,
}

impl Head {
    fn object(&self, object: &str, choices: Value) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("id".to_owned(), json!(self.id));
        map.insert("object".to_owned(), json!(object));
        map.insert("created".to_owned(), json!(self.created));
        map.insert("model".to_owned(), json!(self.route.name));
        map.insert("choices".to_owned(), choices);
        map
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let object = match self.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Completion => "text_completion",
        };
        let mut map = self.object(object, choices);
        if self.include_usage {
            map.insert("usage".to_owned(), Value::Null);
        }
        map
    }

    /// The chunk of a piece of choice `index`. `first` chunks of a chat name the role.
    pub fn piece(
        &self,
        index: usize,
        first: bool,
        progress: &Progress,
        catalog: &Catalog,
    ) -> Value {
        let choice = match (self.kind, first) {
            (Kind::Chat, true) => {
                let delta = json!({"role": "assistant", "content": progress.text});
                json!({"index": index, "delta": delta, "finish_reason": null})
            }
            (Kind::Chat, false) => {
                json!({"index": index, "delta": {"content": progress.text}, "finish_reason": null})
            }
            (Kind::Completion, _) => {
                json!({"index": index, "text": progress.text, "logprobs": null, "finish_reason": null})
            }
        };
        let mut map = self.chunk(json!([choice]));
        let writer =
            json!({"model": catalog.model(progress.model), "tokens": progress.tokens.len()});
        map.insert("token_routing".to_owned(), writer);
        Value::Object(map)
    }

    /// The last chunk of choice `index`, with its totals. It names the role if it is also the first.
    pub fn last(&self, index: usize, first: bool, outcome: &Outcome, catalog: &Catalog) -> Value {
        let (finish, stop) = (finish_reason(&outcome.finish), stop_reason(&outcome.finish));
        let choice = match self.kind {
            Kind::Chat => {
                let delta =
                    if first { json!({"role": "assistant", "content": ""}) } else { json!({}) };
                json!({"index": index, "delta": delta, "finish_reason": finish, "stop_reason": stop})
            }
            Kind::Completion => json!({
                "index": index, "text": "", "logprobs": null, "finish_reason": finish, "stop_reason": stop,
            }),
        };
        let mut map = self.chunk(json!([choice]));
        self.insert_routing(&mut map, &[outcome], catalog);
        Value::Object(map)
    }

    /// The chunk with the usage of all choices together.
    pub fn usage(&self, prompt_tokens: u32, outcomes: &[&Outcome]) -> Value {
        let mut map = self.chunk(json!([]));
        map.insert("usage".to_owned(), usage(prompt_tokens, outcomes));
        Value::Object(map)
    }

    /// The whole response of a request that is not streamed.
    pub fn whole(&self, prompt_tokens: u32, choices: &[Choice], catalog: &Catalog) -> Value {
        let object = match self.kind {
            Kind::Chat => "chat.completion",
            Kind::Completion => "text_completion",
        };
        let rendered = choices.iter().enumerate().map(|(index, choice)| self.choice(index, choice));
        let mut map = self.object(object, rendered.collect());
        let outcomes: Vec<&Outcome> = choices.iter().map(|choice| &choice.outcome).collect();
        map.insert("usage".to_owned(), usage(prompt_tokens, &outcomes));
        self.insert_routing(&mut map, &outcomes, catalog);
        Value::Object(map)
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let finish = finish_reason(&choice.outcome.finish);
        let stop = stop_reason(&choice.outcome.finish);
        match self.kind {
            Kind::Chat => json!({
                "index": index, "message": {"role": "assistant", "content": choice.text}, "logprobs": null,
                "finish_reason": finish, "stop_reason": stop,
            }),
            Kind::Completion => json!({
                "index": index, "text": choice.text, "logprobs": null,
                "finish_reason": finish, "stop_reason": stop,
            }),
        }
    }

    fn insert_routing(
        &self,
        map: &mut Map<String, Value>,
        outcomes: &[&Outcome],
        catalog: &Catalog,
    ) {
        let shares = total(&self.route, outcomes);
        map.insert("llm_ratio".to_owned(), json!(llm_ratio(self.route.entry, &shares)));
        let models: Map<String, Value> = shares
            .iter()
            .map(|(model, share)| (catalog.model(*model).to_owned(), json!(share)))
            .collect();
        let mut routing = json!({"route": self.route.name, "models": models});
        // Only where it is news: models that were out of reach, so that others had to do without.
        let mut without: Vec<ModelIx> = outcomes.iter().flat_map(|o| o.without.clone()).collect();
        without.sort_unstable();
        without.dedup();
        if !without.is_empty() {
            let names: Vec<&str> = without.iter().map(|model| catalog.model(*model)).collect();
            routing["without"] = json!(names);
        }
        map.insert("token_routing".to_owned(), routing);
    }
}

/// What each model of the route did, over all `outcomes`; a model that did nothing is there with zeros.
pub fn total(route: &Route, outcomes: &[&Outcome]) -> Vec<(ModelIx, Share)> {
    let mut total: Vec<(ModelIx, Share)> =
        route.reaches.iter().map(|&model| (model, Share::default())).collect();
    for (model, share) in outcomes.iter().flat_map(|outcome| &outcome.shares) {
        let at = total.iter().position(|(known, _)| known == model).unwrap_or_else(|| {
            total.push((*model, Share::default()));
            total.len() - 1
        });
        let sum = &mut total[at].1;
        sum.committed += share.committed;
        sum.generated += share.generated;
        sum.computed += share.computed;
        sum.handoffs += share.handoffs;
    }
    total
}

/// The share of committed tokens that models other than `entry` wrote.
pub fn llm_ratio(entry: ModelIx, shares: &[(ModelIx, Share)]) -> f64 {
    let committed = |filter: &dyn Fn(ModelIx) -> bool| -> u32 {
        shares.iter().filter(|(model, _)| filter(*model)).map(|(_, share)| share.committed).sum()
    };
    let all = committed(&|_| true);
    if all == 0 { 0.0 } else { f64::from(committed(&|model| model != entry)) / f64::from(all) }
}

fn usage(prompt_tokens: u32, outcomes: &[&Outcome]) -> Value {
    let completion: u32 = outcomes.iter().map(|outcome| outcome.completion_tokens).sum();
    json!({
        "prompt_tokens": prompt_tokens, "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
    })
}

/// OpenAI's word for the end of a reply.
pub fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Eos(_) | Finish::Stop(_) => "stop",
        Finish::Length => "length",
    }
}

/// The stop string that ended a reply.
fn stop_reason(finish: &Finish) -> Option<&str> {
    match finish {
        Finish::Stop(text) => Some(text),
        Finish::Eos(_) | Finish::Length => None,
    }
}

#[cfg(test)]
mod tests;
