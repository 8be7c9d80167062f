//! The chunks of a streamed reply, as they come and however their bytes are cut. It knows nothing of what is in them.

use reqwest::Response;
use serde_json::Value;

/// A reply that is being streamed.
#[derive(Debug)]
pub struct Chunks {
    response: Response,
    /// Bytes of lines that have not ended.
    waiting: Vec<u8>,
}

impl Chunks {
    /// The chunks of this response.
    pub fn of(response: Response) -> Self {
        Self { response, waiting: Vec::new() }
    }

    /// The next chunk; `None` once the stream has said that it is done.
    ///
    /// # Panics
    /// When the stream breaks off, or a chunk is no JSON.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=end).collect();
                let Some(data) = line.strip_prefix(b"data: ") else { continue };
                if data.trim_ascii() == b"[DONE]" {
                    return None;
                }
                return Some(serde_json::from_slice(data).unwrap());
            }
            let piece = self.response.chunk().await.unwrap();
            self.waiting.extend_from_slice(&piece.expect("a stream ends with [DONE]"));
        }
    }
}
