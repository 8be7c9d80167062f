//! Scripted interleavings: a world without chance in which nothing arrives and no step is done until a line says so.
//!
//! A scenario is a few lines of text. Those that describe it come first:
//!
//! ```text
//! restless                  engines never sample the same twice
//! latency 20000             of every link once the script is over, in µs
//! pool 9                    blocks of one position, at every model
//! request large 2 5         route, tokens of the prompt, tokens of the reply
//! ```
//!
//! Then what happens, in order; `;` parts what stands on one line. Requests, homes, models and nodes go by number; home 0, and models 0 to 2; model 2 is alone on
//! node 1. A word is named by its kind, the oldest first, or as it was named when it was held.
//!
//! ```text
//! open 0 | cancel 0 | adopt 0      a request enters, its client leaves, its session finds the next life of its home
//! deliver grant                    the word arrives
//! hold row as late | copy row as late      the word, or a double of it, stays under way until `deliver late`
//! drop row                         all words of a kind are lost, if there are any
//! step 2                           the step of a model is done, if one is running
//! write 0 3                        all is well until a request has so many tokens
//! kill model 2 | kill home 0 | kill node 1
//! tear 1                           home dies after so many effects of the next thing it does
//! door 2                           home hears that the door to a model was replaced
//! cut 2 | mend 2                   between home and a model nothing passes
//! wait 5000                        time passes, in µs
//! expect grant | expect no grant | expect done 0
//! expect fed 2 11                  a model has fed so many tokens in this life
//! ```
//!
//! When the lines are over, whatever is under way arrives and everything must come to rest, with all replies as they must
//! be. Invariants are checked all the time, as in every world.

use crate::world::World;
use crate::world::inspect::Fate;
use crate::world::links::{KINDS, Way};
use crate::world::plan::{Faults, GRANTS_MANY, MODELS, Micros, Mix, Plan, Planned, ROUTES, routes};
use crate::world::post::Letter;
use std::collections::{BTreeMap, VecDeque};
use tokenrouter_policies::Draws;
use tokenrouter_protocol::{BatchLimits, PoolSize, Request, RouteIx, Sampling};

/// What holds messages and steps back.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Letters of one word, the oldest first.
    under_way: VecDeque<Letter>,
    held: BTreeMap<&'static str, Letter>,
    /// Models that home neither hears nor reaches.
    cut: Vec<usize>,
}

/// A scenario that was read.
#[derive(Debug)]
pub(crate) struct Play {
    plan: Plan,
    /// Number and words of every line that happens.
    lines: Vec<(usize, Vec<&'static str>)>,
}

impl Script {
    /// Keeps a letter until it is asked for; how many are kept.
    pub(crate) fn catch(&mut self, letter: Letter) -> usize {
        let (Way::Down(_, model) | Way::Up(model, _)) = letter.way();
        if self.cut.contains(&model) {
            return 0;
        }
        self.under_way.push_back(letter);
        1
    }

    fn take(&mut self, name: &str) -> Result<Letter, String> {
        if let Some(letter) = self.held.remove(name) {
            return Ok(letter);
        }
        let kind = kind(name)?;
        let oldest = self.under_way.iter().position(|letter| letter.kinds()[..] == [kind]);
        oldest.and_then(|at| self.under_way.remove(at)).ok_or(format!("no {name} is under way"))
    }

    fn any(&self, name: &str) -> Result<bool, String> {
        let kind = kind(name)?;
        Ok(self.under_way.iter().any(|letter| letter.kinds()[..] == [kind]))
    }
}

impl Play {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first line that describes nothing.
    pub(crate) fn read(text: &'static str) -> Result<Self, String> {
        let mut play = Self { plan: quiet(), lines: Vec::new() };
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
        let parts =
            (0..).zip(lines).flat_map(|(at, line)| line.split(';').map(move |part| (at, part)));
        for (number, part) in parts {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words[..] {
                [] => {}
                ["restless"] => play.plan.restless = true,
                ["latency", time] => play.plan.latency = self::number(time)?,
                ["pool", blocks] => {
                    let blocks = self::number(blocks)?;
                    play.plan.pools.fill(PoolSize { block: 1, blocks });
                }
                ["request", route, prompt, most] => {
                    let planned = request(play.plan.requests.len(), route, (prompt, most))?;
                    play.plan.requests.push(planned);
                }
                _ => play.lines.push((number, words)),
            }
        }
        Ok(play)
    }

    /// The world before its first line.
    pub(crate) fn world(&self) -> World {
        let mut world = World::new(self.plan.clone(), 0, usize::MAX);
        world.script = Some(Script::default());
        world
    }

    /// Plays all lines, and then lets everything come to rest.
    pub(crate) fn play(&self, world: &mut World) {
        (0..world.hosts.len()).for_each(|model| world.greet(model));
        while let Some(greeting) = world.script().under_way.pop_front() {
            world.deliver(greeting);
        }
        for (number, words) in &self.lines {
            world.events += 1;
            world.note(|| format!("line {number}: {}", words.join(" ")));
            let played = world.line(words);
            played.unwrap_or_else(|reason| panic!("line {number}: {reason}"));
        }
        world.settle();
    }
}

/// A plan in which nothing happens by itself.
fn quiet() -> Plan {
    let mix = Mix { probability: 0.4, threshold_up: 0.7, threshold_down: 0.2, period: 2, drawn: 3 };
    Plan {
        homes: 1,
        nodes: vec![0, 0, 1],
        routes: routes(&mix),
        pools: vec![PoolSize { block: 1, blocks: 100 }; usize::from(MODELS)],
        batches: vec![BatchLimits::default(); usize::from(MODELS)],
        tunings: Vec::new(),
        step: vec![100; usize::from(MODELS)],
        latency: 100,
        tick: 1_000,
        stall_timeout: 4_000,
        finish_repeat: 4_000,
        grace: 10_000,
        faults: Faults { until: 0, shuffle: 0, duplicate: 0, delay: 0, loss: 0, late: 0 },
        requests: Vec::new(),
        deaths: Vec::new(),
        cuts: Vec::new(),
        adopt_grace: 1_000,
        grants_max: GRANTS_MANY,
        restless: false,
    }
}

fn request(number: usize, route: &str, sizes: (&str, &str)) -> Result<Planned, String> {
    let route = ROUTES.iter().position(|name| *name == route);
    let route = route.ok_or(format!("there are these routes: {}", ROUTES.join(", ")))?;
    let (prompt, max_tokens) = (self::number::<u32>(sizes.0)?, self::number(sizes.1)?);
    let request = Request {
        route: RouteIx(route as u16),
        prompt: (0..prompt).collect(),
        max_tokens,
        sampling: Sampling::GREEDY,
        draws: Draws::new(number as u64, 0),
        stop: Vec::new(),
        ignore_eos: true,
    };
    Ok(Planned { at: 0, home: 0, request, cancel: None })
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

fn kind(name: &str) -> Result<usize, String> {
    let kind = KINDS.iter().position(|kind| *kind == name);
    kind.ok_or(format!("`{name}` is neither held nor one of: {}", KINDS.join(", ")))
}

impl World {
    fn line(&mut self, words: &[&'static str]) -> Result<(), String> {
        match *words {
            ["open", case] => self.open(number(case)?),
            ["cancel", case] => self.cancel(number(case)?),
            ["adopt", case] => self.adopt(number(case)?),
            ["deliver", name] => {
                let letter = self.script().take(name)?;
                self.deliver(letter);
            }
            ["hold", kind, "as", name] => {
                let letter = self.script().take(kind)?;
                self.script().held.insert(name, letter);
            }
            ["copy", kind, "as", name] => {
                let letter = self.script().take(kind)?;
                self.script().under_way.push_front(letter.clone());
                self.script().held.insert(name, letter);
                self.under_way += 1;
            }
            ["drop", kind] => {
                while self.script().any(kind)? {
                    self.script().take(kind)?;
                    self.under_way -= 1;
                }
            }
            ["step", model] => self.step(number(model)?),
            ["write", case, tokens] => return self.write(number(case)?, number(tokens)?),
            ["kill", who, number] => return self.kill(who, self::number(number)?),
            ["tear", done] => self.homes[0].dying = Some((number(done)?, 0)),
            ["door", model] => self.door_lost(0, number(model)?),
            ["cut", model] => {
                let model = number(model)?;
                self.script().cut.push(model);
            }
            ["mend", model] => {
                let model: usize = number(model)?;
                self.script().cut.retain(|cut| *cut != model);
            }
            ["wait", time] => self.wait(number(time)?),
            ["expect", ref what @ ..] => return self.expect(what),
            _ => return Err("there is no such line".to_owned()),
        }
        Ok(())
    }

    fn script(&mut self) -> &mut Script {
        self.script.get_or_insert_default()
    }

    fn deliver(&mut self, letter: Letter) {
        self.under_way -= 1;
        self.hear(letter);
    }

    fn step(&mut self, model: usize) {
        while let Some(rows) = self.hosts[model].engine.rows() {
            self.stepped(model);
            // A job of cache operations alone is no step.
            if rows > 0 {
                break;
            }
        }
    }

    /// Delivers the oldest word and does every step, until a request has so many tokens.
    fn write(&mut self, case: usize, tokens: usize) -> Result<(), String> {
        for _ in 0..1000 {
            if self.cases[case].written.len() >= tokens {
                return Ok(());
            }
            match self.script().under_way.pop_front() {
                Some(letter) => self.deliver(letter),
                None => (0..self.hosts.len()).for_each(|model| self.step(model)),
            }
        }
        Err(format!("request {case} does not get there"))
    }

    fn kill(&mut self, who: &str, number: usize) -> Result<(), String> {
        match who {
            "model" => self.begin_model(number, 0, false),
            "home" => self.home_death(number, 0),
            "node" => self.crash(number, 0),
            _ => return Err(format!("a {who} cannot be killed")),
        }
        Ok(())
    }

    fn wait(&mut self, time: Micros) {
        self.now += time;
        (0..self.homes.len()).for_each(|home| self.tick_home(home));
        (0..self.hosts.len()).for_each(|model| self.tick_host(model));
    }

    fn expect(&mut self, what: &[&str]) -> Result<(), String> {
        let (met, what) = match *what {
            ["no", kind] => (!self.script().any(kind)?, format!("a {kind} is under way")),
            [kind] => (self.script().any(kind)?, format!("no {kind} is under way")),
            ["done", case] => {
                let fate = self.cases[number::<usize>(case)?].fate;
                (fate == Fate::Done, format!("the request is {fate:?}"))
            }
            ["fed", model, tokens] => {
                let fed = self.hosts[number::<usize>(model)?].host.counters().tokens;
                (fed == number::<u64>(tokens)?, format!("the model has fed {fed}"))
            }
            _ => return Err("that cannot be expected".to_owned()),
        };
        if met { Ok(()) } else { Err(what) }
    }

    /// The script is over: what is under way arrives, running steps are done, and time passes.
    fn settle(&mut self) {
        let Some(script) = self.script.take() else { return };
        let latency = self.plan.latency;
        for letter in script.under_way.into_iter().chain(script.held.into_values()) {
            self.under_way -= 1;
            self.post(self.now + latency, self.now, letter);
        }
        for model in 0..self.hosts.len() {
            if self.hosts[model].engine.rows().is_some() {
                self.step_done(model, self.now + self.plan.step[model]);
            }
        }
        self.schedule_ticks();
        self.run();
    }
}
