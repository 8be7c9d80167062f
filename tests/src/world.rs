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
mod post;
mod queue;
mod random;
mod recovery;
mod reference;
mod run;
mod scenarios;
mod script;
mod stats;
mod words;

pub use deaths::Deaths;
pub use links::{FAULTS, KINDS, Met};
pub use recovery::{CAUSES, Times};
pub use run::{Failure, Summary, play, run, run_logged, sweep};
pub use scenarios::{SCENARIOS, Scenario};
pub use stats::Stats;

use engine::{Engine, Step};
use inspect::{Case, Fate};
use links::Links;
use plan::{Death, MODELS, Micros, Plan};
use post::Letter;
use queue::Queue;
use random::Random;
use script::Script;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokenrouter_policies::{ModelIx, Thresholds};
use tokenrouter_protocol::residency::Phase;
use tokenrouter_protocol::{
    Fence, Home, HomeConfig, HomeId, Host, HostConfig, Job, Life, RequestId, SequenceId, home, host,
};

/// How long after the last fault everything must have come to rest.
const REST: Micros = 20_000_000;

/// The first life of everybody.
const BIRTH: Life = Life { process: 1, restarts: 0 };

/// What can happen.
#[derive(Clone, Debug)]
enum Event {
    /// A request enters.
    Open(usize),
    /// The client of a request is gone.
    Cancel(usize),
    /// A message, sent then, arrives.
    Arrive(Micros, Box<Letter>),
    /// The step of this life of a model is done.
    Stepped(usize, Life),
    /// Time passes at a home.
    TickHome(usize),
    /// Time passes at a model.
    TickHost(usize),
    /// Somebody at a model has waited long enough for others.
    Wake(usize),
    /// A model is told of other thresholds.
    Tune(usize, Thresholds),
    /// Somebody dies.
    Die(Death),
    /// This life of a model is there, and says so.
    Greet(usize, Life),
    /// A home is told that its door to a model was replaced.
    Door(usize, usize),
    /// The session of a request brings it to the life its home has now.
    Adopt(usize),
}

/// A home: its machine, and what the checks remember of this life.
#[derive(Debug)]
struct HomeSide {
    home: Home,
    life: Life,
    /// Until when nobody is there.
    down: Micros,
    /// It dies after so many effects of the next thing it does, and for so long nobody takes its place.
    dying: Option<(usize, Micros)>,
    /// The highest life of each model that was granted a turn.
    granted: Vec<Life>,
}

/// A model: its machine, its engine, and what the checks remember of this life.
#[derive(Debug)]
struct HostSide {
    host: Host,
    engine: Engine,
    life: Life,
    /// Until when nobody is there.
    down: Micros,
    /// When it asked to be woken.
    wake: Option<Micros>,
    /// The fence each request was last seen under, and whether it ran.
    stood: BTreeMap<RequestId, (Fence, Phase)>,
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
    homes: Vec<HomeSide>,
    hosts: Vec<HostSide>,
    links: Links,
    cases: Vec<Case>,
    by_rid: BTreeMap<RequestId, usize>,
    /// What each request's draws begin with: an engine's row shows no other name.
    by_draws: BTreeMap<u64, usize>,
    /// What holds messages and steps back while a scenario is played.
    script: Option<Script>,
    events: u64,
    deaths: Deaths,
    recoveries: [Times; CAUSES.len()],
    log: Log,
}

/// The last events, the newest last.
#[derive(Debug, Default)]
struct Log {
    /// How many are kept.
    most: usize,
    lines: VecDeque<String>,
}

impl HomeSide {
    fn new(home: Home, life: Life) -> Self {
        Self {
            home,
            life,
            down: 0,
            dying: None,
            granted: vec![Life::default(); usize::from(MODELS)],
        }
    }
}

impl HostSide {
    fn new(plan: &Plan, model: usize) -> Self {
        let engine = Engine::new(ModelIx(model as u8), plan.pools[model], plan.restless);
        Self {
            host: Host::new(host_config(plan, model, BIRTH)),
            engine,
            life: BIRTH,
            down: 0,
            wake: None,
            stood: BTreeMap::new(),
            sequences: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }
}

impl World {
    /// The world of a plan, whose chances follow from `seed`; keeps the last `log` events.
    fn new(plan: Plan, seed: u64, log: usize) -> Self {
        let home = |home| HomeSide::new(Home::new(home_config(&plan, home, BIRTH)), BIRTH);
        let new = |planned| Case::new(planned, &plan.routes, plan.restless);
        let cases: Vec<Case> = plan.requests.iter().map(new).collect();
        Self {
            random: Random::new(seed ^ 0xfa11),
            now: 0,
            queue: Queue::default(),
            under_way: 0,
            homes: (0..plan.homes).map(home).collect(),
            hosts: (0..usize::from(MODELS)).map(|model| HostSide::new(&plan, model)).collect(),
            links: Links::new(plan.latency, plan.faults, plan.homes),
            by_rid: BTreeMap::new(),
            by_draws: (0..).zip(&cases).map(|(at, case)| (case.mark(), at)).collect(),
            cases,
            script: None,
            events: 0,
            deaths: Deaths::default(),
            recoveries: Default::default(),
            log: Log { most: log, lines: VecDeque::new() },
            plan,
        }
    }

    /// Puts the planned events into the queue.
    fn schedule(&mut self) {
        for (at, planned) in self.plan.requests.iter().enumerate() {
            self.queue.push(planned.at, Event::Open(at));
            if let Some(cancel) = planned.cancel {
                self.queue.push(cancel, Event::Cancel(at));
            }
        }
        for &death in &self.plan.deaths {
            self.queue.push(death.at, Event::Die(death));
        }
        for (at, model, thresholds) in self.plan.tunings.clone() {
            self.queue.push(at, Event::Tune(model, thresholds));
        }
        self.schedule_ticks();
        (0..self.hosts.len()).for_each(|model| self.greet(model));
    }

    /// From now on time passes at homes and models, at each at a moment of its own.
    fn schedule_ticks(&mut self) {
        let phase = self.plan.tick / 7;
        for home in 0..self.homes.len() {
            self.queue.push(self.now + phase * (home as Micros + 1), Event::TickHome(home));
        }
        for model in 0..self.hosts.len() {
            self.queue.push(self.now + phase * (model as Micros + 3), Event::TickHost(model));
        }
    }

    /// Runs until everything has come to rest.
    fn run(&mut self) {
        let end = self.now.max(self.plan.faults.until) + REST;
        while !self.at_rest() {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            assert!(self.now < end, "not at rest: {}", self.unrest());
            self.note(|| format!("{event:?}"));
            self.happen(event);
        }
        self.check_rest();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Open(case) => self.open(case),
            Event::Cancel(case) => self.cancel(case),
            Event::Arrive(sent, letter) => self.arrive(sent, *letter),
            Event::Stepped(model, life) => {
                self.under_way -= 1;
                if self.hosts[model].life == life {
                    self.stepped(model);
                }
            }
            Event::TickHome(home) => {
                self.tick_home(home);
                let next = self.next_tick();
                self.queue.push(next, Event::TickHome(home));
            }
            Event::TickHost(model) => {
                self.tick_host(model);
                let next = self.next_tick();
                self.queue.push(next, Event::TickHost(model));
            }
            Event::Wake(model) => self.tick_host(model),
            Event::Tune(model, thresholds) => self.tune(model, thresholds),
            Event::Die(death) => self.die(death),
            Event::Greet(model, life) => {
                if self.hosts[model].life == life {
                    self.greet(model);
                }
            }
            Event::Door(home, model) => self.door_lost(home, model),
            Event::Adopt(case) => self.adopt(case),
        }
    }

    fn open(&mut self, case: usize) {
        let planned = &self.plan.requests[case];
        let (home, request) = (planned.home, planned.request.clone());
        if self.now < self.homes[home].down {
            return self.queue.push(self.homes[home].down, Event::Open(case));
        }
        let (now, mut out) = (self.time(), Vec::new());
        let opened = self.homes[home].home.open(now, request, &mut out);
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
        self.homes[home].home.cancel(now, rid, &mut out);
        self.home_did(home, out);
    }

    fn tick_home(&mut self, home: usize) {
        if self.now >= self.homes[home].down {
            let (now, mut out) = (self.time(), Vec::new());
            self.homes[home].home.tick(now, &mut out);
            self.home_did(home, out);
        }
    }

    fn tick_host(&mut self, model: usize) {
        if self.now >= self.hosts[model].down {
            let (now, mut out) = (self.time(), Vec::new());
            self.hosts[model].host.tick(now, &mut out);
            self.host_did(model, out);
        }
    }

    /// A model obeys other thresholds from now on, and so do its later lives.
    fn tune(&mut self, model: usize, thresholds: Thresholds) {
        self.plan.batches[model].thresholds = thresholds.clone();
        // One that is not there yet holds nothing, and begins with them.
        let (now, mut out) = (self.time(), Vec::new());
        self.hosts[model].host.set_thresholds(now, thresholds, &mut out);
        self.host_did(model, out);
    }

    fn stepped(&mut self, model: usize) {
        let Step { outputs, sources } = self.hosts[model].engine.finish();
        let (now, mut out) = (self.time(), Vec::new());
        self.hosts[model].host.done(now, outputs, &mut out);
        self.remember(sources, &out);
        self.host_did(model, out);
    }

    /// Carries out what a home wants done, and checks it.
    fn home_did(&mut self, home: usize, effects: Vec<home::Effect>) {
        let (effects, death) = self.torn(home, effects);
        for effect in effects {
            self.note(|| format!("    home {home}: {effect:?}"));
            self.check_home_effect(home, &effect);
            if let home::Effect::Say { to, says } = effect {
                self.send(Letter::Down(to.index(), says));
            }
        }
        match death {
            Some(gap) => self.home_death(home, gap),
            None => self.check_home(home),
        }
    }

    /// Carries out what a model wants done, and checks it.
    fn host_did(&mut self, model: usize, effects: Vec<host::Effect>) {
        let stopped = inspect::stopped(&effects);
        for effect in effects {
            self.note(|| format!("    model {model}: {effect:?}"));
            match effect {
                host::Effect::Say { to, says } => {
                    self.send(Letter::Up(usize::from(to.node), says));
                }
                host::Effect::Run(job) => self.start(model, job),
            }
        }
        self.check_host(model, &stopped);
        let wake = self.hosts[model].host.wake().map(|wake| wake.as_micros() as Micros);
        if wake != std::mem::replace(&mut self.hosts[model].wake, wake)
            && let Some(wake) = wake
        {
            self.queue.push(wake.max(self.now), Event::Wake(model));
        }
    }

    /// A model's engine starts a job.
    fn start(&mut self, model: usize, job: Job) {
        for row in &job.rows {
            let case = self.by_draws[&inspect::mark(&row.draws)];
            if let Some(rid) = self.cases[case].rid {
                self.hosts[model].sequences.insert(rid, row.sequence);
            }
        }
        let usual = if job.rows.is_empty() { 1 } else { self.plan.step[model] };
        self.hosts[model].engine.start(job);
        // A scenario says itself when a step is done.
        if self.script.is_none() {
            let at = self.now + self.random.between(usual / 2, usual * 2);
            self.step_done(model, at);
        }
    }

    /// The job at a model's engine will be done at `at`.
    fn step_done(&mut self, model: usize, at: Micros) {
        self.under_way += 1;
        self.queue.push(at, Event::Stepped(model, self.hosts[model].life));
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
        let Log { most, lines } = &mut self.log;
        if *most > 0 {
            if lines.len() == *most {
                lines.pop_front();
            }
            lines.push_back(format!("{:>9} {}", self.now, line()));
        }
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }
}

fn home_id(home: usize) -> HomeId {
    HomeId { node: home as u8, model: ModelIx(0) }
}

fn home_config(plan: &Plan, home: usize, life: Life) -> HomeConfig {
    HomeConfig {
        home: home_id(home),
        life,
        routes: plan.routes.clone(),
        requests_max: 64,
        stall_timeout: Duration::from_micros(plan.stall_timeout),
        grants_max: plan.grants_max,
        finish_repeat: Duration::from_micros(plan.finish_repeat),
        adopt_grace: Duration::from_micros(plan.adopt_grace),
    }
}

fn host_config(plan: &Plan, model: usize, life: Life) -> HostConfig {
    HostConfig {
        model: ModelIx(model as u8),
        life,
        routes: plan.routes.clone(),
        pool: plan.pools[model],
        batch: plan.batches[model].clone(),
        paced: false,
        grace: Duration::from_micros(plan.grace),
    }
}
