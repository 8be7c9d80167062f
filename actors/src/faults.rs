//! Faults on purpose: named points at which a test may let an actor die.
//!
//! A node without a plan of faults pays one branch a point. Nothing here decides what dies; whoever starts the node does.

use crate::admin::Target;
use std::fmt;
use std::sync::Arc;
use tokenrouter_protocol::{HomeSays, HomeWord, ModelSays, ModelWord, Parcel, RowOutcome};

/// A moment in the life of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// Who is there.
    pub actor: Target,
    /// How far it is with a message.
    pub stage: Stage,
    /// What the message, or the effect, is about.
    pub about: &'static str,
}

/// How far an actor is with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// It was taken from the mailbox and nothing was done: a death here is one with the message still in the mailbox.
    Heard,
    /// Everything is decided, nothing is said to anybody.
    Decided,
    /// This effect is performed, those after it are not.
    Said,
}

/// A plan of faults: whether the actor dies at a point. The default has none.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<dyn Fn(Point) -> bool + Send + Sync>>);

/// The names of what a message is about.
pub(crate) type About = Vec<&'static str>;

/// The death that a plan asked for; like a kill it counts against no budget.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a planned fault at {0}")]
pub(crate) struct Planned(Point);

impl Faults {
    /// A plan.
    pub fn new(dies: impl Fn(Point) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(dies)))
    }

    /// What a message is about; nothing is looked at where there is no plan.
    pub(crate) fn about(&self, name: impl FnOnce(&mut About)) -> About {
        let mut about = About::new();
        if self.0.is_some() {
            name(&mut about);
        }
        about
    }

    /// A point for each thing the message is about.
    ///
    /// # Errors
    /// The actor dies here.
    pub(crate) fn at(&self, actor: Target, stage: Stage, about: &About) -> Result<(), Planned> {
        let Some(dies) = &self.0 else { return Ok(()) };
        let mut points = about.iter().map(|about| Point { actor, stage, about });
        match points.find(|point| dies(*point)) {
            Some(point) => Err(Planned(point)),
            None => Ok(()),
        }
    }
}

/// Names what a home says.
pub(crate) fn home_words(says: &HomeSays, about: &mut About) {
    about.extend(says.words.iter().map(|word| match word {
        HomeWord::Grant(_) => "grant",
        HomeWord::Finish { .. } => "finish",
        HomeWord::Probe { .. } => "probe",
    }));
}

/// Names what a model says.
pub(crate) fn model_words(says: &ModelSays, about: &mut About) {
    about.extend(says.words.iter().map(|word| match word {
        ModelWord::Row(row) => match row.outcome {
            RowOutcome::Going => "row",
            RowOutcome::Next { .. } => "handoff",
            RowOutcome::Ended => "ended",
        },
        ModelWord::Missing { .. } => "missing",
        ModelWord::Closed { .. } => "closed",
        ModelWord::Holding { .. } => "holding",
        ModelWord::Reborn => "reborn",
        ModelWord::DoorLost => "door-lost",
    }));
}

/// Names what is in a parcel.
pub(crate) fn parcel_words(parcel: &Parcel, about: &mut About) {
    match parcel {
        Parcel::ToModel { says, .. } => home_words(says, about),
        Parcel::ToHome { says, .. } => model_words(says, about),
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Faults(a plan)" } else { "Faults(none)" })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { actor, stage, about } = self;
        write!(f, "{actor:?} {stage:?} {about}")
    }
}
