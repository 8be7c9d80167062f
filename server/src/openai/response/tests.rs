//! The shapes of responses.

use super::*;
use crate::catalog::Language;
use crate::prompt::TemplateError;
use crate::tokenizer::Tokenizer;
use std::sync::Arc;
use tokenrouter_protocol::{RouteIx, Sampling};

pub(crate) fn catalog() -> Catalog {
    let json = tokenrouter_models::demo("small").unwrap().tokenizer;
    let language = Arc::new(Language {
        tokenizer: Tokenizer::new(json.as_bytes(), vec![2]).unwrap(),
        template: Err(TemplateError::Missing),
        defaults: Sampling::GREEDY,
    });
    let route = Route {
        name: "demo".into(),
        index: RouteIx(0),
        entry: ModelIx(1),
        reaches: vec![ModelIx(0), ModelIx(1)],
        context: 100,
        language,
    };
    Catalog { models: vec!["large".into(), "small".into()], routes: vec![route], others: vec![] }
}

fn head(kind: Kind, include_usage: bool) -> (Catalog, Head) {
    let catalog = catalog();
    let route = catalog.routes[0].clone();
    (catalog, Head { kind, id: "x-1".into(), created: 5, route, include_usage })
}

fn outcome(finish: Finish, large: u32, small: u32) -> Outcome {
    let share = |committed| Share { committed, generated: committed + 1, computed: 9, handoffs: 2 };
    Outcome {
        finish,
        prompt_tokens: 7,
        completion_tokens: large + small,
        shares: [(ModelIx(0), share(large)), (ModelIx(1), share(small))].into_iter().collect(),
        without: Default::default(),
    }
}

#[test]
fn a_chat_response() {
    let (catalog, head) = head(Kind::Chat, false);
    let choices = [Choice { text: "hi".into(), outcome: outcome(Finish::Eos(2), 1, 3) }];
    let value = head.whole(7, &choices, &catalog);
    assert_eq!(
        value,
        json!({
            "id": "x-1", "object": "chat.completion", "created": 5, "model": "demo",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "logprobs": null,
                "finish_reason": "stop", "stop_reason": null}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
            "llm_ratio": 0.25,
            "token_routing": {"route": "demo", "models": {
                "large": {"committed": 1, "generated": 2, "computed": 9, "handoffs": 2},
                "small": {"committed": 3, "generated": 4, "computed": 9, "handoffs": 2},
            }},
        })
    );
}

#[test]
fn usage_is_summed_over_choices_and_the_prompt_counted_once() {
    let (catalog, head) = head(Kind::Completion, false);
    let choices = [
        Choice { text: "a".into(), outcome: outcome(Finish::Length, 0, 2) },
        Choice { text: "b".into(), outcome: outcome(Finish::Stop("#".into()), 2, 0) },
    ];
    let value = head.whole(7, &choices, &catalog);
    assert_eq!(value["object"], "text_completion");
    assert_eq!(value["usage"]["total_tokens"], 11);
    assert_eq!(value["llm_ratio"], 0.5);
    assert_eq!(value["choices"][0]["finish_reason"], "length");
    assert_eq!(value["choices"][1]["stop_reason"], "#");
    assert_eq!(value["choices"][1]["text"], "b");
    assert_eq!(value["token_routing"]["models"]["large"]["committed"], 2);
}

#[test]
fn chunks_say_who_wrote_them_and_name_the_role_once() {
    let (catalog, head) = head(Kind::Chat, true);
    let progress =
        Progress { model: ModelIx(0), tokens: [5, 6].into_iter().collect(), text: "ab".into() };
    let first = head.piece(1, true, &progress, &catalog);
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": "ab"}));
    assert_eq!(first["choices"][0]["index"], 1);
    assert_eq!(first["token_routing"], json!({"model": "large", "tokens": 2}));
    assert_eq!(first.get("usage"), Some(&Value::Null), "the chunk with the usage is still to come");
    let next = head.piece(1, false, &progress, &catalog);
    assert_eq!(next["choices"][0]["delta"], json!({"content": "ab"}));

    let outcome = outcome(Finish::Length, 1, 1);
    let last = head.last(1, false, &outcome, &catalog);
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(last["token_routing"]["models"]["small"]["committed"], 1);
    let usage = head.usage(7, &[&outcome]);
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(9)));
}

#[test]
fn without_include_usage_no_chunk_has_one() {
    let (catalog, head) = head(Kind::Completion, false);
    let progress =
        Progress { model: ModelIx(1), tokens: [5].into_iter().collect(), text: "a".into() };
    let chunk = head.piece(0, true, &progress, &catalog);
    assert_eq!(chunk.get("usage"), None);
    assert_eq!(chunk["choices"][0]["text"], "a");
}

#[test]
fn a_reply_without_tokens_has_no_ratio_to_divide() {
    let route = &catalog().routes[0];
    let shares = total(route, &[]);
    assert_eq!(shares.len(), 2);
    assert_eq!(llm_ratio(ModelIx(1), &shares), 0.0);
}
