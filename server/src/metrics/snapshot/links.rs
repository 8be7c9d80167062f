//! Links to other nodes, as metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use tokenrouter_actors::LinkView;
use tokenrouter_protocol::Reach;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByNode {
    node: String,
}

/// Adds what each link has carried and how it stands.
pub(super) fn register<'a>(
    registry: &mut Registry,
    links: impl Iterator<Item = &'a LinkView> + Clone,
) {
    let mut gauge = |name: &str, help: &str, of: &dyn Fn(&LinkView) -> f64| {
        let family: Family<ByNode, Gauge<f64, AtomicU64>> = Family::default();
        for link in links.clone() {
            family.get_or_create(&ByNode { node: link.node.clone() }).set(of(link));
        }
        registry.register(name, help, family);
    };
    gauge("link_up", "1 while there is a link to the node", &|link| {
        f64::from(u8::from(link.reach == Reach::Here))
    });
    gauge("link_round_trip_seconds", "Round-trip time of the link", &|link| {
        link.stats.rtt.as_secs_f64()
    });
    gauge("link_frames_waiting", "Frames that the node has not heard yet", &|link| {
        link.waiting as f64
    });
    let mut counter = |name: &str, help: &str, of: &dyn Fn(&LinkView) -> u64| {
        let family: Family<ByNode, Counter> = Family::default();
        for link in links.clone() {
            family.get_or_create(&ByNode { node: link.node.clone() }).inc_by(of(link));
        }
        registry.register(name, help, family);
    };
    counter("link_frames_sent", "Frames sent, each once", &|link| link.counts.frames_sent);
    counter("link_frames_received", "Frames received", &|link| link.counts.frames_heard);
    counter("link_parcels_sent", "Messages sent in those frames", &|link| link.counts.parcels_sent);
    counter("link_payload_sent_bytes", "Bytes of frames sent, each once", &|link| {
        link.counts.payload_sent
    });
    counter("link_payload_received_bytes", "Bytes of frames received", &|link| {
        link.counts.payload_heard
    });
    counter("link_frames_resent", "Frames sent again on a new connection", &|link| {
        link.counts.resent
    });
    counter("link_connections", "Connections made", &|link| link.counts.connections);
    counter("link_refused", "Connections broken off for what the node sent", &|link| {
        link.counts.refused
    });
    counter("link_sent_bytes", "Bytes of packets sent", &|link| link.stats.sent);
    counter("link_received_bytes", "Bytes of packets received", &|link| link.stats.received);
    counter("link_packets_lost", "Packets lost on the way and sent again", &|link| link.stats.lost);
}
