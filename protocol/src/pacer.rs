//! The pacer: launches the passes of all models in rounds, for those who want to see what it costs. It is how servers
//! work that drive several models from one loop, and what asynchronous loops are measured against.
//!
//! A round begins when every live request waits for a pass. With [`Rhythm::Model`] every model with somebody ready runs
//! one pass, side by side, and the round ends with the slowest. With [`Rhythm::Step`] one model runs at a time, in turn.

use crate::home::Time;
use crate::id::Life;
use std::time::Duration;
use tokenrouter_policies::ModelIx;

/// What runs in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// One pass of one model.
    Step,
    /// One pass of every model that has somebody ready.
    Model,
}

/// What a pacer knows of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The life that says so.
    pub life: Life,
    /// Permissions this life has heard of.
    pub permits: u64,
    /// Requests that wait for a pass.
    pub ready: u32,
    /// Live requests that can reach the model.
    pub live: u32,
    /// Whether a pass is running.
    pub busy: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Pacer {
    rhythm: Rhythm,
    patience: Duration,
    /// What was last heard of each model, and how many permissions its life has been given.
    models: Vec<Option<(Standing, u64)>>,
    /// The model whose pass was the last to begin.
    last: usize,
    /// Since when somebody waits while no pass runs.
    since: Option<Time>,
}

impl Pacer {
    /// A pacer of so many models. It waits for requests on their way between models at most `patience`.
    pub fn new(rhythm: Rhythm, models: usize, patience: Duration) -> Self {
        Self {
            rhythm,
            patience,
            models: vec![None; models],
            last: models.saturating_sub(1),
            since: None,
        }
    }

    /// A model says how it stands; who may launch a pass now is added to `launch`.
    pub fn hear(
        &mut self,
        now: Time,
        model: ModelIx,
        standing: Standing,
        launch: &mut Vec<ModelIx>,
    ) {
        let Some(known) = self.models.get_mut(model.index()) else { return };
        match known {
            Some((held, _)) if standing.life < held.life => return,
            Some((held, _)) if standing.life == held.life => *held = standing,
            // What an earlier life was given is over, and so is what an earlier pacer gave.
            _ => *known = Some((standing, standing.permits)),
        }
        self.tick(now, launch);
    }

    /// Time has passed; who may launch a pass now is added to `launch`.
    pub fn tick(&mut self, now: Time, launch: &mut Vec<ModelIx>) {
        let known = || self.models.iter().flatten();
        let running = known().any(|(standing, given)| standing.busy || standing.permits < *given);
        let ready: u32 = known().map(|(standing, _)| standing.ready).sum();
        if running || ready == 0 {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(now);
        let live = known().map(|(standing, _)| standing.live).max().unwrap_or(0);
        if ready < live && now < since + self.patience {
            return;
        }
        self.since = None;
        let count = self.models.len();
        let first = self.last + 1;
        for model in (first..first + count).map(|model| model % count) {
            let Some((standing, given)) = &mut self.models[model] else { continue };
            if standing.ready > 0 {
                *given += 1;
                self.last = model;
                launch.push(ModelIx(model as u8));
                if self.rhythm == Rhythm::Step {
                    return;
                }
            }
        }
    }

    /// When to call [`Self::tick`] at the latest.
    pub fn wake(&self) -> Option<Time> {
        self.since.map(|since| since + self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{life, ms};

    /// A pacer of two models with three live requests.
    struct Bench {
        pacer: Pacer,
        permits: [u64; 2],
        now: u64,
    }

    impl Bench {
        fn new(rhythm: Rhythm) -> Self {
            Self { pacer: Pacer::new(rhythm, 2, ms(50)), permits: [7, 0], now: 0 }
        }

        fn says(&mut self, model: usize, ready: u32, busy: bool) -> Vec<usize> {
            let permits = self.permits[model];
            let standing = Standing { life: life(1), permits, ready, live: 3, busy };
            self.now += 1;
            let mut launch = Vec::new();
            self.pacer.hear(ms(self.now), ModelIx(model as u8), standing, &mut launch);
            launch.into_iter().map(|model| model.index()).collect()
        }

        /// The model launches what it was told to.
        fn begins(&mut self, model: usize) -> Vec<usize> {
            self.permits[model] += 1;
            self.says(model, 0, true)
        }
    }

    #[test]
    fn in_step_rhythm_one_model_runs_at_a_time() {
        let mut bench = Bench::new(Rhythm::Step);
        assert!(bench.says(1, 0, false).is_empty());
        assert!(bench.says(0, 2, false).is_empty(), "one is still on its way");
        assert_eq!(bench.says(0, 3, false), [0]);
        assert!(bench.says(0, 3, false).is_empty(), "said before the permission came");
        assert!(bench.begins(0).is_empty());
        assert!(bench.says(0, 2, false).is_empty(), "one is on its way to the other");
        assert_eq!(bench.says(1, 1, false), [1], "in turn, though the first has more");
        assert!(bench.begins(1).is_empty());
        assert!(bench.says(1, 0, false).is_empty());
        assert_eq!(bench.says(0, 3, false), [0]);
    }

    #[test]
    fn in_model_rhythm_all_run_and_the_slowest_ends_the_round() {
        let mut bench = Bench::new(Rhythm::Model);
        bench.says(0, 2, false);
        assert_eq!(bench.says(1, 1, false), [0, 1]);
        assert!(bench.begins(0).is_empty() && bench.begins(1).is_empty());
        assert!(bench.says(0, 2, false).is_empty());
        assert_eq!(bench.says(1, 1, false), [0, 1]);
    }

    #[test]
    fn a_request_that_never_comes_is_not_waited_for_for_ever() {
        let mut bench = Bench::new(Rhythm::Model);
        bench.says(1, 0, false);
        bench.says(0, 2, false);
        let (wake, mut launch) = (bench.pacer.wake().unwrap(), Vec::new());
        bench.pacer.tick(wake - ms(1), &mut launch);
        assert!(launch.is_empty());
        bench.pacer.tick(wake, &mut launch);
        assert_eq!(launch, [ModelIx(0)]);
    }

    #[test]
    fn a_model_that_died_with_its_permission_gets_another() {
        let mut bench = Bench::new(Rhythm::Model);
        bench.says(0, 3, false);
        let reborn = Standing { life: life(2), ready: 3, live: 3, ..Standing::default() };
        let mut launch = Vec::new();
        bench.pacer.hear(ms(9), ModelIx(0), reborn, &mut launch);
        assert_eq!(launch, [ModelIx(0)]);
        assert!(bench.says(0, 3, false).is_empty(), "late words of the dead");
    }
}
