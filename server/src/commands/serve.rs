//! `tokenrouter serve`: start, say where, serve, and stop when asked without losing a reply.

use super::{CommandError, block_on, print, start_log};
use crate::boot::Plan;
use crate::cli::Serve;
use crate::server::Server;
use tokenrouter_config::Topology;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Serves until a signal or the end of the node.
///
/// # Errors
/// A server that does not start, or a node that gives up.
pub fn run(arguments: &Serve) -> Result<(), CommandError> {
    let topology = Topology::load(&arguments.sources())?;
    let topology = match &arguments.node {
        Some(node) => topology.on(node)?,
        None if topology.nodes.is_empty() => topology,
        None => {
            let names = topology.node_names();
            let reason = format!("there are several ({names}); say which one this is with --node");
            return Err(topology.error(&["nodes"], reason).into());
        }
    };
    start_log(&topology)?;
    let plan = Plan::new(topology)?;
    block_on(serve(plan))?
}

async fn serve(plan: Plan) -> Result<(), CommandError> {
    let server = Server::start_plan(plan).await?;
    // Not before: while the weights are read a signal ends the process, as nobody could answer it.
    let mut signals = Signals::new()?;
    if let Err(error) = print(&greeting(&server)) {
        tracing::warn!("{error}");
    }
    tokio::select! {
        reason = server.failed() => return Err(CommandError::Other(reason)),
        () = signals.next() => {}
    }
    let open = server.app().flights().count();
    tracing::info!(open, "stopping; a second signal stops at once");
    let cut = server.stop(signals.next()).await;
    if cut > 0 {
        tracing::warn!(cut, "stopped before all replies were finished");
    }
    Ok(())
}

/// The two signals that ask for an end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, CommandError> {
        let open = |kind| {
            signal(kind)
                .map_err(|e| CommandError::Other(format!("signals cannot be received: {e}")))
        };
        Ok(Self {
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn greeting(server: &Server) -> String {
    let Some(address) = server.address() else {
        return "TokenRouter runs; this node takes no HTTP\n".to_owned();
    };
    let url = format!("http://{address}");
    let catalog = server.app().catalog();
    let names = catalog.names();
    // The one that shows most where there is one, else a route of several models rather than a single one.
    let best =
        catalog.routes.iter().max_by_key(|route| (route.name == "demo", route.reaches.len()));
    let best = best.map_or("", |route| route.name.as_str());
    format!(
        "TokenRouter listens on {url}; routes: {}\n\
         Try: curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d '{{\"model\": \"{best}\", \
         \"stream\": true, \"messages\": [{{\"role\": \"user\", \"content\": \"What is (37 * 46) + 15?\"}}]}}'\n",
        names.join(", ")
    )
}
