//! The choices of one client's request while they are generated.
//!
//! Dropping a [`Generation`] drops its sessions, and a session that is dropped cancels its request at every model.

use crate::catalog::Catalog;
use crate::metrics::Meter;
use crate::openai::response::Choice;
use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use std::sync::Arc;
use tokenrouter_actors::{Event, Gateway, Session};
use tokenrouter_protocol::{Failure, Request};

/// The events of all choices, as they come.
pub struct Generation {
    events: SelectAll<BoxStream<'static, (usize, Event)>>,
    choices: usize,
    /// Whoever wants to know of every event, and the names of the models.
    watch: Option<(Meter, Arc<Catalog>)>,
}

impl Generation {
    /// Opens every choice, or none.
    ///
    /// # Errors
    /// The failure of the first that is not admitted; those before it are cancelled.
    pub async fn open(gateway: &Gateway, requests: Vec<Request>) -> Result<Self, Failure> {
        let choices = requests.len();
        let mut events = SelectAll::new();
        for (index, request) in requests.into_iter().enumerate() {
            let session = gateway.open(request).await?;
            events.push(follow(index, session));
        }
        Ok(Self { events, choices, watch: None })
    }

    /// Lets `meter` see every event from now on.
    pub(crate) fn watched(self, meter: Meter, catalog: Arc<Catalog>) -> Self {
        Self { watch: Some((meter, catalog)), ..self }
    }

    /// How many choices there are.
    pub fn choices(&self) -> usize {
        self.choices
    }

    /// The next event and its choice; `None` after the last choice is done.
    pub async fn next(&mut self) -> Option<(usize, Event)> {
        let (index, event) = self.events.next().await?;
        if let Some((meter, catalog)) = &mut self.watch {
            meter.note(index, &event, &catalog.models);
        }
        Some((index, event))
    }

    /// Waits for the whole text of every choice.
    ///
    /// # Errors
    /// The first failure; the other choices are cancelled.
    pub async fn collect(mut self) -> Result<Vec<Choice>, Failure> {
        let mut texts = vec![String::new(); self.choices];
        let mut outcomes = vec![None; self.choices];
        while let Some((index, event)) = self.next().await {
            match event {
                Event::Progress(progress) => texts[index].push_str(&progress.text),
                Event::Done(result) => outcomes[index] = Some(result?),
            }
        }
        let choices = texts.into_iter().zip(outcomes);
        Ok(choices.filter_map(|(text, outcome)| Some(Choice { text, outcome: outcome? })).collect())
    }
}

fn follow(index: usize, session: Session) -> BoxStream<'static, (usize, Event)> {
    stream::unfold(session, move |mut session| async move {
        let event = session.next().await?;
        Some(((index, event), session))
    })
    .boxed()
}
