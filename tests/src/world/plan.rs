//! What a seed stands for: sizes, speeds, faults and requests of one world, all drawn before it starts.

use crate::world::links::Way;
use crate::world::policies::{Draw, Propose, Stepwise};
use crate::world::random::Random;
use crate::world::words;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::route::baseline::{Always, FixedPeriod, Random as Coin};
use tokenrouter_policies::route::r_stitch::RStitch;
use tokenrouter_policies::{Draws, ModelIx, Policy, Thresholds, batching};
use tokenrouter_protocol::{BatchLimits, PoolSize, Request, Route, RouteIx, Sampling, Vocabulary};

/// Models in every world.
pub(crate) const MODELS: u8 = 3;

/// A bound on silent grants that no world reaches.
pub(crate) const GRANTS_MANY: u32 = 1000;

/// Microseconds of virtual time.
pub(crate) type Micros = u64;

/// Most requests of a world.
const REQUESTS: u64 = 7;

/// Most homes of a world.
const HOMES: usize = 2;

/// One world, described. Home `n` is on node `n`; a node more may hold models alone.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) homes: usize,
    /// The node of each model.
    pub(crate) nodes: Vec<usize>,
    pub(crate) routes: Arc<[Route]>,
    pub(crate) pools: Vec<PoolSize>,
    /// Of each model.
    pub(crate) batches: Vec<BatchLimits>,
    /// When a model is told of other thresholds.
    pub(crate) tunings: Vec<(Micros, usize, Thresholds)>,
    /// Of a step: the time of each model, before chance.
    pub(crate) step: Vec<Micros>,
    pub(crate) latency: Micros,
    pub(crate) tick: Micros,
    pub(crate) stall_timeout: Micros,
    pub(crate) finish_repeat: Micros,
    pub(crate) grace: Micros,
    pub(crate) faults: Faults,
    pub(crate) requests: Vec<Planned>,
    pub(crate) deaths: Vec<Death>,
    pub(crate) cuts: Vec<Cut>,
    /// How long a new life of a home leaves unknown requests alone.
    pub(crate) adopt_grace: Micros,
    /// How many silent grants a home makes before a request fails.
    pub(crate) grants_max: u32,
    /// Whether engines never sample the same twice, so that there is no reference but what was really sampled.
    pub(crate) restless: bool,
}

/// Something that dies, and for how long nobody takes its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    pub(crate) at: Micros,
    pub(crate) who: Who,
    pub(crate) gap: Micros,
}

/// Who dies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// A model's loops; its mailbox may go with them.
    Model(usize),
    /// A home, at once or after so many effects of the next thing it does; the sessions of its requests live on.
    Home(usize, Option<usize>),
    /// The door of a model, with all that passes it; homes may be told.
    Door(usize, bool),
    /// A process: the homes and models of a node, with all that is said to them, and all sessions.
    Node(usize),
}

/// A window in which nothing arrives on one node that comes from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) from: Micros,
    pub(crate) until: Micros,
    pub(crate) source: usize,
    pub(crate) target: usize,
    /// What is sent meanwhile arrives when the window ends, as after a reconnect, or never.
    pub(crate) resent: bool,
}

/// What links do to messages until `until`, in chances of a thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) until: Micros,
    pub(crate) shuffle: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: u64,
    pub(crate) loss: u64,
    /// The longest delay.
    pub(crate) late: Micros,
}

/// A request, where and when it enters, and when its client loses patience.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Micros,
    pub(crate) home: usize,
    pub(crate) request: Request,
    pub(crate) cancel: Option<Micros>,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let homes = random.between(1, HOMES as u64) as usize;
        let nodes = homes + random.between(0, 1) as usize;
        let routes = routes(&Mix::new(random));
        let until = random.between(5_000, 30_000);
        let requests: Vec<Planned> = (0..random.between(1, REQUESTS))
            .map(|number| planned(random, number, homes, (routes.len(), until)))
            .collect();
        let longest = requests.iter().map(|p| p.request.prompt.len() as u32 + p.request.max_tokens);
        let longest = longest.max().unwrap_or(1);
        let small = random.chance(600);
        Self {
            homes,
            nodes: (0..MODELS).map(|_| random.between(0, nodes as u64 - 1) as usize).collect(),
            routes,
            pools: (0..MODELS).map(|_| pool(random, longest)).collect(),
            // Two at least: a proposed token is judged together with the one before it.
            batches: vec![
                BatchLimits {
                    tokens_max: random.between(2, if small { 12 } else { 80 }) as u32,
                    rows_max: random.between(1, if small { 3 } else { 16 }) as u32,
                    ..BatchLimits::default()
                };
                usize::from(MODELS)
            ],
            tunings: Vec::new(),
            step: (0..MODELS).map(|_| random.pick(&[60, 200, 700])).collect(),
            // The last is slower than the watchdog is patient.
            latency: random.pick(&[20, 20, 100, 100, 400, 400, 7_000]),
            tick: random.between(1_000, 3_000),
            stall_timeout: random.between(2_000, 12_000),
            finish_repeat: random.between(2_000, 8_000),
            grace: random.between(5_000, 20_000),
            faults: faults(random, until),
            requests,
            deaths: deaths(random, (homes, nodes), until),
            cuts: cuts(random, nodes, until),
            adopt_grace: random.between(500, 8_000),
            // Mostly faults are many and the bound is not what is tested.
            grants_max: random.pick(&[1, 3, GRANTS_MANY, GRANTS_MANY, GRANTS_MANY, GRANTS_MANY]),
            restless: random.chance(500),
        }
        .delayed(random)
    }

    /// The same plan with delayed batching, in two worlds of three.
    fn delayed(mut self, random: &mut Random) -> Self {
        if random.chance(333) {
            return self;
        }
        let first = thresholds(random);
        let max_wait = random.pick(&[None, None, Some(500), Some(5_000)]);
        for (batch, thresholds) in self.batches.iter_mut().zip(first) {
            batch.thresholds = thresholds;
            batch.max_wait = max_wait.map(Duration::from_micros);
        }
        if random.chance(300) {
            let later = (0..).zip(thresholds(random));
            let until = self.faults.until;
            let tuning = |(model, thresholds)| (random.between(0, until), model, thresholds);
            self.tunings = later.map(tuning).collect();
        }
        self
    }

    /// The window in which `way` is cut at this time, if it is.
    pub(crate) fn cut(&self, way: Way, now: Micros) -> Option<Cut> {
        let (source, target) = match way {
            Way::Down(home, model) => (home, self.nodes[model]),
            Way::Up(model, home) => (self.nodes[model], home),
        };
        let on = |cut: &&Cut| (cut.source, cut.target) == (source, target);
        self.cuts.iter().filter(on).find(|cut| (cut.from..cut.until).contains(&now)).copied()
    }
}

/// Thresholds of all models under which nobody waits for ever.
fn thresholds(random: &mut Random) -> Vec<Thresholds> {
    loop {
        let mut table = || {
            let later = (random.between(2, 5) as u32, random.between(1, 4) as u32);
            let first = (1, random.between(1, 3) as u32);
            Thresholds::table(vec![first, later]).expect("it begins at 1")
        };
        let tables: Vec<Thresholds> = (0..MODELS).map(|_| table()).collect();
        let all: Vec<&Thresholds> = tables.iter().collect();
        if batching::check(&all, REQUESTS as u32).is_ok() {
            return tables;
        }
    }
}

/// Who dies, when, and for how long. Everybody is back when the faults stop.
fn deaths(random: &mut Random, (homes, nodes): (usize, usize), until: Micros) -> Vec<Death> {
    let mut who: Vec<Who> = Vec::new();
    let models = u64::from(MODELS) - 1;
    for _ in 0..random.between(0, 3) {
        who.push(Who::Model(random.between(0, models) as usize));
    }
    for _ in 0..random.between(0, 2) {
        who.push(Who::Door(random.between(0, models) as usize, random.chance(600)));
    }
    for _ in 0..random.pick(&[0, 0, 1, 2, 3]) {
        let done = random.pick(&[None, None, Some(0), Some(1), Some(2)]);
        who.push(Who::Home(random.between(0, homes as u64 - 1) as usize, done));
    }
    for _ in 0..random.pick(&[0, 0, 0, 0, 1, 2]) {
        who.push(Who::Node(random.between(0, nodes as u64 - 1) as usize));
    }
    let death = |who| {
        let at = random.between(0, until);
        let gap = if random.chance(500) { 0 } else { random.between(0, 6_000) };
        Death { at, who, gap: gap.min(until - at) }
    };
    who.into_iter().map(death).collect()
}

/// When which node hears nothing of which other; mostly neither hears the other.
fn cuts(random: &mut Random, nodes: usize, until: Micros) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let count = if nodes == 1 { 0 } else { random.pick(&[0, 0, 1, 2]) };
    for _ in 0..count {
        let from = random.between(0, until);
        let source = random.between(0, nodes as u64 - 1) as usize;
        let target = (source + random.between(1, nodes as u64 - 1) as usize) % nodes;
        let cut = Cut {
            from,
            until: until.min(from + random.between(500, 10_000)),
            source,
            target,
            resent: random.chance(500),
        };
        cuts.push(cut);
        if random.chance(600) {
            cuts.push(Cut { source: target, target: source, ..cut });
        }
    }
    cuts
}

fn faults(random: &mut Random, until: Micros) -> Faults {
    Faults {
        until,
        shuffle: random.pick(&[0, 50, 200]),
        duplicate: random.pick(&[0, 50, 200]),
        delay: random.pick(&[0, 30, 150]),
        loss: random.pick(&[0, 0, 20, 100]),
        late: random.between(2_000, 15_000),
    }
}

/// A pool that holds the longest request, and often not much more.
fn pool(random: &mut Random, longest: u32) -> PoolSize {
    let block = random.pick(&[1, 2, 4, 8]);
    let most = random.pick(&[10, 15, 25, 60]);
    let positions = longest * random.between(10, most) as u32 / 10;
    PoolSize { block, blocks: positions.div_ceil(block) }
}

fn planned(
    random: &mut Random,
    number: u64,
    homes: usize,
    (routes, until): (usize, Micros),
) -> Planned {
    let long = random.pick(&[1, 4, 16, 40]);
    let prompt = (0..random.between(1, long)).map(|_| token(random)).collect();
    let stops = if random.chance(400) { random.between(1, 2) } else { 0 };
    let most = random.pick(&[2, 10, 24]);
    let at = random.between(0, until * 3 / 4);
    Planned {
        at,
        home: random.between(0, homes as u64 - 1) as usize,
        request: Request {
            route: RouteIx(random.between(0, routes as u64 - 1) as u16),
            prompt,
            max_tokens: random.between(1, most) as u32,
            sampling: Sampling::GREEDY,
            // The draws also name the request where an engine's row shows nothing else.
            draws: Draws::new(random.bits(), number as u32),
            stop: (0..stops).map(|_| random.pick(&words::STOPS).to_owned()).collect(),
            ignore_eos: random.chance(300),
        },
        cancel: random.chance(150).then(|| at + random.between(0, 12_000)),
    }
}

fn token(random: &mut Random) -> u32 {
    random.between(0, u64::from(words::TOKENS) - 1) as u32
}

/// The numbers that policies of a world decide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) probability: f64,
    pub(crate) threshold_up: f32,
    pub(crate) threshold_down: f32,
    pub(crate) period: u32,
    pub(crate) drawn: u8,
}

impl Mix {
    fn new(random: &mut Random) -> Self {
        Self {
            probability: random.pick(&[0.1, 0.4, 0.9]),
            threshold_up: random.pick(&[0.3, 0.7]),
            threshold_down: random.pick(&[0.2, 0.6]),
            period: random.between(1, 4) as u32,
            drawn: random.between(2, 3) as u8,
        }
    }
}

/// The names of [`routes`], in their order.
pub(crate) const ROUTES: [&str; 8] =
    ["small", "large", "coin", "period", "stitch", "draw", "propose", "stepwise"];

/// A route of every kind.
pub(crate) fn routes(mix: &Mix) -> Arc<[Route]> {
    let vocabulary: Arc<Vocabulary> = Arc::new(words::vocabulary());
    let (entry, large) = (ModelIx(0), ModelIx(2));
    let Mix { probability, threshold_up, threshold_down, period, drawn } = *mix;
    let policies: [Arc<dyn Policy>; ROUTES.len()] = [
        Arc::new(Always { model: entry }),
        Arc::new(Always { model: large }),
        Arc::new(Coin { entry, to: ModelIx(1), probability }),
        Arc::new(FixedPeriod { entry, to: large, period }),
        Arc::new(RStitch { entry, to: ModelIx(1), threshold_up, threshold_down }),
        Arc::new(Draw { models: drawn }),
        Arc::new(Propose { probability }),
        Arc::new(Stepwise::new(threshold_up)),
    ];
    policies.into_iter().map(|policy| Route::new(entry, policy, vocabulary.clone())).collect()
}
