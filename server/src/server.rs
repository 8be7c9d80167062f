//! A running server: a node, a socket, and the way to stop both without losing a reply.

use crate::auth::Keys;
use crate::boot::Plan;
use crate::http::{Access, App, router};
use axum::Router;
use axum::http::HeaderValue;
use axum::serve::ListenerExt;
use futures::FutureExt;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_actors::{Node, NodeSpec, Service, StartError, Target};
use tokenrouter_config::{Error as TopologyError, Topology};
use tokenrouter_transport::LinkError;
use tokio::sync::watch;

/// How long connections without a request may take to close.
const CLOSE: Duration = Duration::from_secs(2);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartFailure {
    /// The topology cannot be used.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --listen or `http.listen`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The socket to other nodes cannot be had.
    #[error("{0}; change `nodes.NAME.quic` or `bind`")]
    Link(#[from] LinkError),
    /// The actors do not start.
    #[error(transparent)]
    Node(#[from] StartError),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: Option<SocketAddr>,
    node: Node,
    app: App,
    drain: Duration,
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
}

impl Server {
    /// Checks the topology, opens the socket, loads the models and starts.
    ///
    /// # Errors
    /// A topology that cannot be used, an address that is taken.
    pub async fn start(topology: Topology) -> Result<Self, StartFailure> {
        Self::start_plan(Plan::new(topology)?).await
    }

    /// The same, of a topology that is checked already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_plan(plan: Plan) -> Result<Self, StartFailure> {
        Self::start_with(plan, |_| {}).await
    }

    /// The same, with a change to what the node is started with: a plan of faults, say.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(
        plan: Plan,
        change: impl FnOnce(&mut NodeSpec),
    ) -> Result<Self, StartFailure> {
        let topology = plan.topology().clone();
        let access = access(&topology)?;
        // The socket first: it is quick to fail, and loading is not.
        let listener = topology.http_address().map(listen).transpose()?;
        let address = listener.as_ref().map(|(_, address)| *address);
        let catalog = Arc::clone(plan.catalog());
        let cluster = plan.cluster()?;
        let mut spec = NodeSpec { cluster, ..plan.load()? };
        change(&mut spec);
        let node = Node::start(spec).await?;
        // More choices than can ever be in flight at once would be refused for ever as if the server were only busy.
        let most_choices = u32::try_from(topology.limits.requests)
            .unwrap_or(u32::MAX)
            .min(topology.limits.choices);
        let app = App::new(catalog, node.gateway(), most_choices);
        let router = router(app.clone(), &access);
        let (stop, stopping) = watch::channel(false);
        // Who takes no HTTP has no connections to close.
        let (done, stopped) = watch::channel(listener.is_none());
        if let Some((listener, _)) = listener {
            node.serve(service(listener, router, stopping, done));
        }
        Ok(Self { address, node, app, drain: topology.limits.drain, stop, stopped })
    }

    /// Where it listens for HTTP, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What its handlers reach.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Kills an actor, whose parent replaces it: for tests of what that costs.
    pub fn kill(&self, target: Target) {
        self.node.kill(target);
    }

    /// Waits until the node gives up; the reason.
    pub async fn failed(&self) -> String {
        self.node.failed().await
    }

    /// Takes no new requests, lets those in flight finish for as long as `limits.drain` says or until `hurry` is done,
    /// and stops. Gives how many were cut off.
    pub async fn stop(mut self, hurry: impl Future<Output = ()>) -> usize {
        self.app.drain();
        tokio::select! {
            () = self.app.flights().landed() => {}
            () = tokio::time::sleep(self.drain) => {}
            () = hurry => {}
        }
        let cut = self.app.flights().count();
        self.stop.send_replace(true);
        if cut == 0 {
            // Idle connections close at once; one that does not is not waited for.
            drop(tokio::time::timeout(CLOSE, self.stopped.wait_for(|done| *done)).await);
        }
        self.node.stop().await;
        // Those cut off are told so before the process ends.
        drop(tokio::time::timeout(CLOSE, self.app.flights().landed()).await);
        cut
    }
}

fn access(topology: &Topology) -> Result<Access, TopologyError> {
    let admin = topology.admin.enabled.then(|| Keys::new(topology.admin.api_key.clone()));
    Ok(Access {
        origins: origins(topology)?,
        keys: Keys::new(topology.http.api_keys.clone()),
        admin,
        body: usize::try_from(topology.limits.body.0).unwrap_or(usize::MAX),
    })
}

fn origins(topology: &Topology) -> Result<Vec<HeaderValue>, TopologyError> {
    let origin = |text: &String| {
        text.parse()
            .map_err(|_| topology.error(&["http", "cors"], format!("`{text}` is not an origin")))
    };
    topology.http.cors.iter().map(origin).collect()
}

/// A socket at this address, and the one it got, which is another where the port is 0.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartFailure> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|source| StartFailure::Listen { address, source })
}

/// The accept loop, as often as it is asked for, always on the same socket. One that ends because it should stays
/// silent, so that nobody starts another.
fn service(
    listener: TcpListener,
    router: Router,
    stopping: watch::Receiver<bool>,
    done: watch::Sender<bool>,
) -> Service {
    let done = Arc::new(done);
    Arc::new(move || {
        let socket = listener.try_clone().and_then(tokio::net::TcpListener::from_std);
        let (router, mut stopping, done) = (router.clone(), stopping.clone(), Arc::clone(&done));
        async move {
            let socket = match socket {
                Ok(socket) => socket.tap_io(|stream| {
                    // A chunk must not wait for the next one.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "a connection keeps its delay");
                    }
                }),
                Err(error) => {
                    tracing::error!(%error, "the socket cannot be used");
                    return;
                }
            };
            let asked = async move { drop(stopping.wait_for(|stop| *stop).await) };
            if let Err(error) = axum::serve(socket, router).with_graceful_shutdown(asked).await {
                tracing::error!(%error, "the accept loop failed");
                return;
            }
            done.send_replace(true);
            std::future::pending::<()>().await;
        }
        .boxed()
    })
}
