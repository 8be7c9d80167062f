//! From a topology to something that runs: files are found, policies built, memory shared out, weights loaded.
//!
//! Everything that can be wrong with a topology is found in [`Plan::new`], before any weight is read.

use crate::assets::Assets;
use crate::catalog::{Catalog, Language, Route, default_sampling, end_of_sequence};
use crate::prompt::Template;
use crate::server::StartFailure;
use crate::tokenizer::{self, Tokenizer};
use std::num::NonZero;
use std::sync::Arc;
use tokenrouter_actors::{Cluster, Faults, Limits, ModelSpec, NodeSpec, RouteSpec, Tuning};
use tokenrouter_config::{self as config, Bytes, Error, Topology};
use tokenrouter_engine::{Arch, BLOCK, Device, Engine, Footprint, LoadOptions, ModelFiles, Runner};
use tokenrouter_policies::route::baseline::Always;
use tokenrouter_policies::{Budget, ModelIx, Policy, Position, Roster, SignalSet};
use tokenrouter_protocol::{BatchLimits, OnLoss, PoolSize, RouteIx};

mod batching;
mod cluster;
mod found;
mod memory;

pub use batching::StoredPlan;
pub(crate) use batching::objective;
use cluster::Nodes;
use found::{Found, NamedHead};

/// A checked topology with all it needs, not yet loaded.
#[derive(Debug)]
pub struct Plan {
    topology: Topology,
    models: Vec<Model>,
    routes: Vec<RouteSpec>,
    catalog: Arc<Catalog>,
    /// When each model launches.
    batches: Vec<BatchLimits>,
    /// Whose thresholds follow what is measured.
    tunings: Vec<Tuning>,
    nodes: Nodes,
}

/// One model of a plan.
#[derive(Debug)]
struct Model {
    name: String,
    files: ModelFiles,
    arch: Arch,
    language: Arc<Language>,
    pool: PoolSize,
    threads: usize,
    device: Device,
    /// What its files' heads are called, in their order.
    heads: Vec<NamedHead>,
}

/// What [`Plan::models`] tells of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// The node where it lives, where there are several.
    pub node: Option<String>,
    /// Its family and size in words.
    pub architecture: String,
    /// Bytes of its weights.
    pub weights: Bytes,
    /// Bytes of its KV pool.
    pub pool: Bytes,
    /// Positions of its KV pool.
    pub positions: Position,
    /// Threads of its forward passes.
    pub threads: usize,
}

impl Plan {
    /// Checks a topology wholly.
    ///
    /// # Errors
    /// The first fault, with its origin and key.
    pub fn new(topology: Topology) -> Result<Self, Error> {
        let nodes = Nodes::new(&topology);
        let mut models = Vec::new();
        for (index, (name, settings)) in topology.models.iter().enumerate() {
            let mut model = model(&topology, name)?;
            let together = (0..topology.models.len()).filter(|&m| nodes.beside(m, index));
            model.threads = settings.threads.unwrap_or(default_threads(together.count()));
            models.push(model);
        }
        // First the routes, since they name the heads that take memory too.
        let routes = routes(&topology, &mut models)?;
        // Every node shares out its own memory; the contexts of routes depend on all of them.
        for node in 0..nodes.count() {
            let on_it = models.iter_mut().enumerate().filter(|(m, _)| nodes.lives_on(*m, node));
            memory::share(&topology, &mut on_it.map(|(_, model)| model).collect::<Vec<_>>())?;
        }
        let mut catalog = catalog(&models, &routes);
        catalog.others = nodes.others();
        let catalog = Arc::new(catalog);
        check_languages(&topology, &catalog, &models)?;
        let batches = batching::batches(&topology, &catalog)?;
        let tunings = batching::tunings(&topology, &catalog, &nodes)?;
        Ok(Self { topology, models, routes, catalog, batches, tunings, nodes })
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The routes and how they read and write.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The models in words and numbers.
    pub fn models(&self) -> Vec<Summary> {
        let node = |model: &Model| self.topology.node_of(&model.name).map(str::to_owned);
        self.models.iter().map(|m| Summary { node: node(m), ..m.summary() }).collect()
    }

    /// Opens the socket to other nodes, where there are any.
    ///
    /// # Errors
    /// Certificates that cannot be used, an address that is taken. Must be called in a tokio runtime.
    pub fn cluster(&self) -> Result<Option<Cluster>, StartFailure> {
        self.nodes.open(&self.topology, &self.catalog, &self.models)
    }

    /// The models, those with fewer weights of their own first: router heads are no part of what a model can do.
    pub fn by_size(&self) -> Vec<ModelIx> {
        let mut models: Vec<usize> = (0..self.models.len()).collect();
        models.sort_by_key(|&index| self.models[index].arch.footprint().weights);
        models.into_iter().map(|index| ModelIx(index as u8)).collect()
    }

    /// When a model launches.
    pub fn batch(&self, model: ModelIx) -> &BatchLimits {
        &self.batches[model.index()]
    }

    /// The signals that a route's policy needs at a model.
    pub fn needs(&self, route: &Route, model: ModelIx) -> SignalSet {
        self.routes[route.index.index()].policy.needs(model)
    }

    /// Loads one model alone, for work that needs no node, with a cache of `positions`.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn runner(&self, model: ModelIx, positions: Position) -> Result<Box<dyn Runner>, Error> {
        runner(&self.topology, &self.models[model.index()], positions.div_ceil(BLOCK))
    }

    /// Loads every model that lives on this node.
    ///
    /// # Errors
    /// Weights that cannot be read or do not fit the architecture, with the model's key.
    pub fn load(self) -> Result<NodeSpec, Error> {
        let mut models = Vec::new();
        for (index, (model, batch)) in self.models.into_iter().zip(self.batches).enumerate() {
            let here = self.nodes.is_here(index);
            let engine = here.then(|| engine(&self.topology, &model)).transpose()?;
            models.push(ModelSpec {
                batch,
                vocabulary: Arc::clone(model.language.tokenizer.vocabulary()),
                engine,
                name: model.name,
            });
        }
        let limits = limits(&self.topology);
        Ok(NodeSpec {
            models,
            routes: self.routes,
            scheduler: batching::scheduler(&self.topology),
            tunings: self.tunings,
            limits,
            cluster: None,
            through_wire: false,
            faults: Faults::default(),
        })
    }
}

impl Model {
    fn summary(&self) -> Summary {
        let footprint = self.footprint();
        let arch = &self.arch;
        Summary {
            name: self.name.clone(),
            node: None,
            architecture: format!("{}, {} layers of {}", arch.family, arch.layers(), arch.hidden),
            weights: Bytes(footprint.weights),
            pool: Bytes(footprint.position * u64::from(self.pool.positions())),
            positions: self.pool.positions(),
            threads: self.threads,
        }
    }

    /// The memory of the model and its heads.
    fn footprint(&self) -> Footprint {
        let heads: u64 = self.heads.iter().map(|head| head.facts.bytes).sum();
        let model = self.arch.footprint();
        Footprint { weights: model.weights.saturating_add(heads), ..model }
    }

    /// The most positions that one of its requests can have.
    fn context(&self) -> Position {
        self.arch.context.min(self.pool.positions())
    }
}

fn runner(topology: &Topology, model: &Model, blocks: u32) -> Result<Box<dyn Runner>, Error> {
    let options = LoadOptions { device: model.device, blocks, threads: model.threads };
    tokenrouter_engine::load(&model.files, &options)
        .map_err(|e| topology.error(&["models", &model.name, "path"], e.to_string()))
}

fn engine(topology: &Topology, model: &Model) -> Result<Engine, Error> {
    let runner = runner(topology, model, model.pool.blocks)?;
    Engine::real(runner, &model.name)
        .map_err(|e| topology.error(&["models", &model.name, "path"], e.to_string()))
}

/// The cores shared out over the models.
fn default_threads(models: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    (cores / models.max(1)).max(1)
}

fn model(topology: &Topology, name: &str) -> Result<Model, Error> {
    let settings = &topology.models[name];
    let fault = |reason: String| topology.error(&["models", name, "path"], reason);
    let assets = Assets::find(&settings.path).map_err(|e| fault(e.to_string()))?;
    let arch =
        tokenrouter_engine::describe(&assets.files.config).map_err(|e| fault(e.to_string()))?;
    let device = match &settings.device {
        None => Device::default(),
        Some(device) => device
            .parse()
            .map_err(|e| topology.error(&["models", name, "device"], format!("{e}")))?,
    };
    let generation = assets.generation_config.as_ref();
    let ends = end_of_sequence(&assets.config, generation);
    let tokenizer = Tokenizer::new(&assets.tokenizer, ends).map_err(|e| fault(e.to_string()))?;
    let tokens = tokenizer.vocabulary().len();
    if tokens > arch.vocabulary {
        let known = arch.vocabulary;
        return Err(fault(format!(
            "its tokenizer has {tokens} tokens, but the model knows {known}"
        )));
    }
    let template = Template::new(assets.tokenizer_config.as_deref(), assets.template.as_deref());
    if let Err(error) = &template {
        tracing::warn!(model = name, "{error}");
    }
    let language =
        Arc::new(Language { tokenizer, template, defaults: default_sampling(generation) });
    let pool = PoolSize { block: BLOCK, blocks: 0 };
    let defer = language.tokenizer.defer();
    Ok(Model {
        name: name.to_owned(),
        files: ModelFiles { defer, ..assets.files },
        arch,
        language,
        pool,
        threads: 1,
        device,
        heads: Vec::new(),
    })
}

/// The routes of the topology and one for each model, sorted by name.
fn routes(topology: &Topology, models: &mut [Model]) -> Result<Vec<RouteSpec>, Error> {
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let mut routes: Vec<RouteSpec> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let model = ModelIx(index as u8);
            let policy: Arc<dyn Policy> = Arc::new(Always { model });
            RouteSpec { name: name.clone(), entry: model, policy, on_loss: OnLoss::default() }
        })
        .collect();
    for (name, route) in &topology.routes {
        let entry = names
            .iter()
            .position(|model| *model == route.entry)
            .ok_or_else(|| topology.error(&["routes", name, "entry"], "there is no such model"))?;
        let entry = ModelIx(entry as u8);
        let mut roster = Roster { names: &names, entry, assets: &mut Found { models } };
        let policy = tokenrouter_policies::build(&route.policy, &mut roster)?;
        let on_loss = match route.on_loss {
            config::OnLoss::Wait => OnLoss::Wait,
            config::OnLoss::Fallback => OnLoss::Fallback,
            config::OnLoss::Fail => OnLoss::Fail,
        };
        routes.push(RouteSpec { name: name.clone(), entry, policy, on_loss });
    }
    routes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(routes)
}

fn catalog(models: &[Model], routes: &[RouteSpec]) -> Catalog {
    let route = |(index, spec): (usize, &RouteSpec)| {
        let mut reaches: Vec<ModelIx> =
            spec.policy.models().into_iter().chain([spec.entry]).collect();
        reaches.sort_unstable();
        reaches.dedup();
        let contexts = reaches.iter().map(|model| models[model.index()].context());
        Route {
            name: spec.name.clone(),
            index: RouteIx(index as u16),
            entry: spec.entry,
            context: contexts.min().unwrap_or_default(),
            language: Arc::clone(&models[spec.entry.index()].language),
            reaches,
        }
    };
    Catalog {
        models: models.iter().map(|model| model.name.clone()).collect(),
        routes: routes.iter().enumerate().map(route).collect(),
        others: Vec::new(),
    }
}

/// Tokens travel between the models of a route as they are, so their tokenizers must be the same.
fn check_languages(topology: &Topology, catalog: &Catalog, models: &[Model]) -> Result<(), Error> {
    for route in &catalog.routes {
        for other in &route.reaches {
            let (left, right) = (&models[route.entry.index()], &models[other.index()]);
            if Arc::ptr_eq(&left.language, &right.language) {
                continue;
            }
            let difference =
                tokenizer::difference(&left.language.tokenizer, &right.language.tokenizer);
            if let Some(difference) = difference {
                let reason = format!(
                    "the tokenizers of `{}` and `{}` differ ({difference}); the models of a route must share one",
                    left.name, right.name
                );
                return Err(topology.error(&["routes", &route.name], reason));
            }
        }
    }
    Ok(())
}

fn limits(topology: &Topology) -> Limits {
    let (limits, restart) = (&topology.limits, &topology.restart);
    Limits {
        requests: limits.requests,
        stall_timeout: limits.stall_timeout,
        grace: limits.grace,
        restarts: Budget { restarts: restart.restarts, within: restart.within },
    }
}

#[cfg(test)]
mod tests;
