//! Tables for a pool that is too small: who gives up blocks, who waits, and that somebody always moves.

use super::*;

/// A host with this many blocks of four positions.
fn pool(blocks: u32, policy: By) -> Bench {
    Bench::with(policy, blocks, BatchLimits::default())
}

/// Hands over whatever ends in `!`, otherwise goes on.
fn handing_over() -> By {
    By::routing(|step, _| match step.token == Token::from(b'!') {
        true => to_large(JustSampled::Commit),
        false => Verdict::Stay,
    })
}

const BANG: Token = b'!' as Token;

#[test]
fn the_cache_of_whoever_is_pending_longest_is_taken_first() {
    let mut bench = pool(3, handing_over());
    for number in [2, 1] {
        bench.grant(grant(number, 1, 0, "abc"));
        bench.done(&[&[BANG]]);
    }
    assert_eq!(bench.host.blocks_used(), 2);
    let did = bench.grant(grant(3, 1, 0, "abcdefg"));
    // Request 2 has been pending longer than request 1, though it is younger.
    assert_eq!(did.ops(), [CacheOp::Close { sequence: SequenceId(1) }]);
    assert_eq!((did.fed().len(), did.words.len()), (1, 0), "a pending one is told nothing");
    assert_eq!(bench.host.resident(rid(1)).unwrap().cached(), 3);
    assert_eq!(bench.host.counters().evictions, 1);
    bench.done(&[&[BANG]]);
    // On its return it is granted again from 0, and takes a new sequence.
    assert_eq!(bench.grant(grant(2, 3, 3, "!x")).words, [missing(2, 3, 0)]);
    let did = bench.grant(grant(2, 4, 0, "abc!x"));
    assert_eq!(did.fed(), [(0, letters("abc!x"), 1)]);
    assert!(did.job.unwrap().rows[0].sequence > SequenceId(3));
}

#[test]
fn among_owners_the_youngest_is_preempted_and_says_so() {
    let mut bench = pool(3, By::staying());
    bench.grant(grant(1, 1, 0, "abcdefg"));
    bench.grant(grant(2, 1, 0, "ab"));
    bench.grant(grant(3, 1, 0, "ab"));
    let did = bench.done(&[&[120]]);
    assert_eq!(did.fed(), [(7, vec![120], 1), (0, letters("ab"), 1)], "the youngest waits");
    assert_eq!(bench.host.blocks_used(), 3);
    // Now the oldest needs a third block.
    let did = bench.done(&[&[121], &[122]]);
    assert_eq!(did.words.last(), Some(&missing(2, 1, 0)), "under its turn, at once");
    assert_eq!(did.ops(), [CacheOp::Close { sequence: SequenceId(2) }]);
    assert_eq!(bench.host.counters().preemptions, 1);
    assert_eq!(bench.host.resident(rid(2)).unwrap().phase(), Phase::Pending);
}

#[test]
fn a_request_preempted_by_an_older_one_gets_no_row_in_the_same_pass() {
    let mut bench = pool(3, By::staying());
    bench.grant(grant(2, 1, 0, "abc"));
    bench.done(&[&[120]]);
    bench.done(&[&[120]]);
    assert_eq!(bench.host.blocks_used(), 2);
    // Both want blocks: the older one's eight leave none to grow into.
    bench.grant(grant(1, 1, 0, "abcdefgh"));
    let did = bench.done(&[&[120]]);
    assert_eq!(did.fed(), [(0, letters("abcdefgh"), 1)]);
    assert!(did.words.contains(&missing(2, 1, 0)));
    assert_eq!(bench.host.resident(rid(2)).unwrap().cached(), 0);
}

#[test]
fn an_owner_without_blocks_waits_and_takes_nothing_for_a_beginning_that_does_not_fit() {
    let mut bench = pool(4, By::staying());
    bench.grant(grant(1, 1, 0, "abcdefghijkl"));
    bench.grant(grant(2, 1, 0, "abcdefgh"));
    let did = bench.done(&[&[120]]);
    assert_eq!(did.fed(), [(12, vec![120], 1)], "the younger one begins when there is room for it");
    assert_eq!(bench.host.resident(rid(2)).unwrap().phase(), Phase::Running);
    assert_eq!(
        bench.probe(rid(2), 1),
        ModelWord::Holding {
            rid: rid(2),
            fence: Some(fence(1)),
            working: Some(8),
            probe: Some(fence(1)),
        },
        "waiting for blocks is no stall"
    );
    bench.finish(rid(1), 1);
    assert_eq!(bench.done(&[&[120]]).fed(), [(0, letters("abcdefgh"), 1)]);
}

#[test]
fn the_oldest_moves_in_a_pass_too_narrow_for_it_and_a_waiting_prompt() {
    // One row, or one token: the batcher keeps it for the oldest long prompt, which cannot have blocks.
    let narrow = [(8, 1), (1, 8), (1, 1)];
    for (tokens_max, rows_max) in narrow {
        let batch = BatchLimits { tokens_max, rows_max, ..BatchLimits::default() };
        let mut bench = Bench::with(By::staying(), 5, batch);
        let mut did = bench.grant(grant(1, 1, 0, "abcdefghijklmnop"));
        while did.fed().iter().all(|(_, _, outputs)| *outputs == 0) {
            did = bench.done(&[&[]]);
        }
        did = bench.done(&[&[120]]);
        assert_eq!(did.fed(), [(16, vec![120], 1)]);
        assert!(bench.grant(grant(2, 1, 0, "abcdefghijklmnopqrst")).is_nothing());
        let did = bench.done(&[&[121]]);
        assert_eq!(did.fed(), [(17, vec![121], 1)], "{tokens_max} tokens, {rows_max} rows");
    }
}

#[test]
fn a_share_too_small_to_be_used_takes_nothing() {
    // Three tokens a pass: two go to the long prompt, and one is too few for a proposal and the token before it.
    let batch = BatchLimits { tokens_max: 3, rows_max: 8, ..BatchLimits::default() };
    let mut bench = Bench::with(handing_over(), 12, batch);
    bench.grant(grant(1, 1, 0, &"a".repeat(24)));
    for _ in 0..7 {
        bench.done(&[&[]]);
    }
    bench.done(&[&[BANG]]);
    bench.grant(grant(2, 1, 0, &"b".repeat(41)));
    for _ in 0..6 {
        bench.done(&[&[]]);
    }
    assert_eq!(bench.host.blocks_used(), 12, "six each, and the older one's are full");
    let mut back = grant(1, 3, 24, "!");
    back.proposal = Tokens::from_slice(&[112]);
    assert!(bench.grant(back).is_nothing());
    let did = bench.done(&[&[]]);
    assert_eq!(did.fed(), [(21, letters("bb"), 0)]);
    assert_eq!(bench.host.counters().preemptions, 0);
}

#[test]
fn blocks_are_taken_at_the_border_of_a_block() {
    let mut bench = pool(16, By::staying());
    bench.grant(grant(1, 1, 0, "abc"));
    let mut used = vec![bench.host.blocks_used()];
    for _ in 0..5 {
        bench.done(&[&[120]]);
        used.push(bench.host.blocks_used());
    }
    assert_eq!(used, [1, 1, 2, 2, 2, 2], "a token takes its position when it is fed");
    bench.done(&[&[120]]);
    assert_eq!(bench.host.blocks_used(), 3);
}
