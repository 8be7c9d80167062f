//! Bytes to text without ever showing half a character or a byte that may belong to a stop string.

/// The bytes of one reply that are not shown yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detokenizer {
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Takes the bytes of a token.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Drops the last `bytes` bytes: the stop string that ended the reply.
    pub fn cut(&mut self, bytes: usize) {
        self.pending.truncate(self.pending.len().saturating_sub(bytes));
    }

    /// The text that may be shown now: everything but the last `held` bytes and a character still incomplete. Bytes
    /// that can never become a character are shown as U+FFFD.
    pub fn take(&mut self, held: usize) -> String {
        let ready = self.pending.len().saturating_sub(held);
        let (text, used) = decode(&self.pending[..ready]);
        self.pending.drain(..used);
        text
    }

    /// The rest of the text; an incomplete character at the very end is shown as U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// The text of `bytes`, and how many of them it uses: all but an incomplete last character.
fn decode(bytes: &[u8]) -> (String, usize) {
    let mut text = String::new();
    let mut used = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        used += chunk.valid().len();
        let invalid = chunk.invalid();
        let last = used + invalid.len() == bytes.len();
        if invalid.is_empty() || (last && incomplete(invalid)) {
            continue;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        used += invalid.len();
    }
    (text, used)
}

/// Whether more bytes could make a character of these.
fn incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &[u8], size: usize) -> Vec<String> {
        let mut detokenizer = Detokenizer::default();
        let mut shown: Vec<String> = bytes
            .chunks(size)
            .map(|chunk| {
                detokenizer.push(chunk);
                detokenizer.take(0)
            })
            .collect();
        shown.push(detokenizer.finish());
        shown
    }

    #[test]
    fn never_shows_half_a_character() {
        for size in 1..6 {
            let shown = stream("ď 🔥 天 e\u{301} x".as_bytes(), size);
            assert!(shown.iter().all(|s| !s.contains('\u{fffd}')), "{shown:?}");
            assert_eq!(shown.concat(), "ď 🔥 天 e\u{301} x");
        }
    }

    #[test]
    fn pieces_join_to_what_the_whole_decodes_to() {
        let rubbish =
            [b'a', 0xff, 0xf0, 0x9f, b'b', 0xe5, 0xa4, 0x80, 0x80, 0xc3, b'c', 0xf0, 0x9f, 0x94];
        for size in 1..=rubbish.len() {
            assert_eq!(
                stream(&rubbish, size).concat(),
                String::from_utf8_lossy(&rubbish),
                "by {size}"
            );
        }
    }

    #[test]
    fn holds_back_and_cuts() {
        let mut d = Detokenizer::default();
        d.push(b"alphabet: ABCDE");
        assert_eq!(d.take(2), "alphabet: ABC");
        d.push(b"F");
        d.cut(3);
        assert_eq!(d.finish(), "");
    }
}
