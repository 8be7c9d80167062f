//! A channel: everything said to one other node and heard from it, across all connections.
//!
//! It knows neither sockets nor actors. What is said keeps its number until the peer has heard it; what lies between two
//! connections of the same two lives is said again, once.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokenrouter_protocol::outbox::Unsaid;
use tokenrouter_protocol::{
    Arrival, Full, HomeSays, HomeWord, Inbox, Outbox, OutboxLimits, Parcel,
};
use tokenrouter_transport::wire::{self, FRAME_MAX};
use tokenrouter_transport::{Hello, Stream};

/// How much may be under way to one peer on each stream.
const LIMITS: OutboxLimits = OutboxLimits { frames: 1 << 16, bytes: 32 << 20 };

/// A suffix of more tokens than this takes the bulk stream: about 1 KB.
const EXPRESS_TOKENS: usize = 400;

/// Most bytes of what was heard.
const HEARD_MAX: usize = 18;

const STREAMS: [Stream; 2] = [Stream::Express, Stream::Bulk];

/// Everything that one node has to say to another after a moment of work.
#[derive(Debug, Deserialize)]
struct Frame {
    /// Up to where the speaker has heard each stream of the other.
    heard: [u64; 2],
    /// Its number on its stream; 0 for one that only acknowledges.
    number: u64,
    parcels: Vec<Parcel>,
}

/// All of a [`Frame`] but what was heard: that is told as it is when the frame is sent, and not as it was when it was
/// sealed.
#[derive(Serialize)]
struct Sealed<'a> {
    number: u64,
    parcels: &'a [Parcel],
}

/// Why a connection must end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// No frame.
    #[error("it sent garbage: {0}")]
    Garbled(#[from] wire::Error),
    /// A frame that was heard before.
    #[error("it sent frame {number} again, which was heard before; the last was {heard}")]
    Replayed {
        /// The frame's number.
        number: u64,
        /// The last that was heard.
        heard: u64,
    },
    /// Frames are missing.
    #[error("it sent frame {number} after frame {heard}")]
    Gap {
        /// The frame's number.
        number: u64,
        /// The last that was heard.
        heard: u64,
    },
    /// It has heard what nobody said.
    #[error(transparent)]
    Unsaid(#[from] Unsaid),
}

/// One node's end.
pub(super) struct Channel {
    life: u64,
    /// The life of the other end; 0 before the first connection.
    knows: u64,
    outboxes: [Outbox<Bytes>; 2],
    inboxes: [Inbox; 2],
    /// What the next frames hold.
    pending: [Vec<Parcel>; 2],
    /// Frames heard since that was last told.
    owed: u32,
}

impl Channel {
    /// A channel on which nothing was said, in a new life.
    pub(super) fn new(life: u64) -> Self {
        Self {
            life,
            knows: 0,
            outboxes: [Outbox::new(LIMITS), Outbox::new(LIMITS)],
            inboxes: Default::default(),
            pending: Default::default(),
            owed: 0,
        }
    }

    /// How this end greets.
    pub(super) fn hello(&self, node: &str, topology: u64) -> Hello {
        Hello {
            node: node.to_owned(),
            topology,
            life: self.life,
            knows: self.knows,
            heard: self.inboxes.each_ref().map(Inbox::heard),
            after: self.outboxes.each_ref().map(Outbox::heard),
        }
    }

    /// A new connection begins with these greetings; whether it goes on where the last one broke. If not, words of either
    /// side may be lost.
    pub(super) fn begin(&mut self, ours: &Hello, theirs: &Hello) -> Result<bool, Unsaid> {
        let resumes = ours.resumes(theirs);
        if resumes {
            for (outbox, heard) in self.outboxes.iter_mut().zip(theirs.heard) {
                outbox.acknowledge(heard)?;
            }
        } else {
            self.knows = theirs.life;
            self.inboxes = theirs.after.map(Inbox::after);
        }
        Ok(resumes)
    }

    /// What a new connection carries first: all that the peer may not have heard.
    pub(super) fn unheard(&self) -> Vec<(Stream, Bytes)> {
        let frames = STREAMS.into_iter().zip(&self.outboxes);
        let frames = frames.flat_map(|(stream, outbox)| outbox.unheard().map(move |f| (stream, f)));
        frames.map(|(stream, sealed)| (stream, self.told(sealed))).collect()
    }

    /// Keeps a parcel for the next frame.
    pub(super) fn put(&mut self, parcel: Parcel) {
        let stream = self.stream(&parcel);
        self.pending[stream as usize].push(parcel);
    }

    /// Makes frames of what was put, and gives them to be sent.
    ///
    /// # Errors
    /// [`Full`], when the peer has not heard too much: this life of the channel is over.
    pub(super) fn seal(&mut self) -> Result<Vec<(Stream, Bytes)>, Full> {
        let mut frames = Vec::new();
        for stream in STREAMS {
            let parcels = std::mem::take(&mut self.pending[stream as usize]);
            if !parcels.is_empty() {
                self.seal_all(stream, &parcels, &mut frames)?;
            }
        }
        if !frames.is_empty() {
            self.owed = 0;
        }
        Ok(frames)
    }

    /// A frame that only tells what was heard, if that was not told yet.
    pub(super) fn acknowledgement(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.owed) == 0 {
            return None;
        }
        let sealed = wire::encode(&Sealed { number: 0, parcels: &[] }).ok()?;
        Some(self.told(&sealed))
    }

    /// Frames heard since that was last told.
    pub(super) fn owed(&self) -> u32 {
        self.owed
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// See [`Broken`]; it had no effect then, and the connection must end.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8]) -> Result<Vec<Parcel>, Broken> {
        let Frame { heard: told, number, parcels } = wire::decode(bytes)?;
        let mut inbox = self.inboxes[stream as usize];
        let heard = inbox.heard();
        let fresh = match inbox.take(number) {
            // Only acknowledges.
            _ if number == 0 => false,
            Arrival::New => true,
            Arrival::Replayed => return Err(Broken::Replayed { number, heard }),
            Arrival::Gap => return Err(Broken::Gap { number, heard }),
        };
        for (outbox, heard) in self.outboxes.iter_mut().zip(told) {
            outbox.acknowledge(heard)?;
        }
        self.inboxes[stream as usize] = inbox;
        self.owed += u32::from(fresh);
        Ok(parcels)
    }

    /// Frames that the peer has not heard yet.
    pub(super) fn waiting(&self) -> usize {
        self.outboxes.iter().map(Outbox::waiting).sum()
    }

    fn seal_all(
        &mut self,
        stream: Stream,
        parcels: &[Parcel],
        frames: &mut Vec<(Stream, Bytes)>,
    ) -> Result<(), Full> {
        let outbox = &mut self.outboxes[stream as usize];
        match wire::encode(&Sealed { number: outbox.next(), parcels }) {
            Ok(sealed) if sealed.len() <= FRAME_MAX - HEARD_MAX => {
                let sealed = Bytes::from(sealed);
                outbox.push(sealed.clone())?;
                frames.push((stream, self.told(&sealed)));
                Ok(())
            }
            _ if parcels.len() > 1 => {
                let (first, second) = parcels.split_at(parcels.len() / 2);
                self.seal_all(stream, first, frames)?;
                self.seal_all(stream, second, frames)
            }
            _ => {
                // No prompt that a model can read is as long as a frame.
                tracing::error!("words to another node are lost: they are longer than any frame");
                Ok(())
            }
        }
    }

    /// A sealed frame with what was heard until now.
    fn told(&self, sealed: &[u8]) -> Bytes {
        let heard = self.inboxes.each_ref().map(Inbox::heard);
        // Two numbers are always encoded.
        let mut bytes = wire::encode(&heard).unwrap_or_default();
        bytes.extend_from_slice(sealed);
        bytes.into()
    }

    /// Long suffixes must not hold up short ones; a question about a turn must not come before its grant.
    fn stream(&self, parcel: &Parcel) -> Stream {
        let Parcel::ToModel { says: HomeSays { words, .. }, .. } = parcel else {
            return Stream::Express;
        };
        let under_way =
            || self.outboxes[1].waiting() > 0 || !self.pending[Stream::Bulk as usize].is_empty();
        let bulk = words.iter().any(|word| match word {
            HomeWord::Grant(grant) => grant.suffix.len() > EXPRESS_TOKENS,
            HomeWord::Probe { .. } => under_way(),
            HomeWord::Finish { .. } => false,
        });
        if bulk { Stream::Bulk } else { Stream::Express }
    }
}

#[cfg(test)]
mod tests;
