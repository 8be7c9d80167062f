//! What a topology of several nodes means for this one: where each model lives, and how the others are reached.

use super::Model;
use crate::catalog::Catalog;
use crate::server::StartFailure;
use tokenrouter_actors::{Cluster, NodeAddress};
use tokenrouter_config::{Topology, digest};
use tokenrouter_transport::{Endpoint, Identity, Timing};

/// The nodes of a topology, and which of them is this one.
#[derive(Debug)]
pub(super) struct Nodes {
    names: Vec<String>,
    /// The node of each model.
    places: Vec<u8>,
    here: Option<u8>,
}

impl Nodes {
    /// As the topology has them; one, and this is it, where it has none.
    pub(super) fn new(topology: &Topology) -> Self {
        let names: Vec<String> = topology.nodes.keys().cloned().collect();
        let place = |node: Option<&str>| {
            let place = names.iter().position(|name| Some(name.as_str()) == node);
            place.unwrap_or_default() as u8
        };
        let places = topology.models.keys().map(|model| place(topology.node_of(model))).collect();
        let here = match topology.here.as_deref() {
            None if names.is_empty() => Some(0),
            None => None,
            here => Some(place(here)),
        };
        Self { names, places, here }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.names.len().max(1)
    }

    /// Whether model `index` lives on this node. Where it was not said which node this is, none does.
    pub(super) fn is_here(&self, index: usize) -> bool {
        self.here == Some(self.places[index])
    }

    /// Whether two models live on the same node.
    pub(super) fn beside(&self, index: usize, other: usize) -> bool {
        self.places[index] == self.places[other]
    }

    /// Whether model `index` lives on `node`.
    pub(super) fn lives_on(&self, index: usize, node: usize) -> bool {
        usize::from(self.places[index]) == node
    }

    /// The names of the other nodes.
    pub(super) fn others(&self) -> Vec<String> {
        let others = self.names.iter().enumerate();
        let others = others.filter(|(at, _)| self.here != Some(*at as u8));
        others.map(|(_, name)| name.clone()).collect()
    }

    /// Opens this node's socket to the others, where there are any.
    ///
    /// # Errors
    /// Certificates that cannot be used, an address that is taken. Must be called in a tokio runtime.
    pub(super) fn open(
        &self,
        topology: &Topology,
        catalog: &Catalog,
        models: &[Model],
    ) -> Result<Option<Cluster>, StartFailure> {
        let (Some(here), Some(name)) = (self.here, &topology.here) else { return Ok(None) };
        let fault = |reason: String| topology.error(&["cluster", "certs"], reason);
        let identity = Identity::read(&topology.cluster.certs, name)
            .map_err(|error| fault(error.to_string()))?;
        let own = &topology.nodes[name];
        let idle_timeout = topology.cluster.idle_timeout;
        let timing = Timing { idle_timeout, keep_alive: idle_timeout / 4 };
        let endpoint = Endpoint::bind(&identity, own.bind.unwrap_or(own.quic), timing)?;
        let address = |(name, node): (&String, &tokenrouter_config::Node)| NodeAddress {
            name: name.clone(),
            address: node.quic,
        };
        Ok(Some(Cluster {
            here,
            endpoint,
            nodes: topology.nodes.iter().map(address).collect(),
            places: self.places.clone(),
            topology: common(topology, catalog, models),
        }))
    }
}

/// A digest of all that both ends of a link must agree on: the topology, and what its models' files say of tokens and
/// lengths.
fn common(topology: &Topology, catalog: &Catalog, models: &[Model]) -> u64 {
    let mut so_far = topology.digest();
    for route in &catalog.routes {
        so_far = digest(&route.context.to_le_bytes(), so_far);
    }
    for model in models {
        let vocabulary = model.language.tokenizer.vocabulary();
        for token in 0..vocabulary.len() as u32 {
            so_far = digest(vocabulary.bytes(token), so_far);
            so_far = digest(&[u8::from(vocabulary.ends(token))], so_far);
        }
    }
    so_far
}
