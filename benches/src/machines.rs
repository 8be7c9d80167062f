//! One home and its hosts, driven by hand in one thread: what the protocol costs without actors and engines.

use crate::{next_token, vocabulary};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::{ModelIx, Policy, Signals};
use tokenrouter_protocol::{
    BatchLimits, HomeConfig, HomeId, HomeSays, Host, HostConfig, Life, ModelSays, PoolSize,
    Request, Route, RowOutput, Sampled, home, host,
};

/// The machines of a node with one route.
#[derive(Debug)]
pub struct Machines {
    home: home::Home,
    hosts: Vec<Host>,
    queue: VecDeque<Event>,
    home_effects: Vec<home::Effect>,
    host_effects: Vec<host::Effect>,
    /// What has passed so far.
    pub counts: Counts,
}

/// Messages and results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages from the home to models.
    pub to_models: u64,
    /// Messages from models to the home.
    pub to_home: u64,
    /// Forward passes.
    pub steps: u64,
    /// Committed tokens.
    pub tokens: u64,
    /// Finished requests.
    pub finished: u64,
}

#[derive(Debug)]
enum Event {
    Model(ModelIx, HomeSays),
    Home(ModelSays),
    Done(usize, Vec<RowOutput>),
}

impl Machines {
    /// A home beside model 0 and `models` hosts; one route, which `policy` decides.
    pub fn new(policy: Arc<dyn Policy>, models: usize) -> Self {
        let routes: Arc<[Route]> = Arc::new([Route::new(ModelIx(0), policy, vocabulary())]);
        let config = HomeConfig {
            home: HomeId { node: 0, model: ModelIx(0) },
            life: Life::default(),
            routes: Arc::clone(&routes),
            requests_max: 1024,
            stall_timeout: Duration::from_secs(10),
            grants_max: 4,
            finish_repeat: Duration::from_secs(1),
            adopt_grace: Duration::from_secs(1),
        };
        let host = |model| HostConfig {
            model: ModelIx(model as u8),
            life: Life::default(),
            routes: Arc::clone(&routes),
            pool: PoolSize { block: 16, blocks: 1 << 20 },
            batch: BatchLimits::default(),
            paced: false,
            grace: Duration::from_secs(10),
        };
        Self {
            home: home::Home::new(config),
            hosts: (0..models).map(|m| Host::new(host(m))).collect(),
            queue: VecDeque::new(),
            home_effects: Vec::new(),
            host_effects: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Opens a request and runs until nothing is left to do.
    ///
    /// # Panics
    /// When the home refuses the request.
    pub fn run(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            let opened = self.home.open(Duration::ZERO, request, &mut self.home_effects);
            assert!(opened.is_ok(), "a bench opens no more requests than the home takes");
            self.perform_home();
        }
        while let Some(event) = self.queue.pop_front() {
            match event {
                Event::Model(to, says) => {
                    self.hosts[to.index()].hear(Duration::ZERO, says, &mut self.host_effects);
                    self.perform_host(to.index());
                }
                Event::Done(at, outputs) => {
                    self.hosts[at].done(Duration::ZERO, outputs, &mut self.host_effects);
                    self.perform_host(at);
                }
                Event::Home(says) => {
                    self.home.hear(Duration::ZERO, says, &mut self.home_effects);
                    self.perform_home();
                }
            }
        }
    }

    fn perform_home(&mut self) {
        for effect in self.home_effects.drain(..) {
            match effect {
                home::Effect::Say { to, says } => {
                    self.counts.to_models += 1;
                    self.queue.push_back(Event::Model(to, says));
                }
                home::Effect::Accepted { progress, .. } => {
                    self.counts.tokens += progress.map_or(0, |p| p.tokens.len()) as u64;
                }
                home::Effect::Done { .. } => self.counts.finished += 1,
            }
        }
    }

    fn perform_host(&mut self, at: usize) {
        for effect in self.host_effects.drain(..) {
            match effect {
                host::Effect::Say { says, .. } => {
                    self.counts.to_home += 1;
                    self.queue.push_back(Event::Home(says));
                }
                host::Effect::Run(job) => {
                    self.counts.steps += u64::from(!job.rows.is_empty());
                    let output = |row: &tokenrouter_protocol::Row| {
                        let sampled =
                            Sampled { token: next_token(&row.tokens), signals: Signals::default() };
                        (0..row.outputs).map(|_| sampled.clone()).collect()
                    };
                    self.queue.push_back(Event::Done(at, job.rows.iter().map(output).collect()));
                }
            }
        }
    }
}
