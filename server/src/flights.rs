//! How many requests of clients are being answered, so that a server that stops knows when the last is done.

use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// The count.
#[derive(Clone, Debug)]
pub struct Flights(Arc<watch::Sender<usize>>);

/// One request being answered, until it is dropped.
#[derive(Debug)]
pub struct Flight {
    count: Arc<watch::Sender<usize>>,
    begun: Instant,
}

impl Default for Flights {
    fn default() -> Self {
        Self(Arc::new(watch::channel(0).0))
    }
}

impl Flights {
    /// Counts a request.
    pub fn start(&self) -> Flight {
        self.0.send_modify(|count| *count += 1);
        Flight { count: Arc::clone(&self.0), begun: Instant::now() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until there is none.
    pub async fn landed(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        drop(self.0.subscribe().wait_for(|count| *count == 0).await);
    }
}

impl Flight {
    /// When it arrived.
    pub fn begun(&self) -> Instant {
        self.begun
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_the_last() {
        let flights = Flights::default();
        flights.landed().await;
        let (one, two) = (flights.start(), flights.start());
        assert_eq!(flights.count(), 2);
        let waiting = tokio::spawn({
            let flights = flights.clone();
            async move { flights.landed().await }
        });
        drop(one);
        assert_eq!(flights.count(), 1);
        drop(two);
        waiting.await.unwrap();
    }
}
