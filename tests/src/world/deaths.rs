//! What dies in a world, and what comes after it: models, doors and homes begin anew, and the sessions of a dead home bring
//! their requests to its next life. Nothing here decides when; the plan does.

use crate::world::inspect::Fate;
use crate::world::links::Way;
use crate::world::plan::Micros;
use crate::world::{Event, HostSide, World, home_config, home_id, host_config};
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Home, Host};

/// Sessions, of a thousand, that are dropped while their home is dead.
const ABANDONED: u64 = 200;

/// How long homes may wait to be told of a lost door.
const NOTICE: Micros = 10_000;

impl HostSide {
    /// The next life of a model; its engine is told to forget, not replaced.
    fn begin(&mut self, host: Host) {
        self.life += 1;
        self.host = host;
        self.engine.reset();
        self.fences.clear();
        self.sequences.clear();
        self.heard.clear();
    }
}

impl World {
    /// A model begins its next life. Its mailbox may be lost with the old one.
    pub(crate) fn rebirth(&mut self, model: usize) {
        if self.random.chance(500) {
            let moment = self.moment();
            for home in 0..self.homes.len() {
                self.links.swallow(Way::Down(home, model), moment);
            }
        }
        let side = &mut self.hosts[model];
        side.begin(Host::new(host_config(&self.plan, model, side.life + 1)));
        self.greet(model);
    }

    /// A model says that its life has begun.
    pub(crate) fn greet(&mut self, model: usize) {
        let mut out = Vec::new();
        for home in 0..self.homes.len() {
            self.hosts[model].host.greet(home_id(home), &mut out);
        }
        self.host_did(model, out);
    }

    /// All that passes the door of a model is lost, both ways; homes are told late, or never.
    pub(crate) fn lose_door(&mut self, model: usize, told: bool) {
        let moment = self.moment();
        for home in 0..self.homes.len() {
            self.links.swallow(Way::Down(home, model), moment);
            self.links.swallow(Way::Up(model, home), moment);
            if told {
                let at = self.now + self.random.between(0, NOTICE);
                self.queue.push(at, Event::Door(home, model));
            }
        }
    }

    /// A home is told that a door was replaced.
    pub(crate) fn door_lost(&mut self, home: usize, model: usize) {
        let (now, mut out) = (self.time(), Vec::new());
        self.homes[home].door_lost(now, ModelIx(model as u8), &mut out);
        self.home_did(home, out);
    }

    /// A home begins its next life and knows nothing. Its sessions notice, each in its own time, and some are dropped
    /// meanwhile: of their requests only the models know.
    pub(crate) fn home_death(&mut self, home: usize) {
        let moment = self.moment();
        for model in 0..self.hosts.len() {
            self.links.swallow(Way::Up(model, home), moment);
        }
        self.lives[home] += 1;
        self.homes[home] = Home::new(home_config(&self.plan, home, self.lives[home]));
        for case in 0..self.cases.len() {
            let Fate::Live(rid) = self.cases[case].fate else { continue };
            if self.plan.requests[case].home != home {
                continue;
            }
            if self.random.chance(ABANDONED) {
                self.abandoned += 1;
                self.cases[case].fate = Fate::Cancelled;
            } else {
                self.cases[case].fate = Fate::Away(rid);
                let at = self.now + self.random.between(0, 3 * self.plan.adopt_grace);
                self.queue.push(at, Event::Adopt(case));
            }
        }
        self.check_home(home);
    }

    /// A session brings its request to the home, whichever life that has by now.
    pub(crate) fn adopt(&mut self, case: usize) {
        let Fate::Away(rid) = self.cases[case].fate else { return };
        self.adoptions += 1;
        self.cases[case].fate = Fate::Live(rid);
        let (home, copy) = (self.plan.requests[case].home, self.cases[case].copy.clone());
        let (now, mut out) = (self.time(), Vec::new());
        self.homes[home].adopt(now, rid, copy, &mut out);
        self.home_did(home, out);
    }

    /// What was sent before this moment lay in the mailbox that is lost; later words were still on their way to it.
    fn moment(&mut self) -> Micros {
        match self.random.chance(500) {
            true => self.now,
            false => self.now.saturating_sub(self.random.between(0, 4 * self.plan.latency)),
        }
    }
}
