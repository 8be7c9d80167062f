//! What a node is started with. Everything is validated and loaded before: starting a node can only fail for want of
//! threads.

use crate::faults::Faults;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_engine::Engine;
use tokenrouter_policies::planner::Plan;
use tokenrouter_policies::tuner::TunerConfig;
use tokenrouter_policies::{Budget, ModelIx, Policy};
use tokenrouter_protocol::{BatchLimits, OnLoss, Rhythm, Vocabulary};
use tokenrouter_transport::Endpoint;

/// A whole node.
#[derive(Debug)]
pub struct NodeSpec {
    /// The models, sorted by name: a [`ModelIx`] is a place in this list.
    pub models: Vec<ModelSpec>,
    /// The routes, sorted by name: a `RouteIx` is a place in this list. Each single model is a route too.
    pub routes: Vec<RouteSpec>,
    /// Who waits for whom.
    pub scheduler: Scheduler,
    /// Thresholds that follow what is measured, for groups of models that share requests.
    pub tunings: Vec<Tuning>,
    /// The bounds.
    pub limits: Limits,
    /// The other nodes, where there are any.
    pub cluster: Option<Cluster>,
    /// Encodes and decodes every message between subservers as if it crossed the network.
    pub through_wire: bool,
    /// Deaths on purpose, for tests of what they cost.
    pub faults: Faults,
}

/// One model and its engine.
#[derive(Debug)]
pub struct ModelSpec {
    /// Its name in the topology.
    pub name: String,
    /// Its engine: weights, threads and KV pool, which outlive every actor. `None` where it lives on another node.
    pub engine: Option<Engine>,
    /// The bytes of its tokens, and which of them end a reply.
    pub vocabulary: Arc<Vocabulary>,
    /// When its forward passes are launched, and their bounds.
    pub batch: BatchLimits,
}

/// One way of combining models.
#[derive(Clone, Debug)]
pub struct RouteSpec {
    /// What clients call it.
    pub name: String,
    /// The model where its requests enter.
    pub entry: ModelIx,
    /// Which model writes the next token.
    pub policy: Arc<dyn Policy>,
    /// What becomes of its requests when a model is out of reach.
    pub on_loss: OnLoss,
}

/// The nodes of a cluster, and where its models live. Everything here is the same on every node, but for the first two.
#[derive(Debug)]
pub struct Cluster {
    /// This node, by its place among the nodes.
    pub here: u8,
    /// Its socket.
    pub endpoint: Endpoint,
    /// The nodes, sorted by name.
    pub nodes: Vec<NodeAddress>,
    /// The node of each model.
    pub places: Vec<u8>,
    /// A digest of what all nodes must have in common.
    pub topology: u64,
}

/// Where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// Its name, which its certificate bears.
    pub name: String,
    /// Where it listens for other nodes.
    pub address: SocketAddr,
}

/// Who waits for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// Every model launches whenever its [`BatchLimits`] allow.
    #[default]
    Asynchronous,
    /// All models launch in rounds, when every live request waits; their thresholds are not asked.
    Rounds(Rhythm),
}

/// Thresholds that follow what is measured. Lists go by the place of a model in the group.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The models of the group.
    pub models: Vec<ModelIx>,
    /// Which of them have thresholds that may be changed.
    pub tuned: Vec<bool>,
    /// The most requests in flight.
    pub live_max: u32,
    /// How.
    pub config: TunerConfig,
    /// What to begin with.
    pub plan: Plan,
}

/// Bounds of a node.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most requests in flight.
    pub requests: usize,
    /// How long a turn may show no progress before its owner is asked.
    pub stall_timeout: Duration,
    /// How long a request may stand still at a model before its home is reminded of it, and how long a new life of a home
    /// leaves requests alone that it does not know yet.
    pub grace: Duration,
    /// Restarts an actor is worth.
    pub restarts: Budget,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 256,
            stall_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            restarts: Budget { restarts: 5, within: Duration::from_secs(60) },
        }
    }
}
