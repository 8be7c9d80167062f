//! Finds a few fixed strings in a stream of bytes, one byte at a time, across any borders (Knuth, Morris and Pratt).
//!
//! Stop strings and a policy's delimiters are the same problem. The state is a number per string: how many of its bytes
//! the text ends with. For a stop string that number is also how much text must be held back.

use smallvec::SmallVec;
use tokenrouter_policies::Patterns;

/// Strings to look for; their order numbers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatternSet {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    bytes: Box<[u8]>,
    /// `fallback[n]`: the longest proper prefix that is also a suffix of the first `n + 1` bytes.
    fallback: Box<[u16]>,
}

/// How far each string of a set is matched at the end of the text so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatternState {
    matched: SmallVec<[u16; 4]>,
}

impl PatternSet {
    /// A set of at most 64 strings of at most 65,535 bytes. An empty string never matches.
    pub fn new<S: AsRef<str>>(strings: &[S]) -> Self {
        Self { patterns: strings.iter().map(|s| Pattern::new(s.as_ref().as_bytes())).collect() }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The state before any text.
    pub fn start(&self) -> PatternState {
        PatternState { matched: SmallVec::from_elem(0, self.patterns.len()) }
    }

    /// Takes one byte; the strings that end with it.
    pub fn advance(&self, state: &mut PatternState, byte: u8) -> Patterns {
        let mut completed = 0;
        for (index, (pattern, matched)) in self.patterns.iter().zip(&mut state.matched).enumerate()
        {
            *matched = pattern.next(*matched, byte);
            if *matched as usize == pattern.bytes.len() && !pattern.bytes.is_empty() {
                completed |= 1 << index;
            }
        }
        Patterns(completed)
    }

    /// Takes many bytes; every string that ends within them.
    pub fn advance_all(&self, state: &mut PatternState, bytes: &[u8]) -> Patterns {
        Patterns(bytes.iter().fold(0, |seen, &byte| seen | self.advance(state, byte).0))
    }

    /// The length in bytes of string `index`.
    pub fn length(&self, index: usize) -> usize {
        self.patterns[index].bytes.len()
    }

    /// How many bytes at the end of the text may still become one of the strings.
    pub fn held(&self, state: &PatternState) -> usize {
        let open = self.patterns.iter().zip(&state.matched);
        open.filter(|(p, m)| (**m as usize) < p.bytes.len())
            .map(|(_, m)| *m as usize)
            .max()
            .unwrap_or(0)
    }
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        let mut fallback = vec![0u16; bytes.len()];
        let mut matched = 0usize;
        for at in 1..bytes.len() {
            while matched > 0 && bytes[at] != bytes[matched] {
                matched = usize::from(fallback[matched - 1]);
            }
            matched += usize::from(bytes[at] == bytes[matched]);
            fallback[at] = matched as u16;
        }
        Self { bytes: bytes.into(), fallback: fallback.into() }
    }

    fn next(&self, matched: u16, byte: u8) -> u16 {
        let mut matched = usize::from(matched);
        loop {
            if matched < self.bytes.len() && self.bytes[matched] == byte {
                return matched as u16 + 1;
            }
            if matched == 0 {
                return 0;
            }
            matched = usize::from(self.fallback[matched - 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of every match, found naively.
    fn naive(strings: &[&str], text: &str) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for end in 1..=text.len() {
            for (index, s) in strings.iter().enumerate() {
                if text.as_bytes()[..end].ends_with(s.as_bytes()) {
                    found.push((end, index));
                }
            }
        }
        found
    }

    #[test]
    fn finds_what_a_naive_search_finds() {
        let strings = ["aba", "ab", "bb", "\n\n", "abab"];
        let set = PatternSet::new(&strings);
        for text in ["abababb\n\n\n", "", "bbbb", "aabaabab", "\n\n\n\n"] {
            let mut state = set.start();
            let mut found = Vec::new();
            for (at, &byte) in text.as_bytes().iter().enumerate() {
                let done = set.advance(&mut state, byte);
                found.extend((0..strings.len()).filter(|&i| done.contains(i)).map(|i| (at + 1, i)));
            }
            assert_eq!(found, naive(&strings, text), "{text:?}");
        }
    }

    #[test]
    fn holds_back_the_longest_open_prefix() {
        let set = PatternSet::new(&["DEFGHIJ", "EF"]);
        let mut state = set.start();
        set.advance_all(&mut state, b"ABCDE");
        assert_eq!(set.held(&state), 2);
        set.advance_all(&mut state, b"X");
        assert_eq!(set.held(&state), 0);
    }
}
