//! The aides of a node: actors that there are only where the topology asks for them, and on nobody's path. It starts them
//! anew on their seats; what they did before is theirs to remember or to learn again.

use crate::clock::Clock;
use crate::decode_loop::DecodeMsg;
use crate::node::NodeMsg;
use crate::pacer::{PacerActor, PacerArgs, PacerMsg};
use crate::seat::{Address, Chair, Seat, Waiting};
use crate::spec::{NodeSpec, Scheduler, Tuning};
use crate::subserver::SubserverArgs;
use crate::tuner::{TunerActor, TunerArgs, TunerMsg};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokenrouter_policies::Thresholds;
use tokenrouter_protocol::Rhythm;
use tokio::sync::watch;

/// Their places, and what they are started with.
pub(super) struct Aides {
    pacer: Option<(Chair<PacerMsg>, Rhythm)>,
    tuner: Option<(Chair<TunerMsg>, Arc<[Tuning]>)>,
    /// What holds for each model now.
    pub(super) thresholds: Vec<Arc<watch::Sender<Thresholds>>>,
    /// Changes of thresholds so far.
    pub(super) changes: Arc<AtomicU64>,
    clock: Clock,
}

impl Aides {
    pub(super) fn new(spec: &NodeSpec, clock: Clock) -> Self {
        let pacer = match spec.scheduler {
            Scheduler::Asynchronous => None,
            Scheduler::Rounds(rhythm) => Some((Chair::new(), rhythm)),
        };
        let tunings = Some(&spec.tunings).filter(|tunings| !tunings.is_empty());
        let sender = |thresholds: &Thresholds| Arc::new(watch::Sender::new(thresholds.clone()));
        Self {
            pacer,
            tuner: tunings.map(|tunings| (Chair::new(), tunings.iter().cloned().collect())),
            thresholds: spec.models.iter().map(|model| sender(&model.batch.thresholds)).collect(),
            changes: Arc::default(),
            clock,
        }
    }

    pub(super) fn pacer(&self) -> Option<Seat<PacerMsg>> {
        self.pacer.as_ref().map(|(chair, _)| chair.seat())
    }

    pub(super) fn tuner(&self) -> Option<Seat<TunerMsg>> {
        self.tuner.as_ref().map(|(chair, _)| chair.seat())
    }

    /// What the aide is called that sits there.
    pub(super) fn name(&self, id: ActorId) -> Option<&'static str> {
        let pacer = self.pacer.as_ref().is_some_and(|(chair, _)| chair.is(id));
        let tuner = self.tuner.as_ref().is_some_and(|(chair, _)| chair.is(id));
        if pacer { Some("Pacer") } else { tuner.then_some("Tuner") }
    }

    /// Starts whoever's seat is empty.
    pub(super) async fn start(
        &self,
        children: &[SubserverArgs],
        myself: &ActorRef<NodeMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let decode = || children.iter().map(|child| child.chairs.decode.seat());
        if let Some((chair, rhythm)) = &self.pacer
            && !chair.seat().is_occupied()
        {
            let args = PacerArgs { rhythm: *rhythm, decode: decode().collect(), clock: self.clock };
            let (actor, _) =
                PacerActor::spawn_linked(None, PacerActor, args, myself.get_cell()).await?;
            chair.take(Address::new(actor, Waiting::default()));
            // Those that spoke while nobody sat there speak again.
            for seat in decode() {
                seat.cast(DecodeMsg::Stand);
            }
        }
        if let Some((chair, groups)) = &self.tuner
            && !chair.seat().is_occupied()
        {
            let args = TunerArgs {
                groups: Arc::clone(groups),
                decode: decode().collect(),
                thresholds: self.thresholds.clone(),
                names: children.iter().map(|child| child.name.clone()).collect(),
                changes: Arc::clone(&self.changes),
                clock: self.clock,
            };
            let (actor, _) =
                TunerActor::spawn_linked(None, TunerActor, args, myself.get_cell()).await?;
            chair.take(Address::new(actor, Waiting::default()));
        }
        Ok(())
    }

    /// Whoever sat there is dead.
    pub(super) fn leave(&self, id: ActorId) {
        if let Some((chair, _)) = self.pacer.as_ref().filter(|(chair, _)| chair.is(id)) {
            chair.leave();
        }
        if let Some((chair, _)) = self.tuner.as_ref().filter(|(chair, _)| chair.is(id)) {
            chair.leave();
        }
    }
}
