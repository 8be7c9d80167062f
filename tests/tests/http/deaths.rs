//! Clients notice no death: replies under a hail of kills are those of an undisturbed server.

use crate::client::{Host, streamed, text};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokenrouter_actors::Target;
use tokenrouter_policies::ModelIx;

const CLIENTS: usize = 8;
const KILLS: usize = 140;

/// What client `n` asks in its `round`.
fn question(n: usize, round: usize) -> Value {
    let content = format!("What is ({} * {}) + {}?", 21 + n, 34 + round, 3 + n + round);
    let temperature = if n.is_multiple_of(2) { 0.0 } else { 0.8 };
    let message = json!({ "role": "user", "content": content });
    json!({ "model": "demo", "messages": [message], "seed": n, "temperature": temperature })
}

/// Every client asks its questions one after the other, half of them streamed; text, reason and usage of each reply.
async fn ask_all(host: &Host, rounds: usize) -> Vec<Vec<(String, Value, Value)>> {
    let client = |n: usize| async move {
        let mut replies = Vec::new();
        for round in 0..rounds {
            let question = question(n, round);
            if n < CLIENTS / 2 {
                let mut question = question;
                question["stream_options"] = json!({ "include_usage": true });
                let chunks = host.chunks(&question).await;
                let last =
                    chunks.iter().rev().find(|c| !c["choices"][0]["finish_reason"].is_null());
                let reason = last.unwrap()["choices"][0]["finish_reason"].clone();
                replies.push((
                    streamed(&chunks, 0),
                    reason,
                    chunks.last().unwrap()["usage"].clone(),
                ));
            } else {
                let reply = host.chat(&question).await;
                let reason = reply["choices"][0]["finish_reason"].clone();
                replies.push((text(&reply).to_owned(), reason, reply["usage"].clone()));
            }
        }
        replies
    };
    futures::future::join_all((0..CLIENTS).map(client)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_notice_no_death_of_any_actor() {
    let host = Host::with("limits: { grace: 500ms, stall_timeout: 1s }\n").await;
    let expected = ask_all(&host, 6).await;
    let done = AtomicBool::new(false);
    let hail = async {
        let (small, large) = (ModelIx(1), ModelIx(0));
        let targets = [small, large].into_iter().flat_map(|model| {
            [Target::Decode(model), Target::Client(model), Target::Peer(model), Target::Http]
        });
        let mut kills = 0;
        // An end to the hail: a scheduler that is killed before each step is done never gets one done.
        for target in targets.cycle().take(KILLS) {
            if done.load(Ordering::Relaxed) {
                break;
            }
            host.server.kill(target);
            kills += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kills
    };
    let asking = async {
        let replies = ask_all(&host, 6).await;
        done.store(true, Ordering::Relaxed);
        replies
    };
    let (kills, replies) = tokio::join!(hail, asking);
    assert_eq!(replies, expected);
    assert!(kills >= KILLS / 2, "only {kills} kills");
    host.at_rest().await;
}
