//! `/admin`: the live tree of actors, and a hand to kill one of them, to see for oneself that no reply notices.
//!
//! It is there only where the topology says so, and shows no prompt and no reply.

use crate::catalog::Catalog;
use crate::http::{App, JsonBody};
use crate::openai::ApiError;
use crate::openai::fields::Fields;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokenrouter_actors::{Branch, LinksBranch, SeatView, Target};
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Life, Reach};

/// The routes under `/admin`.
pub fn router() -> Router<App> {
    Router::new().route("/admin/tree", get(tree)).route("/admin/kill", post(kill))
}

/// The tree: of each actor whether it lives, how often it was replaced, what waits in its mailbox, and what it holds.
async fn tree(State(app): State<App>) -> Json<Value> {
    let tree = app.gateway().admin().tree().await;
    let names = &app.catalog().models;
    let mut children: Vec<Value> =
        names.iter().zip(&tree.subservers).map(|(name, branch)| subserver(name, branch)).collect();
    children.push(seat("http", &tree.http));
    children.extend(tree.pacer.map(|pacer| seat("pacer", &pacer)));
    children.extend(tree.tuner.map(|tuner| seat("tuner", &tuner)));
    children.extend(tree.links.map(|branch| links(&branch, &app.catalog().others)));
    Json(json!({"actor": "node", "children": children}))
}

/// Kills `{"actor": "large/decode"}`; its parent replaces it.
async fn kill(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::of_body(&body)?;
    let names = app.catalog();
    let Some(actor) = fields.string("actor")? else {
        let message = format!("`actor` is missing; there are {}", known(names));
        return Err(ApiError::parameter("actor", message));
    };
    let Some(target) = target(&actor, names) else {
        let message = format!("there is no actor `{actor}`; there are {}", known(names));
        return Err(ApiError {
            status: StatusCode::NOT_FOUND,
            ..ApiError::parameter("actor", message)
        });
    };
    if !app.gateway().admin().kill(target) {
        let message = format!("`{actor}` is being restarted; look at /admin/tree and try again");
        return Err(ApiError::status(StatusCode::CONFLICT, "not_alive", message));
    }
    tracing::warn!(actor, "killed by the admin");
    Ok(Json(json!({"killed": actor})))
}

fn subserver(name: &str, branch: &Branch) -> Value {
    let mut client = seat(&format!("{name}/client"), &branch.client);
    if let Some(view) = branch.loops.client {
        client["life"] = life(view.life);
        client["requests"] = json!({"live": view.live, "closing": view.closing});
    }
    let peer = seat(&format!("{name}/peer"), &branch.peer);
    let mut subserver = seat(&format!("{name}/subserver"), &branch.subserver);
    let mut children = vec![client];
    children.extend(branch.decode.map(|view| decode(name, &view, branch)));
    children.push(peer);
    subserver["children"] = json!(children);
    subserver
}

/// The model itself, where it lives on this node.
fn decode(name: &str, view: &SeatView, branch: &Branch) -> Value {
    let mut decode = seat(&format!("{name}/decode"), view);
    if let (Some(view), Some(pool)) = (branch.loops.decode, branch.loops.pool) {
        decode["life"] = life(view.life);
        decode["requests"] = json!({"held": view.held});
        decode["kv"] = json!({
            "blocks_used": view.blocks_used, "blocks": pool.blocks, "block_positions": pool.block,
        });
    }
    decode
}

/// What speaks with other nodes.
fn links(branch: &LinksBranch, others: &[String]) -> Value {
    let mut children = vec![seat("listener", &branch.listener)];
    for (name, (view, link)) in others.iter().zip(&branch.remotes) {
        let mut remote = seat(&format!("remote/{name}"), view);
        if let Some(link) = link {
            remote["link"] = json!({
                "reach": reach(link.reach), "waiting": link.waiting,
                "round_trip_us": link.stats.rtt.as_micros() as u64,
            });
        }
        children.push(remote);
    }
    let mut links = seat("links", &branch.links);
    links["children"] = json!(children);
    links
}

/// How a node can be reached, in a word.
pub(crate) fn reach(reach: Reach) -> &'static str {
    match reach {
        Reach::Here => "here",
        Reach::Away => "away",
        Reach::Gone => "gone",
    }
}

fn seat(actor: &str, seat: &SeatView) -> Value {
    json!({
        "actor": actor, "alive": seat.alive, "restarts": seat.restarts, "mailbox": seat.waiting,
    })
}

fn life(life: Life) -> Value {
    json!({"process": life.process, "restarts": life.restarts})
}

/// The actor of this name.
fn target(actor: &str, catalog: &Catalog) -> Option<Target> {
    match actor {
        "http" => return Some(Target::Http),
        "pacer" => return Some(Target::Pacer),
        "tuner" => return Some(Target::Tuner),
        "links" => return Some(Target::Links),
        "listener" => return Some(Target::Listener),
        _ => {}
    }
    let (model, role) = actor.rsplit_once('/')?;
    if model == "remote"
        && let Some(place) = catalog.others.iter().position(|name| name == role)
    {
        return Some(Target::Remote(place));
    }
    let models = &catalog.models;
    let model = ModelIx(models.iter().position(|name| name == model)? as u8);
    match role {
        "client" => Some(Target::Client(model)),
        "decode" => Some(Target::Decode(model)),
        "peer" => Some(Target::Peer(model)),
        "subserver" => Some(Target::Subserver(model)),
        _ => None,
    }
}

fn known(catalog: &Catalog) -> String {
    let roles = "{client,decode,peer,subserver}";
    let models = catalog.models.iter().map(|model| format!("{model}/{roles}"));
    let remotes = catalog.others.iter().map(|node| format!("remote/{node}"));
    let links = if catalog.others.is_empty() { "" } else { "links, listener, " };
    let names: Vec<String> = models.chain(remotes).collect();
    format!("http, pacer and tuner (where the topology has them), {links}{}", names.join(", "))
}
