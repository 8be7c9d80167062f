//! Router heads in a step: the same bits in any batch, for the rows that ask and no others; and the token that is never
//! sampled.

use crate::kit::{files, ids, load, reference, row};
use std::path::Path;
use tokenrouter_engine::{
    Decoder, Device, HeadFiles, LoadOptions, ModelFiles, Runner, Weights, load_decoder,
};
use tokenrouter_policies::{HeadIx, SignalSet};
use tokenrouter_protocol::{CacheOp, Row, Sampled, SequenceId};

fn head(name: &str) -> HeadFiles {
    let folder = Path::new("../models/heads");
    HeadFiles {
        card: std::fs::read(folder.join(format!("{name}.json"))).unwrap().into(),
        weights: Weights::Files(vec![folder.join(format!("{name}.safetensors"))]),
    }
}

fn decoder(files: &ModelFiles) -> Decoder {
    load_decoder(files, &LoadOptions { device: Device::Cpu, blocks: 64, threads: 1 }).unwrap()
}

/// `small` with its heads.
fn small() -> Decoder {
    decoder(&ModelFiles { heads: vec![head("r2r"), head("citer")], ..files("small") })
}

fn asking(mut row: Row, head: Option<u8>) -> Row {
    row.signals = SignalSet { head: head.map(HeadIx), ..SignalSet::NONE };
    row
}

fn step(decoder: &mut Decoder, rows: &[Row]) -> Vec<Vec<Sampled>> {
    let outputs = decoder.step(rows).unwrap();
    outputs.into_iter().map(|output| output.into_vec()).collect()
}

#[test]
fn a_score_does_not_depend_on_what_else_is_in_the_step() {
    let tokens = ids(&reference("small")["ids.0"]);
    let rows: Vec<Row> = (0..9)
        .map(|sequence| {
            let (length, outputs) = (20 + 5 * sequence as usize, 1 + sequence as usize % 3);
            let asked = [Some(0), Some(1), None][sequence as usize % 3];
            asking(row(sequence, 0, &tokens[..length], outputs), asked)
        })
        .collect();
    let together = step(&mut small(), &rows);
    for (row, got) in rows.iter().zip(&together) {
        let alone = step(&mut small(), std::slice::from_ref(row));
        assert_eq!(&alone[0], got);
        for sampled in got {
            assert_eq!(sampled.signals.head.is_some(), row.signals.head.is_some());
            assert!(sampled.signals.head.is_none_or(|score| (0.0..=1.0).contains(&score)));
        }
    }
    let of = |head| {
        let asked = |row: &&Row| row.signals.head == Some(HeadIx(head));
        rows.iter().filter(asked).count()
    };
    assert_eq!((of(0), of(1)), (3, 3));
}

#[test]
fn a_score_does_not_depend_on_how_the_text_was_split() {
    let tokens = ids(&reference("small")["ids.1"]);
    let whole = step(&mut small(), &[asking(row(1, 0, &tokens[..40], 20), Some(0))]).remove(0);
    let mut decoder = small();
    step(&mut decoder, &[asking(row(1, 0, &tokens[..20], 0), Some(0))]);
    for (at, want) in (20..40).zip(&whole) {
        let next = asking(row(1, at as u32, &tokens[at..=at], 1), Some(0));
        assert_eq!(&step(&mut decoder, &[next])[0][0], want, "position {at}");
    }
    decoder.apply(CacheOp::Truncate { sequence: SequenceId(1), to: 30 });
    let again = asking(row(1, 30, &tokens[30..40], 10), Some(0));
    assert_eq!(step(&mut decoder, &[again])[0], whole[10..]);
}

#[test]
fn the_head_of_another_model_is_refused() {
    let foreign = ModelFiles { heads: vec![head("r2r")], ..files("large") };
    let options = LoadOptions { device: Device::Cpu, blocks: 4, threads: 1 };
    let error = load_decoder(&foreign, &options).unwrap_err().to_string();
    assert!(error.contains("hidden states of 64 numbers, but the model's have 192"), "{error}");
}

#[test]
fn a_defer_token_is_never_sampled() {
    let tokens = ids(&reference("large")["ids.2"]);
    let plain = row(1, 0, &tokens[..30], 10);
    let unmasked = step(&mut load("large", 64), std::slice::from_ref(&plain)).remove(0);
    let defer = unmasked[4].token;
    let mut masking = decoder(&ModelFiles { defer: Some(defer), ..files("large") });
    let masked = step(&mut masking, std::slice::from_ref(&plain)).remove(0);
    for (was, is) in unmasked.iter().zip(&masked) {
        assert_ne!(is.token, defer);
        assert!(was.token == defer || was.token == is.token);
    }
    // A row that asks for its signal gets that of the logit as it was.
    let mut asked = plain;
    asked.sequence = SequenceId(2);
    asked.signals.defer = Some(defer);
    let masked = step(&mut masking, std::slice::from_ref(&asked));
    assert_eq!(masked, {
        let mut unmasking = load("large", 64);
        step(&mut unmasking, std::slice::from_ref(&asked))
    });
    assert!(masked[0][4].signals.defer.unwrap() > 0.99);
}
