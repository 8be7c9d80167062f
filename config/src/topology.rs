//! The topology: which models there are, how routes combine them, and the limits of the server.
//!
//! Everything that needs only the file itself is checked here; whether a model's folder exists or a policy's settings
//! make sense is for those who know models and policies.

mod batching;
mod check;
mod cluster;
mod mapping;

pub use batching::{Batching, Objective, Scheduler, SchedulerMode, Threshold, Tune};
pub(crate) use cluster::write_value;
pub use cluster::{Cluster, Node, OnLoss, digest};

use crate::document::Document;
use crate::error::{Error, Origin};
use crate::secret::Secret;
use crate::section::PolicySection;
use crate::units::{self, Bytes};
use figment::value::Value;
use mapping::Mapping;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The topology that is used where no file is named: the demo models and a few routes over them.
const BUILT_IN: &str = include_str!("../demo.yaml");

/// Where settings come from, each layer over the one before.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The topology file; the built-in topology if none is named.
    pub file: Option<PathBuf>,
    /// Environment variables. Those like `TOKENROUTER_HTTP__LISTEN` are settings, all others are passed over.
    pub environment: Vec<(String, String)>,
    /// Settings from flags.
    pub flags: Vec<Setting>,
}

/// A setting given by a command line flag.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The flag as the user types it, `--listen`.
    pub flag: &'static str,
    /// The key it sets, `http.listen`.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A checked topology.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The HTTP side.
    pub http: Http,
    /// Models by name, at least one.
    pub models: BTreeMap<String, Model>,
    /// Routes by name. No route is named like a model, since every model is a route of its own.
    pub routes: BTreeMap<String, Route>,
    /// Batching by model; a model that is not in it has the default.
    pub batching: BTreeMap<String, Batching>,
    /// How the models' steps are scheduled.
    pub scheduler: Scheduler,
    /// How much memory the models may use.
    pub memory: Memory,
    /// Limits on requests.
    pub limits: Limits,
    /// How often a model may be restarted.
    pub restart: Restart,
    /// Looking at the actors and killing them.
    pub admin: Admin,
    /// Logging.
    pub log: Log,
    /// The nodes by name; none where everything runs in one process.
    pub nodes: BTreeMap<String, Node>,
    /// What nodes need to know each other.
    pub cluster: Cluster,
    /// Which of the nodes this process is; see [`Topology::on`].
    pub here: Option<String>,
    document: Arc<Document>,
}

/// A route.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model where requests enter.
    pub entry: String,
    /// How the next model is chosen.
    pub policy: PolicySection,
    /// What becomes of its requests when one of its models is out of reach.
    pub on_loss: OnLoss,
}

/// `http:`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The address to listen on; port 0 takes any free one.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Origins whose pages may call the server from a browser; `*` allows all, an empty list none.
    pub cors: Vec<String>,
    /// Keys of which a client must bring one; an empty list lets everybody in.
    pub api_keys: Vec<Secret>,
}

/// `models.NAME:`, or only its `path`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// `demo:small`, `demo:mid`, `demo:large`, or a folder.
    pub path: String,
    /// Where it runs; only `cpu` so far.
    #[serde(default)]
    pub device: Option<String>,
    /// Threads of its forward passes; the default shares the cores between the models.
    #[serde(default)]
    pub threads: Option<usize>,
    /// Refused: not yet supported.
    #[serde(default)]
    quantize: Option<Value>,
    /// Positions its KV cache holds; the default shares the memory between the models.
    #[serde(default)]
    pub kv_positions: Option<u32>,
}

/// `memory:`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Weights and KV caches of all models on the CPU together.
    pub cpu: Bytes,
}

/// `limits:`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most choices being generated at once; more are refused.
    pub requests: usize,
    /// The largest `n`.
    pub choices: u32,
    /// The largest request body.
    pub body: Bytes,
    /// How long a party that says nothing is waited for.
    #[serde(deserialize_with = "units::duration")]
    pub grace: Duration,
    /// How long a request may stand still before its turn is granted anew.
    #[serde(deserialize_with = "units::duration")]
    pub stall_timeout: Duration,
    /// How long open replies may go on after the order to stop.
    #[serde(deserialize_with = "units::duration")]
    pub drain: Duration,
}

/// `restart:`: how many deaths of a model's loops within a while are mended before the process gives up.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// How many.
    pub restarts: u32,
    /// Within how long.
    #[serde(deserialize_with = "units::duration")]
    pub within: Duration,
}

/// `admin:`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Whether `/admin` is there at all.
    pub enabled: bool,
    /// The key that its clients must bring; needed where other machines can reach it.
    pub api_key: Option<Secret>,
}

/// `log:`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a list like `info,tokenrouter=debug`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

impl Topology {
    /// Reads, merges and checks all layers.
    ///
    /// # Errors
    /// A file that cannot be read, bad YAML, an unknown key, a value that cannot be used.
    pub fn load(sources: &Sources) -> Result<Self, Error> {
        match &sources.file {
            None => Self::from_text(BUILT_IN, sources),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| Error {
                    origin: Origin::File { path: path.clone(), line: None },
                    key: String::new(),
                    reason: format!("the file cannot be read: {e}"),
                })?;
                Self::from_text(&text, sources)
            }
        }
    }

    /// As [`Self::load`], with the text of the file given; `sources.file` only names it in errors.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_text(text: &str, sources: &Sources) -> Result<Self, Error> {
        let document = Arc::new(Document::merge(text, sources)?);
        let raw: Raw = document.parse_all()?;
        let topology = Self::assemble(document, raw)?;
        topology.check()?;
        Ok(topology)
    }

    /// An error about the value at `path`, its keys one by one: `["models", "small", "path"]`.
    pub fn error(&self, path: &[&str], reason: impl Into<String>) -> Error {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.document.error(&path, reason)
    }

    fn assemble(document: Arc<Document>, raw: Raw) -> Result<Self, Error> {
        let mut routes = BTreeMap::new();
        for (name, Mapping(route)) in raw.routes {
            let path = vec!["routes".to_owned(), name.clone(), "policy".to_owned()];
            let policy = PolicySection::find(&document, path)?;
            routes.insert(name, Route { entry: route.entry, policy, on_loss: route.on_loss });
        }
        let models = raw.models.into_iter().map(|(name, model)| (name, model.into())).collect();
        Ok(Self {
            http: raw.http.0,
            models,
            routes,
            batching: raw.batching.into_iter().map(|(name, batching)| (name, batching.0)).collect(),
            scheduler: raw.scheduler.0,
            memory: raw.memory.0,
            limits: raw.limits.0,
            restart: raw.restart.0,
            admin: raw.admin.0,
            log: raw.log.0,
            nodes: raw.nodes.into_iter().map(|(name, node)| (name, node.0)).collect(),
            cluster: raw.cluster.0,
            here: None,
            document,
        })
    }
}

/// The document as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    http: Mapping<Http>,
    models: BTreeMap<String, RawModel>,
    #[serde(default)]
    routes: BTreeMap<String, Mapping<RawRoute>>,
    #[serde(default)]
    batching: BTreeMap<String, Mapping<Batching>>,
    #[serde(default)]
    scheduler: Mapping<Scheduler>,
    #[serde(default)]
    memory: Mapping<Memory>,
    #[serde(default)]
    limits: Mapping<Limits>,
    #[serde(default)]
    restart: Mapping<Restart>,
    #[serde(default)]
    admin: Mapping<Admin>,
    #[serde(default)]
    log: Mapping<Log>,
    #[serde(default)]
    nodes: BTreeMap<String, Mapping<Node>>,
    #[serde(default)]
    cluster: Mapping<Cluster>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    entry: String,
    /// Parsed apart, so that its errors come from those who know it.
    #[serde(rename = "policy")]
    _policy: Value,
    #[serde(default)]
    on_loss: OnLoss,
}

/// A model's settings, or only its path.
struct RawModel(Model);

impl From<RawModel> for Model {
    fn from(raw: RawModel) -> Self {
        raw.0
    }
}

impl<'de> Deserialize<'de> for RawModel {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Model;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a path, or settings with a `path`")
            }

            fn visit_str<E>(self, path: &str) -> Result<Model, E> {
                Ok(Model { path: path.to_owned(), ..Model::default() })
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Model, A::Error> {
                Model::deserialize(serde::de::value::MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Either).map(Self)
    }
}

fn address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        let hint = "write host and port as numbers, such as 127.0.0.1:8080 or [::]:8080";
        serde::de::Error::custom(format!("`{text}` is not an address; {hint}"))
    })
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            cors: vec!["*".to_owned()],
            api_keys: Vec::new(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { cpu: Bytes(2 << 30) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 256,
            choices: 64,
            body: Bytes(8 << 20),
            grace: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self { restarts: 5, within: Duration::from_secs(60) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

#[cfg(test)]
mod tests;
