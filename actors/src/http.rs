//! Http: keeps the accept loop of the people's side running.
//! Parent: Node.  Children: none.  Talks to: nobody.
//! After a restart: accepts again on the same socket, which the service holds. Connections are tasks of the runtime, so
//! those already open do not notice.

use futures::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Starts an accept loop; called again after every restart.
pub type Service = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) struct Http;

/// The accept loop of this life: aborted with it, however it dies.
pub(crate) struct Accepting(AbortHandle);

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Actor for Http {
    type Msg = ();
    type State = Accepting;
    type Arguments = Service;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        service: Service,
    ) -> Result<Accepting, ActorProcessingErr> {
        let accepting = tokio::spawn(async move {
            service().await;
            myself.stop(Some("the accept loop ended".to_owned()));
        });
        Ok(Accepting(accepting.abort_handle()))
    }
}
