//! Events in the order of their time; those of one moment in the order they were put in.

use crate::world::plan::Micros;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    number: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Micros,
    number: u64,
    event: E,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }
}

impl<E> Queue<E> {
    /// Puts an event in.
    pub(crate) fn push(&mut self, at: Micros, event: E) {
        self.number += 1;
        self.heap.push(Entry { at, number: self.number, event });
    }

    /// Takes the next event out, and its time.
    pub(crate) fn pop(&mut self) -> Option<(Micros, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

/// A heap gives its greatest entry first, so the earliest is the greatest.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}
