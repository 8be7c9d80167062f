//! What replies say: the same streamed and whole, seeded and again, and true about who wrote them.

use crate::client::{Host, question, question_with, streamed, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[tokio::test]
async fn a_streamed_reply_is_the_whole_one_and_both_models_wrote_it() {
    let host = Host::with("").await;
    let whole = host.chat(&question()).await;
    assert!(text(&whole).contains("The answer is 1717."), "{whole}");
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");

    let body = question_with(&json!({"stream_options": {"include_usage": true}}));
    let chunks = host.chunks(&body).await;
    assert_eq!(streamed(&chunks, 0), text(&whole));
    assert_eq!(chunks.last().unwrap()["usage"], whole["usage"]);
    let roles = chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["role"].is_string());
    assert_eq!(roles.count(), 1);
    let ids: std::collections::BTreeSet<&str> =
        chunks.iter().map(|chunk| chunk["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 1);

    let mut wrote: BTreeMap<&str, u64> = BTreeMap::new();
    for routing in chunks.iter().map(|chunk| &chunk["token_routing"]) {
        if let (Some(model), Some(tokens)) = (routing["model"].as_str(), routing["tokens"].as_u64())
        {
            *wrote.entry(model).or_default() += tokens;
        }
    }
    let routing = &whole["token_routing"]["models"];
    for model in ["small", "large"] {
        assert!(wrote[model] > 0);
        assert_eq!(routing[model]["committed"], wrote[model], "{model}");
    }
    let all = wrote["small"] + wrote["large"];
    assert_eq!(whole["usage"]["completion_tokens"], all);
    assert_eq!(whole["llm_ratio"], wrote["large"] as f64 / all as f64);
    let last = &chunks[chunks.len() - 2];
    assert_eq!(
        (&last["token_routing"]["models"], &last["llm_ratio"]),
        (routing, &whole["llm_ratio"])
    );
}

#[tokio::test]
async fn a_seed_gives_the_same_reply_again_whatever_runs_beside_it() {
    let host = Host::with("").await;
    let body = question_with(&json!({"seed": 7, "temperature": 1.2}));
    let first = host.chat(&body).await;
    let others = question_with(&json!({"temperature": 1.5, "n": 3}));
    let (again, chunks, _) = tokio::join!(host.chat(&body), host.chunks(&body), host.chat(&others));
    assert_eq!(text(&first), text(&again));
    assert_eq!(text(&first), streamed(&chunks, 0));

    let mut several = body.clone();
    several["n"] = json!(4);
    let several = host.chat(&several).await;
    let texts: Vec<&str> = several["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(texts[0], text(&first), "the first choice is the only one of n = 1");
    assert!(texts.iter().any(|other| *other != texts[0]), "choices draw for themselves");
    let prompt = &first["usage"]["prompt_tokens"];
    assert_eq!(&several["usage"]["prompt_tokens"], prompt, "counted once");
}

#[tokio::test]
async fn choices_of_one_stream_are_kept_apart() {
    let host = Host::with("").await;
    let body = question_with(&json!({"seed": 3, "temperature": 1.5, "n": 3}));
    let whole = host.chat(&body).await;
    let chunks = host.chunks(&body).await;
    for index in 0..3 {
        let expected = whole["choices"][index]["message"]["content"].as_str().unwrap();
        assert_eq!(streamed(&chunks, index), expected);
        let ends = chunks.iter().filter(|chunk| {
            chunk["choices"][0]["index"] == index
                && chunk["choices"][0]["finish_reason"].is_string()
        });
        assert_eq!(ends.count(), 1);
    }
}

#[tokio::test]
async fn replies_end_where_they_should() {
    let host = Host::with("").await;
    let whole = host.chat(&question()).await;
    let stop = host.chat(&question_with(&json!({"stop": ["never", "02.\n\nThen", "1717"]}))).await;
    let expected = text(&whole).split("02.\n\nThen").next().unwrap();
    assert_eq!(text(&stop), expected);
    let choice = &stop["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("stop"), &json!("02.\n\nThen"))
    );
    let chunks = host.chunks(&question_with(&json!({"stop": "02.\n\nThen"}))).await;
    assert_eq!(streamed(&chunks, 0), expected, "nothing of the stop string is sent");

    let short =
        host.chat(&question_with(&json!({"max_tokens": 5, "max_completion_tokens": 6}))).await;
    assert_eq!(short["choices"][0]["finish_reason"], "length");
    assert_eq!(short["usage"]["completion_tokens"], 6);
    assert!(text(&whole).starts_with(text(&short)));

    let on = host.chat(&question_with(&json!({"max_tokens": 120, "ignore_eos": true}))).await;
    assert_eq!(on["usage"]["completion_tokens"], 120);
    assert!(text(&on).starts_with(text(&whole)));
}

#[tokio::test]
async fn completions_take_texts_and_tokens() {
    let host = Host::with("").await;
    let body = json!({"model": "large", "prompt": "<think>\nFirst, 2 + 3 =", "max_tokens": 8});
    let by_text: Value = host.post("/v1/completions", &body).await.json().await.unwrap();
    assert_eq!(by_text["object"], "text_completion");
    assert_eq!(by_text["llm_ratio"], 0.0);

    let prompt = json!({"model": "large", "prompt": body["prompt"]});
    let tokens: Value = host.post("/tokenize", &prompt).await.json().await.unwrap();
    assert_eq!(
        tokens["tokens"].as_array().unwrap().len(),
        tokens["count"].as_u64().unwrap() as usize
    );
    let back = json!({"model": "large", "tokens": tokens["tokens"]});
    let back: Value = host.post("/detokenize", &back).await.json().await.unwrap();
    assert_eq!(back["prompt"], body["prompt"]);

    let mut by_tokens = body.clone();
    by_tokens["prompt"] = json!([tokens["tokens"], tokens["tokens"]]);
    let by_tokens: Value = host.post("/v1/completions", &by_tokens).await.json().await.unwrap();
    for index in 0..2 {
        assert_eq!(by_tokens["choices"][index]["text"], by_text["choices"][0]["text"]);
    }
    assert_eq!(
        by_tokens["usage"]["prompt_tokens"].as_u64().unwrap(),
        2 * by_text["usage"]["prompt_tokens"].as_u64().unwrap()
    );
}

#[tokio::test]
async fn models_are_the_routes_and_the_single_models() {
    let host = Host::with("").await;
    let list: Value = host.get("/v1/models").await.json().await.unwrap();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["demo", "large", "small"]);
    let one: Value = host.get("/v1/models/demo").await.json().await.unwrap();
    assert_eq!(one["token_routing"], json!({"entry": "small", "models": ["large", "small"]}));
    assert_eq!(host.get("/v1/models/none").await.status(), 404);
    for path in ["/health", "/ready"] {
        assert_eq!(host.get(path).await.status(), 200, "{path}");
    }
}
