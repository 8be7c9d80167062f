//! Keys: who brings none of them is turned away with 401. Nothing here knows who a key belongs to.

use crate::openai::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokenrouter_config::Secret;

/// The keys of which a request must bring one; without any, everybody is let in.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<[Secret]>);

impl Keys {
    /// These keys.
    pub fn new(keys: impl IntoIterator<Item = Secret>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Why a request with these headers is turned away, if it is.
    ///
    /// # Errors
    /// No key, or one that is not among these.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Some(brought) = headers.get(header::AUTHORIZATION) else {
            let message = "no API key is given; send it as `Authorization: Bearer KEY`";
            return Err(ApiError::unauthorized(message));
        };
        // Every key is compared, and each in a time that does not tell how much of it was right.
        let key = bearer(brought.as_bytes());
        let right = |right: bool, known: &Secret| {
            right | bool::from(known.reveal().as_bytes().ct_eq(key.unwrap_or_default()))
        };
        if self.0.iter().fold(false, right) {
            return Ok(());
        }
        Err(ApiError::unauthorized("the API key is not one of this server's"))
    }
}

/// Middleware: turns away who brings none of the keys.
pub async fn require(State(keys): State<Keys>, request: Request, next: Next) -> Response {
    match keys.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The key in `Bearer KEY`; the scheme may be written in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn keys(keys: &[&str]) -> Keys {
        let secret = |key: &&str| serde_json::from_value(serde_json::json!(key)).unwrap();
        Keys::new(keys.iter().map(secret).collect::<Vec<Secret>>())
    }

    fn admitted(keys: &Keys, value: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        keys.check(&headers).is_ok()
    }

    #[test]
    fn any_of_the_keys_opens_and_nothing_else() {
        let two = keys(&["first", "second"]);
        for value in ["Bearer first", "bearer second", "BEARER  first "] {
            assert!(admitted(&two, Some(value)), "{value}");
        }
        for value in
            ["Bearer", "Bearer ", "Bearer firs", "Bearer firsts", "Basic first", "first", "é"]
        {
            assert!(!admitted(&two, Some(value)), "{value}");
        }
        assert!(!admitted(&two, None));
        assert!(admitted(&keys(&[]), None) && admitted(&keys(&[]), Some("Bearer any")));
    }
}
