//! `/admin`: the live tree of actors, and a hand to kill one of them, to see for oneself that no reply notices.
//!
//! It is there only where the topology says so, and shows no prompt and no reply.

use crate::http::{App, JsonBody};
use crate::openai::ApiError;
use crate::openai::fields::Fields;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokenrouter_actors::{Branch, SeatView, Target};
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::Life;

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
    Json(json!({"actor": "node", "children": children}))
}

/// Kills `{"actor": "large/decode"}`; its parent replaces it.
async fn kill(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::of_body(&body)?;
    let names = &app.catalog().models;
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
    let mut decode = seat(&format!("{name}/decode"), &branch.decode);
    if let Some(view) = branch.loops.decode {
        decode["life"] = life(view.life);
        decode["requests"] = json!({"held": view.held});
        let pool = branch.loops.pool;
        decode["kv"] = json!({
            "blocks_used": view.blocks_used, "blocks": pool.blocks, "block_positions": pool.block,
        });
    }
    let peer = seat(&format!("{name}/peer"), &branch.peer);
    let mut subserver = seat(&format!("{name}/subserver"), &branch.subserver);
    subserver["children"] = json!([client, decode, peer]);
    subserver
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
fn target(actor: &str, models: &[String]) -> Option<Target> {
    if actor == "http" {
        return Some(Target::Http);
    }
    if actor == "pacer" {
        return Some(Target::Pacer);
    }
    if actor == "tuner" {
        return Some(Target::Tuner);
    }
    let (model, role) = actor.rsplit_once('/')?;
    let model = ModelIx(models.iter().position(|name| name == model)? as u8);
    match role {
        "client" => Some(Target::Client(model)),
        "decode" => Some(Target::Decode(model)),
        "peer" => Some(Target::Peer(model)),
        "subserver" => Some(Target::Subserver(model)),
        _ => None,
    }
}

fn known(models: &[String]) -> String {
    let roles = "{client,decode,peer,subserver}";
    let names: Vec<String> = models.iter().map(|model| format!("{model}/{roles}")).collect();
    format!("http, pacer and tuner (where the topology has them), {}", names.join(", "))
}
