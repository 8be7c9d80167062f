//! Loads the models of the repository and feeds them rows.

use candle_core::{DType, Device as Candle, Tensor};
use std::collections::HashMap;
use std::path::PathBuf;
use tokenrouter_engine::{Decoder, Device, LoadOptions, ModelFiles, Weights, load_decoder};
use tokenrouter_policies::{Draws, Position, SignalSet, Token};
use tokenrouter_protocol::{Row, Sampling, SequenceId};

/// A model of the `models` folder.
pub(crate) fn files(name: &str) -> ModelFiles {
    let folder = folder(name);
    ModelFiles {
        config: std::fs::read(folder.join("config.json")).unwrap().into(),
        weights: Weights::Files(vec![folder.join("model.safetensors")]),
        heads: Vec::new(),
        defer: None,
    }
}

pub(crate) fn load(name: &str, blocks: u32) -> Decoder {
    let options = LoadOptions { device: Device::Cpu, blocks, threads: 1 };
    load_decoder(&files(name), &options).unwrap()
}

/// The reference tensors of a model.
pub(crate) fn reference(name: &str) -> HashMap<String, Tensor> {
    let path = folder(name).join("reference.safetensors");
    candle_core::safetensors::load(path, &Candle::Cpu).unwrap()
}

pub(crate) fn ids(tensor: &Tensor) -> Vec<Token> {
    tensor.flatten_all().unwrap().to_dtype(DType::U32).unwrap().to_vec1().unwrap()
}

/// A row that asks for `outputs` outputs and no signals.
pub(crate) fn row(sequence: u64, start: Position, tokens: &[Token], outputs: usize) -> Row {
    Row {
        sequence: SequenceId(sequence),
        start,
        tokens: tokens.into(),
        outputs: outputs as u16,
        signals: SignalSet::NONE,
        sampling: Sampling::GREEDY,
        draws: Draws::new(0, 0),
    }
}

/// The logits and hidden states of all outputs, a line each.
pub(crate) fn lines(decoder: &mut Decoder, rows: &[Row]) -> Vec<Line> {
    let outputs = decoder.forward(rows).unwrap();
    decoder.check();
    let Some(outputs) = outputs else { return Vec::new() };
    let logits = outputs.logits.to_vec2::<f32>().unwrap();
    logits.into_iter().zip(outputs.hidden.to_vec2().unwrap()).map(|(l, h)| [l, h]).collect()
}

/// Logits and hidden state of one position.
pub(crate) type Line = [Vec<f32>; 2];

fn folder(name: &str) -> PathBuf {
    PathBuf::from("../models").join(name)
}
