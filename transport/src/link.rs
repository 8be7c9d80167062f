//! A link: one connection to a peer, with two streams each way. Frames that hold up nobody take the express stream,
//! large ones the other.
//!
//! It delivers in order on each stream, or breaks. It resends nothing after that and acknowledges nothing: frames carry
//! numbers of their own for those who do.

use crate::endpoint::open;
use crate::wire::FRAME_MAX;
use bytes::Bytes;
use quinn::{Connection, ReadExactError, RecvStream, SendStream, VarInt};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The kinds of streams, as their first byte says.
pub(crate) const EXPRESS: u8 = 0;
const BULK: u8 = 1;

/// Why a connection is closed, in numbers.
pub(crate) const REFUSED: u32 = 1;
const BROKEN: u32 = 2;

/// Bytes of frames that may wait for whoever hears them; the peer is held up beyond.
const RECEIVE_MAX: usize = 2 * FRAME_MAX;

/// Frames that are written together at most.
const TOGETHER: usize = 32;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// For what is short.
    Express,
    /// For what is long.
    Bulk,
}

/// What comes of a link. `Closed` comes once, whoever closed it.
#[derive(Debug)]
pub enum Heard {
    /// A frame.
    Frame {
        /// Where it came.
        stream: Stream,
        /// Its bytes.
        bytes: Bytes,
        /// Room that is given back when this is dropped: hold it until the frame is dealt with.
        room: Room,
    },
    /// The link is broken.
    Closed {
        /// Why.
        reason: String,
    },
}

/// Room that a frame takes among those that wait.
#[derive(Debug)]
pub struct Room(#[expect(dead_code, reason = "held for its end alone")] OwnedSemaphorePermit);

/// What a link has carried, as its connection counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Bytes of packets sent.
    pub sent: u64,
    /// Bytes of packets received.
    pub received: u64,
    /// Packets lost on the way and sent again.
    pub lost: u64,
    /// Round-trip time.
    pub rtt: Duration,
}

/// Both ends of the express stream, before the link is started.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) connection: Connection,
    pub(crate) said: SendStream,
    pub(crate) heard: RecvStream,
    /// What is written first.
    pub(crate) preface: Option<Vec<u8>>,
}

/// A running link. It ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    connection: Connection,
    express: mpsc::UnboundedSender<Bytes>,
    bulk: mpsc::UnboundedSender<Bytes>,
}

/// What the tasks of a link share.
struct Shared {
    connection: Connection,
    hear: Arc<dyn Fn(Heard) + Send + Sync>,
    /// Why this side has closed it.
    broken: OnceLock<String>,
    room: Arc<Semaphore>,
}

impl Link {
    pub(crate) fn start(ends: Ends, hear: Arc<dyn Fn(Heard) + Send + Sync>) -> Self {
        let Ends { connection, said, heard, preface } = ends;
        let (express, express_queue) = mpsc::unbounded_channel();
        let (bulk, bulk_queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            connection: connection.clone(),
            hear,
            broken: OnceLock::new(),
            room: Arc::new(Semaphore::new(RECEIVE_MAX)),
        });
        tokio::spawn(write_express(said, preface, express_queue));
        tokio::spawn(write_bulk(connection.clone(), bulk_queue));
        tokio::spawn(Arc::clone(&shared).read(Stream::Express, heard));
        tokio::spawn(Arc::clone(&shared).read_bulk());
        tokio::spawn(shared.watch());
        Self { connection, express, bulk }
    }

    /// Sends a frame of at most [`FRAME_MAX`] bytes. It never waits: what is under way is bounded by who keeps it for a
    /// resend. On a broken link it is lost.
    pub fn send(&self, stream: Stream, frame: Bytes) {
        debug_assert!(frame.len() <= FRAME_MAX, "a frame over the limit");
        let queue = match stream {
            Stream::Express => &self.express,
            Stream::Bulk => &self.bulk,
        };
        drop(queue.send(frame));
    }

    /// Breaks the link; the peer is told why.
    pub fn close(&self, reason: &str) {
        self.connection.close(VarInt::from_u32(BROKEN), reason.as_bytes());
    }

    /// What it has carried.
    pub fn stats(&self) -> LinkStats {
        let stats = self.connection.stats();
        LinkStats {
            sent: stats.udp_tx.bytes,
            received: stats.udp_rx.bytes,
            lost: stats.path.lost_packets,
            rtt: stats.path.rtt,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.close(VarInt::from_u32(0), b"the link is given up");
    }
}

impl Shared {
    /// Tells of the end.
    async fn watch(self: Arc<Self>) {
        let reason = self.connection.closed().await;
        let reason = self.broken.get().cloned().unwrap_or_else(|| reason.to_string());
        (self.hear)(Heard::Closed { reason });
    }

    /// Breaks the link for what the peer did. Where it is broken already, that is no news.
    fn break_up(&self, reason: String) {
        if self.connection.close_reason().is_some() {
            return;
        }
        let reason = self.broken.get_or_init(|| reason);
        self.connection.close(VarInt::from_u32(BROKEN), reason.as_bytes());
    }

    async fn read_bulk(self: Arc<Self>) {
        let Ok(mut stream) = self.connection.accept_uni().await else { return };
        let mut kind = [0];
        match stream.read_exact(&mut kind).await {
            Ok(()) if kind == [BULK] => self.read(Stream::Bulk, stream).await,
            Ok(()) => self.break_up(format!("the peer opened a stream of kind {}", kind[0])),
            Err(error) => self.break_up(format!("the peer opened a stream and said {error}")),
        }
    }

    async fn read(self: Arc<Self>, stream: Stream, mut from: RecvStream) {
        loop {
            match self.frame(&mut from).await {
                Ok(Some((bytes, room))) => (self.hear)(Heard::Frame { stream, bytes, room }),
                Ok(None) => return self.break_up("the peer ended a stream".to_owned()),
                Err(reason) => return self.break_up(reason),
            }
        }
    }

    /// The next frame; `None` at the end of the stream.
    async fn frame(&self, from: &mut RecvStream) -> Result<Option<(Bytes, Room)>, String> {
        let mut length = [0; 4];
        match from.read_exact(&mut length).await {
            Ok(()) => {}
            Err(ReadExactError::FinishedEarly(0)) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
        let length = u32::from_le_bytes(length);
        if length as usize > FRAME_MAX {
            return Err(format!(
                "the peer announced a frame of {length} bytes; at most {FRAME_MAX} are taken"
            ));
        }
        let room = Arc::clone(&self.room).acquire_many_owned(length).await;
        let room = room.map_err(|error| error.to_string())?;
        let mut bytes = vec![0; length as usize];
        from.read_exact(&mut bytes).await.map_err(|error| error.to_string())?;
        Ok(Some((bytes.into(), Room(room))))
    }
}

async fn write_express(
    mut stream: SendStream,
    preface: Option<Vec<u8>>,
    queue: mpsc::UnboundedReceiver<Bytes>,
) {
    if let Some(preface) = preface
        && stream.write_all(&preface).await.is_err()
    {
        return;
    }
    write(stream, queue, None).await;
}

/// Opens the stream with the first frame that wants it.
async fn write_bulk(connection: Connection, mut queue: mpsc::UnboundedReceiver<Bytes>) {
    let Some(first) = queue.recv().await else { return };
    let Some(stream) = open(&connection, BULK).await else { return };
    write(stream, queue, Some(first)).await;
}

/// Writes what is queued, as much at once as there is. A stream that cannot be written ends with its connection, of
/// which [`Shared::watch`] tells.
async fn write(
    mut stream: SendStream,
    mut queue: mpsc::UnboundedReceiver<Bytes>,
    first: Option<Bytes>,
) {
    let mut frames: Vec<Bytes> = first.into_iter().collect();
    let mut chunks = Vec::new();
    loop {
        if frames.is_empty() && queue.recv_many(&mut frames, TOGETHER).await == 0 {
            return;
        }
        for frame in frames.drain(..) {
            chunks.push(Bytes::copy_from_slice(&(frame.len() as u32).to_le_bytes()));
            chunks.push(frame);
        }
        if stream.write_all_chunks(&mut chunks).await.is_err() {
            return;
        }
        chunks.clear();
    }
}
