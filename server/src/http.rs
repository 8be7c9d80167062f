//! The router: paths, layers around them, and what every handler can reach.
//!
//! Every answer that is no success has OpenAI's error object, also those that no handler gives.

use crate::admin;
use crate::auth::{self, Keys};
use crate::catalog::{Catalog, Route};
use crate::date::now;
use crate::flights::{Flight, Flights};
use crate::metrics::{self, Metrics};
use crate::openai::{ApiError, chat, completions, models, tokenize};
use crate::random;
use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, body::Bytes};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokenrouter_actors::Gateway;
use tokenrouter_protocol::Failure;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of a text that is prepared at once.
const QUICK: usize = 2 << 10;

/// Bytes beyond which a text is large, and how many such texts are prepared at a time.
const LARGE: usize = 256 << 10;
const LARGE_AT_ONCE: usize = 2;

/// What every handler can reach.
#[derive(Clone, Debug)]
pub struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    catalog: Arc<Catalog>,
    gateway: Gateway,
    flights: Flights,
    metrics: Arc<Metrics>,
    draining: AtomicBool,
    most_choices: u32,
    started: u64,
    /// A permit for each large text that may be prepared.
    large: Arc<Semaphore>,
}

impl App {
    /// An app that takes requests.
    pub fn new(catalog: Arc<Catalog>, gateway: Gateway, most_choices: u32) -> Self {
        Self(Arc::new(Inner {
            catalog,
            gateway,
            flights: Flights::default(),
            metrics: Arc::default(),
            draining: AtomicBool::new(false),
            most_choices,
            started: now(),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        }))
    }

    /// The routes.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.0.catalog
    }

    /// The way to the models.
    pub fn gateway(&self) -> &Gateway {
        &self.0.gateway
    }

    /// The largest `n`.
    pub fn most_choices(&self) -> u32 {
        self.0.most_choices
    }

    /// When the server started, in seconds since 1970.
    pub fn started(&self) -> u64 {
        self.0.started
    }

    /// Requests being answered.
    pub fn flights(&self) -> &Flights {
        &self.0.flights
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// Counts a request that wants to be answered.
    ///
    /// # Errors
    /// A server that is about to stop.
    pub fn take_off(&self) -> Result<Flight, ApiError> {
        let flight = self.0.flights.start();
        if self.draining() { Err(ApiError::draining()) } else { Ok(flight) }
    }

    /// Takes no new requests from now on.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
    }

    /// Whether no new requests are taken.
    pub fn draining(&self) -> bool {
        self.0.draining.load(Ordering::SeqCst)
    }

    /// What a client is told of a failure. What is cut off by the end of the server is told so, whichever part of it
    /// noticed first.
    pub fn fault(&self, failure: Failure) -> ApiError {
        match failure {
            Failure::ModelLost { .. } if self.draining() => ApiError::draining(),
            other => other.into(),
        }
    }

    /// Does `work` on a text of `size` bytes: at once if that is quick, else where it holds up nobody. Of large texts only
    /// a few at a time, since a tokeniser takes hundreds of times the memory that the text does.
    ///
    /// # Errors
    /// Those of `work`, or 500 if it panics.
    pub async fn prepare<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if size <= QUICK {
            return work();
        }
        let permit = match size > LARGE {
            true => Arc::clone(&self.0.large).acquire_owned().await.ok(),
            false => None,
        };
        let guarded = move || {
            // Kept until the work is done, also where its client has left meanwhile.
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(guarded)
            .await
            .unwrap_or_else(|_| Err(ApiError::internal("the prompt could not be prepared")))
    }

    /// The route called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn route(&self, name: &str) -> Result<&Route, ApiError> {
        let catalog = self.catalog();
        catalog.find(name).ok_or_else(|| ApiError::unknown_model(name, &catalog.names()))
    }
}

/// Who may do what.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Origins whose pages may call from a browser.
    pub origins: Vec<HeaderValue>,
    /// Keys of which a request to a model must bring one.
    pub keys: Keys,
    /// Keys for `/admin`; nothing is there without.
    pub admin: Option<Keys>,
    /// Most bytes of a request.
    pub body: usize,
}

/// The router.
pub fn router(app: App, access: &Access) -> Router {
    let models = Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::show))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route_layer(middleware::from_fn_with_state(access.keys.clone(), auth::require));
    let open = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics::show));
    let shared =
        models.merge(open).fallback(not_found).method_not_allowed_fallback(method_not_allowed);
    let shared = cors(shared, &access.origins);
    // No page of another origin reaches the admin, whatever the models allow.
    let all = match &access.admin {
        Some(keys) => {
            let guard = middleware::from_fn_with_state(keys.clone(), auth::require);
            shared.merge(admin::router().route_layer(guard))
        }
        None => shared,
    };
    all.layer(DefaultBodyLimit::max(access.body))
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::internal("the server made a mistake; its log says more").into_response()
        }))
        .layer(middleware::from_fn_with_state(app.clone(), identify))
        .with_state(app)
}

fn cors(router: Router<App>, origins: &[HeaderValue]) -> Router<App> {
    // Mirrored, since `*` does not cover `authorization`, which every OpenAI client sends.
    let headers = AllowHeaders::mirror_request();
    let layer =
        CorsLayer::new().allow_methods(Any).allow_headers(headers).expose_headers([REQUEST_ID]);
    if origins.iter().any(|origin| origin == "*") {
        return router.layer(layer.allow_origin(Any));
    }
    if origins.is_empty() { router } else { router.layer(layer.allow_origin(origins.to_vec())) }
}

async fn health() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn ready(State(app): State<App>) -> Response {
    if app.draining() {
        return ApiError::draining().into_response();
    }
    if app.gateway().ready() {
        return Json(json!({"status": "ready"})).into_response();
    }
    let message = "a part of the server is being restarted; try again shortly";
    ApiError {
        retry_after: Some(1),
        kind: "server_error",
        ..ApiError::status(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message)
    }
    .into_response()
}

async fn not_found(request: Request) -> ApiError {
    let message = format!("there is nothing at {}", request.uri().path());
    ApiError::status(StatusCode::NOT_FOUND, "not_found", message)
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} is not possible at {}", request.method(), request.uri().path());
    ApiError::status(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// Gives every answer the request's id: the client's own, echoed, or a new one. Nothing inside uses it as a key.
async fn identify(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = match request.headers().get(REQUEST_ID) {
        Some(id) if id.len() <= 128 && id.to_str().is_ok() => id.clone(),
        _ => HeaderValue::from_str(&random::identifier()).unwrap_or(HeaderValue::from_static("-")),
    };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let routed = request.extensions().get::<MatchedPath>().cloned();
    let begun = Instant::now();
    let mut response = next.run(request).await;
    let routed = routed.as_ref().map_or("other", MatchedPath::as_str);
    app.metrics().answered(routed, response.status());
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    tracing::debug!(%method, path, status, ?took, id = id.to_str().unwrap_or("-"), "answered");
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The bytes of a JSON body, with refusals in OpenAI's shape.
#[derive(Debug)]
pub struct JsonBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        check_content_type(request.headers().get(header::CONTENT_TYPE))?;
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(Self(bytes)),
            Err(BytesRejection::FailedToBufferBody(e))
                if e.status() == StatusCode::PAYLOAD_TOO_LARGE =>
            {
                let message = "the body is larger than the server's limit";
                Err(ApiError::status(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message))
            }
            Err(e) => Err(ApiError::invalid(format!("the body cannot be read: {e}"))),
        }
    }
}

/// A body without a type is taken for JSON; one that says it is something else is not.
fn check_content_type(value: Option<&HeaderValue>) -> Result<(), ApiError> {
    let Some(value) = value else { return Ok(()) };
    let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
    let kind = text.split(';').next().unwrap_or_default().trim();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let message = format!("the content type is `{kind}`; send application/json");
    Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}
