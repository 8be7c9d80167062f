//! What the actors show of themselves at one moment, as metrics. A restarted actor counts from 0 again, as scrapers expect.

use crate::http::App;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use tokenrouter_actors::{Branch, SeatView};

mod links;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByModel {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByActor {
    actor: String,
}

/// Asks every actor.
pub(super) async fn take(app: &App) -> Registry {
    let gateway = app.gateway();
    let tree = gateway.admin().tree().await;
    let mut registry = Registry::with_prefix("tokenrouter");
    let running: Gauge = Gauge::default();
    running.set(gateway.live() as i64);
    registry.register("num_requests_running", "Choices in flight", running);
    let ready: Gauge = Gauge::default();
    ready.set(i64::from(gateway.ready() && !app.draining()));
    registry.register("ready", "1 while requests are taken", ready);
    let changes: Counter = Counter::default();
    changes.inc_by(gateway.tuned());
    let help = "Times that thresholds of delayed batching were changed for better ones";
    registry.register("threshold_changes", help, changes);
    let names = &app.catalog().models;
    let branches: Vec<(&String, &Branch)> = names.iter().zip(&tree.subservers).collect();
    gauges(&mut registry, &branches);
    counters(&mut registry, &branches);
    registry.register("forward_seconds", "Time spent in forward passes", busy(&branches));
    let mut seats = vec![("http".to_owned(), tree.http)];
    seats.extend(tree.pacer.map(|seat| ("pacer".to_owned(), seat)));
    seats.extend(tree.tuner.map(|seat| ("tuner".to_owned(), seat)));
    if let Some(branch) = tree.links {
        seats.push(("links".to_owned(), branch.links));
        seats.push(("listener".to_owned(), branch.listener));
        let others = app.catalog().others.iter();
        for (name, (seat, _)) in others.zip(&branch.remotes) {
            seats.push((format!("remote/{name}"), *seat));
        }
        links::register(&mut registry, branch.remotes.iter().filter_map(|(_, v)| v.as_ref()));
    }
    for (name, branch) in branches {
        let seat = |role: &str, seat: SeatView| (format!("{name}/{role}"), seat);
        seats.push(seat("subserver", branch.subserver));
        seats.push(seat("client", branch.client));
        seats.extend(branch.decode.map(|view| seat("decode", view)));
        seats.push(seat("peer", branch.peer));
    }
    actors(&mut registry, seats);
    registry
}

/// What each model has and holds now.
fn gauges(registry: &mut Registry, branches: &[(&String, &Branch)]) {
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&Branch) -> Option<f64>| {
        let family: Family<ByModel, Gauge<f64, AtomicU64>> = Family::default();
        for (model, branch) in branches {
            if let Some(value) = of(branch) {
                family.get_or_create(&ByModel { model: (*model).clone() }).set(value);
            }
        }
        registry.register(name, help, family);
    };
    gauge("model_requests_live", "Live requests whose route can reach the model", &|branch| {
        Some(f64::from(branch.loops.decode?.live))
    });
    gauge("model_requests_held", "Requests that have a cache at the model", &|branch| {
        Some(branch.loops.decode?.held as f64)
    });
    gauge("batch_threshold", "Ready requests at which the model launches a pass now", &|branch| {
        Some(f64::from(branch.loops.decode?.threshold))
    });
    gauge("kv_cache_blocks", "Blocks of the model's pool", &|branch| {
        Some(f64::from(branch.loops.pool?.blocks))
    });
    gauge("kv_cache_blocks_used", "Blocks of them in use", &|branch| {
        Some(f64::from(branch.loops.decode?.blocks_used))
    });
    gauge("kv_cache_usage_perc", "Blocks in use, 1 for all", &|branch| {
        let used = f64::from(branch.loops.decode?.blocks_used);
        Some(used / f64::from(branch.loops.pool?.blocks.max(1)))
    });
}

/// What each model has done since its loop was started.
fn counters(registry: &mut Registry, branches: &[(&String, &Branch)]) {
    let mut counter = |name: &str, help: &str, of: &dyn Fn(&Branch) -> Option<u64>| {
        let family: Family<ByModel, Counter> = Family::default();
        for (model, branch) in branches {
            if let Some(value) = of(branch) {
                family.get_or_create(&ByModel { model: (*model).clone() }).inc_by(value);
            }
        }
        registry.register(name, help, family);
    };
    counter("forward_passes", "Forward passes", &|branch| {
        Some(branch.loops.decode?.counters.steps)
    });
    counter("forward_rows", "Requests in forward passes, each time one is", &|branch| {
        Some(branch.loops.decode?.counters.rows)
    });
    counter("forward_tokens", "Tokens fed in forward passes, prompts included", &|branch| {
        Some(branch.loops.decode?.counters.tokens)
    });
    counter("dropped_rows", "Rows whose turn was over when their pass was done", &|branch| {
        Some(branch.loops.decode?.counters.dropped_rows)
    });
    counter("grants", "Turns that the model took", &|branch| {
        Some(branch.loops.decode?.counters.grants)
    });
    counter("stale_grants", "Turns that came too late", &|branch| {
        Some(branch.loops.decode?.counters.stale_grants)
    });
    counter("cache_evictions", "Waiting requests whose cache was taken", &|branch| {
        Some(branch.loops.decode?.counters.evictions)
    });
    counter("num_preemptions", "Running requests whose cache was taken", &|branch| {
        Some(branch.loops.decode?.counters.preemptions)
    });
    counter("regrants", "Turns given again after a loss or a death", &|branch| {
        Some(branch.loops.client?.counters.regrants)
    });
    counter("adopted_requests", "Requests taken up again after a death of their home", &|branch| {
        Some(branch.loops.client?.counters.adopted)
    });
}

fn busy(branches: &[(&String, &Branch)]) -> Family<ByModel, Counter<f64, AtomicU64>> {
    let family: Family<ByModel, Counter<f64, AtomicU64>> = Family::default();
    for (model, branch) in branches {
        if let Some(view) = branch.loops.decode {
            let label = ByModel { model: (*model).clone() };
            family.get_or_create(&label).inc_by(view.busy.as_secs_f64());
        }
    }
    family
}

fn actors(registry: &mut Registry, seats: Vec<(String, SeatView)>) {
    let restarts: Family<ByActor, Counter> = Family::default();
    let waiting: Family<ByActor, Gauge> = Family::default();
    for (actor, seat) in seats {
        let label = ByActor { actor };
        restarts.get_or_create(&label).inc_by(u64::from(seat.restarts));
        waiting.get_or_create(&label).set(seat.waiting as i64);
    }
    registry.register("actor_restarts", "Times that an actor was replaced", restarts);
    let help = "Messages in an actor's mailbox";
    registry.register_with_unit("actor_mailbox", help, Unit::Other("messages".to_owned()), waiting);
}
