//! Lists off a wire: room is made for what comes, not for what is announced. A list read by `smallvec` itself takes as much
//! memory as its sender claims to need.

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use smallvec::{Array, SmallVec};
use std::fmt;
use std::marker::PhantomData;

/// Room for so many items is made on the sender's word.
const TRUSTED: usize = 1024;

/// For `#[serde(deserialize_with)]`.
///
/// # Errors
/// Those of the items.
pub fn deserialize<'de, A, D>(deserializer: D) -> Result<SmallVec<A>, D::Error>
where
    A: Array,
    A::Item: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(List(PhantomData))
}

struct List<A>(PhantomData<A>);

impl<'de, A: Array> Visitor<'de> for List<A>
where
    A::Item: Deserialize<'de>,
{
    type Value = SmallVec<A>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<SmallVec<A>, S::Error> {
        let mut list = SmallVec::with_capacity(items.size_hint().unwrap_or(0).min(TRUSTED));
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(list)
    }
}
