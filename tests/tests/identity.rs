//! The strongest test of handoff there is: two copies of the same weights take turns, and the reply must be exactly that
//! of one of them alone. Whatever is lost, doubled, fed twice or drawn anew on the way would show.
//!
//! A policy that comes later is one more line in [`POLICIES`], or in the list of the model that it was trained for. Each has
//! its own route over the same two models.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test")]

use tokenrouter_policies::{ModelIx, Token};
use tokenrouter_protocol::Sampling;
use tokenrouter_tests::kit::{Kit, Manner, Reply};

const LEFT: ModelIx = ModelIx(0);
const RIGHT: ModelIx = ModelIx(1);

/// A coin for each token, the policy with the most handoffs.
const COIN: &str = "{ kind: random, to: right, probability: 0.5 }";

/// Policies, and the share of tokens that the right copy must write: from, to.
type Policies = &'static [(&'static str, f64, f64)];

/// Those that every model can have.
const POLICIES: Policies = &[
    (COIN, 0.3, 0.7),
    ("{ kind: fixed-period, to: right, period: 3 }", 0.3, 0.4),
    ("{ kind: r-stitch, to: right, threshold: 0.001 }", 0.02, 0.7),
    ("{ kind: r2r, to: right, strategy: entropy, threshold: 0.01 }", 0.01, 0.5),
    ("{ kind: r2r, to: right, strategy: immediate, aleatoric: 1.5 }", 0.01, 0.99),
    ("{ kind: r2r, to: right, strategy: random }", 0.3, 0.7),
    ("{ kind: r2r, to: right, strategy: momentum, aleatoric: 1.8 }", 0.01, 0.99),
    ("{ kind: r2r, to: right, strategy: rolling, aleatoric: 1.8, entropy: 0.001 }", 0.01, 0.99),
    ("{ kind: r2r, to: right, strategy: duo_rolling, aleatoric: 1.8 }", 0.01, 0.99),
    ("{ kind: glimp, to: right, threshold: 0.001 }", 0.2, 0.99),
    ("{ kind: ensemble, weights: { left: 1, right: 3 } }", 0.6, 0.9),
    (ASKING, 0.2, 0.9),
    // Nobody has taught these models to call.
    ("{ kind: relay, to: right }", 0.0, 0.0),
    ("{ kind: expression, to_right: 'margin < 4', back: 'margin > 8 || draw < 0.2' }", 0.01, 0.9),
];

/// Those with heads that were trained for the small model.
const WITH_HEADS: Policies = &[
    ("{ kind: r2r, to: right, head: 'demo:r2r' }", 0.01, 0.9),
    ("{ kind: r2r, to: right, strategy: neural_rolling, head: 'demo:r2r' }", 0.01, 0.9),
    ("{ kind: citer, to: right, head: 'demo:citer' }", 0.01, 0.9),
    ("{ kind: expression, to_right: 'head > 0.3 || margin < 1', head: 'demo:r2r' }", 0.01, 0.9),
];

/// Those with a model that says itself when it should defer.
const DEFERRING: Policies = &[
    ("{ kind: co-llm, to: right }", 0.01, 0.9),
    ("{ kind: co-llm, to: right, threshold: 0.4 }", 0.005, 0.9),
    (COIN, 0.3, 0.7),
];

/// Results of calculations are asked for, as if the signs before and after them were tags; clients do not see those.
const ASKING: &str = "{ kind: split-reason, to: right, open: '=', close: \"\\n\" }";

const GREEDY: Manner = Manner { sampling: Sampling::GREEDY, max_tokens: 160, concurrency: 8 };
const SEEDED: Manner = Manner {
    sampling: Sampling { temperature: 0.8, top_p: 0.95, top_k: 40, min_p: 0.02 },
    ..GREEDY
};

/// Two copies of a model, and a route `both-N` for each policy.
fn topology<'a>(model: &str, policies: impl Iterator<Item = &'a str>, more: &str) -> String {
    let route = |(at, policy)| format!("  both-{at}: {{ entry: left, policy: {policy} }}\n");
    let routes: String = policies.enumerate().map(route).collect();
    format!(
        "models: {{ left: {{ path: 'demo:{model}'{more} }}, right: {{ path: 'demo:{model}'{more} }} }}\n\
         routes:\n{routes}"
    )
}

/// Tokens and text of each reply.
fn texts(replies: &[Reply]) -> Vec<(&[u32], String)> {
    replies.iter().map(|reply| (&reply.tokens[..], reply.text.clone())).collect()
}

/// What `policy` must make of the replies of one copy alone: the same, without what it hides.
fn expected<'a>(alone: &'a [Reply], policy: &str) -> Vec<(&'a [u32], String)> {
    let mut expected = texts(alone);
    if policy == ASKING {
        expected.iter_mut().for_each(|(_, text)| *text = text.replace(['=', '\n'], ""));
    }
    expected
}

async fn compare(model: &str, policies: Policies, through_wire: bool, prompts: usize) {
    let topology = topology(model, policies.iter().map(|(policy, ..)| *policy), "");
    let kit = Kit::start(&topology, |spec| spec.through_wire = through_wire).await;
    let mut shares = vec![[0.0, 0.0]; policies.len()];
    for manner in [GREEDY, SEEDED] {
        let alone = kit.ask("left", prompts, manner).await;
        for (at, (policy, ..)) in policies.iter().enumerate() {
            let both = kit.ask(&format!("both-{at}"), prompts, manner).await;
            assert_eq!(texts(&both), expected(&alone, policy), "{policy}");
            for (reply, alone) in both.iter().zip(&alone) {
                assert_eq!(reply.outcome.finish, alone.outcome.finish);
                let positions = reply.outcome.prompt_tokens + reply.outcome.completion_tokens;
                for model in [LEFT, RIGHT] {
                    let share = reply.share(model);
                    assert!(share.computed < positions, "{policy}: {share:?} of {positions}");
                    shares[at][model.index()] += f64::from(share.committed);
                }
            }
        }
    }
    for ((policy, from, to), [left, right]) in policies.iter().zip(shares) {
        let share = right / (left + right);
        assert!((*from..=*to).contains(&share), "{policy}: the right copy wrote {share}");
    }
    kit.at_rest().await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_write_what_one_alone_writes() {
    compare("large", POLICIES, false, 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_write_what_one_alone_writes_through_the_wire() {
    compare("large", POLICIES, true, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_with_heads_write_what_one_alone_writes() {
    compare("small", WITH_HEADS, false, 24).await;
    compare("small-co-llm", DEFERRING, true, 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_pools_change_nothing() {
    // A reply is up to about 130 positions long: room for one and a half at each model.
    let topology = |more| topology("large", [COIN].into_iter(), more);
    let roomy = Kit::start(&topology(""), |_| ()).await;
    let tight = Kit::start(&topology(", kv_positions: 208"), |_| ()).await;
    for manner in [GREEDY, SEEDED] {
        let manner = Manner { max_tokens: 96, ..manner };
        let expected = roomy.ask("left", 8, manner).await;
        let replies = tight.ask("both-0", 8, manner).await;
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

/// The weights of the mixture, by model.
const MIXTURE: [(&str, f64); 3] = [("small", 0.5), ("mid", 0.3), ("large", 0.2)];
const DRAWS: u64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_writes_the_mixture_of_its_models() {
    let topology = "models: { small: demo:small, mid: demo:mid, large: demo:large }\n\
        routes: { all: { entry: small, policy: { kind: ensemble, weights: { small: 5, mid: 3, large: 2 } } } }\n";
    let kit = Kit::start(topology, |_| ()).await;
    let whole = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    let manner = Manner { sampling: whole, max_tokens: 3, concurrency: 64 };
    let (text, rows) = reference();
    let mut replies = Vec::new();
    // In parts, since there is a limit to the time of each.
    for part in 0..DRAWS / 2000 {
        let seeds = part * 2000..(part + 1) * 2000;
        let prompts = seeds.map(|seed| (seed, vec![text[0]]));
        replies.extend(kit.ask_tokens("all", prompts, manner).await);
    }
    kit.stop().await;
    // The first token is drawn by whoever is drawn when the request enters.
    let first: Vec<Token> = replies.iter().map(|reply| reply.tokens[0]).collect();
    check_mixture(&first, &rows[0]);
    // The third by whoever the model before it drew, in replies that go on as the reference does.
    let like = |reply: &&Reply| reply.tokens.len() == 3 && reply.tokens[..2] == text[1..3];
    let third: Vec<Token> = replies.iter().filter(like).map(|reply| reply.tokens[2]).collect();
    assert!(third.len() > 5_000, "{} replies are like the reference", third.len());
    check_mixture(&third, &rows[2]);
}

/// Tokens of the first reference dialogue, and for each of its first three positions the distribution of the next token
/// by every model of the mixture.
fn reference() -> (Vec<Token>, Vec<Vec<Vec<f64>>>) {
    let mut text = Vec::new();
    let mut rows = vec![Vec::new(); 3];
    for (model, _) in MIXTURE {
        let path = format!("../models/{model}/reference.safetensors");
        let file = std::fs::read(path).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
        let ids = tensors.tensor("ids.0").unwrap();
        let width = ids.data().len() / ids.shape()[0];
        text = ids
            .data()
            .chunks(width)
            .map(|id| u32::from_le_bytes(id[..4].try_into().unwrap()))
            .collect();
        let logits = tensors.tensor("logits.0").unwrap();
        let lines = logits.data().chunks(4 * logits.shape()[1]);
        for (row, line) in rows.iter_mut().zip(lines) {
            let logits =
                line.chunks(4).map(|l| f64::from(f32::from_le_bytes(l.try_into().unwrap())));
            let powers: Vec<f64> = logits.map(f64::exp).collect();
            let total: f64 = powers.iter().sum();
            row.push(powers.into_iter().map(|power| power / total).collect());
        }
    }
    (text, rows)
}

/// Checks that tokens are drawn from the mixture, and that this can be told from each of its models alone.
fn check_mixture(drawn: &[Token], models: &[Vec<f64>]) {
    let mixture: Vec<f64> = (0..models[0].len())
        .map(|token| MIXTURE.iter().zip(models).map(|((_, weight), p)| weight * p[token]).sum())
        .collect();
    let (chi, limit) = chi_square(drawn, &mixture);
    assert!(chi < limit, "chi-square {chi}, limit {limit}");
    for (model, (name, _)) in models.iter().zip(MIXTURE) {
        let (chi, limit) = chi_square(drawn, model);
        assert!(chi > limit, "the draws fit {name} alone: chi-square {chi}, limit {limit}");
    }
}

/// The chi-square of draws against a distribution, tokens expected less than five times taken together, and its 0.1%
/// point (Wilson and Hilferty).
fn chi_square(drawn: &[Token], distribution: &[f64]) -> (f64, f64) {
    let mut counts = vec![0.0; distribution.len()];
    drawn.iter().for_each(|token| counts[*token as usize] += 1.0);
    let (mut chi, mut bins, mut rare) = (0.0, 0.0, (0.0, 0.0));
    let mut add = |count: f64, expected: f64| {
        chi += (count - expected).powi(2) / expected;
        bins += 1.0;
    };
    for (count, p) in counts.into_iter().zip(distribution) {
        let expected = p * drawn.len() as f64;
        if expected < 5.0 {
            rare = (rare.0 + count, rare.1 + expected);
        } else {
            add(count, expected);
        }
    }
    add(rare.0, rare.1);
    let part = 2.0 / (9.0 * (bins - 1.0));
    (chi, (bins - 1.0) * (1.0 - part + 3.09 * f64::sqrt(part)).powi(3))
}
