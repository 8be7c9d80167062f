//! Tables for nodes that are lost, and for requests that others finish.

use super::*;

/// As [`grant`], on another route.
fn alone(number: u64, turn: u32, suffix: &str) -> PeerReq {
    let mut grant = grant(number, turn, 0, suffix);
    grant.admission.as_mut().unwrap().route = RouteIx(1);
    grant
}

fn bench() -> Bench {
    let mut bench = Bench::new(By::staying());
    let routes = [route(By::staying()), route(By::staying())];
    let config = HostConfig { routes: Arc::from(routes), ..bench.host.config.clone() };
    bench.host = Host::new(config);
    bench
}

#[test]
fn a_grant_on_another_route_begins_anew() {
    let mut bench = bench();
    bench.grant(grant(1, 1, 0, "abcde"));
    bench.done(&[&[120]]);
    let did = bench.grant(alone(1, 2, "abcdex"));
    assert!(did.is_nothing(), "a pass is under way");
    let did = bench.done(&[&[121]]);
    assert_eq!(bench.host.counters().dropped_rows, 1, "its row is of the route that was");
    assert_eq!(did.ops(), [CacheOp::Close { sequence: SequenceId(1) }]);
    assert_eq!(did.fed(), [(0, letters("abcdex"), 1)]);
    assert_eq!(bench.host.resident(rid(1)).unwrap().admission.route, RouteIx(1));
    assert!(bench.grant(alone(1, 2, "abcdex")).is_nothing(), "the same turn twice");
}

#[test]
fn a_lost_node_takes_its_requests_with_it() {
    let mut bench = bench();
    bench.grant(grant(1, 1, 0, "abcde"));
    bench.done(&[&[120]]);
    assert_eq!((bench.host.held(), bench.host.live()), (1, 1));
    assert!(bench.act(|host, now, out| host.node_lost(now, 3, out)).is_nothing());
    assert_eq!(bench.host.held(), 1, "that was another node");
    bench.act(|host, now, out| host.node_lost(now, HOME.node, out));
    assert_eq!((bench.host.held(), bench.host.live(), bench.host.blocks_used()), (0, 0, 0));
    let did = bench.done(&[&[121]]);
    assert_eq!(did.ops(), [CacheOp::Close { sequence: SequenceId(1) }], "its blocks are free");
    bench.done(&[]);
    // The same life of the home may be back, and know more of this one than is true.
    assert_eq!(bench.grant(grant(1, 2, 6, "y")).words, [missing(1, 2, 0)]);
    let did = bench.grant(grant(1, 3, 0, "abcdexy"));
    assert_eq!(did.fed(), [(0, letters("abcdexy"), 1)]);
}
