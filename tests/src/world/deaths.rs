//! What dies in a world, and what comes after it: models, doors, homes and whole nodes begin anew, at once or after a gap in
//! which nobody is there, and the sessions of a dead home bring their requests to its next life. Nothing here decides
//! when; the plan does.

use crate::world::inspect::Fate;
use crate::world::links::Way;
use crate::world::plan::{Death, Micros, Who};
use crate::world::recovery::Cause;
use crate::world::{Event, HomeSide, HostSide, World, home_config, home_id, host_config};
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Home, Host, Life, home};

/// Sessions, of a thousand, that are dropped while their home is dead.
const ABANDONED: u64 = 200;

/// How long homes may wait to be told of a lost door.
const NOTICE: Micros = 10_000;

/// How often what died, and what became of the requests of dead homes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    /// New lives of models, those with their node included.
    pub models: u64,
    /// Doors lost, of whole models.
    pub doors: u64,
    /// New lives of homes, those with their node included.
    pub homes: u64,
    /// Processes.
    pub nodes: u64,
    /// Requests that were brought to a later life of their home.
    pub adopted: u64,
    /// Requests in flight that nobody brought: their sessions were dropped, or died with their node.
    pub abandoned: u64,
}

/// The life after this one: of the same process, or of the next.
fn next(life: Life, process: bool) -> Life {
    match process {
        true => Life { process: life.process + 1, restarts: 0 },
        false => Life { restarts: life.restarts + 1, ..life },
    }
}

impl HostSide {
    /// The next life of a model; its engine is told to forget, not replaced.
    fn begin(&mut self, host: Host, life: Life) {
        self.host = host;
        self.life = life;
        self.engine.reset();
        self.stood.clear();
        self.sequences.clear();
        self.heard.clear();
    }
}

impl World {
    /// Somebody dies.
    pub(crate) fn die(&mut self, Death { who, gap, .. }: Death) {
        match who {
            Who::Model(model) => {
                // Its mailbox may outlive it.
                if self.random.chance(500) {
                    let moment = self.moment();
                    self.swallow_down(model, moment);
                }
                self.begin_model(model, gap, false);
            }
            Who::Door(model, told) => self.lose_door(model, told),
            Who::Home(home, None) => self.home_death(home, gap),
            Who::Home(home, Some(done)) => self.homes[home].dying = Some((done, gap)),
            Who::Node(node) => self.crash(node, gap),
        }
    }

    /// A home dies alone.
    pub(crate) fn home_death(&mut self, home: usize, gap: Micros) {
        let moment = self.moment();
        self.swallow_up(home, moment);
        self.leave(home, if self.script.is_some() { 0 } else { ABANDONED });
        self.begin_home(home, gap, false);
    }

    /// What a home does of what it wants done, and if it dies then, for how long nobody takes its place.
    pub(crate) fn torn(
        &mut self,
        home: usize,
        mut effects: Vec<home::Effect>,
    ) -> (Vec<home::Effect>, Option<Micros>) {
        let until = self.plan.faults.until;
        let dying = self.homes[home].dying.take();
        let dying = dying.filter(|_| self.now < until || self.script.is_some());
        let gap = dying.map(|(done, gap)| {
            effects.truncate(done);
            gap.min(until.saturating_sub(self.now))
        });
        (effects, gap)
    }

    /// A process ends, and begins anew: nothing that was said to its homes and models arrives, some of what they said does
    /// not, and no session is left.
    pub(crate) fn crash(&mut self, node: usize, gap: Micros) {
        self.deaths.nodes += 1;
        if node < self.homes.len() {
            self.swallow_up(node, self.now);
            for model in 0..self.hosts.len() {
                let moment = self.moment();
                self.links.swallow(Way::Down(node, model), moment);
            }
            self.leave(node, 1000);
            self.begin_home(node, gap, true);
        }
        for model in 0..self.hosts.len() {
            if self.plan.nodes[model] != node {
                continue;
            }
            self.swallow_down(model, self.now);
            for home in 0..self.homes.len() {
                let moment = self.moment();
                self.links.swallow(Way::Up(model, home), moment);
            }
            self.begin_model(model, gap, true);
        }
    }

    /// A model begins its next life, and speaks after the gap.
    pub(crate) fn begin_model(&mut self, model: usize, gap: Micros, process: bool) {
        self.deaths.models += 1;
        self.hit_owned(model);
        let life = next(self.hosts[model].life, process);
        let host = Host::new(host_config(&self.plan, model, life));
        let side = &mut self.hosts[model];
        side.begin(host, life);
        side.down = self.now + gap;
        match gap {
            0 => self.greet(model),
            _ => self.queue.push(self.now + gap, Event::Greet(model, life)),
        }
    }

    /// A model says that its life has begun.
    pub(crate) fn greet(&mut self, model: usize) {
        let mut out = Vec::new();
        for home in 0..self.homes.len() {
            self.hosts[model].host.greet(home_id(home), &mut out);
        }
        self.host_did(model, out);
    }

    /// A home begins its next life and knows nothing; it hears nothing before the gap is over.
    pub(crate) fn begin_home(&mut self, home: usize, gap: Micros, process: bool) {
        self.deaths.homes += 1;
        let life = next(self.homes[home].life, process);
        let machine = Home::new(home_config(&self.plan, home, life));
        self.homes[home] = HomeSide { down: self.now + gap, ..HomeSide::new(machine, life) };
        self.check_home(home);
    }

    /// The sessions of a home that dies notice, each in its own time, and some, of a thousand, are dropped meanwhile: of
    /// their requests only the models know.
    pub(crate) fn leave(&mut self, home: usize, abandoned: u64) {
        for case in 0..self.cases.len() {
            if self.plan.requests[case].home != home {
                continue;
            }
            let rid = match self.cases[case].fate {
                Fate::Live(rid) => rid,
                Fate::Away(_) if abandoned == 1000 => {
                    self.abandon(case);
                    continue;
                }
                _ => continue,
            };
            if self.random.chance(abandoned) {
                self.abandon(case);
            } else {
                self.hit(case, Cause::Home);
                self.cases[case].fate = Fate::Away(rid);
                if self.script.is_none() {
                    let at = self.now + self.random.between(0, 3 * self.plan.adopt_grace);
                    self.queue.push(at, Event::Adopt(case));
                }
            }
        }
    }

    fn abandon(&mut self, case: usize) {
        self.deaths.abandoned += 1;
        self.cases[case].fate = Fate::Cancelled;
    }

    /// A session brings its request to the home, whichever life that has by now.
    pub(crate) fn adopt(&mut self, case: usize) {
        let Fate::Away(rid) = self.cases[case].fate else { return };
        let home = self.plan.requests[case].home;
        if self.now < self.homes[home].down {
            return self.queue.push(self.homes[home].down, Event::Adopt(case));
        }
        self.deaths.adopted += 1;
        self.cases[case].fate = Fate::Live(rid);
        let copy = self.cases[case].copy.clone();
        let (now, mut out) = (self.time(), Vec::new());
        self.homes[home].home.adopt(now, rid, copy, &mut out);
        self.home_did(home, out);
    }

    /// All that passes the door of a model is lost, both ways; homes are told late, or never.
    fn lose_door(&mut self, model: usize, told: bool) {
        self.deaths.doors += 1;
        let moment = self.moment();
        self.swallow_down(model, moment);
        for home in 0..self.homes.len() {
            self.links.swallow(Way::Up(model, home), moment);
            if told {
                let at = self.now + self.random.between(0, NOTICE);
                self.queue.push(at, Event::Door(home, model));
            }
        }
    }

    /// A home is told that a door was replaced.
    pub(crate) fn door_lost(&mut self, home: usize, model: usize) {
        if self.now < self.homes[home].down {
            return;
        }
        let (now, mut out) = (self.time(), Vec::new());
        self.homes[home].home.door_lost(now, ModelIx(model as u8), &mut out);
        self.home_did(home, out);
    }

    fn swallow_down(&mut self, model: usize, moment: Micros) {
        (0..self.homes.len()).for_each(|home| self.links.swallow(Way::Down(home, model), moment));
    }

    fn swallow_up(&mut self, home: usize, moment: Micros) {
        (0..self.hosts.len()).for_each(|model| self.links.swallow(Way::Up(model, home), moment));
    }

    /// What was sent before this moment lay in the mailbox that is lost; later words were still on their way to it.
    fn moment(&mut self) -> Micros {
        match self.random.chance(500) {
            true => self.now,
            false => self.now.saturating_sub(self.random.between(0, 4 * self.plan.latency)),
        }
    }
}
