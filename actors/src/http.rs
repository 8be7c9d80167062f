//! Http: keeps the accept loop of the people's side running.
//! Parent: Node.  Children: none.  Talks to: nobody.
//! After a restart: accepts again on the same socket, which the service holds. Connections are tasks of the runtime, so
//! those already open do not notice.

use crate::seat::Attached;
use futures::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;

/// Starts an accept loop; called again after every restart.
pub type Service = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) struct Http;

impl Actor for Http {
    type Msg = ();
    /// The accept loop of this life.
    type State = Attached;
    type Arguments = Service;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        service: Service,
    ) -> Result<Attached, ActorProcessingErr> {
        Ok(Attached::spawn(async move {
            service().await;
            myself.stop(Some("the accept loop ended".to_owned()));
        }))
    }
}
