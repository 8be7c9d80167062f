//! When a pass is launched: by thresholds, by patience, by permission.

use super::*;
use tokenrouter_policies::Thresholds;

/// A host that waits for three, at most `max_wait` milliseconds, and hears of `live` requests.
fn waiting(live: u32, max_wait: Option<u64>) -> Bench {
    let batch = BatchLimits {
        thresholds: Thresholds::fixed(3),
        max_wait: max_wait.map(ms),
        ..BatchLimits::default()
    };
    Bench { live, ..Bench::with(By::staying(), 16, batch) }
}

fn open(bench: &mut Bench, number: u64) -> Did {
    bench.grant(grant(number, 1, 0, "ab"))
}

#[test]
fn a_pass_waits_for_its_threshold() {
    let mut bench = waiting(4, None);
    assert!(open(&mut bench, 1).job.is_none());
    assert!(open(&mut bench, 2).job.is_none());
    assert_eq!(open(&mut bench, 3).fed().len(), 3);
    assert!(bench.host.wake().is_none());
}

#[test]
fn a_pass_never_waits_for_more_than_are_alive() {
    let mut bench = waiting(2, None);
    assert!(open(&mut bench, 1).job.is_none());
    assert_eq!(open(&mut bench, 2).fed().len(), 2);
}

#[test]
fn a_request_that_ends_elsewhere_lowers_what_is_waited_for() {
    let mut bench = waiting(3, None);
    open(&mut bench, 1);
    assert!(open(&mut bench, 2).job.is_none());
    bench.live = 2;
    assert_eq!(bench.finish(rid(9), 1).fed().len(), 2);
}

#[test]
fn nobody_waits_longer_than_the_bound() {
    let mut bench = waiting(4, Some(50));
    open(&mut bench, 1);
    open(&mut bench, 2);
    assert_eq!(bench.host.wake(), Some(ms(1 + 50)), "the first one counts");
    bench.now = 49;
    assert!(bench.tick().job.is_none());
    assert_eq!(bench.tick().fed().len(), 2);
    assert!(bench.host.wake().is_none());
}

#[test]
fn the_count_of_a_silent_home_is_not_believed_for_ever() {
    let mut bench = waiting(4, None);
    assert!(open(&mut bench, 1).job.is_none());
    bench.now += GRACE;
    assert_eq!(bench.tick().fed().len(), 1);
    assert_eq!(bench.host.live(), 0);
}

#[test]
fn a_long_prompt_waits_for_nobody() {
    let mut bench = waiting(4, None);
    assert!(open(&mut bench, 1).job.is_none());
    assert_eq!(bench.grant(grant(2, 1, 0, "a prompt of more than a word")).fed().len(), 2);
}

#[test]
fn new_thresholds_hold_at_once() {
    let mut bench = waiting(4, None);
    open(&mut bench, 1);
    open(&mut bench, 2);
    let did = bench.act(|host, now, out| host.set_thresholds(now, Thresholds::fixed(2), out));
    assert_eq!(did.fed().len(), 2);
}

#[test]
fn operations_on_the_cache_wait_for_nobody() {
    let mut bench = waiting(2, None);
    open(&mut bench, 1);
    open(&mut bench, 2);
    bench.done(&[&[5], &[5]]);
    bench.done(&[&[5], &[5]]);
    bench.finish(rid(1), 1);
    let did = bench.done(&[&[5], &[5]]);
    assert_eq!((did.ops().len(), did.fed().len()), (1, 0), "one waits for another to come");
}

#[test]
fn a_paced_host_launches_by_permission_alone() {
    let mut bench = waiting(1, None);
    bench.host.config.paced = true;
    assert!(open(&mut bench, 1).job.is_none());
    let standing = bench.host.standing();
    assert_eq!((standing.ready, standing.live, standing.permits), (1, 1, 0));
    assert_eq!(bench.act(Host::permit).fed().len(), 1);
    assert!(bench.host.standing().busy);
    assert!(bench.done(&[&[5]]).job.is_none());
    assert_eq!(bench.act(Host::permit).fed().len(), 1);
    bench.finish(rid(1), 1);
    bench.done(&[&[5]]);
    assert!(bench.act(Host::permit).job.is_none(), "nobody is there");
    assert_eq!(bench.host.standing().permits, 3);
    assert!(open(&mut bench, 2).job.is_none(), "an unused permission is gone");
}
