//! What two nodes tell each other first: who they are, whether they run the same cluster, and where their link broke.
//!
//! The version stands before everything else, so that nodes of different versions can say so.

use crate::wire;
use serde::{Deserialize, Serialize};

/// The version of frames and messages. Raise it with every change of either.
pub const VERSION: u16 = 1;

/// Largest hello in bytes.
pub(crate) const HELLO_MAX: usize = 1024;

/// The first word of either side on a new connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The speaker's name in the topology.
    pub node: String,
    /// A digest of what both sides must have in common of their topologies.
    pub topology: u64,
    /// This life of the speaker's end of the link; later ones are greater.
    pub life: u64,
    /// The last life of the other end that the speaker knows; 0 if it knows none.
    pub knows: u64,
    /// Of that life, the last number heard on each stream.
    pub heard: [u64; 2],
    /// The number after which the speaker's own frames begin on each stream: what came before is kept no longer.
    pub after: [u64; 2],
}

/// Why two nodes have nothing to say to each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Other frames.
    #[error(
        "it speaks version {theirs} of the protocol, this node version {ours}: run the same release on both"
    )]
    Version {
        /// The peer's.
        theirs: u16,
        /// This node's.
        ours: u16,
    },
    /// Another cluster.
    #[error(
        "its topology has digest {theirs:016x}, this node's {ours:016x}: give both the same file"
    )]
    Topology {
        /// The peer's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Not a hello at all.
    #[error("its first words are no greeting: {0}")]
    Garbled(String),
}

impl Hello {
    /// The hello as bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, wire::Error> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend(wire::encode(self)?);
        Ok(bytes)
    }

    /// The hello of these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Mismatch> {
        let Some((version, rest)) = bytes.split_first_chunk() else {
            return Err(Mismatch::Garbled("they are too short".to_owned()));
        };
        let theirs = u16::from_le_bytes(*version);
        if theirs != VERSION {
            return Err(Mismatch::Version { theirs, ours: VERSION });
        }
        wire::decode(rest).map_err(|error| Mismatch::Garbled(error.to_string()))
    }

    /// Whether both run the same cluster.
    ///
    /// # Errors
    /// [`Mismatch::Topology`] with both digests.
    pub fn agree(&self, theirs: &Self) -> Result<(), Mismatch> {
        if self.topology == theirs.topology {
            return Ok(());
        }
        Err(Mismatch::Topology { theirs: theirs.topology, ours: self.topology })
    }

    /// Whether the link goes on where it broke: each end knows the life of the other. If not, what was under way may be
    /// lost, and both begin with what the other still keeps.
    pub fn resumes(&self, theirs: &Self) -> bool {
        self.knows == theirs.life && theirs.knows == self.life
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(life: u64, knows: u64) -> Hello {
        Hello { node: "a".to_owned(), topology: 7, life, knows, heard: [3, 0], after: [2, 0] }
    }

    #[test]
    fn a_hello_comes_back_as_it_was() {
        let hello = hello(5, 0);
        assert_eq!(Hello::decode(&hello.encode().unwrap()), Ok(hello));
    }

    #[test]
    fn another_version_is_named_whatever_follows() {
        let refused = Hello::decode(&[9, 0, 255, 255]);
        assert_eq!(refused, Err(Mismatch::Version { theirs: 9, ours: VERSION }));
        assert!(matches!(Hello::decode(&[1]), Err(Mismatch::Garbled(_))));
        assert!(matches!(Hello::decode(&[1, 0, 255]), Err(Mismatch::Garbled(_))));
    }

    #[test]
    fn a_link_resumes_between_the_same_two_lives_only() {
        assert!(hello(5, 6).resumes(&hello(6, 5)));
        assert!(!hello(5, 6).resumes(&hello(7, 5)), "the peer began anew");
        assert!(!hello(5, 6).resumes(&hello(6, 0)), "the peer does not know this life");
    }
}
