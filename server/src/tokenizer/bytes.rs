//! The bytes of a token, from its name in the vocabulary.
//!
//! Two schemes cover what is in use: GPT-2's map of bytes to printable characters, and SentencePiece's pieces.

use super::TokenizerError;
use serde_json::Value;

/// How names stand for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Each character of a name is one byte.
    ByteLevel,
    /// A name is text with `▁` for a space; `<0x0A>` is a single byte.
    SentencePiece,
}

impl Scheme {
    /// The scheme that the `decoder` of a `tokenizer.json` undoes.
    pub(super) fn of_decoder(decoder: &Value) -> Result<Self, TokenizerError> {
        let kind = decoder["type"].as_str().unwrap_or("none");
        match kind {
            "ByteLevel" => Ok(Self::ByteLevel),
            "Metaspace" => Ok(Self::SentencePiece),
            "Sequence" => {
                let parts = decoder["decoders"].as_array().map(Vec::as_slice).unwrap_or_default();
                let has = |kind: &str| parts.iter().any(|part| part["type"] == kind);
                if has("ByteLevel") {
                    Ok(Self::ByteLevel)
                } else if has("ByteFallback") || has("Metaspace") {
                    Ok(Self::SentencePiece)
                } else {
                    Err(TokenizerError::Decoder(kind.to_owned()))
                }
            }
            other => Err(TokenizerError::Decoder(other.to_owned())),
        }
    }

    /// The bytes that the token called `name` stands for.
    pub(super) fn bytes(self, name: &str) -> Vec<u8> {
        match self {
            // A name with a character outside the map is text as it is.
            Self::ByteLevel => name
                .chars()
                .map(byte_of)
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| name.as_bytes().to_vec()),
            Self::SentencePiece => match hexadecimal(name) {
                Some(byte) => vec![byte],
                None => name.replace('▁', " ").into_bytes(),
            },
        }
    }
}

/// The byte of `<0xNN>`.
fn hexadecimal(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// Bytes that are printable characters stand for themselves; the others, in order, for the characters from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_byte_map_reaches_every_byte_once() {
        let mut seen = [0; 256];
        let bytes = ('\0'..='\u{200}').filter_map(byte_of);
        bytes.for_each(|byte| seen[usize::from(byte)] += 1);
        assert_eq!(seen, [1; 256]);
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
    }

    #[test]
    fn pieces_have_spaces_and_single_bytes() {
        let scheme = Scheme::SentencePiece;
        assert_eq!(scheme.bytes("▁the"), b" the");
        assert_eq!(scheme.bytes("<0xF0>"), [0xf0]);
        assert_eq!(scheme.bytes("<0x>"), b"<0x>");
        assert_eq!(scheme.bytes("天"), "天".as_bytes());
    }

    #[test]
    fn the_decoder_tells_the_scheme() {
        let sequence = |kind: &str| json!({"type": "Sequence", "decoders": [{"type": kind}, {"type": "Fuse"}]});
        assert_eq!(Scheme::of_decoder(&json!({"type": "ByteLevel"})), Ok(Scheme::ByteLevel));
        assert_eq!(Scheme::of_decoder(&sequence("ByteFallback")), Ok(Scheme::SentencePiece));
        assert_eq!(Scheme::of_decoder(&sequence("ByteLevel")), Ok(Scheme::ByteLevel));
        assert!(Scheme::of_decoder(&json!({"type": "WordPiece"})).is_err());
        assert!(Scheme::of_decoder(&Value::Null).is_err());
    }
}
