//! Randomness of the operating system, for seeds that nobody chose and for names. The only place that has any.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// 64 bits that nobody can foretell: a keyed hash of nothing, under keys that the operating system gave.
pub fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// 32 hexadecimal digits, never the same twice.
pub fn identifier() -> String {
    format!("{:016x}{:016x}", bits(), bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn identifiers_differ() {
        let many: HashSet<String> = (0..1000).map(|_| identifier()).collect();
        assert_eq!(many.len(), 1000);
        assert!(many.iter().all(|id| id.len() == 32));
    }
}
