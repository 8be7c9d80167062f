//! The vocabulary of every world: few tokens, so that stop strings and delimiters come up often, merged into one token
//! or split over several.

use tokenrouter_protocol::{Piece, Vocabulary};

/// Tokens there are.
pub(crate) const TOKENS: u32 = 40;

/// Stop strings that requests ask for.
pub(crate) const STOPS: [&str; 7] = ["ab", "b\n", "é", "cab", "\n\n", "ddd", "a. b"];

/// The vocabulary; its last two tokens end a reply.
pub(crate) fn vocabulary() -> Vocabulary {
    let texts: [&[u8]; TOKENS as usize] = [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"ab",
        b"ca",
        b"b\n",
        b"\n",
        b"\n\n",
        b".\n\n",
        b"\n\nb",
        b"dd",
        b"d",
        b" ",
        b". ",
        b"\xc3",
        b"\xa9",
        "é".as_bytes(),
        b"\xff",
        b"</",
        b"t>",
        b"</t>",
        b"x</t>\n\n",
        b"\n\n</t>",
        b"f",
        b"g",
        b"h",
        b"i",
        b"j",
        b"k",
        b"l",
        b"m",
        b"n",
        b"o",
        b"p",
        b"",
        b"<turn>",
        b"<end>",
        b"<eos>",
    ];
    let pieces = texts
        .iter()
        .enumerate()
        .map(|(token, bytes)| Piece { bytes: bytes.to_vec(), visible: token < 37 });
    Vocabulary::new(pieces, vec![TOKENS - 2, TOKENS - 1])
}
