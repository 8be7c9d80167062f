//! What a step reports: tokens and signals, batched, the same as from the logits of one row.

use crate::kit::{ids, lines, load, reference, row};
use tokenrouter_engine::{Decoder, Error, RowError, Runner};
use tokenrouter_policies::{HeadIx, SignalSet, Token};
use tokenrouter_protocol::{Row, Sampled, Sampling};

const ALL: SignalSet = SignalSet {
    entropy: true,
    max_probability: true,
    margin: true,
    top_logits: 4,
    hidden: true,
    defer: Some(17),
    head: None,
};

const WARM: Sampling = Sampling { temperature: 0.9, top_p: 0.95, top_k: 40, min_p: 0.01 };

fn asking(mut row: Row, signals: SignalSet, sampling: Sampling) -> Row {
    (row.signals, row.sampling) = (signals, sampling);
    row
}

fn step(decoder: &mut Decoder, rows: &[Row]) -> Vec<Vec<Sampled>> {
    let outputs = decoder.step(rows).unwrap();
    decoder.check();
    outputs.into_iter().map(|output| output.into_vec()).collect()
}

#[test]
fn signals_are_those_of_the_row_alone_and_asked_for() {
    let tokens = ids(&reference("large")["ids.0"]);
    let rows: Vec<_> = (1..6)
        .map(|sequence| {
            let outputs = sequence as usize % 3;
            let row = row(sequence, 0, &tokens[..10 * sequence as usize], outputs);
            match sequence {
                3 => row,
                _ => asking(row, ALL, WARM),
            }
        })
        .collect();
    let together = step(&mut load("large", 64), &rows);
    for (row, got) in rows.iter().zip(&together) {
        let alone = step(&mut load("large", 64), std::slice::from_ref(row));
        assert_eq!(&alone[0], got);
        assert_eq!(got.len(), usize::from(row.outputs));
        for sampled in got {
            assert_eq!(sampled.signals.entropy.is_some(), row.signals.entropy);
            assert_eq!(sampled.signals.hidden.is_some(), row.signals.hidden);
            assert_ne!(Some(sampled.token), row.signals.defer);
        }
    }
}

#[test]
fn signals_agree_with_the_logits() {
    let tokens = ids(&reference("small")["ids.1"]);
    let plain = row(1, 0, &tokens[..30], 1);
    let [logits, hidden] = lines(&mut load("small", 8), std::slice::from_ref(&plain)).remove(0);
    let asked = asking(plain, SignalSet { defer: None, ..ALL }, Sampling::GREEDY);
    let sampled = step(&mut load("small", 8), &[asked]).remove(0).remove(0);

    let mut sorted = logits.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    assert_eq!(logits[sampled.token as usize], sorted[0]);
    let powers: Vec<f64> = logits.iter().map(|l| f64::from(l - sorted[0]).exp()).collect();
    let total: f64 = powers.iter().sum();
    let entropy: f64 = powers.iter().map(|p| -(p / total) * (p / total).ln()).sum();
    let signals = sampled.signals;
    assert!((f64::from(signals.entropy.unwrap()) - entropy).abs() < 1e-5);
    let normalised = entropy / (logits.len() as f64).ln();
    assert!((f64::from(signals.entropy_normalised.unwrap()) - normalised).abs() < 1e-5);
    assert!((f64::from(signals.max_probability.unwrap()) - 1.0 / total).abs() < 1e-6);
    assert_eq!(signals.margin, Some(sorted[0] - sorted[1]));
    assert_eq!(signals.top_logits.as_deref(), Some(&sorted[..4]));
    assert_eq!(signals.hidden.as_deref(), Some(&hidden[..]));
}

#[test]
fn a_sampled_text_is_the_same_token_by_token_and_judged_at_once() {
    let prompt = &ids(&reference("large")["ids.2"])[..20];
    let mut decoder = load("large", 16);
    let mut tokens = prompt.to_vec();
    let first = asking(row(1, 0, prompt, 1), SignalSet::NONE, WARM);
    tokens.push(step(&mut decoder, &[first])[0][0].token);
    while tokens.len() < 60 {
        let at = tokens.len() - 1;
        let next = asking(row(1, at as u32, &tokens[at..], 1), SignalSet::NONE, WARM);
        tokens.push(step(&mut decoder, &[next])[0][0].token);
    }
    let all = asking(row(2, 0, &tokens[..59], 40), SignalSet::NONE, WARM);
    let judged: Vec<Token> =
        step(&mut load("large", 16), &[all])[0].iter().map(|sampled| sampled.token).collect();
    assert_eq!(judged, tokens[20..]);
}

#[test]
fn a_head_that_is_not_there_is_an_error() {
    let asked = SignalSet { head: Some(HeadIx(2)), ..SignalSet::NONE };
    let asked = asking(row(1, 0, &[5], 1), asked, Sampling::GREEDY);
    let refused = load("small", 4).step(&[asked]);
    assert!(matches!(refused, Err(Error::Row(RowError::Head { head: HeadIx(2), .. }))));
}
