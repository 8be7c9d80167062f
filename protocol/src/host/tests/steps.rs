//! Tables for what happens around a step: what is fed, and what a sampled token leads to.

use super::*;
use tokenrouter_policies::StepView;

fn narrow(tokens_max: u32, rows_max: u32) -> BatchLimits {
    BatchLimits { tokens_max, rows_max, ..BatchLimits::default() }
}

#[test]
fn a_token_is_offered_and_fed_at_once() {
    let mut bench = Bench::new(By::staying());
    assert_eq!(bench.grant(grant(1, 1, 0, "a")).fed(), [(0, letters("a"), 1)], "prompt length 1");
    for (start, token) in [(1, 98), (2, 99)] {
        let did = bench.done(&[&[token]]);
        let row = did.row();
        assert_eq!(
            (row.start, row.tokens.as_slice(), &row.outcome),
            (start, &[token][..], &RowOutcome::Going)
        );
        assert_eq!((row.cached, row.computed, row.generated), (start, 1, 1));
        assert_eq!(did.fed(), [(start, vec![token], 1)]);
        assert!(did.ops().is_empty());
    }
}

#[test]
fn a_long_prompt_is_fed_in_chunks_and_sampled_once() {
    let mut bench = Bench::with(By::staying(), 16, narrow(4, 8));
    let prompt = "abcdefghij";
    let mut did = bench.grant(grant(1, 1, 0, prompt));
    for (start, end) in [(0, 4), (4, 8)] {
        let chunk = letters(&prompt[start..end]);
        assert_eq!(did.fed(), [(start as u32, chunk, 0)], "no logits before the last chunk");
        did = bench.done(&[&[]]);
        let row = did.row();
        assert_eq!((row.start, row.cached, row.computed, row.generated), (10, end as u32, 4, 0));
        assert!(row.tokens.is_empty() && row.outcome == RowOutcome::Going);
    }
    assert_eq!(did.fed(), [(8, letters("ij"), 1)]);
    assert_eq!(bench.done(&[&[120]]).row().tokens.as_slice(), [120]);
}

/// What becomes of the sampled token `x` after the prompt `ab`: tokens of the row, proposal, history.
fn fate(just_sampled: JustSampled, route: fn(&StepView<'_>, &mut PolicyState) -> Verdict) {
    let mut bench = Bench::new(By::routing(route));
    bench.grant(grant(1, 1, 0, "ab"));
    let did = bench.done(&[&[120]]);
    assert!(did.job.is_none(), "nothing is fed after a handoff");
    let row = did.row();
    let RowOutcome::Next { to: LARGE, aux, proposal } = &row.outcome else { panic!("{row:?}") };
    assert_eq!(aux.as_slice(), [120]);
    let (tokens, proposed): (&[Token], &[Token]) = match just_sampled {
        JustSampled::Commit => (&[120], &[]),
        JustSampled::Discard => (&[], &[]),
        JustSampled::Propose => (&[], &[120]),
    };
    assert_eq!((row.tokens.as_slice(), proposal.as_slice()), (tokens, proposed));
    assert_eq!((row.start, row.cached, row.generated), (2, 2, 1));
    let resident = bench.host.resident(rid(1)).unwrap();
    assert_eq!(resident.phase(), Phase::Pending);
    assert_eq!(resident.history(), [letters("ab"), tokens.to_vec()].concat());
    // It comes back with the token that another model wrote there, and feeds just that.
    let back = bench.grant(grant(1, 3, 2, "yz"));
    assert_eq!((back.fed(), back.ops()), (vec![(2, letters("yz"), 1)], vec![]));
    assert_eq!(bench.host.resident(rid(1)).unwrap().history(), letters("abyz"));
}

#[test]
fn the_sampled_token_is_committed_discarded_or_proposed() {
    fate(JustSampled::Commit, |_, _| to_large(JustSampled::Commit));
    fate(JustSampled::Discard, |_, _| to_large(JustSampled::Discard));
    fate(JustSampled::Propose, |_, _| to_large(JustSampled::Propose));
}

#[test]
fn a_handoff_to_itself_is_no_handoff() {
    let itself = |_: &StepView<'_>, _: &mut PolicyState| Verdict::Handoff {
        to: SMALL,
        just_sampled: JustSampled::Discard,
    };
    let mut bench = Bench::new(By::routing(itself));
    bench.grant(grant(1, 1, 0, "ab"));
    let did = bench.done(&[&[120]]);
    assert_eq!((did.row().tokens.as_slice(), &did.row().outcome), (&[120][..], &RowOutcome::Going));
}

#[test]
fn eos_and_the_last_allowed_token_end_the_row_unless_discarded() {
    type Route = fn(&StepView<'_>, &mut PolicyState) -> Verdict;
    let stay: Route = |_, _| Verdict::Stay;
    let commit: Route = |_, _| to_large(JustSampled::Commit);
    let discard: Route = |_, _| to_large(JustSampled::Discard);
    // (what, policy, token, longest reply, EOS ignored, whether it ends)
    let cases = [
        ("EOS", stay, EOS, 40, false, true),
        ("EOS, handed over with it", commit, EOS, 40, false, true),
        ("EOS, discarded", discard, EOS, 40, false, false),
        ("EOS, ignored", stay, EOS, 40, true, false),
        ("the last allowed token", stay, 120, 3, false, true),
        ("the last allowed token, handed over with it", commit, 120, 3, false, true),
        ("the last allowed token, discarded", discard, 120, 3, false, false),
        ("the last but one", stay, 120, 4, false, false),
    ];
    for (what, policy, token, length_max, ignore_eos, ends) in cases {
        let mut bench = Bench::new(By::routing(policy));
        let mut first = grant(1, 1, 0, "ab");
        let admission = first.admission.as_mut().unwrap();
        (admission.length_max, admission.ignore_eos) = (length_max, ignore_eos);
        bench.grant(first);
        let did = bench.done(&[&[token]]);
        let row = did.row();
        assert_eq!(row.outcome == RowOutcome::Ended, ends, "{what}: {row:?}");
        if ends {
            assert_eq!(row.tokens.as_slice(), [token], "{what}");
            assert!(did.job.is_none(), "{what}");
            assert_eq!(bench.host.resident(rid(1)).unwrap().phase(), Phase::Pending, "{what}");
        }
    }
}

#[test]
fn a_new_turn_under_a_running_step_drops_its_row_and_cuts_first() {
    let mut bench = Bench::new(By::staying());
    bench.grant(grant(1, 1, 0, "abcdef"));
    bench.done(&[&[120]]);
    // The step that feeds `x` runs; home knows less than the model holds, and says so.
    let did = bench.grant(grant(1, 2, 5, "fyz"));
    assert!(did.is_nothing(), "no operation under a running step");
    assert_eq!(bench.host.resident(rid(1)).unwrap().cached(), 5);
    let did = bench.done(&[&[99]]);
    assert!(did.words.is_empty(), "a row of an older turn");
    assert_eq!(did.ops(), [CacheOp::Truncate { sequence: SequenceId(1), to: 5 }]);
    assert_eq!(did.fed(), [(5, letters("fyz"), 1)]);
    assert_eq!(bench.host.counters().dropped_rows, 1);
}

#[test]
fn a_new_turn_between_steps_cuts_in_front_of_its_job() {
    let mut bench = Bench::new(By::routing(|_, _| to_large(JustSampled::Commit)));
    bench.grant(grant(1, 1, 0, "abcdef"));
    bench.done(&[&[120]]);
    let did = bench.grant(grant(1, 3, 2, "cde"));
    assert_eq!(did.ops(), [CacheOp::Truncate { sequence: SequenceId(1), to: 2 }]);
    assert_eq!(did.fed(), [(2, letters("cde"), 1)]);
    assert_eq!(bench.host.resident(rid(1)).unwrap().history(), letters("abcde"));
}

#[test]
fn several_requests_share_a_step_in_the_order_of_their_age() {
    let mut bench = Bench::new(By::staying());
    bench.grant(grant(5, 1, 0, "e"));
    assert!(bench.grant(grant(7, 1, 0, "gg")).is_nothing(), "one job at a time");
    assert!(bench.grant(grant(2, 1, 0, "b")).is_nothing());
    let did = bench.done(&[&[120]]);
    assert_eq!(did.fed(), [(0, letters("b"), 1), (1, vec![120], 1), (0, letters("gg"), 1)]);
    let did = bench.done(&[&[97], &[98], &[99]]);
    let rids = did.words.iter().map(|word| match word {
        ModelWord::Row(row) => (row.rid, row.tokens[0]),
        other => panic!("{other:?}"),
    });
    assert_eq!(rids.collect::<Vec<_>>(), [(rid(2), 97), (rid(5), 98), (rid(7), 99)]);
}

/// A policy that accepts proposed tokens while its own are the same.
fn judging() -> By {
    let receive = |p: &tokenrouter_policies::Proposal<'_>, state: &mut PolicyState| {
        state.set_word(0, 9);
        p.tokens.iter().zip(p.own).take_while(|(token, own)| **token == own.token).count()
    };
    By { receive, ..By::staying() }
}

#[test]
fn a_proposal_is_judged_in_one_step_and_what_is_refused_leaves_the_cache() {
    // (sampled at the three positions, tokens of the row, positions that stay in the cache)
    for (sampled, tokens, cached) in [("xyz", "x", 2), ("pyz", "py", 3), ("pqz", "pqz", 4)] {
        let mut bench = Bench::new(judging());
        let mut first = grant(1, 1, 0, "ab");
        first.proposal = Tokens::from_vec(letters("pq"));
        assert_eq!(bench.grant(first).fed(), [(0, letters("abpq"), 3)]);
        let did = bench.done(&[&letters(sampled)]);
        let row = did.row();
        assert_eq!((row.start, row.tokens.to_vec(), row.cached), (2, letters(tokens), cached));
        assert_eq!((row.state.word(0), row.generated, row.computed), (9, 3, 4));
        let cut = CacheOp::Truncate { sequence: SequenceId(1), to: cached };
        assert_eq!(did.ops(), if cached < 4 { vec![cut] } else { vec![] }, "{sampled}");
        let last = letters(tokens).pop().unwrap();
        assert_eq!(did.fed(), [(cached, vec![last], 1)], "{sampled}");
    }
}

#[test]
fn an_accepted_eos_ends_the_row_without_a_token_of_its_own() {
    let mut bench = Bench::new(judging());
    let mut first = grant(1, 1, 0, "ab");
    first.proposal = Tokens::from_slice(&[EOS]);
    bench.grant(first);
    let did = bench.done(&[&[EOS, 120]]);
    assert_eq!((did.row().tokens.as_slice(), &did.row().outcome), (&[EOS][..], &RowOutcome::Ended));
}

#[test]
fn a_proposal_is_cut_to_what_one_pass_and_the_reply_can_take() {
    // (widest pass, longest reply, what is fed)
    for (tokens_max, length_max, fed) in
        [(4, 40, "bpqr"), (3, 40, "bpq"), (1, 40, "b"), (4, 4, "bpq"), (4, 2, "b")]
    {
        let mut bench = Bench::with(judging(), 16, narrow(tokens_max, 8));
        let mut first = grant(1, 1, 0, "b");
        first.admission.as_mut().unwrap().length_max = length_max - 1;
        first.proposal = Tokens::from_vec(letters("pqrs"));
        let did = bench.grant(first);
        let drafts = fed.len() as u16 - 1;
        let expected = [(0, letters(fed), 1 + drafts)];
        assert_eq!(did.fed(), expected, "{tokens_max} {length_max}");
    }
}

#[test]
fn drafts_in_the_cache_go_when_a_grant_does_not_join() {
    let mut bench = Bench::new(judging());
    let mut first = grant(1, 1, 0, "ab");
    first.proposal = Tokens::from_vec(letters("pqrst"));
    bench.grant(first);
    assert_eq!(bench.host.blocks_used(), 2);
    assert_eq!(bench.grant(grant(1, 2, 9, "z")).words, [missing(1, 2, 2)]);
    assert_eq!(bench.host.blocks_used(), 1);
    let did = bench.done(&[&letters("pqrstu")]);
    assert_eq!(did.ops(), [CacheOp::Truncate { sequence: SequenceId(1), to: 2 }]);
}
