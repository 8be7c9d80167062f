//! Takes a policy's hidden text out of a stream of bytes, before stop strings are looked for and anything is shown.
//!
//! What may still become hidden text is held back; when it does not, it goes on as it came. Text left by a removal is not
//! looked at again: two halves of a tag that meet over a removed one are shown.

use tokenrouter_policies::Hidden;

/// What to take out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenSet {
    patterns: Vec<Hidden>,
}

/// How the bytes held back compare with hidden text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// They do not begin with any.
    No,
    /// They are the beginning of one.
    Open,
    /// Their first so many bytes are one.
    Whole(usize),
}

impl HiddenSet {
    /// What a policy hides. Empty texts are never found.
    pub fn new(patterns: &[Hidden]) -> Self {
        let empty = |hidden: &Hidden| match hidden {
            Hidden::Text(text) => text.is_empty(),
            Hidden::Number { open, close, .. } => open.is_empty() || close.is_empty(),
        };
        Self { patterns: patterns.iter().filter(|hidden| !empty(hidden)).cloned().collect() }
    }

    /// Whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Takes one byte behind those in `held` and gives those that are certainly no hidden text to `shown`.
    pub fn advance(&self, held: &mut Vec<u8>, byte: u8, shown: &mut impl Extend<u8>) {
        held.push(byte);
        while !held.is_empty() {
            match self.look(held) {
                Match::Open => return,
                Match::Whole(length) => drop(held.drain(..length)),
                Match::No => shown.extend([held.remove(0)]),
            }
        }
    }

    /// The first pattern that is whole, else whether any may become so.
    fn look(&self, bytes: &[u8]) -> Match {
        let mut found = Match::No;
        for pattern in &self.patterns {
            match look(pattern, bytes) {
                Match::No => {}
                Match::Open => found = Match::Open,
                whole => return whole,
            }
        }
        found
    }
}

fn look(hidden: &Hidden, bytes: &[u8]) -> Match {
    match hidden {
        Hidden::Text(text) => begins(bytes, text.as_bytes()),
        Hidden::Number { open, close, digits_max } => {
            if begins(bytes, open.as_bytes()) != Match::Whole(open.len()) {
                return begins(bytes, open.as_bytes());
            }
            let rest = &bytes[open.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let rest = &rest[digits..];
            match (digits, rest.is_empty()) {
                _ if digits > usize::from(*digits_max) => Match::No,
                (_, true) => Match::Open,
                (0, false) => Match::No,
                _ => match begins(rest, close.as_bytes()) {
                    Match::Whole(length) => Match::Whole(open.len() + digits + length),
                    other => other,
                },
            }
        }
    }
}

/// Compares the first bytes with a text.
fn begins(bytes: &[u8], text: &[u8]) -> Match {
    match text.len() <= bytes.len() {
        true if bytes.starts_with(text) => Match::Whole(text.len()),
        false if text.starts_with(bytes) => Match::Open,
        _ => Match::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of `text` byte by byte, and what is still held back at its end.
    fn shown(set: &HiddenSet, text: &str) -> (String, String) {
        let (mut held, mut shown) = (Vec::new(), Vec::new());
        for &byte in text.as_bytes() {
            set.advance(&mut held, byte, &mut shown);
        }
        (String::from_utf8(shown).unwrap(), String::from_utf8(held).unwrap())
    }

    fn texts(texts: &[&str]) -> HiddenSet {
        HiddenSet::new(&texts.iter().map(|&text| Hidden::Text(text.to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn hidden_text_is_taken_out_and_the_rest_is_not_touched() {
        let tags = texts(&["<big>", "</big>", "<b"]);
        let pair = texts(&["<big>", "</big>"]);
        let overlapping = texts(&["aab", "<a<ab"]);
        let cases = [
            (&pair, "1 <big>2</big> 3", "1 2 3", ""),
            (&pair, "<big><big></big>", "", ""),
            (&pair, "<<big>big>", "<big>", ""),
            (&pair, "<bi<big>g>", "<big>", ""),
            (&pair, "a < b, a <b", "a < b, a ", "<b"),
            (&pair, "é<big>天</bi", "é天", "</bi"),
            (&pair, "<BIG>", "<BIG>", ""),
            // The shorter of two is found first.
            (&tags, "<big>", "ig>", ""),
            (&overlapping, "aaab", "a", ""),
            (&overlapping, "<a<aab", "<a<", ""),
            (&HiddenSet::default(), "<big>", "<big>", ""),
        ];
        for (set, text, rest, held) in cases {
            assert_eq!(shown(set, text), (rest.to_owned(), held.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_number_between_two_texts_is_hidden_with_them() {
        let (open, close) = ("<call>".to_owned(), "</call>".to_owned());
        let set = HiddenSet::new(&[Hidden::Number { open, close, digits_max: 3 }]);
        let cases = [
            ("a<call>5</call>b", "ab", ""),
            ("<call>007</call>", "", ""),
            ("<call>1234</call>", "<call>1234</call>", ""),
            ("<call></call>", "<call></call>", ""),
            ("<call>x</call>", "<call>x</call>", ""),
            ("<call>5</cal<call>6</call>", "<call>5</cal", ""),
            ("<call><call>5</call>", "<call>", ""),
            ("<call>12", "", "<call>12"),
            ("<call>12</c", "", "<call>12</c"),
            ("<call>12</x", "<call>12</x", ""),
        ];
        for (text, rest, held) in cases {
            assert_eq!(shown(&set, text), (rest.to_owned(), held.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn an_empty_text_hides_nothing() {
        let number = |open: &str, close: &str| Hidden::Number {
            open: open.to_owned(),
            close: close.to_owned(),
            digits_max: 2,
        };
        let set = HiddenSet::new(&[Hidden::Text(String::new()), number("", "x"), number("x", "")]);
        assert!(set.is_empty());
        assert_eq!(shown(&set, "1x2").0, "1x2");
    }
}
