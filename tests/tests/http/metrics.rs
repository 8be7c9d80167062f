//! `/metrics`: what scrapers read after requests of every end.

use crate::client::{Host, begin, endless, question};
use serde_json::{Value, json};
use std::time::Duration;

/// The value of a line of `text`, whatever the order of its labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = text.lines().find(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
        rest.is_some_and(|rest| labels.iter().all(|label| rest.contains(label)))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

async fn scrape(host: &Host) -> String {
    let response = host.get("/metrics").await;
    assert_eq!(response.status(), 200);
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let text = response.text().await.unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

/// Scrapes until a line has this value.
async fn until(host: &Host, name: &str, label: &str, expected: f64) -> String {
    let scrapes = async {
        loop {
            let text = scrape(host).await;
            if value(&text, &format!("tokenrouter_{name}"), &[label]) == Some(expected) {
                return text;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), scrapes).await.expect("it does not get there")
}

#[tokio::test]
async fn requests_tokens_and_times_are_counted_as_clients_saw_them() {
    // Whoever scrapes has no key of a client.
    let host = Host::with("").await;
    let reply = host.chat(&question()).await;
    let chunks = host.chunks(&question()).await;
    let refused = host.post("/v1/chat/completions", &json!({"model": "nobody"})).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(host.get("/there/is/nothing").await.status(), 404);
    let stream = host.post("/v1/chat/completions", &endless(&json!({"stream": true}))).await;
    drop(begin(stream).await);
    host.at_rest().await;

    let text = scrape(&host).await;
    let of = |name: &str, labels: &[&str]| value(&text, &format!("tokenrouter_{name}"), labels);
    let demo = "route=\"demo\"";
    assert_eq!(of("requests_total", &[demo, "finished_reason=\"stop\""]), Some(2.0));
    assert_eq!(of("requests_total", &[demo, "finished_reason=\"abort\""]), Some(1.0));
    let chat = "path=\"/v1/chat/completions\"";
    assert_eq!(of("http_requests_total", &[chat, "status=\"200\""]), Some(3.0));
    assert_eq!(of("http_requests_total", &[chat, "status=\"400\""]), Some(1.0));
    assert_eq!(of("http_requests_total", &["path=\"other\"", "status=\"404\""]), Some(1.0));
    assert!(!text.contains("nobody") && !text.contains("there/is/nothing"));

    let prompt = reply["usage"]["prompt_tokens"].as_f64().unwrap();
    assert_eq!(of("prompt_tokens_total", &[demo]), Some(2.0 * prompt));
    let routing = &reply["token_routing"]["models"];
    for model in ["small", "large"] {
        let wrote = routing[model]["committed"].as_f64().unwrap();
        let label = format!("model=\"{model}\"");
        assert_eq!(of("generation_tokens_total", &[demo, &label]), Some(2.0 * wrote), "{model}");
    }
    let handoffs = ["small", "large"].map(|model| routing[model]["handoffs"].as_f64().unwrap());
    assert_eq!(of("handoffs_total", &[demo]), Some(2.0 * handoffs.iter().sum::<f64>()));

    assert_eq!(of("time_to_first_token_seconds_count", &[demo]), Some(3.0));
    assert_eq!(of("e2e_request_latency_seconds_count", &[demo]), Some(2.0));
    assert_eq!(of("request_time_per_output_token_seconds_count", &[demo]), Some(2.0));
    let whole = of("e2e_request_latency_seconds_sum", &[demo]).unwrap();
    let first = of("time_to_first_token_seconds_sum", &[demo]).unwrap();
    assert!(first > 0.0 && whole > 0.0);
    // Every piece but the first of a stream follows another; the aborted one may have had more.
    let piece = |chunk: &&Value| chunk["token_routing"]["tokens"].is_u64();
    let pieces = chunks.iter().filter(piece).count() as f64;
    assert!(of("inter_token_latency_seconds_count", &[demo]).unwrap() >= 2.0 * (pieces - 1.0));
}

#[tokio::test]
async fn what_models_hold_and_do_is_shown_while_they_do_it() {
    let batching = "batching: { large: { threshold: 2 } }\nadmin: { enabled: true }\n";
    let host = Host::with(batching).await;
    let one = host.post("/v1/chat/completions", &endless(&json!({"stream": true}))).await;
    let two = host.post("/v1/chat/completions", &endless(&json!({"stream": true}))).await;
    let streams = [begin(one).await, begin(two).await];
    // The large model hears how many requests there are with the first word that comes to it.
    let text = until(&host, "batch_threshold", "model=\"large\"", 2.0).await;
    let of = |name: &str, labels: &[&str]| value(&text, &format!("tokenrouter_{name}"), labels);
    assert_eq!(of("num_requests_running", &[]), Some(2.0));
    assert_eq!(of("ready", &[]), Some(1.0));
    let small = "model=\"small\"";
    assert_eq!(of("model_requests_live", &[small]), Some(2.0));
    assert_eq!(of("model_requests_held", &[small]), Some(2.0));
    assert!(of("kv_cache_blocks_used", &[small]).unwrap() > 0.0);
    assert!(of("forward_passes_total", &[small]).unwrap() > 0.0);
    assert!(of("forward_seconds_total", &[small]).unwrap() > 0.0);
    assert_eq!(of("batch_threshold", &[small]), Some(1.0));
    assert_eq!(of("threshold_changes_total", &[]), Some(0.0));
    drop(streams);
    host.at_rest().await;

    let killed = host.post("/admin/kill", &json!({"actor": "large/decode"})).await;
    assert_eq!(killed.status(), 200);
    let text = until(&host, "actor_restarts_total", "actor=\"large/decode\"", 1.0).await;
    assert_eq!(value(&text, "tokenrouter_num_requests_running", &[]), Some(0.0));
    assert_eq!(value(&text, "tokenrouter_kv_cache_blocks_used", &[small]), Some(0.0));
}
