//! `GET /v1/models` and `GET /v1/models/{id}`: the routes, of which every single model is one.

use super::ApiError;
use crate::catalog::Route;
use crate::http::App;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

/// All routes.
pub async fn list(State(app): State<App>) -> Json<Value> {
    let data: Vec<Value> = app.catalog().routes.iter().map(|route| model(&app, route)).collect();
    Json(json!({"object": "list", "data": data}))
}

/// One route.
///
/// # Errors
/// 404 for one that does not exist, 400 for a name that is no text.
pub async fn show(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|e| {
        ApiError::parameter("model", format!("the model's name cannot be read: {}", e.body_text()))
    })?;
    Ok(Json(model(&app, app.route(&id)?)))
}

fn model(app: &App, route: &Route) -> Value {
    let models: Vec<&str> = route.reaches.iter().map(|&model| app.catalog().model(model)).collect();
    json!({
        "id": route.name, "object": "model", "created": app.started(), "owned_by": "tokenrouter",
        "root": route.name, "parent": null, "max_model_len": route.context,
        "token_routing": {"entry": app.catalog().model(route.entry), "models": models},
    })
}
