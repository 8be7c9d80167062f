//! Heads against the scores that PyTorch computed from the same random weights, and heads that fit nothing.

use super::*;
use crate::checkpoint::Converted;
use candle_core::{DType, Device};
use std::collections::HashMap;
use std::path::PathBuf;

/// Every network, with the largest difference that is allowed.
const GOLDEN: [&str; 8] = [
    "hidden-token-logits.pt",
    "hidden-token-logits-normalised.pt",
    "hidden-token.pt",
    "hidden-logits.pt",
    "hidden.pt",
    "own-logits.pt",
    "logits.pt",
    "citer.pth",
];

fn folder() -> PathBuf {
    PathBuf::from("tests/heads")
}

/// The model that the golden heads were made for.
fn arch() -> Arch {
    let config = include_bytes!("../../../models/small/config.json");
    Arch { hidden: 12, vocabulary: 40, ..Arch::parse(config).unwrap() }
}

/// A converted checkpoint as files, in memory.
fn files(checkpoint: &str) -> HeadFiles {
    let converted = Converted::read(&folder().join(checkpoint)).unwrap();
    in_memory(&converted.card, &converted.tensors)
}

fn in_memory(card: &HeadCard, tensors: &HashMap<String, Tensor>) -> HeadFiles {
    let weights = safetensors::serialize(tensors, None).unwrap();
    HeadFiles {
        card: serde_json::to_vec(card).unwrap().into(),
        weights: Weights::Embedded(weights.leak()),
    }
}

/// Inputs and scores.
struct Golden {
    tensors: HashMap<String, Tensor>,
}

impl Golden {
    fn load() -> Self {
        let path = folder().join("golden.safetensors");
        Self { tensors: candle_core::safetensors::load(path, &Device::Cpu).unwrap() }
    }

    fn numbers(&self, name: &str) -> Vec<Vec<f32>> {
        self.tensors[name].to_vec2().unwrap()
    }

    /// The scores of the lines, all in one batch.
    fn scores(&self, head: &Head, lines: &[usize]) -> Vec<f32> {
        let (hidden, logits) = (self.numbers("hidden"), self.numbers("logits"));
        let tokens = self.tensors["token"].to_dtype(DType::U32).unwrap().to_vec1::<u32>().unwrap();
        let mut features = Vec::new();
        for &line in lines {
            let seen = Seen { hidden: &hidden[line], token: tokens[line], logits: &logits[line] };
            head.read(&seen, &mut features).unwrap();
        }
        head.network.scores(features, lines.len())
    }
}

#[test]
fn every_network_agrees_with_its_reference_and_no_score_depends_on_the_others() {
    let golden = Golden::load();
    for checkpoint in GOLDEN {
        let head = Head::load(&files(checkpoint), &arch(), &golden.tensors["embedding"]).unwrap();
        let got = golden.scores(&head, &[0, 1, 2, 3, 4, 5]);
        let name = checkpoint.split('.').next().unwrap();
        let want = golden.tensors[&format!("score.{name}")].to_vec1::<f32>().unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 1e-5, "{checkpoint}: {got} is not {want}");
        }
        let spread = want.iter().fold(0.0_f32, |most, score| most.max((score - want[0]).abs()));
        assert!(spread > 0.01, "{checkpoint}: the scores are all alike");
        for lines in [&[0][..], &[3], &[5, 2], &[1, 1, 4, 0]] {
            for (line, score) in lines.iter().zip(golden.scores(&head, lines)) {
                assert_eq!(score.to_bits(), got[*line].to_bits(), "{checkpoint}, line {line}");
            }
        }
    }
}

#[test]
fn a_linear_head_is_the_sigmoid_of_one_row() {
    let row = Tensor::new(&[[0.5_f32, -1.0, 2.0]], &Device::Cpu).unwrap();
    let bias = Tensor::new(&[0.25_f32], &Device::Cpu).unwrap();
    let tensors = HashMap::from([
        ("linear.weight".to_owned(), row.clone()),
        ("linear.bias".to_owned(), bias),
    ]);
    let card = HeadCard::parse(br#"{"model_type": "Linear"}"#).unwrap();
    let arch = Arch { hidden: 3, ..arch() };
    let head = Head::load(&in_memory(&card, &tensors), &arch, &row).unwrap();
    let mut features = Vec::new();
    head.read(&Seen { hidden: &[1.0, 2.0, 3.0], token: 0, logits: &[] }, &mut features).unwrap();
    let scores = head.network.scores(features, 1);
    assert!((scores[0] - 1.0 / (1.0 + (-4.75_f32).exp())).abs() < 1e-6);
}

fn refusal(files: &HeadFiles, arch: &Arch) -> String {
    let told = describe_head(files, arch).unwrap_err().to_string();
    let loaded = Head::load(files, arch, &Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap());
    assert_eq!(loaded.unwrap_err().to_string(), told);
    told
}

#[test]
fn a_head_of_another_model_is_told_with_both_sizes() {
    let other = Arch { hidden: 64, ..arch() };
    for checkpoint in GOLDEN.into_iter().filter(|checkpoint| *checkpoint != "logits.pt") {
        let told = refusal(&files(checkpoint), &other);
        let start = "the head reads hidden states of 12 numbers, but the model's have 64";
        assert!(told.starts_with(start), "{checkpoint}: {told}");
    }
    let larger = Arch { vocabulary: 50, ..arch() };
    let told = refusal(&files("hidden-token.pt"), &larger);
    assert!(told.starts_with("the head knows 40 tokens, but the model has 50"), "{told}");
    assert!(describe_head(&files("hidden-token-logits.pt"), &larger).is_ok(), "it has no table");
    let smaller = Arch { vocabulary: 9, ..arch() };
    for checkpoint in ["logits.pt", "hidden-logits.pt"] {
        let told = refusal(&files(checkpoint), &smaller);
        assert!(
            told.starts_with("the head reads the 16 largest logits, but the model has only 9"),
            "{told}"
        );
    }
}

#[test]
fn what_is_no_head_is_refused_by_name() {
    let converted = Converted::read(&folder().join("hidden.pt")).unwrap();
    let check = |card: &HeadCard, tensors: &HashMap<String, Tensor>, expected: &str| {
        let told = refusal(&in_memory(card, tensors), &arch());
        assert!(told.contains(expected), "{told}");
    };
    let mut card = converted.card.clone();
    card.model_type = "MultiLogitsClassifier".to_owned();
    check(
        &card,
        &converted.tensors,
        "a \"MultiLogitsClassifier\", which is not supported; supported are",
    );
    let mut card = converted.card.clone();
    card.init_args.insert("use_position_embedding".to_owned(), true.into());
    check(&card, &converted.tensors, "`use_position_embedding`");
    let without = |name: &str| {
        let mut tensors = converted.tensors.clone();
        tensors.remove(name);
        tensors
    };
    let gone = "backbone.blocks.0.mlp.3.bias";
    check(&converted.card, &without(gone), gone);
    for name in ["backbone.output_layer.1.weight", "layer_norm.weight"] {
        let mut tensors = without(name);
        let wrong = Tensor::zeros((2, 2), DType::F32, &Device::Cpu).unwrap();
        tensors.insert(name.to_owned(), wrong);
        check(&converted.card, &tensors, &format!("tensor {name} of the head has shape [2, 2]"));
    }
    for card in ["", "[]", "{}", r#"{"model_type": "Linear", "treshold": 1}"#] {
        let files = HeadFiles { card: card.as_bytes().to_vec().into(), ..files("hidden.pt") };
        assert!(refusal(&files, &arch()).contains("description cannot be read"), "{card}");
    }
}
