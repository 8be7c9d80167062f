//! Pacer: lets all models run in rounds, where the topology asks for it.
//! Parent: Node.  Children: none.  Talks to: every DecodeLoop.
//! After a restart: it knows nothing; its parent asks every DecodeLoop to say again how it stands.
//!
//! It is on nobody's path while models run by themselves: then there is none. All thinking happens in
//! [`tokenrouter_protocol::Pacer`].

use crate::clock::Clock;
use crate::decode_loop::DecodeMsg;
use crate::seat::{Address, Attached, Seat, Waiting};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::time::Duration;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Pace, Pacer, Rhythm};

/// How long requests on their way between models are waited for: much longer than any message takes, so that only what is
/// lost ends a wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the Pacer is told.
#[derive(Debug)]
pub(crate) enum PacerMsg {
    /// A model says how it stands.
    Standing(ModelIx, Pace),
    /// Somebody has waited long enough.
    Wake,
}

/// What it is started with.
#[derive(Clone, Debug)]
pub(crate) struct PacerArgs {
    pub(crate) rhythm: Rhythm,
    /// The schedulers of all models, by index.
    pub(crate) decode: Vec<Seat<DecodeMsg>>,
    pub(crate) clock: Clock,
}

pub(crate) struct PacerActor;

pub(crate) struct State {
    core: Pacer,
    launch: Vec<ModelIx>,
    args: PacerArgs,
    myself: Address<PacerMsg>,
    /// When it will be woken, and the timer.
    timer: Option<(Duration, Attached)>,
}

impl Actor for PacerActor {
    type Msg = PacerMsg;
    type State = State;
    type Arguments = PacerArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<PacerMsg>,
        args: PacerArgs,
    ) -> Result<State, ActorProcessingErr> {
        let core = Pacer::new(args.rhythm, args.decode.len(), PATIENCE);
        let myself = Address::new(myself, Waiting::default());
        Ok(State { core, launch: Vec::new(), args, myself, timer: None })
    }

    async fn handle(
        &self,
        _myself: ActorRef<PacerMsg>,
        message: PacerMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.args.clock.now();
        match message {
            PacerMsg::Standing(model, standing) => {
                state.core.hear(now, model, standing, &mut state.launch);
            }
            PacerMsg::Wake => {
                state.timer = None;
                state.core.tick(now, &mut state.launch);
            }
        }
        for model in state.launch.drain(..) {
            state.args.decode[model.index()].cast(DecodeMsg::Launch);
        }
        let wake = state.core.wake();
        if let Some(at) = wake.filter(|at| state.timer.as_ref().is_none_or(|(armed, _)| at < armed))
        {
            let timer = state.myself.after(at.saturating_sub(now), || PacerMsg::Wake);
            state.timer = Some((at, timer));
        }
        Ok(())
    }
}
