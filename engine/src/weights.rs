//! Weights in the safetensors format, from memory or from files, one tensor at a time.
//!
//! Files are never mapped and nothing is written: a tensor is read when it is asked for. What a file says about itself
//! is checked before any of it is used, so a truncated or foreign file is an error and never a panic.

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use mistralrs_quant::{ShardedSafeTensors, ShardedVarBuilder};
use safetensors::tensor::{Dtype, Metadata};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where the weights are.
#[derive(Clone, Debug)]
pub enum Weights {
    /// A whole `.safetensors` file in memory.
    Embedded(&'static [u8]),
    /// `.safetensors` files, or the `.index.json` that names them.
    Files(Vec<PathBuf>),
}

/// What is wrong with weights.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a safetensors file, or a part of one.
    #[error("{name} is not a whole safetensors file: {reason}")]
    Format {
        /// The file.
        name: String,
        /// What does not fit.
        reason: String,
    },
    /// Not an index of files.
    #[error("{path} is not an index of safetensors files: {source}")]
    Index {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A tensor of the model is not there.
    #[error("tensor {name} is missing; config.json and weights belong to different models")]
    Missing {
        /// The tensor.
        name: String,
    },
    /// A tensor has another shape.
    #[error("tensor {name} has shape {found:?}, but config.json asks for {wanted:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// The shape that the config asks for.
        wanted: Vec<usize>,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// A tensor of numbers that we do not read.
    #[error("tensor {name} holds {found} numbers; f32, f16 and bf16 are read")]
    Numbers {
        /// The tensor.
        name: String,
        /// Their type.
        found: String,
    },
}

/// The tensors of a model by name.
pub(crate) struct Tensors {
    parts: Vec<Part>,
    places: HashMap<String, Place>,
}

/// One file, and where its data begin.
struct Part {
    source: Source,
    name: String,
    data: u64,
}

enum Source {
    Bytes(&'static [u8]),
    File(Mutex<File>),
}

struct Place {
    part: usize,
    shape: Vec<usize>,
    dtype: Dtype,
    start: usize,
    end: usize,
}

impl Tensors {
    /// Reads what the weights say about themselves.
    pub(crate) fn open(weights: &Weights) -> Result<Self, WeightsError> {
        let mut tensors = Self { parts: Vec::new(), places: HashMap::new() };
        match weights {
            Weights::Embedded(bytes) => tensors.add_bytes(bytes)?,
            Weights::Files(paths) => {
                for path in with_indices(paths)? {
                    tensors.add_file(&path)?;
                }
            }
        }
        Ok(tensors)
    }

    /// Checks that every tensor is there in its shape.
    pub(crate) fn check(&self, wanted: &[(String, Vec<usize>)]) -> Result<(), WeightsError> {
        for (name, wanted) in wanted {
            let place = self.places.get(name);
            let place = place.ok_or_else(|| WeightsError::Missing { name: name.clone() })?;
            let (name, wanted, found) = (name.clone(), wanted.clone(), place.shape.clone());
            if found != wanted {
                return Err(WeightsError::Shape { name, wanted, found });
            }
            if dtype(place.dtype).is_none() {
                let found = format!("{:?}", place.dtype);
                return Err(WeightsError::Numbers { name, found });
            }
        }
        Ok(())
    }

    /// The shape of a tensor that is there.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.places.get(name).map(|place| place.shape.as_slice())
    }

    /// How many numbers all tensors have together.
    pub(crate) fn numbers(&self) -> u64 {
        self.places.values().map(|place| place.shape.iter().product::<usize>() as u64).sum()
    }

    /// A tensor widened to f32 on the CPU.
    pub(crate) fn wide(&self, name: &str) -> candle_core::Result<Tensor> {
        self.tensor(name, &Device::Cpu)?.to_dtype(DType::F32)
    }

    /// A builder that gives every tensor widened to f32 on `device`.
    pub(crate) fn builder(self, device: &Device) -> ShardedVarBuilder {
        ShardedSafeTensors::wrap(Box::new(self), DType::F32, device.clone())
    }

    fn add_bytes(&mut self, bytes: &'static [u8]) -> Result<(), WeightsError> {
        let name = "the embedded model".to_owned();
        let (header, metadata) = header(bytes, bytes.len() as u64, &name)?;
        self.add(Part { source: Source::Bytes(bytes), name, data: header }, &metadata);
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<(), WeightsError> {
        let read = |source| WeightsError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut bytes = Vec::new();
        file.by_ref().take(8).read_to_end(&mut bytes).map_err(read)?;
        if let Ok(size) = <[u8; 8]>::try_from(bytes.as_slice()) {
            // A header that claims more than the file has is found out below, having read no more than the file.
            let size = u64::from_le_bytes(size).min(length);
            file.by_ref().take(size).read_to_end(&mut bytes).map_err(read)?;
        }
        let name = path.display().to_string();
        let (header, metadata) = header(&bytes, length, &name)?;
        self.add(Part { source: Source::File(Mutex::new(file)), name, data: header }, &metadata);
        Ok(())
    }

    fn add(&mut self, part: Part, metadata: &Metadata) {
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let (shape, dtype) = (info.shape.clone(), info.dtype);
            let place = Place { part: self.parts.len(), shape, dtype, start, end };
            self.places.insert(name, place);
        }
        self.parts.push(part);
    }

    fn tensor(&self, name: &str, device: &Device) -> candle_core::Result<Tensor> {
        let missing = || WeightsError::Missing { name: name.to_owned() };
        let place = self.places.get(name).ok_or_else(|| candle_core::Error::wrap(missing()))?;
        let found = || format!("{:?}", place.dtype);
        let numbers = || WeightsError::Numbers { name: name.to_owned(), found: found() };
        let dtype = dtype(place.dtype).ok_or_else(|| candle_core::Error::wrap(numbers()))?;
        let part = &self.parts[place.part];
        match &part.source {
            Source::Bytes(bytes) => {
                let data = &bytes[part.data as usize..][place.start..place.end];
                Tensor::from_raw_buffer(data, dtype, &place.shape, device)
            }
            Source::File(file) => {
                let data = part.read(file, place).map_err(candle_core::Error::wrap)?;
                Tensor::from_raw_buffer(&data, dtype, &place.shape, device)
            }
        }
    }
}

impl Part {
    fn read(&self, file: &Mutex<File>, place: &Place) -> Result<Vec<u8>, WeightsError> {
        let read = |source| WeightsError::Read { path: self.name.clone().into(), source };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.data + place.start as u64)).map_err(read)?;
        let mut data = vec![0; place.end - place.start];
        file.read_exact(&mut data).map_err(read)?;
        Ok(data)
    }
}

impl SimpleBackend for Tensors {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: candle_nn::Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let tensor = self.get_unchecked(name, dtype, device)?;
        if tensor.shape() != &shape {
            return Err(candle_core::Error::wrap(WeightsError::Shape {
                name: name.to_owned(),
                wanted: shape.into_dims(),
                found: tensor.dims().to_vec(),
            }));
        }
        Ok(tensor)
    }

    fn get_unchecked(
        &self,
        name: &str,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        self.tensor(name, device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }
}

/// Reads the header from the first bytes of a file of `length` bytes; gives where the data begin, too.
fn header(bytes: &[u8], length: u64, name: &str) -> Result<(u64, Metadata), WeightsError> {
    let format = |reason: String| WeightsError::Format { name: name.to_owned(), reason };
    let size = bytes.first_chunk().map(|size| u64::from_le_bytes(*size));
    let size = size.ok_or_else(|| format("it is shorter than 8 bytes".to_owned()))?;
    let text = usize::try_from(size).ok().and_then(|size| bytes.get(8..)?.get(..size));
    let text = text.ok_or_else(|| format("it ends within its header".to_owned()))?;
    // Reading it checks that the tensors follow one another without a gap and have the size of their shape.
    let metadata: Metadata =
        serde_json::from_slice(text).map_err(|error| format(error.to_string()))?;
    let data = metadata.data_len() as u64;
    if Some(length) != size.checked_add(8).and_then(|header| header.checked_add(data)) {
        return Err(format(format_length(size, data, length)));
    }
    Ok((size + 8, metadata))
}

fn format_length(header: u64, data: u64, length: u64) -> String {
    format!("its header announces {header} + {data} bytes, the file has {length}")
}

/// The paths, with each index replaced by the files that it names.
fn with_indices(paths: &[PathBuf]) -> Result<Vec<PathBuf>, WeightsError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: HashMap<String, String>,
    }
    let mut files = Vec::new();
    for path in paths {
        if path.extension().is_none_or(|extension| extension != "json") {
            files.push(path.clone());
            continue;
        }
        let text = std::fs::read(path)
            .map_err(|source| WeightsError::Read { path: path.clone(), source })?;
        let index: Index = serde_json::from_slice(&text)
            .map_err(|source| WeightsError::Index { path: path.clone(), source })?;
        let names: BTreeSet<_> = index.weight_map.into_values().collect();
        files.extend(names.into_iter().map(|name| path.with_file_name(name)));
    }
    Ok(files)
}

fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
