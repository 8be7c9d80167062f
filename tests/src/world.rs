//! A seeded world of protocol machines: homes and models, fake engines that keep real tokens, links that misbehave, and a
//! virtual clock. After every event the invariants are checked; at the end every reply is what a straight-line
//! interpreter of its policy says. In half of the worlds engines never sample the same twice: there every accepted token
//! was sampled on exactly the committed prefix.
//!
//! Everything follows from the seed, so a failure is rerun by its number. Nothing here knows an actor, a socket or the
//! time of day. Faults are events like any other (`Event`) or answers of a link, so that more kinds of them need no
//! other loop.

mod deaths;
mod engine;
mod inspect;
mod links;
mod plan;
mod policies;
mod queue;
mod random;
mod reference;
mod run;
mod words;

pub use links::{FAULTS, KINDS, Met};
pub use run::{Failure, Stats, Summary, run, run_logged, sweep};

use engine::{Engine, Step};
use inspect::{Case, Fate};
use links::{Links, Way, home_kind, model_kind};
use plan::{MODELS, Micros, Plan};
use queue::Queue;
use random::Random;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{
    Fence, Home, HomeConfig, HomeId, HomeSays, Host, HostConfig, Life, ModelSays, RequestId,
    SequenceId, home, host,
};

/// How long after the last fault everything must have come to rest.
const REST: Micros = 20_000_000;

/// Events a log keeps.
const LOG: usize = 200;

/// What can happen.
#[derive(Clone, Debug)]
enum Event {
    /// A request enters.
    Open(usize),
    /// The client of a request is gone.
    Cancel(usize),
    /// A message of a home, sent then, arrives at a model.
    ToModel(usize, Micros, HomeSays),
    /// A message of a model, sent then, arrives at a home.
    ToHome(usize, Micros, ModelSays),
    /// The step of this life of a model is done.
    Stepped(usize, u32),
    /// Time passes at a home.
    TickHome(usize),
    /// Time passes at a model.
    TickHost(usize),
    /// A model dies and begins its next life.
    Rebirth(usize),
    /// The door of a model is lost with all that passes it; homes may be told.
    LoseDoor(usize, bool),
    /// A home is told that its door to a model was replaced.
    Door(usize, usize),
    /// A home dies and begins its next life.
    HomeDeath(usize),
    /// The session of a request brings it to the life its home has now.
    Adopt(usize),
}

/// A model: its machine, its engine, and what the checks remember of this life.
#[derive(Debug)]
struct HostSide {
    host: Host,
    engine: Engine,
    life: u32,
    /// The fence each request was last seen under.
    fences: BTreeMap<RequestId, Fence>,
    /// The sequence each request was last fed under.
    sequences: BTreeMap<RequestId, SequenceId>,
    /// The highest life heard of each home.
    heard: BTreeMap<HomeId, Life>,
}

/// The world.
#[derive(Debug)]
struct World {
    plan: Plan,
    random: Random,
    now: Micros,
    queue: Queue<Event>,
    /// Messages and steps that are under way.
    under_way: usize,
    homes: Vec<Home>,
    /// The life of each home.
    lives: Vec<u32>,
    hosts: Vec<HostSide>,
    links: Links,
    cases: Vec<Case>,
    by_rid: BTreeMap<RequestId, usize>,
    /// What each request's draws begin with: an engine's row shows no other name.
    by_draws: BTreeMap<u64, usize>,
    events: u64,
    /// Requests that were brought to a later life of their home, and those that nobody brought.
    adoptions: u64,
    abandoned: u64,
    log: Option<VecDeque<String>>,
}

impl World {
    fn new(seed: u64, log: bool) -> Self {
        let plan = Plan::new(seed);
        let homes = (0..plan.homes).map(|home| Home::new(home_config(&plan, home, 0))).collect();
        let hosts = (0..usize::from(MODELS)).map(|model| {
            let engine = Engine::new(ModelIx(model as u8), plan.pools[model], plan.restless);
            HostSide {
                host: Host::new(host_config(&plan, model, 0)),
                engine,
                life: 0,
                fences: BTreeMap::new(),
                sequences: BTreeMap::new(),
                heard: BTreeMap::new(),
            }
        });
        let new = |planned| Case::new(planned, &plan.routes, plan.restless);
        let cases: Vec<Case> = plan.requests.iter().map(new).collect();
        let mut world = Self {
            random: Random::new(seed ^ 0xfa11),
            now: 0,
            queue: Queue::default(),
            under_way: 0,
            homes,
            lives: vec![0; plan.homes],
            hosts: hosts.collect(),
            links: Links::new(plan.latency, plan.faults, plan.homes),
            by_rid: BTreeMap::new(),
            by_draws: (0..).zip(&cases).map(|(at, case)| (case.mark(), at)).collect(),
            cases,
            events: 0,
            adoptions: 0,
            abandoned: 0,
            log: log.then(VecDeque::new),
            plan,
        };
        world.schedule();
        world
    }

    /// Puts the planned events into the queue.
    fn schedule(&mut self) {
        for (at, planned) in self.plan.requests.iter().enumerate() {
            self.queue.push(planned.at, Event::Open(at));
            if let Some(cancel) = planned.cancel {
                self.queue.push(cancel, Event::Cancel(at));
            }
        }
        for &(at, model) in &self.plan.rebirths {
            self.queue.push(at, Event::Rebirth(model));
        }
        for &(at, model, told) in &self.plan.doors {
            self.queue.push(at, Event::LoseDoor(model, told));
        }
        for &(at, home) in &self.plan.deaths {
            self.queue.push(at, Event::HomeDeath(home));
        }
        let phase = self.plan.tick / 7;
        for home in 0..self.homes.len() {
            self.queue.push(phase * (home as Micros + 1), Event::TickHome(home));
        }
        for model in 0..self.hosts.len() {
            self.queue.push(phase * (model as Micros + 3), Event::TickHost(model));
            self.greet(model);
        }
    }

    /// Runs until everything has come to rest.
    fn run(&mut self) {
        while !self.at_rest() {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            assert!(self.now < self.plan.faults.until + REST, "not at rest: {}", self.unrest());
            self.note(|| format!("{event:?}"));
            self.happen(event);
        }
        self.check_rest();
    }

    fn happen(&mut self, event: Event) {
        let now = self.time();
        match event {
            Event::Open(case) => self.open(case),
            Event::Cancel(case) => self.cancel(case),
            Event::ToModel(model, sent, says) => {
                self.under_way -= 1;
                self.host_hears(model, sent, says);
            }
            Event::ToHome(home, sent, says) => {
                self.under_way -= 1;
                self.home_hears(home, sent, says);
            }
            Event::Stepped(model, life) => {
                self.under_way -= 1;
                if self.hosts[model].life == life {
                    self.stepped(model);
                }
            }
            Event::TickHome(home) => {
                let mut out = Vec::new();
                self.homes[home].tick(now, &mut out);
                self.home_did(home, out);
                let next = self.next_tick();
                self.queue.push(next, Event::TickHome(home));
            }
            Event::TickHost(model) => {
                let mut out = Vec::new();
                self.hosts[model].host.tick(now, &mut out);
                self.host_did(model, out);
                let next = self.next_tick();
                self.queue.push(next, Event::TickHost(model));
            }
            Event::Rebirth(model) => self.rebirth(model),
            Event::LoseDoor(model, told) => self.lose_door(model, told),
            Event::Door(home, model) => self.door_lost(home, model),
            Event::HomeDeath(home) => self.home_death(home),
            Event::Adopt(case) => self.adopt(case),
        }
    }

    fn open(&mut self, case: usize) {
        let planned = &self.plan.requests[case];
        let (home, request) = (planned.home, planned.request.clone());
        let (now, mut out) = (self.time(), Vec::new());
        let opened = self.homes[home].open(now, request, &mut out);
        let rid = opened.expect("there is no limit");
        self.by_rid.insert(rid, case);
        (self.cases[case].rid, self.cases[case].fate) = (Some(rid), Fate::Live(rid));
        self.home_did(home, out);
    }

    fn cancel(&mut self, case: usize) {
        let Fate::Live(rid) = self.cases[case].fate else {
            // Where its home is dead nobody hears of it.
            if matches!(self.cases[case].fate, Fate::Away(_)) {
                self.cases[case].fate = Fate::Cancelled;
            }
            return;
        };
        let home = self.plan.requests[case].home;
        self.cases[case].fate = Fate::Cancelled;
        let (now, mut out) = (self.time(), Vec::new());
        self.homes[home].cancel(now, rid, &mut out);
        self.home_did(home, out);
    }

    fn host_hears(&mut self, model: usize, sent: Micros, says: HomeSays) {
        let way = Way::Down(usize::from(says.home.node), model);
        let kinds: SmallVec<[usize; 4]> = says.words.iter().map(home_kind).collect();
        if self.links.swallowed(way, sent, &kinds) {
            return;
        }
        let side = &mut self.hosts[model];
        let heard = side.heard.entry(says.home).or_default();
        *heard = says.life.max(*heard);
        let granted = inspect::granted(&says);
        let (now, mut out) = (self.time(), Vec::new());
        self.hosts[model].host.hear(now, says, &mut out);
        self.check_taken(model, &granted);
        self.host_did(model, out);
    }

    fn stepped(&mut self, model: usize) {
        let Step { outputs, sources } = self.hosts[model].engine.finish();
        let (now, mut out) = (self.time(), Vec::new());
        self.hosts[model].host.done(now, outputs, &mut out);
        self.remember(sources, &out);
        self.host_did(model, out);
    }

    fn home_hears(&mut self, home: usize, sent: Micros, says: ModelSays) {
        let way = Way::Up(usize::from(says.model.0), home);
        let kinds: SmallVec<[usize; 4]> = says.words.iter().map(model_kind).collect();
        if self.links.swallowed(way, sent, &kinds) {
            return;
        }
        let heard = self.offers(home, &says);
        let (now, mut out) = (self.time(), Vec::new());
        self.homes[home].hear(now, says, &mut out);
        self.check_accepted(&heard, &out);
        self.home_did(home, out);
    }

    /// Carries out what a home wants done, and checks it.
    fn home_did(&mut self, home: usize, effects: Vec<home::Effect>) {
        for effect in effects {
            self.note(|| format!("    home {home}: {effect:?}"));
            self.check_home_effect(home, &effect);
            if let home::Effect::Say { to, says } = effect {
                self.send_down(home, to.index(), says);
            }
        }
        self.check_home(home);
    }

    /// Carries out what a model wants done, and checks it.
    fn host_did(&mut self, model: usize, effects: Vec<host::Effect>) {
        for effect in effects {
            self.note(|| format!("    model {model}: {effect:?}"));
            match effect {
                host::Effect::Say { to, says } => self.send_up(model, usize::from(to.node), says),
                host::Effect::Run(job) => {
                    for row in &job.rows {
                        let case = self.by_draws[&inspect::mark(&row.draws)];
                        if let Some(rid) = self.cases[case].rid {
                            self.hosts[model].sequences.insert(rid, row.sequence);
                        }
                    }
                    let usual = if job.rows.is_empty() { 1 } else { self.plan.step[model] };
                    self.hosts[model].engine.start(job);
                    let at = self.now + self.random.between(usual / 2, usual * 2);
                    self.under_way += 1;
                    self.queue.push(at, Event::Stepped(model, self.hosts[model].life));
                }
            }
        }
        self.check_host(model);
    }

    /// Sends a home's message; while there are faults, each of its words may go its own way.
    fn send_down(&mut self, home: usize, model: usize, says: HomeSays) {
        let HomeSays { words, .. } = &says;
        if words.len() == 1 || self.now >= self.plan.faults.until {
            let kinds: Vec<usize> = words.iter().map(home_kind).collect();
            let event = Event::ToModel(model, self.now, says);
            return self.carry(Way::Down(home, model), &kinds, event);
        }
        for word in says.words {
            let kind = home_kind(&word);
            let says = HomeSays { words: [word].into_iter().collect(), ..says };
            self.carry(Way::Down(home, model), &[kind], Event::ToModel(model, self.now, says));
        }
    }

    /// As [`Self::send_down`], for a model's message.
    fn send_up(&mut self, model: usize, home: usize, says: ModelSays) {
        let ModelSays { words, .. } = &says;
        if words.len() == 1 || self.now >= self.plan.faults.until {
            let kinds: Vec<usize> = words.iter().map(model_kind).collect();
            let event = Event::ToHome(home, self.now, says);
            return self.carry(Way::Up(model, home), &kinds, event);
        }
        for word in says.words {
            let kind = model_kind(&word);
            let says = ModelSays { words: [word].into_iter().collect(), ..says };
            self.carry(Way::Up(model, home), &[kind], Event::ToHome(home, self.now, says));
        }
    }

    fn carry(&mut self, way: Way, kinds: &[usize], event: Event) {
        let [at, again] = self.links.arrivals(self.now, way, kinds, &mut self.random);
        if let Some(again) = again {
            self.under_way += 1;
            self.queue.push(again, event.clone());
        }
        if let Some(at) = at {
            self.under_way += 1;
            self.queue.push(at, event);
        }
    }

    /// Time passes irregularly while there are faults.
    fn next_tick(&mut self) -> Micros {
        let tick = self.plan.tick;
        match self.now < self.plan.faults.until {
            true => self.now + self.random.between(tick / 4, tick * 2),
            false => self.now + tick,
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            if log.len() == LOG {
                log.pop_front();
            }
            log.push_back(format!("{:>9} {}", self.now, line()));
        }
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }
}

fn home_id(home: usize) -> HomeId {
    HomeId { node: home as u8, model: ModelIx(0) }
}

fn home_config(plan: &Plan, home: usize, restarts: u32) -> HomeConfig {
    HomeConfig {
        home: home_id(home),
        life: Life { process: 9, restarts },
        routes: plan.routes.clone(),
        requests_max: 64,
        stall_timeout: Duration::from_micros(plan.stall_timeout),
        grants_max: plan.grants_max,
        finish_repeat: Duration::from_micros(plan.finish_repeat),
        adopt_grace: Duration::from_micros(plan.adopt_grace),
    }
}

fn host_config(plan: &Plan, model: usize, restarts: u32) -> HostConfig {
    HostConfig {
        model: ModelIx(model as u8),
        life: Life { process: 7, restarts },
        routes: plan.routes.clone(),
        pool: plan.pools[model],
        batch: plan.batch,
        grace: Duration::from_micros(plan.grace),
    }
}
