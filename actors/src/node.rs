//! Node: root supervisor of everything that runs in this process.
//! Parent: none.  Children: a Subserver for each model, Http, perhaps Links, a Pacer and a Tuner.  Talks to: nobody; it hands out seats.
//! After a restart: there is none. A node that gives up says why, and the process ends.
//!
//! It holds what outlives every loop: engines with their weights and KV pools, seats, and the counts of lives.

use crate::admin::Target;
use crate::clock::{Clock, Lives, process_start};
use crate::gateway::{Gateway, Inner, Model};
use crate::http::{Http, Service};
use crate::links::{Links, LinksArgs};
use crate::seat::{Address, Chair, Death, Waiting};
use crate::spec::{ModelSpec, NodeSpec};
use crate::subserver::{Chairs, Exhausted, Subserver, SubserverArgs};
use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::{ModelIx, Tally};
use tokenrouter_protocol::Route;
use tokenrouter_transport::Endpoint;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

mod aides;
mod cluster;

use aides::Aides;
use cluster::Others;

/// A running node.
#[derive(Debug)]
pub struct Node {
    actor: ActorRef<NodeMsg>,
    ended: JoinHandle<()>,
    gateway: Gateway,
    failure: watch::Receiver<Option<String>>,
    /// The socket to other nodes.
    endpoint: Option<Endpoint>,
}

/// How long other nodes may take to hear that this one stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the actors: {0}")]
pub struct StartError(#[from] SpawnErr);

impl Node {
    /// Starts every actor of a node. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// When an actor does not start.
    pub async fn start(spec: NodeSpec) -> Result<Self, StartError> {
        let permits = Arc::new(Semaphore::new(spec.limits.requests));
        let requests_max = spec.limits.requests;
        let entries = spec.routes.iter().map(|r| r.entry).collect();
        let clock = Clock::start();
        let aides = Aides::new(&spec, clock);
        let (children, others) = children(spec, clock, &aides);
        let http = Chair::new();
        let models = children.iter().enumerate().map(|(index, child)| Model {
            subserver: child.chairs.subserver.seat(),
            peer: child.chairs.peer.seat(),
            client: child.chairs.client.seat(),
            decode: child.chairs.decode.seat(),
            pool: child.engine.as_ref().map(|engine| engine.pool()),
            thresholds: Arc::clone(&aides.thresholds[index]),
        });
        let (models, seat) = (models.collect(), http.seat());
        let inner = Inner {
            models,
            http: seat,
            links: others.seats(),
            pacer: aides.pacer(),
            tuner: aides.tuner(),
            tuned: Arc::clone(&aides.changes),
            entries,
            permits,
            requests_max,
        };
        let (failed, failure) = watch::channel(None);
        let endpoint = others.endpoint();
        let args = Args { children, links: others.links, http, aides, failed };
        let (actor, ended) = Actor::spawn(None, NodeActor, args).await?;
        Ok(Self { actor, ended, gateway: Gateway::new(inner), failure, endpoint })
    }

    /// The way in for requests.
    pub fn gateway(&self) -> Gateway {
        self.gateway.clone()
    }

    /// Runs an accept loop under supervision.
    pub fn serve(&self, service: Service) {
        // A node that is stopping serves nobody.
        drop(self.actor.cast(NodeMsg::Serve(service)));
    }

    /// Kills an actor in the middle of whatever it does. Its parent replaces it; it counts against no budget. One that
    /// does not exist is left alone.
    pub fn kill(&self, target: Target) {
        self.gateway.admin().kill(target);
    }

    /// Waits until the node gives up; the reason, for the last words of the process.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops every actor and waits for the end. Requests in flight are lost: drain before.
    pub async fn stop(self) {
        self.gateway.close();
        self.actor.stop(None);
        // The only error is a panic of the node's own task, which ends it as well.
        drop(self.ended.await);
        if let Some(endpoint) = self.endpoint {
            endpoint.close();
            drop(tokio::time::timeout(FAREWELL, endpoint.closed()).await);
        }
    }
}

/// What the node is told.
pub(crate) enum NodeMsg {
    /// Run this accept loop.
    Serve(Service),
}

struct NodeActor;

struct Args {
    children: Vec<SubserverArgs>,
    links: Option<(Chair<()>, LinksArgs)>,
    http: Chair<()>,
    aides: Aides,
    failed: watch::Sender<Option<String>>,
}

struct State {
    args: Args,
    service: Option<Service>,
    /// Deaths of each subserver, then of everybody else.
    tallies: Vec<Tally>,
}

impl Actor for NodeActor {
    type Msg = NodeMsg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(
        &self,
        myself: ActorRef<NodeMsg>,
        args: Args,
    ) -> Result<State, ActorProcessingErr> {
        let tallies = args.children.iter().map(|c| Tally::new(c.limits.restarts));
        let mut tallies: Vec<Tally> = tallies.collect();
        tallies.extend(args.children.first().map(|c| Tally::new(c.limits.restarts)));
        let mut state = State { args, service: None, tallies };
        for index in 0..state.args.children.len() {
            state.start(index, &myself).await?;
        }
        state.link(&myself).await?;
        state.args.aides.start(&state.args.children, &myself).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<NodeMsg>,
        message: NodeMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let NodeMsg::Serve(service) = message;
        state.service = Some(service);
        state.serve(&myself).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<NodeMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(death) = Death::of(event) else { return Ok(()) };
        let exhausted = death.error.is_some_and(|error| error.is::<Exhausted>());
        let Death { id, reason, killed, .. } = death;
        let now = state.args.children.first().map(|c| c.clock.now()).unwrap_or_default();
        let is = |child: &SubserverArgs| child.chairs.subserver.is(id);
        if let Some(index) = state.args.children.iter().position(is) {
            state.args.children[index].chairs.subserver.leave();
            if exhausted || (!killed && !state.tallies[index].allow(now)) {
                return state.give_up(&myself, reason);
            }
            tracing::warn!(model = state.args.children[index].name, reason, "a subserver died");
            return state.start(index, &myself).await;
        }
        let http = state.args.http.is(id);
        let links = state.args.links.as_ref().filter(|(chair, _)| chair.is(id));
        let other = links.map(|_| "Links").or(http.then_some("Http"));
        let Some(name) = state.args.aides.name(id).or(other) else { return Ok(()) };
        state.args.aides.leave(id);
        if let Some((chair, _)) = links {
            chair.leave();
        }
        if !killed && state.tallies.last_mut().is_some_and(|tally| !tally.allow(now)) {
            return state.give_up(&myself, format!("{name} cannot be kept alive: {reason}"));
        }
        tracing::warn!(reason, "{name} died");
        match name {
            "Http" => state.serve(&myself).await,
            "Links" => state.link(&myself).await,
            _ => state.args.aides.start(&state.args.children, &myself).await,
        }
    }
}

impl State {
    async fn start(
        &mut self,
        index: usize,
        myself: &ActorRef<NodeMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let args = self.args.children[index].clone();
        let (actor, _) = Subserver::spawn_linked(None, Subserver, args, myself.get_cell()).await?;
        let address = Address::new(actor, Waiting::default());
        self.args.children[index].chairs.subserver.take(address);
        Ok(())
    }

    /// Starts the links, where there are other nodes.
    async fn link(&self, myself: &ActorRef<NodeMsg>) -> Result<(), ActorProcessingErr> {
        let Some((chair, args)) = &self.args.links else { return Ok(()) };
        let (actor, _) = Links::spawn_linked(None, Links, args.clone(), myself.get_cell()).await?;
        chair.take(Address::new(actor, Waiting::default()));
        Ok(())
    }

    async fn serve(&self, myself: &ActorRef<NodeMsg>) -> Result<(), ActorProcessingErr> {
        let Some(service) = self.service.clone() else { return Ok(()) };
        let (actor, _) = Http::spawn_linked(None, Http, service, myself.get_cell()).await?;
        self.args.http.take(Address::new(actor, Waiting::default()));
        Ok(())
    }

    fn give_up(
        &mut self,
        myself: &ActorRef<NodeMsg>,
        reason: String,
    ) -> Result<(), ActorProcessingErr> {
        tracing::error!(reason, "giving up");
        self.args.failed.send_replace(Some(reason));
        myself.stop(None);
        Ok(())
    }
}

/// What each subserver is started with, and what is known of other nodes: chairs for all first, so that each knows the
/// others' seats.
fn children(spec: NodeSpec, clock: Clock, aides: &Aides) -> (Vec<SubserverArgs>, Others) {
    let process = process_start();
    let routes: Arc<[Route]> = spec
        .routes
        .iter()
        .map(|route| {
            let vocabulary = Arc::clone(&spec.models[route.entry.index()].vocabulary);
            Route::new(route.entry, Arc::clone(&route.policy), vocabulary).on_loss(route.on_loss)
        })
        .collect();
    let chairs: Vec<Chairs> = spec
        .models
        .iter()
        .map(|_| Chairs {
            subserver: Chair::new(),
            client: Chair::new(),
            decode: Chair::new(),
            peer: Chair::new(),
        })
        .collect();
    let others = Others::new(&spec, &chairs, clock, process);
    let clients: Vec<_> = chairs.iter().map(|c| c.client.seat()).collect();
    let child = |(index, (model, chairs)): (usize, (ModelSpec, Chairs))| SubserverArgs {
        model: ModelIx(index as u8),
        name: model.name,
        engine: model.engine.map(Arc::new),
        batch: model.batch,
        routes: Arc::clone(&routes),
        limits: spec.limits,
        through_wire: spec.through_wire,
        faults: spec.faults.clone(),
        clock,
        pacer: aides.pacer(),
        tuner: aides.tuner(),
        thresholds: aides.thresholds[index].subscribe(),
        model_lives: Lives::new(process),
        home_lives: Lives::new(process),
        chairs,
        doors: others.doors.clone(),
        clients: clients.clone(),
        nodes: others.nodes,
        ways: others.ways.clone(),
    };
    let children = spec.models.into_iter().zip(chairs).enumerate().map(child).collect();
    (children, others)
}
