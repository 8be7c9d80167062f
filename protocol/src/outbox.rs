//! One direction of one stream of a link: frames keep a number and are kept until the other side has them, so that a
//! connection may break anywhere and the next one goes on where it broke.
//!
//! It knows neither sockets nor what a frame says; its numbers hold for one pair of lives of the two nodes.

use std::collections::VecDeque;

/// How much may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Frames that the other side has not heard yet.
    pub frames: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// A frame more than the limits allow. The link begins a new life; what was kept is gone, as with a lost node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{frames} frames with {bytes} bytes are not heard yet; no more are kept for this peer")]
pub struct Full {
    /// Frames kept.
    pub frames: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The peer acknowledges what was never said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer says that it heard frame {heard}; the last one said is {said}")]
pub struct Unsaid {
    /// What it claims.
    pub heard: u64,
    /// The number of the last frame said.
    pub said: u64,
}

/// Frames said and not yet known to be heard. `F` is a frame; it has a length in bytes.
#[derive(Clone, Debug)]
pub struct Outbox<F> {
    limits: OutboxLimits,
    kept: VecDeque<F>,
    bytes: usize,
    /// The number of the last frame that was heard.
    heard: u64,
}

impl<F: AsRef<[u8]>> Outbox<F> {
    /// Nothing said yet.
    pub fn new(limits: OutboxLimits) -> Self {
        Self { limits, kept: VecDeque::new(), bytes: 0, heard: 0 }
    }

    /// The number that the next frame carries; the first is 1.
    pub fn next(&self) -> u64 {
        self.heard + self.kept.len() as u64 + 1
    }

    /// Keeps a frame under the number [`Outbox::next`] until it is acknowledged.
    ///
    /// # Errors
    /// [`Full`] over the limits; nothing is kept then. One frame is always taken, however large.
    pub fn push(&mut self, frame: F) -> Result<(), Full> {
        let length = frame.as_ref().len();
        let over = self.kept.len() >= self.limits.frames || self.bytes + length > self.limits.bytes;
        if over && !self.kept.is_empty() {
            return Err(Full { frames: self.kept.len(), bytes: self.bytes });
        }
        self.bytes += length;
        self.kept.push_back(frame);
        Ok(())
    }

    /// The peer has heard everything up to number `heard`. An older word than the last changes nothing.
    ///
    /// # Errors
    /// [`Unsaid`], and nothing changes.
    pub fn acknowledge(&mut self, heard: u64) -> Result<(), Unsaid> {
        let said = self.next() - 1;
        if heard > said {
            return Err(Unsaid { heard, said });
        }
        while self.heard < heard {
            self.bytes -= self.kept.pop_front().map_or(0, |frame| frame.as_ref().len());
            self.heard += 1;
        }
        Ok(())
    }

    /// The frames that are not known to be heard, in order: what a new connection begins with.
    pub fn unheard(&self) -> impl Iterator<Item = &F> {
        self.kept.iter()
    }

    /// How many there are.
    pub fn waiting(&self) -> usize {
        self.kept.len()
    }

    /// The number of the last frame that is kept no longer.
    pub fn heard(&self) -> u64 {
        self.heard
    }
}

/// What was heard of the other side's outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inbox {
    heard: u64,
}

/// What a frame is, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next one: take it.
    New,
    /// It was taken before: leave it.
    Replayed,
    /// Frames before it are missing: the stream is broken.
    Gap,
}

impl Inbox {
    /// An inbox of which everything up to number `heard` is over, heard or lost.
    pub fn after(heard: u64) -> Self {
        Self { heard }
    }

    /// Judges the frame with this number, and notes it if it is the next one.
    pub fn take(&mut self, number: u64) -> Arrival {
        if number <= self.heard {
            Arrival::Replayed
        } else if number == self.heard + 1 {
            self.heard = number;
            Arrival::New
        } else {
            Arrival::Gap
        }
    }

    /// The number up to which everything was heard.
    pub fn heard(&self) -> u64 {
        self.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: OutboxLimits = OutboxLimits { frames: 4, bytes: 100 };

    #[test]
    fn what_is_not_heard_is_said_again_and_taken_once() {
        // Connections that break after each count of frames, with acknowledgements that lag behind.
        for breaks in 1..4 {
            let mut outbox = Outbox::new(LIMITS);
            let mut inbox = Inbox::default();
            let mut taken = Vec::new();
            for said in 1..=40u8 {
                outbox.push(vec![said]).unwrap();
                if said % breaks == 0 {
                    let first = outbox.next() - outbox.waiting() as u64;
                    for (number, frame) in (first..).zip(outbox.unheard()) {
                        if inbox.take(number) == Arrival::New {
                            taken.push(frame[0]);
                        }
                    }
                    outbox.acknowledge(inbox.heard() - u64::from(said % 2)).unwrap();
                }
            }
            let all: Vec<u8> = (1..=40 - 40 % breaks).collect();
            assert_eq!(taken, all, "breaks after {breaks}");
        }
    }

    #[test]
    fn a_frame_is_new_once_and_never_out_of_order() {
        let mut inbox = Inbox::default();
        let seen = [1, 1, 3, 2, 3, 0, u64::MAX].map(|number| inbox.take(number));
        use Arrival::{Gap, New, Replayed};
        assert_eq!(seen, [New, Replayed, Gap, New, New, Replayed, Gap]);
        assert_eq!(inbox.heard(), 3);
    }

    #[test]
    fn limits_hold_but_for_a_single_frame() {
        let mut outbox = Outbox::new(LIMITS);
        outbox.push(vec![0; 200]).unwrap();
        assert_eq!(outbox.push(vec![0]), Err(Full { frames: 1, bytes: 200 }));
        outbox.acknowledge(1).unwrap();
        for _ in 0..4 {
            outbox.push(vec![0]).unwrap();
        }
        assert_eq!(outbox.push(vec![0]), Err(Full { frames: 4, bytes: 4 }));
        assert_eq!(outbox.next(), 6);
    }

    #[test]
    fn nobody_hears_what_was_not_said() {
        let mut outbox = Outbox::new(LIMITS);
        outbox.push(vec![1]).unwrap();
        assert_eq!(outbox.acknowledge(2), Err(Unsaid { heard: 2, said: 1 }));
        outbox.acknowledge(1).unwrap();
        outbox.acknowledge(0).unwrap();
        assert_eq!((outbox.waiting(), outbox.next()), (0, 2));
    }
}
