//! How a Remote comes to a connection and loses it again.

use super::{RemoteMsg, State};
use crate::client_loop::ClientMsg;
use crate::seat::Attached;
use smallvec::SmallVec;
use tokenrouter_protocol::Reach;
use tokenrouter_transport::{Call, Caller, Heard, Hello, Link, LinkError};

impl State {
    /// Calls the other node, if it is this one that calls, and there is no link.
    pub(super) fn dial(&mut self) {
        let spec = &self.args.spec;
        if !spec.dials || self.link.is_some() {
            return;
        }
        let hello = self.hello();
        let (endpoint, name, address) = (spec.endpoint.clone(), spec.name.clone(), spec.address);
        let (mailbox, says) = (self.mailbox.clone(), hello.clone());
        self.greeting = Some(hello);
        self.calling = Some(Attached::spawn(async move {
            let result = endpoint.dial(&name, address, &says).await;
            mailbox.cast(RemoteMsg::Dialled(Box::new(result)));
        }));
    }

    pub(super) fn dialled(&mut self, result: Result<Call, LinkError>) {
        self.calling = None;
        let greeting = self.greeting.take();
        let call = match result {
            Ok(call) => call,
            Err(error) => {
                self.tell(&error.to_string());
                return self.dial_later();
            }
        };
        // A channel that began anew meanwhile has greeted with a life that is over.
        let Some(ours) = greeting.filter(|ours| ours.life == self.hello().life) else {
            call.refuse("this end began anew");
            return self.dial_later();
        };
        if let Err(mismatch) = ours.agree(&call.hello) {
            call.refuse(&mismatch.to_string());
            self.tell(&format!("it cannot be linked: {mismatch}"));
            return self.dial_later();
        }
        let (theirs, hear) = (call.hello.clone(), self.hear());
        let link = call.link(hear);
        self.join(link, &ours, &theirs);
    }

    pub(super) fn called(&mut self, caller: Caller) {
        // Whoever calls has lost the link that there was.
        self.drop_link();
        let (ours, theirs, hear) = (self.hello(), caller.hello.clone(), self.hear());
        match caller.welcome(&ours, hear) {
            Ok(link) => self.join(link, &ours, &theirs),
            Err(error) => self.tell(&error.to_string()),
        }
    }

    /// The connection is over.
    pub(super) fn lost(&mut self, reason: &str) {
        if self.link.is_none() {
            return;
        }
        tracing::info!(node = self.args.spec.name, reason, "a link is broken");
        self.drop_link();
        self.dial_later();
    }

    fn hello(&self) -> Hello {
        let spec = &self.args.spec;
        self.channel.hello(&spec.here_name, spec.topology)
    }

    /// Who hears the next connection.
    fn hear(&mut self) -> impl Fn(Heard) + Send + Sync + 'static {
        self.number += 1;
        let (mailbox, number) = (self.mailbox.clone(), self.number);
        move |heard| {
            mailbox.cast(RemoteMsg::Heard(number, heard));
        }
    }

    fn join(&mut self, link: Link, ours: &Hello, theirs: &Hello) {
        let resumed = match self.channel.begin(ours, theirs) {
            Ok(resumed) => resumed,
            Err(unsaid) => {
                link.close(&unsaid.to_string());
                self.tell(&unsaid.to_string());
                return self.dial_later();
            }
        };
        for (stream, frame) in self.channel.unheard() {
            self.counts.resent += 1;
            link.send(stream, frame);
        }
        self.link = Some(link);
        self.counts.connections += 1;
        self.reach(Reach::Here);
        tracing::info!(node = self.args.spec.name, resumed, "a link is made");
        if !resumed {
            let lost: SmallVec<[_; 4]> = self.args.spec.behind.iter().copied().collect();
            for client in &self.args.spec.clients {
                client.cast(ClientMsg::DoorLost(lost.clone()));
            }
        }
    }

    fn drop_link(&mut self) {
        if self.link.is_some() {
            self.past = self.stats();
            self.link = None;
            self.away = self.args.spec.clock.now();
            self.reach(Reach::Away);
        }
        // What it still says counts for nothing.
        self.number += 1;
    }

    fn dial_later(&mut self) {
        if self.args.spec.dials {
            let wait = self.backoff.wait();
            self.calling = Some(self.mailbox.after(wait, || RemoteMsg::Dial));
        }
    }
}
