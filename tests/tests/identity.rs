//! The strongest test of handoff there is: two copies of the same weights take turns, and the reply must be exactly that
//! of one of them alone. Whatever is lost, doubled, fed twice or drawn anew on the way would show.
//!
//! A policy that comes later is one more line in [`POLICIES`].

use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::Sampling;
use tokenrouter_tests::kit::{Kit, Manner, Reply};

const LEFT: ModelIx = ModelIx(0);
const RIGHT: ModelIx = ModelIx(1);

/// The policies, and the share of tokens that the right copy must write: from, to.
const POLICIES: [(&str, f64, f64); 3] = [
    ("{ kind: random, to: right, probability: 0.5 }", 0.3, 0.7),
    ("{ kind: fixed-period, to: right, period: 3 }", 0.3, 0.4),
    ("{ kind: r-stitch, to: right, threshold: 0.001 }", 0.02, 0.7),
];

const GREEDY: Manner = Manner { sampling: Sampling::GREEDY, max_tokens: 160, concurrency: 8 };
const SEEDED: Manner = Manner {
    sampling: Sampling { temperature: 0.8, top_p: 0.95, top_k: 40, min_p: 0.02 },
    ..GREEDY
};

fn topology(policy: &str, more: &str) -> String {
    format!(
        "models: {{ left: {{ path: 'demo:large'{more} }}, right: {{ path: 'demo:large'{more} }} }}\n\
         routes: {{ both: {{ entry: left, policy: {policy} }} }}\n"
    )
}

fn texts(replies: &[Reply]) -> Vec<(&[u32], &str)> {
    replies.iter().map(|reply| (&reply.tokens[..], &reply.text[..])).collect()
}

async fn compare(through_wire: bool, prompts: usize) {
    for (policy, from, to) in POLICIES {
        let kit = Kit::start(&topology(policy, ""), |spec| spec.through_wire = through_wire).await;
        for manner in [GREEDY, SEEDED] {
            let alone = kit.ask("left", prompts, manner).await;
            let both = kit.ask("both", prompts, manner).await;
            assert_eq!(texts(&both), texts(&alone), "{policy}");
            for (reply, alone) in both.iter().zip(&alone) {
                assert_eq!(reply.outcome.finish, alone.outcome.finish);
                let positions = reply.outcome.prompt_tokens + reply.outcome.completion_tokens;
                for model in [LEFT, RIGHT] {
                    let share = reply.share(model);
                    assert!(share.computed < positions, "{policy}: {share:?} of {positions}");
                }
            }
            let written = |model| both.iter().map(|r| f64::from(r.share(model).committed)).sum();
            let (left, right): (f64, f64) = (written(LEFT), written(RIGHT));
            let share = right / (left + right);
            assert!((from..=to).contains(&share), "{policy}: the right copy wrote {share}");
        }
        kit.at_rest().await;
        kit.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_write_what_one_alone_writes() {
    compare(false, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_write_what_one_alone_writes_through_the_wire() {
    compare(true, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_pools_change_nothing() {
    // A reply is up to about 130 positions long: room for one and a half at each model.
    let policy = POLICIES[0].0;
    let roomy = Kit::start(&topology(policy, ""), |_| ()).await;
    let tight = Kit::start(&topology(policy, ", kv_positions: 208"), |_| ()).await;
    for manner in [GREEDY, SEEDED] {
        let manner = Manner { max_tokens: 96, ..manner };
        let expected = roomy.ask("left", 8, manner).await;
        let replies = tight.ask("both", 8, manner).await;
        assert_eq!(texts(&replies), texts(&expected));
    }
    let views = tight.gateway().observe().await;
    let taken = views.iter().map(|view| {
        let counters = view.decode.unwrap().counters;
        counters.evictions + counters.preemptions
    });
    assert!(taken.into_iter().all(|n| n > 0), "the pools were never full: {views:?}");
    tight.at_rest().await;
    tight.stop().await;
    roomy.stop().await;
}
