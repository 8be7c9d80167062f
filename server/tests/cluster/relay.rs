//! A bad network between two sockets of this machine: each packet may be lost, and comes late, later than some that were
//! sent after it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::Mutex;

/// One packet in so many is lost.
const LOST: u64 = 100;
/// How late a packet is at least, and how much later it may be.
const DELAY: Duration = Duration::from_micros(500);
const JITTER_US: u64 = 1000;

/// The packets so far.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    pub(crate) passed: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// Stands at `address` for `server`, for one client, until the runtime ends.
pub(crate) async fn relay(address: SocketAddr, server: SocketAddr) -> Arc<Toll> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let front = Arc::new(UdpSocket::bind(address).await.unwrap());
    let back = Arc::new(UdpSocket::bind(any).await.unwrap());
    let toll = Arc::new(Toll::default());
    let client = Arc::new(Mutex::new(None));
    let there = {
        let (front, back, toll) = (Arc::clone(&front), Arc::clone(&back), Arc::clone(&toll));
        let client = Arc::clone(&client);
        async move {
            let mut bytes = [0; 65536];
            while let Ok((length, from)) = front.recv_from(&mut bytes).await {
                *client.lock().await = Some(from);
                toll.carry(&back, server, bytes[..length].to_vec());
            }
        }
    };
    let here = {
        let toll = Arc::clone(&toll);
        async move {
            let mut bytes = [0; 65536];
            while let Ok((length, _)) = back.recv_from(&mut bytes).await {
                if let Some(to) = *client.lock().await {
                    toll.carry(&front, to, bytes[..length].to_vec());
                }
            }
        }
    };
    tokio::spawn(there);
    tokio::spawn(here);
    toll
}

impl Toll {
    fn carry(&self, by: &Arc<UdpSocket>, to: SocketAddr, packet: Vec<u8>) {
        let number = self.passed.fetch_add(1, Ordering::Relaxed) + 1;
        // The fate of a packet depends on its number alone.
        let draw = (number ^ 0x5bd1_e995).wrapping_mul(6_364_136_223_846_793_005) >> 33;
        if draw.is_multiple_of(LOST) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let delay = DELAY + Duration::from_micros(draw % JITTER_US);
        let by = Arc::clone(by);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // A socket that is gone loses the packet, like any network.
            drop(by.send_to(&packet, to).await);
        });
    }
}
