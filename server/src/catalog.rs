//! What there is to choose from: the routes, and how each reads and writes text.
//!
//! Plain data, made once at start. It knows neither engines nor actors.

use crate::prompt::{Template, TemplateError};
use crate::tokenizer::Tokenizer;
use serde_json::Value;
use std::sync::Arc;
use tokenrouter_policies::{ModelIx, Position};
use tokenrouter_protocol::{RouteIx, Sampling};

/// All routes of a server.
#[derive(Debug)]
pub struct Catalog {
    /// The names of the models, sorted: a [`ModelIx`] is a place in this list.
    pub models: Vec<String>,
    /// The routes, sorted by name: a [`RouteIx`] is a place in this list.
    pub routes: Vec<Route>,
    /// The names of the other nodes, sorted.
    pub others: Vec<String>,
}

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// What clients call it.
    pub name: String,
    /// Its place in the list.
    pub index: RouteIx,
    /// The model where requests enter.
    pub entry: ModelIx,
    /// Every model that may write, the entry model included.
    pub reaches: Vec<ModelIx>,
    /// The most positions of prompt and reply together: the least of its models'.
    pub context: Position,
    /// How its entry model reads and writes.
    pub language: Arc<Language>,
}

/// How a model reads and writes text.
#[derive(Debug)]
pub struct Language {
    /// Text to tokens.
    pub tokenizer: Tokenizer,
    /// Conversations to text; a model without one still completes text.
    pub template: Result<Template, TemplateError>,
    /// What holds where a request does not say.
    pub defaults: Sampling,
}

impl Catalog {
    /// The route called `name`.
    pub fn find(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// The names of all routes.
    pub fn names(&self) -> Vec<&str> {
        self.routes.iter().map(|route| route.name.as_str()).collect()
    }

    /// The name of a model.
    pub fn model(&self, model: ModelIx) -> &str {
        self.models.get(model.index()).map_or("?", String::as_str)
    }
}

/// The sampling that a model's `generation_config.json` asks for. One that asks for none is greedy, as its makers
/// would run it; without the file it is temperature 1, as in OpenAI's API.
pub fn default_sampling(generation_config: Option<&Value>) -> Sampling {
    let open = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    let Some(config) = generation_config else { return open };
    let samples = config["do_sample"].as_bool();
    let number = |key: &str| config[key].as_f64().filter(|value| value.is_finite());
    let temperature = match (samples, number("temperature")) {
        (Some(false), _) | (None, None) => return Sampling::GREEDY,
        (_, temperature) => temperature.unwrap_or(1.0).max(0.0),
    };
    Sampling {
        temperature: temperature as f32,
        top_p: number("top_p").filter(|p| (0.0..=1.0).contains(p) && *p > 0.0).unwrap_or(1.0)
            as f32,
        top_k: config["top_k"].as_u64().and_then(|k| u32::try_from(k).ok()).unwrap_or(0),
        min_p: number("min_p").filter(|p| (0.0..=1.0).contains(p)).unwrap_or(0.0) as f32,
    }
}

/// The tokens that end a reply: those of `generation_config.json` and of `config.json` together.
pub fn end_of_sequence(config: &Value, generation_config: Option<&Value>) -> Vec<u32> {
    let mut tokens = Vec::new();
    for source in [generation_config, Some(config)].into_iter().flatten() {
        match &source["eos_token_id"] {
            Value::Array(list) => tokens.extend(list.iter().filter_map(Value::as_u64)),
            one => tokens.extend(one.as_u64()),
        }
    }
    tokens.sort_unstable();
    tokens.dedup();
    tokens.into_iter().filter_map(|id| u32::try_from(id).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_come_from_the_generation_config() {
        let greedy =
            [json!({}), json!({"do_sample": false, "temperature": 0.6}), json!({"top_k": 20})];
        for config in greedy {
            assert_eq!(default_sampling(Some(&config)), Sampling::GREEDY, "{config}");
        }
        assert_eq!(default_sampling(None).temperature, 1.0);
        let config = json!({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20});
        let expected = Sampling { temperature: 0.6, top_p: 0.95, top_k: 20, min_p: 0.0 };
        assert_eq!(default_sampling(Some(&config)), expected);
        assert_eq!(default_sampling(Some(&json!({"do_sample": true}))).temperature, 1.0);
        assert_eq!(default_sampling(Some(&json!({"temperature": 0.5}))).temperature, 0.5);
    }

    #[test]
    fn end_tokens_come_from_both_files() {
        let config = json!({"eos_token_id": 2});
        assert_eq!(end_of_sequence(&config, None), [2]);
        assert_eq!(end_of_sequence(&config, Some(&json!({"eos_token_id": [7, 2]}))), [2, 7]);
        assert_eq!(end_of_sequence(&json!({"eos_token_id": null}), None), [0; 0]);
    }
}
