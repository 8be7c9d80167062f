//! Every model of the repository agrees with the values that another implementation computed from the same weights.

use crate::kit::{files, ids, lines, load, reference, row};
use candle_core::Tensor;
use tokenrouter_engine::{Device, Error, LoadOptions, ModelFiles, Weights, load as load_runner};

/// The names in a reference file of the tokens, logits and hidden states of a text.
type Names = [String; 3];

fn check(model: &str, texts: &[Names]) {
    let reference = reference(model);
    let mut decoder = load(model, 256);
    for (sequence, [tokens, logits, hidden]) in texts.iter().enumerate() {
        let tokens = ids(&reference[tokens]);
        let lines = lines(&mut decoder, &[row(sequence as u64, 0, &tokens, tokens.len())]);
        assert_eq!(lines.len(), tokens.len());
        for (part, want) in [logits, hidden].into_iter().enumerate() {
            let want = &reference[want];
            let got: Vec<f32> = lines.iter().flat_map(|line| line[part].clone()).collect();
            let error = largest_difference(&got, want);
            assert!(error < 1e-4, "{model}, text {sequence}, part {part}: {error}");
        }
    }
}

fn largest_difference(got: &[f32], want: &Tensor) -> f32 {
    let want = want.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// The three dialogues of a demo model.
fn dialogues(model: &str) {
    let names = |k| ["ids", "logits", "hidden"].map(|name| format!("{name}.{k}"));
    check(model, &[names(0), names(1), names(2)]);
}

#[test]
fn the_small_demo_model() {
    dialogues("small");
}

#[test]
fn the_mid_demo_model() {
    dialogues("mid");
}

#[test]
fn the_large_demo_model() {
    dialogues("large");
}

#[test]
fn qwen3_with_and_without_its_own_lm_head() {
    let names = ["input_ids", "logits", "hidden"].map(String::from);
    check("tiny/qwen3", std::slice::from_ref(&names));
    check("tiny/qwen3-tied", &[names]);
}

#[test]
fn embedded_weights_are_the_same_model() {
    let weights = include_bytes!("../../../models/small/model.safetensors");
    let embedded = ModelFiles { weights: Weights::Embedded(weights), ..files("small") };
    let options = LoadOptions { device: Device::Cpu, blocks: 4, threads: 1 };
    let mut embedded = tokenrouter_engine::load_decoder(&embedded, &options).unwrap();
    let rows = [row(1, 0, &[5, 6, 7], 3)];
    assert_eq!(lines(&mut embedded, &rows), lines(&mut load("small", 4), &rows));
}

#[test]
fn absurd_numbers_of_threads_are_cut_down_to_the_processors() {
    for (asked, most) in [(0, 1), (1, 1), (usize::MAX, 4096)] {
        let options = LoadOptions { device: Device::Cpu, blocks: 4, threads: asked };
        let threads = load_runner(&files("small"), &options).unwrap().facts().threads;
        assert!((1..=most).contains(&threads), "{asked}: {threads}");
    }
}

#[test]
fn weights_of_another_model_are_refused() {
    let options = LoadOptions { device: Device::Cpu, blocks: 4, threads: 1 };
    let mixed = ModelFiles { config: files("large").config, ..files("small") };
    let error = load_runner(&mixed, &options).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("has shape") && error.contains("192"), "{error}");
    let on_cuda = LoadOptions { device: Device::Cuda(0), ..options };
    assert!(matches!(load_runner(&files("small"), &on_cuda), Err(Error::Device(_))));
}
