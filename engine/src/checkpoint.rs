//! Router heads as their makers publish them, PyTorch checkpoints, turned into safetensors with a description beside.
//!
//! A checkpoint is a zip archive of raw numbers and one pickle that says what they are. The pickle is read by a small
//! reader of our own that knows plain data and tensors and refuses every other name: nothing in it is ever executed.

use crate::head::{HeadCard, HeadError};
use candle_core::{DType, Device, Tensor};
use pickle::{Id, Pickle, PickleError, TensorPlace};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;

mod pickle;

/// The longest pickle that is read, in bytes: a head's is a few kilobytes.
const LONGEST_PICKLE: u64 = 64 << 20;

/// Why a checkpoint cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not an archive of PyTorch, or a broken one.
    #[error("it is not an archive as torch.save writes it since version 1.6: {0}")]
    Archive(String),
    /// What it says cannot be read.
    #[error("its pickle is refused: {0}")]
    Pickle(#[from] PickleError),
    /// A network that we do not know.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Plain data and tensors, but no head.
    #[error("it holds no router head that is known: {0}")]
    Content(String),
    /// A tensor reaches beyond its numbers, or is of a kind that we do not read.
    #[error("tensor {name} cannot be read: {reason}")]
    Tensor {
        /// The tensor.
        name: String,
        /// Why.
        reason: String,
    },
    /// The result cannot be written.
    #[error("{path} cannot be written: {reason}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A head out of a checkpoint.
#[derive(Debug)]
pub struct Converted {
    /// What it is.
    pub card: HeadCard,
    /// Its weights by name.
    pub tensors: HashMap<String, Tensor>,
}

impl Converted {
    /// Reads a checkpoint: one of R2R's `.pt` files, which say what they are, or CITER's `.pth`, a bare state dict.
    ///
    /// # Errors
    /// A file that is no checkpoint, one that holds anything but data, or no head that is supported.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let mut archive = Archive::open(path)?;
        let pickle = Pickle::read(&archive.pickle()?)?;
        let (card, state) = contents(&pickle)?;
        card.kind()?;
        let mut tensors = HashMap::new();
        for (name, place) in state {
            // Counters of training; a head's weights are floating-point numbers.
            if place.dtype.is_float() {
                tensors.insert(name.clone(), archive.tensor(&name, place)?);
            }
        }
        Ok(Self { card, tensors })
    }

    /// Writes the weights to `weights` and the description beside them, as `.json`; gives the latter's path.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, weights: &Path) -> Result<PathBuf, CheckpointError> {
        let card = weights.with_extension("json");
        let failed =
            |path: &Path, reason: String| CheckpointError::Write { path: path.into(), reason };
        candle_core::safetensors::save(&self.tensors, weights)
            .map_err(|e| failed(weights, e.to_string()))?;
        let text =
            serde_json::to_string_pretty(&self.card).map_err(|e| failed(&card, e.to_string()))?;
        std::fs::write(&card, text + "\n").map_err(|e| failed(&card, e.to_string()))?;
        Ok(card)
    }
}

/// Tensors by name.
type State<'a> = Vec<(String, &'a TensorPlace)>;

/// The description and the state dict of a checkpoint.
fn contents(pickle: &Pickle) -> Result<(HeadCard, State<'_>), CheckpointError> {
    let root = pickle.root();
    let Some(state) = pickle.entry(root, "state_dict") else {
        let state = state(pickle, root)?;
        if !state.iter().any(|(name, _)| name == "mlp.1.running_var") {
            let reason = "neither a `state_dict` with its `model_type`, nor the weights of CITER's perceptron";
            return Err(CheckpointError::Content(reason.to_owned()));
        }
        let card = HeadCard {
            model_type: "CITER".to_owned(),
            init_args: serde_json::Map::new(),
            threshold: None,
            input_type: Some(serde_json::json!(["hidden_states"])),
        };
        return Ok((card, state));
    };
    let text = |key| pickle.entry(root, key).map(|id| pickle.json(id));
    let Some(serde_json::Value::String(model_type)) = text("model_type") else {
        return Err(CheckpointError::Content("its `model_type` is missing".to_owned()));
    };
    let init_args = match text("init_args") {
        Some(serde_json::Value::Object(arguments)) => arguments,
        _ => serde_json::Map::new(),
    };
    let common = |key| Some(pickle.json(pickle.entry(pickle.entry(root, "common_args")?, key)?));
    let card = HeadCard {
        model_type,
        init_args,
        threshold: common("threshold").and_then(|threshold| threshold.as_f64()),
        input_type: common("input_type").filter(|value| !value.is_null()),
    };
    Ok((card, self::state(pickle, state)?))
}

/// The tensors of a dict.
fn state(pickle: &Pickle, dict: Id) -> Result<State<'_>, CheckpointError> {
    let tensors: Vec<_> = pickle.tensors(dict).collect();
    if tensors.is_empty() {
        return Err(CheckpointError::Content("it has no tensors by name".to_owned()));
    }
    Ok(tensors)
}

/// The zip archive around a pickle.
struct Archive {
    zip: ZipArchive<BufReader<File>>,
    /// The folder that everything lies in, with its slash.
    folder: String,
    length: u64,
}

impl Archive {
    fn open(path: &Path) -> Result<Self, CheckpointError> {
        let read = |source| CheckpointError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let broken = |reason: String| CheckpointError::Archive(reason);
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|e| broken(e.to_string()))?;
        let pickle = zip.file_names().find_map(|name| name.strip_suffix("data.pkl"));
        let folder =
            pickle.ok_or_else(|| broken("there is no data.pkl in it".to_owned()))?.to_owned();
        let mut archive = Self { zip, folder, length };
        let order = archive.entry("byteorder", 16).unwrap_or_default();
        if order.starts_with(b"big") {
            return Err(broken("its numbers are big-endian".to_owned()));
        }
        Ok(archive)
    }

    fn pickle(&mut self) -> Result<Vec<u8>, CheckpointError> {
        self.entry("data.pkl", LONGEST_PICKLE).map_err(CheckpointError::Archive)
    }

    /// An entry of at most `most` bytes. Nothing in an archive of PyTorch is compressed, so no entry is longer than it.
    fn entry(&mut self, name: &str, most: u64) -> Result<Vec<u8>, String> {
        let name = format!("{}{name}", self.folder);
        let entry = self.zip.by_name(&name).map_err(|e| format!("{name}: {e}"))?;
        let most = most.min(self.length);
        let mut bytes = Vec::new();
        entry.take(most + 1).read_to_end(&mut bytes).map_err(|e| format!("{name}: {e}"))?;
        if bytes.len() as u64 > most {
            return Err(format!("{name} is longer than {most} bytes"));
        }
        Ok(bytes)
    }

    fn tensor(&mut self, name: &str, place: &TensorPlace) -> Result<Tensor, CheckpointError> {
        let fault = |reason: String| CheckpointError::Tensor { name: name.to_owned(), reason };
        let storage = self.entry(&format!("data/{}", place.storage), u64::MAX).map_err(fault)?;
        let size = place.dtype.size_in_bytes();
        let (starts, run) = place.runs(storage.len() / size).map_err(fault)?;
        let mut data = Vec::with_capacity(starts.len() * run * size);
        for start in starts {
            let bytes = start.checked_mul(size).and_then(|at| storage.get(at..)?.get(..run * size));
            let beyond =
                || fault(format!("it reaches beyond the {} bytes of its storage", storage.len()));
            data.extend_from_slice(bytes.ok_or_else(beyond)?);
        }
        let tensor = Tensor::from_raw_buffer(&data, place.dtype, &place.shape, &Device::Cpu);
        let wide = |tensor: Tensor| match place.dtype {
            DType::F64 => tensor.to_dtype(DType::F32),
            _ => Ok(tensor),
        };
        tensor.and_then(wide).map_err(|e| fault(e.to_string()))
    }
}

#[cfg(test)]
mod tests;
