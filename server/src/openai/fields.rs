//! A JSON object whose fields are taken one by one, each fault named with its parameter.
//!
//! `null` is the same as absent, everywhere: clients send it for what they do not set.

use super::error::ApiError;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The fields of an object that have not been taken.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// What comes before a field's name in errors: `messages[0].`.
    prefix: String,
}

impl Fields {
    /// The fields of a request's body.
    ///
    /// # Errors
    /// Bytes that are no JSON object.
    pub fn of_body(body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::invalid(format!("the body is not valid JSON: {e}")))?;
        match value {
            Value::Object(map) => Ok(Self { map, prefix: String::new() }),
            other => {
                let found = kind(&other);
                Err(ApiError::invalid(format!("the body must be a JSON object, not {found}")))
            }
        }
    }

    /// The fields of an object that is the value of `param`.
    ///
    /// # Errors
    /// A value that is no object.
    pub fn of_value(param: &str, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, prefix: format!("{param}.") }),
            other => Err(wrong_type(param, "an object", &other)),
        }
    }

    /// The full name of a field.
    pub fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Takes a field; `None` for one that is absent or null.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a field that must be there.
    ///
    /// # Errors
    /// An absent field.
    pub fn need(&mut self, key: &str) -> Result<Value, ApiError> {
        self.take(key).ok_or_else(|| missing(&self.name(key)))
    }

    /// Takes a string.
    ///
    /// # Errors
    /// A value that is no string.
    pub fn string(&mut self, key: &str) -> Result<Option<String>, ApiError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(&self.name(key), "a string", &other)),
        }
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// A value that is no boolean.
    pub fn boolean(&mut self, key: &str) -> Result<Option<bool>, ApiError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(&self.name(key), "a boolean", &other)),
        }
    }

    /// Takes an integer within `range`.
    ///
    /// # Errors
    /// A value that is no integer, or outside the range.
    pub fn integer(
        &mut self,
        key: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let name = self.name(key);
        if !(value.is_i64() || value.is_u64()) {
            return Err(wrong_type(&name, "an integer", &value));
        }
        match value.as_i64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(outside(&name, &value, range.start(), range.end())),
        }
    }

    /// Takes a number within `range`.
    ///
    /// # Errors
    /// A value that is no number, or outside the range.
    pub fn number(
        &mut self,
        key: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let name = self.name(key);
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            Some(_) => Err(outside(&name, &value, range.start(), range.end())),
            None => Err(wrong_type(&name, "a number", &value)),
        }
    }

    /// The names of what is left.
    pub fn rest(&self) -> Vec<&str> {
        self.map.keys().map(String::as_str).collect()
    }
}

/// An absent parameter.
pub fn missing(param: &str) -> ApiError {
    ApiError {
        code: Some("missing_required_parameter"),
        ..ApiError::parameter(param, format!("`{param}` is missing"))
    }
}

/// A parameter of the wrong type.
pub fn wrong_type(param: &str, expected: &str, found: &Value) -> ApiError {
    let message = format!("`{param}` must be {expected}, not {}", kind(found));
    ApiError { code: Some("invalid_type"), ..ApiError::parameter(param, message) }
}

fn outside(
    param: &str,
    found: &Value,
    least: impl std::fmt::Display,
    most: impl std::fmt::Display,
) -> ApiError {
    ApiError::parameter(
        param,
        format!("`{param}` is {found}, which is not between {least} and {most}"),
    )
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
