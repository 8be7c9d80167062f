//! Tuner: keeps the thresholds of delayed batching up with what models really do.
//! Parent: Node.  Children: none.  Talks to: every DecodeLoop.
//! After a restart: the thresholds it was started with hold again, and it learns anew.
//!
//! It is on nobody's path: DecodeLoops count on the side, and it asks them once a second. Planning, which may take a while,
//! is done on a thread for such work. All thinking happens in [`tokenrouter_policies::tuner`].

use crate::clock::Clock;
use crate::decode_loop::DecodeMsg;
use crate::seat::{Address, Attached, Seat, Waiting};
use crate::spec::Tuning;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokenrouter_policies::planner::Observations;
use tokenrouter_policies::tuner::{Change, Tuner};
use tokenrouter_policies::{ModelIx, Thresholds, batching};
use tokio::sync::watch;

/// How often it asks what was seen.
const PERIOD: Duration = Duration::from_secs(1);

/// What the Tuner is told.
#[derive(Debug)]
pub(crate) enum TunerMsg {
    /// A DecodeLoop has seen this since it was last asked, with so many live requests at most.
    Seen { seen: Observations, live: u32 },
    /// Time has passed.
    Tick,
    /// A group has been thought about.
    Planned { group: usize, tuner: Box<Tuner>, change: Option<Box<Change>> },
    /// Thinking came to a bad end.
    Failed(String),
}

/// What it is started with.
#[derive(Clone, Debug)]
pub(crate) struct TunerArgs {
    /// The groups of models that share requests and have thresholds to be tuned.
    pub(crate) groups: Arc<[Tuning]>,
    /// The scheduler of every model, by index, and what holds for it now.
    pub(crate) decode: Vec<Seat<DecodeMsg>>,
    pub(crate) thresholds: Vec<Arc<watch::Sender<Thresholds>>>,
    pub(crate) names: Vec<String>,
    /// Changes made in all lives.
    pub(crate) changes: Arc<AtomicU64>,
    pub(crate) clock: Clock,
}

pub(crate) struct TunerActor;

pub(crate) struct State {
    /// Of each group; `None` while it is being thought about.
    tuners: Vec<Option<Box<Tuner>>>,
    /// What was seen since the groups were last told.
    seen: Observations,
    live: u32,
    args: TunerArgs,
    myself: Address<TunerMsg>,
    _ticks: Attached,
}

impl Actor for TunerActor {
    type Msg = TunerMsg;
    type State = State;
    type Arguments = TunerArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<TunerMsg>,
        args: TunerArgs,
    ) -> Result<State, ActorProcessingErr> {
        let myself = Address::new(myself, Waiting::default());
        let ticks = myself.every(PERIOD, || TunerMsg::Tick);
        let mut tuners = Vec::new();
        for group in args.groups.iter() {
            tuners.push(Some(Box::new(Tuner::new(group.config, &group.plan)?)));
        }
        let seen = Observations::new(args.decode.len());
        let state = State { tuners, seen, live: 0, args, myself, _ticks: ticks };
        for group in 0..state.tuners.len() {
            if let Some(tuner) = &state.tuners[group] {
                state.obey(group, tuner.thresholds());
            }
        }
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<TunerMsg>,
        message: TunerMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TunerMsg::Seen { seen, live } => {
                state.seen.merge(&seen);
                state.live = state.live.max(live);
            }
            TunerMsg::Tick => state.think(),
            TunerMsg::Planned { group, tuner, change } => {
                if let Some(change) = change {
                    state.announce(group, &change);
                    state.obey(group, &change.thresholds);
                }
                state.tuners[group] = Some(tuner);
            }
            TunerMsg::Failed(reason) => return Err(reason.into()),
        }
        Ok(())
    }
}

impl State {
    /// Tells the groups what was seen, lets them think, and asks for more.
    fn think(&mut self) {
        let now = self.args.clock.now();
        let seen = std::mem::replace(&mut self.seen, Observations::new(self.args.decode.len()));
        let live = std::mem::take(&mut self.live);
        for (group, Tuning { models, .. }) in self.args.groups.iter().enumerate() {
            let Some(mut tuner) = self.tuners[group].take() else { continue };
            tuner.observe(now, &seen.among(&places(models)));
            let myself = self.myself.clone();
            let planned = tokio::task::spawn_blocking(move || {
                let change = tuner.revise(live).map(Box::new);
                TunerMsg::Planned { group, tuner, change }
            });
            // A Tuner that is gone by then needs no plan.
            tokio::spawn(async move {
                let result = planned.await;
                myself.cast(result.unwrap_or_else(|error| TunerMsg::Failed(error.to_string())));
            });
        }
        for decode in &self.args.decode {
            decode.cast(DecodeMsg::Observe);
        }
    }

    /// Lets models launch by these thresholds, those whose own are not the planner's business excepted.
    fn obey(&self, group: usize, thresholds: &[Thresholds]) {
        let Tuning { models, tuned, live_max, .. } = &self.args.groups[group];
        let all: Vec<Thresholds> = models
            .iter()
            .zip(tuned.iter().zip(thresholds))
            .map(|(model, (tuned, new))| match tuned {
                true => new.clone(),
                false => self.args.thresholds[model.index()].borrow().clone(),
            })
            .collect();
        if let Err(error) = batching::check(&all.iter().collect::<Vec<_>>(), *live_max) {
            tracing::warn!(%error, "the thresholds stay as they are");
            return;
        }
        for (model, new) in models.iter().zip(all) {
            let sender = &self.args.thresholds[model.index()];
            if sender.send_if_modified(|held| std::mem::replace(held, new.clone()) != new) {
                self.args.decode[model.index()].cast(DecodeMsg::Thresholds(new));
            }
        }
    }

    fn announce(&self, group: usize, change: &Change) {
        self.args.changes.fetch_add(1, Ordering::Relaxed);
        let models = &self.args.groups[group].models;
        let thresholds: Vec<String> = models
            .iter()
            .zip(&change.thresholds)
            .map(|(model, new)| format!("{} {new}", self.args.names[model.index()]))
            .collect();
        let last = |list: &[_]| {
            list.last().map(|p: &tokenrouter_policies::planner::Prediction| p.tokens_per_s)
        };
        tracing::info!(
            thresholds = thresholds.join(", "),
            live = change.after.last().map(|after| after.live),
            tokens_per_s_before = last(&change.before),
            tokens_per_s_after = last(&change.after),
            "other thresholds for delayed batching"
        );
    }
}

fn places(models: &[ModelIx]) -> Vec<usize> {
    models.iter().map(|model| model.index()).collect()
}
