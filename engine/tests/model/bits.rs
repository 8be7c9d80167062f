//! On the CPU a row's logits are the same bits whatever else is in the step, however its tokens were split over steps, and
//! however many threads compute.

use crate::kit::{Line, ids, lines, load, reference, row};
use tokenrouter_engine::{Decoder, Error, RowError, Runner};
use tokenrouter_policies::Token;
use tokenrouter_protocol::{CacheOp, Row, SequenceId};

const MODELS: [&str; 5] = ["small", "mid", "large", "tiny/qwen3", "tiny/qwen3-tied"];

/// A text that every model knows, longer than a few blocks.
fn text(model: &str) -> Vec<Token> {
    let reference = reference(model);
    let tokens = reference.get("ids.0").or_else(|| reference.get("input_ids")).unwrap();
    let mut tokens = ids(tokens);
    tokens.truncate(75);
    assert!(tokens.len() > 60);
    tokens
}

/// All lines of a text fed at once, alone, in a fresh model.
fn alone(model: &str, tokens: &[Token]) -> Vec<Line> {
    lines(&mut load(model, 64), &[row(1, 0, tokens, tokens.len())])
}

/// The same text as other rows of a batch see it: another token first, another length.
fn mate(sequence: u64, tokens: &[Token]) -> Vec<Token> {
    let mut tokens = tokens[..1 + sequence as usize * 4 % 60].to_vec();
    tokens[0] = sequence as Token;
    tokens
}

fn same(got: &[Line], want: &[Line], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        for part in 0..2 {
            let bits = |line: &Line| line[part].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(got), bits(want), "{what}, output {at}, part {part}");
        }
    }
}

#[test]
fn a_text_may_be_split_in_any_way() {
    for model in MODELS {
        let tokens = text(model);
        let want = alone(model, &tokens);
        for pieces in [vec![1; tokens.len()], vec![3, 40], vec![16, 16, 16], vec![15, 2, 33, 1]] {
            let mut decoder = load(model, 64);
            let (mut start, mut got) = (0, Vec::new());
            for piece in pieces.into_iter().chain([usize::MAX]) {
                let end = tokens.len().min(start + piece.min(tokens.len()));
                if start < end {
                    let piece = row(1, start as u32, &tokens[start..end], end - start);
                    got.extend(lines(&mut decoder, &[piece]));
                }
                start = end;
            }
            same(&got, &want, model);
        }
    }
}

#[test]
fn outputs_do_not_depend_on_how_many_are_asked_for() {
    for model in MODELS {
        let tokens = text(model);
        let want = alone(model, &tokens);
        for outputs in [1, 2, 5] {
            let got = lines(&mut load(model, 64), &[row(1, 0, &tokens, outputs)]);
            same(&got, &want[tokens.len() - outputs..], model);
        }
    }
}

/// Decodes the text from its 40th token on among 15 others, which prefill, extend and decode beside it.
fn among_fifteen(decoder: &mut Decoder, tokens: &[Token]) -> Vec<Line> {
    lines(decoder, &[row(1, 0, &tokens[..40], 0)]);
    let mut got = Vec::new();
    for (step, token) in tokens.iter().enumerate().skip(40) {
        let mut rows = Vec::<Row>::new();
        let mut place = 0;
        for sequence in 2..17_u64 {
            let mate = mate(sequence, tokens);
            let fed = (step - 40) as u64 % mate.len() as u64;
            if fed == 0 && step > 40 {
                decoder.apply(CacheOp::Close { sequence: SequenceId(sequence) });
            }
            let fed = fed as usize;
            let held = match fed {
                0 => 0,
                // From their second step on half of them decode, the others have been fed whole.
                _ if sequence % 2 == 0 => fed,
                _ => continue,
            };
            let end = if sequence % 2 == 0 { fed + 1 } else { mate.len() };
            rows.push(row(sequence, held as u32, &mate[held..end], 1));
            if sequence == 9 {
                place = rows.len();
            }
        }
        rows.insert(place, row(1, step as u32, &[*token], 1));
        got.push(lines(decoder, &rows).swap_remove(place));
    }
    got
}

#[test]
fn a_row_is_the_same_alone_and_among_fifteen_others() {
    for model in MODELS {
        let tokens = text(model);
        let want = alone(model, &tokens);
        let got = among_fifteen(&mut load(model, 256), &tokens);
        same(&got, &want[40..], model);
    }
}

#[test]
fn prefills_of_sixteen_lengths_in_one_step_are_each_as_alone() {
    for model in ["large", "tiny/qwen3"] {
        let tokens = text(model);
        let mates: Vec<_> = (1..17).map(|sequence| mate(sequence, &tokens)).collect();
        let rows: Vec<_> = (1..).zip(&mates).map(|(sequence, t)| row(sequence, 0, t, 1)).collect();
        let got = lines(&mut load(model, 256), &rows);
        for (got, mate) in got.iter().zip(&mates) {
            same(std::slice::from_ref(got), &alone(model, mate)[mate.len() - 1..], model);
        }
    }
}

#[test]
fn truncating_leaves_no_trace() {
    for model in MODELS {
        let tokens = text(model);
        let want = alone(model, &tokens);
        let mut decoder = load(model, 64);
        let wrong: Vec<Token> = tokens.iter().map(|token| (token + 1) % 100).collect();
        lines(&mut decoder, &[row(1, 0, &tokens[..37], 0)]);
        lines(&mut decoder, &[row(1, 37, &wrong, 0), row(2, 0, &wrong, 0)]);
        decoder.apply(CacheOp::Truncate { sequence: SequenceId(1), to: 37 });
        decoder.apply(CacheOp::Close { sequence: SequenceId(2) });
        decoder.check();
        same(
            &lines(&mut decoder, &[row(1, 37, &tokens[37..], 20)]),
            &want[want.len() - 20..],
            model,
        );
        decoder.reset();
        assert_eq!(decoder.blocks_used(), 0);
        same(&lines(&mut decoder, &[row(1, 0, &tokens, tokens.len())]), &want, model);
    }
}

#[test]
fn threads_do_not_change_bits() {
    for model in ["large", "tiny/qwen3"] {
        let tokens = text(model);
        let want = alone(model, &tokens);
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let got = pool.install(|| {
                let whole = alone(model, &tokens);
                same(&among_fifteen(&mut load(model, 256), &tokens), &want[40..], model);
                whole
            });
            same(&got, &want, model);
        }
    }
}

#[test]
fn a_full_pool_is_refused_and_nothing_is_lost() {
    let tokens = text("small");
    let want = alone("small", &tokens);
    let mut decoder = load("small", 6);
    lines(&mut decoder, &[row(1, 0, &tokens[..40], 0)]);
    let refused = decoder.step(&[row(1, 40, &tokens[40..41], 1), row(2, 0, &tokens[..60], 1)]);
    assert!(matches!(refused, Err(Error::Row(RowError::Full { needed: 4, free: 3 }))));
    decoder.check();
    assert_eq!(decoder.blocks_used(), 3);
    let got = lines(&mut decoder, &[row(1, 40, &tokens[40..], 1)]);
    same(&got, &want[want.len() - 1..], "small");
}
