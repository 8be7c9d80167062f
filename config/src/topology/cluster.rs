//! Several nodes: where each listens, which models live on which, and which of them this process is.

use super::{SchedulerMode, Topology, address};
use crate::error::Error;
use crate::units;
use figment::value::Value;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `nodes.NAME:`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Where other nodes reach it, by QUIC.
    #[serde(deserialize_with = "address")]
    pub quic: SocketAddr,
    /// Where it listens for them, if that is another address: 0.0.0.0:7000, say.
    #[serde(default, deserialize_with = "maybe_address")]
    pub bind: Option<SocketAddr>,
    /// Where it takes HTTP; a node without it takes none.
    #[serde(default, deserialize_with = "maybe_address")]
    pub http: Option<SocketAddr>,
    /// The models that live on it.
    #[serde(default)]
    pub models: Vec<String>,
}

/// `cluster:`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// The folder with this node's key and certificate, and that of the authority.
    pub certs: PathBuf,
    /// A node from which nothing comes for so long has no link any more. Where nothing else is said, each says every
    /// quarter of this that it lives.
    #[serde(deserialize_with = "units::duration")]
    pub idle_timeout: Duration,
}

/// What becomes of a route's requests when one of its models is out of reach for longer than `limits.grace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLoss {
    /// They wait until it is back.
    #[default]
    Wait,
    /// They are finished by a model that is left, and their clients are told.
    Fallback,
    /// They fail.
    Fail,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { certs: PathBuf::from("certs"), idle_timeout: Duration::from_secs(3) }
    }
}

/// Names stand in certificates, where hosts do.
const NAME_MAX: usize = 63;

impl Topology {
    /// The same topology, as node `name` of it runs it.
    ///
    /// # Errors
    /// A name that it has not.
    pub fn on(self, name: &str) -> Result<Self, Error> {
        if self.nodes.is_empty() {
            let reason =
                "the topology has no `nodes`, so there is nothing to choose; leave --node out";
            return Err(self.error(&["nodes"], reason));
        }
        let Some(node) = self.nodes.get(name) else {
            let reason = format!("there is no node `{name}`; there are {}", self.node_names());
            return Err(self.error(&["nodes"], reason));
        };
        self.check_admin(node.http)?;
        Ok(Self { here: Some(name.to_owned()), ..self })
    }

    /// The same topology as a single process runs it, with all models in it.
    pub fn alone(self) -> Self {
        Self { nodes: BTreeMap::new(), here: None, ..self }
    }

    /// The names of all nodes, for people.
    pub fn node_names(&self) -> String {
        let names: Vec<&str> = self.nodes.keys().map(String::as_str).collect();
        names.join(", ")
    }

    /// The node where a model lives; `None` where there is but one.
    pub fn node_of(&self, model: &str) -> Option<&str> {
        let mut nodes = self.nodes.iter();
        let lives = |node: &Node| node.models.iter().any(|name| name == model);
        nodes.find(|(_, node)| lives(node)).map(|(name, _)| name.as_str())
    }

    /// Where this process takes HTTP, if it does.
    pub fn http_address(&self) -> Option<SocketAddr> {
        match &self.here {
            Some(here) => self.nodes[here].http,
            None => Some(self.http.listen),
        }
    }

    /// A digest of what all nodes must agree on: models, routes and nodes. Paths of models are not in it; they may lie
    /// elsewhere on each machine.
    pub fn digest(&self) -> u64 {
        let mut text = String::new();
        for (name, node) in &self.nodes {
            text.push_str(&format!("node {name} {} {:?}\n", node.quic, node.models));
        }
        for name in self.models.keys() {
            text.push_str(&format!("model {name}\n"));
        }
        for (name, route) in &self.routes {
            text.push_str(&format!("route {name} {} {:?} ", route.entry, route.on_loss));
            route.policy.write(&mut text);
            text.push('\n');
        }
        digest(text.as_bytes(), 0)
    }

    pub(super) fn check_nodes(&self) -> Result<(), Error> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        if self.nodes.len() > usize::from(u8::MAX) {
            return Err(self.error(&["nodes"], "there are more than 255 nodes"));
        }
        if self.scheduler.mode != SchedulerMode::Asynchronous && self.nodes.len() > 1 {
            let reason = "models of several nodes cannot run in rounds; leave the mode out";
            return Err(self.error(&["scheduler", "mode"], reason));
        }
        let idle = self.cluster.idle_timeout;
        if !(Duration::from_millis(100)..=Duration::from_secs(600)).contains(&idle) {
            return Err(self.error(&["cluster", "idle_timeout"], "must be between 100ms and 600s"));
        }
        for (name, node) in &self.nodes {
            self.check_node(name, node)?;
        }
        for model in self.models.keys() {
            let lives = |node: &&Node| node.models.contains(model);
            match self.nodes.values().filter(lives).count() {
                1 => {}
                0 => {
                    let reason = format!("no node has the model `{model}`; add it to one");
                    return Err(self.error(&["nodes"], reason));
                }
                _ => {
                    let reason = format!(
                        "several nodes have the model `{model}`; replicas are not yet supported"
                    );
                    return Err(self.error(&["nodes"], reason));
                }
            }
        }
        Ok(())
    }

    fn check_node(&self, name: &str, node: &Node) -> Result<(), Error> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edge = |c: Option<char>| c.is_some_and(|c| c != '-');
        let (first, last) = (name.chars().next(), name.chars().last());
        if name.len() > NAME_MAX || !name.chars().all(fits) || !edge(first) || !edge(last) {
            let reason = format!(
                "a node's name consists of small letters, digits and inner `-`, at most {NAME_MAX} of them, as in a certificate"
            );
            return Err(self.error(&["nodes", name], reason));
        }
        if node.quic.ip().is_unspecified() || node.quic.port() == 0 {
            let reason = format!(
                "others cannot reach a node at {}; write its own address and a port, and set `bind` to listen on all of them",
                node.quic
            );
            return Err(self.error(&["nodes", name, "quic"], reason));
        }
        let same = |(other, theirs): &(&String, &Node)| *other != name && theirs.quic == node.quic;
        if let Some((other, _)) = self.nodes.iter().find(same) {
            let reason = format!("`{other}` has the same address");
            return Err(self.error(&["nodes", name, "quic"], reason));
        }
        for (index, model) in node.models.iter().enumerate() {
            let key = ["nodes", name, "models", &index.to_string()];
            if !self.models.contains_key(model) {
                return Err(self.error(&key, self.no_such_model(model)));
            }
            if node.models[..index].contains(model) {
                return Err(self.error(&key, format!("`{model}` is named twice")));
            }
        }
        Ok(())
    }
}

/// Mixes bytes into a digest that is the same on every machine (FNV-1a); the first begins with 0.
pub fn digest(bytes: &[u8], so_far: u64) -> u64 {
    let start = if so_far == 0 { 0xcbf2_9ce4_8422_2325 } else { so_far };
    bytes
        .iter()
        .fold(start, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a setting so that the same settings give the same text, wherever they came from.
pub(crate) fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Dict(_, inner) => {
            text.push('{');
            for (key, value) in inner {
                text.push_str(&format!("{key:?}:"));
                write_value(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(_, inner) => {
            text.push('[');
            for value in inner {
                write_value(value, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::String(_, inner) => text.push_str(&format!("{inner:?}")),
        Value::Char(_, inner) => text.push_str(&format!("{inner:?}")),
        Value::Bool(_, inner) => text.push_str(&inner.to_string()),
        Value::Num(_, inner) => {
            let number = inner.to_f64().or(inner.to_i128().map(|n| n as f64));
            text.push_str(&number.or(inner.to_u128().map(|n| n as f64)).unwrap_or(0.0).to_string());
        }
        Value::Empty(..) => text.push_str("null"),
    }
}

fn maybe_address<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}

#[cfg(test)]
mod tests;
