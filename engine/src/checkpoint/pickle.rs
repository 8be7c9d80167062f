//! A reader of the pickles that PyTorch writes (protocol 2): plain data and where tensors lie.
//!
//! It is a stack machine that builds values and calls nothing. Where a pickle names something to be called, only the
//! names of [`NAMES`] are known, and each of them stands for a value that is made here; all others are refused.

use candle_core::DType;
use serde_json::Value as Json;
use std::collections::HashMap;

/// Values that a description may have when it is written out; a few kilobytes of text hold fewer.
const MOST_JSON: usize = 10_000;

/// Nesting that a description may have; deeper ones can only be made on purpose.
const DEEPEST_JSON: usize = 32;

/// Why a pickle is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// It ends too early.
    #[error("it ends in the middle")]
    Short,
    /// An instruction that plain data have no need of.
    #[error("instruction {0:#04x} is not known; it holds more than data and tensors")]
    Instruction(u8),
    /// Something that would have to be executed.
    #[error("it names `{0}`, which is not data; nothing of it was executed")]
    Name(String),
    /// Instructions that do not fit what is there.
    #[error("{0}")]
    Malformed(&'static str),
}

/// What a name in a pickle may stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Name {
    /// Makes an empty dict.
    OrderedDict,
    /// Makes a tensor of a storage, an offset, a shape and strides.
    RebuildTensor,
    /// The type of the numbers in a storage, by PyTorch's name for it.
    Storage(DType),
    /// A type of numbers as a value.
    Type(&'static str),
    /// Makes a value that is of no interest: NumPy's numbers among the figures of a training.
    Passed,
}

const NAMES: [(&str, Name); 20] = [
    ("collections.OrderedDict", Name::OrderedDict),
    ("torch._utils._rebuild_tensor_v2", Name::RebuildTensor),
    ("torch.FloatStorage", Name::Storage(DType::F32)),
    ("torch.DoubleStorage", Name::Storage(DType::F64)),
    ("torch.HalfStorage", Name::Storage(DType::F16)),
    ("torch.BFloat16Storage", Name::Storage(DType::BF16)),
    ("torch.LongStorage", Name::Storage(DType::I64)),
    ("torch.IntStorage", Name::Storage(DType::U32)),
    ("torch.ByteStorage", Name::Storage(DType::U8)),
    ("torch.BoolStorage", Name::Storage(DType::U8)),
    ("torch.float32", Name::Type("float32")),
    ("torch.float64", Name::Type("float64")),
    ("torch.float16", Name::Type("float16")),
    ("torch.bfloat16", Name::Type("bfloat16")),
    ("numpy.dtype", Name::Passed),
    ("numpy.core.multiarray.scalar", Name::Passed),
    ("numpy._core.multiarray.scalar", Name::Passed),
    ("numpy.float64", Name::Passed),
    ("numpy.float32", Name::Passed),
    ("_codecs.encode", Name::Passed),
];

/// A value's place in its pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(usize);

/// A value. Those that hold others hold their places, so that a value may be in several of them and grow later.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Name(Name),
    Storage(DType, String),
    Tensor(TensorPlace),
    Passed,
}

/// Where the numbers of a tensor lie. Offset and strides count numbers, not bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorPlace {
    pub(super) dtype: DType,
    pub(super) storage: String,
    pub(super) shape: Vec<usize>,
    offset: usize,
    strides: Vec<usize>,
}

impl TensorPlace {
    /// A tensor of test.
    #[cfg(test)]
    pub(super) fn new(
        dtype: DType,
        storage: &str,
        shape: Vec<usize>,
        offset: usize,
        strides: Vec<usize>,
    ) -> Self {
        Self { dtype, storage: storage.to_owned(), shape, offset, strides }
    }

    /// Where its numbers lie in a storage of `available` numbers: the starts of runs, in order, and their length.
    pub(super) fn runs(&self, available: usize) -> Result<(Vec<usize>, usize), String> {
        let count = self.shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size));
        if count.is_none_or(|count| count > available) {
            return Err(format!(
                "its shape {:?} has more than the {available} numbers of its storage",
                self.shape
            ));
        }
        let mut dims: Vec<_> = self.shape.iter().zip(&self.strides).collect();
        let mut run = 1;
        while let Some((size, _)) = dims.pop_if(|(size, stride)| **size == 1 || **stride == run) {
            run *= size;
        }
        let mut starts = vec![self.offset];
        for (size, stride) in dims {
            let steps = |start: usize| {
                (0..*size).map(move |k| start.saturating_add(k.saturating_mul(*stride)))
            };
            starts = starts.into_iter().flat_map(steps).collect();
        }
        Ok((starts, run))
    }
}

/// A whole pickle.
#[derive(Debug)]
pub(super) struct Pickle {
    values: Vec<Value>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle to its end.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, PickleError> {
        let mut machine = Machine { bytes, ..Machine::default() };
        while machine.step()? {}
        let root = machine.pop()?;
        Ok(Self { values: machine.values, root })
    }

    pub(super) fn root(&self) -> Id {
        self.root
    }

    /// The entry of a dict under a text.
    pub(super) fn entry(&self, dict: Id, key: &str) -> Option<Id> {
        let Value::Dict(entries) = &self.values[dict.0] else { return None };
        // Of entries with one key the last holds, as where the pickle is loaded.
        let found = entries.iter().rev().find(|(k, _)| self.text(*k) == Some(key));
        found.map(|(_, value)| *value)
    }

    /// The tensors of a dict by name.
    pub(super) fn tensors(&self, dict: Id) -> impl Iterator<Item = (String, &TensorPlace)> {
        let entries: &[(Id, Id)] = match &self.values[dict.0] {
            Value::Dict(entries) => entries,
            _ => &[],
        };
        entries.iter().filter_map(|(key, value)| match &self.values[value.0] {
            Value::Tensor(place) => Some((self.text(*key)?.to_owned(), place)),
            _ => None,
        })
    }

    /// A value as JSON; what JSON cannot say is null.
    pub(super) fn json(&self, id: Id) -> Json {
        let mut left = MOST_JSON;
        self.json_within(id, DEEPEST_JSON, &mut left)
    }

    fn json_within(&self, id: Id, depth: usize, left: &mut usize) -> Json {
        if depth == 0 || *left == 0 {
            return Json::Null;
        }
        *left -= 1;
        match &self.values[id.0] {
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => value.clone().into(),
            Value::Name(Name::Type(name)) => (*name).into(),
            Value::Tuple(items) | Value::List(items) => {
                items.iter().map(|id| self.json_within(*id, depth - 1, left)).collect()
            }
            Value::Dict(entries) => {
                let entries = entries.iter().filter_map(|(key, value)| {
                    let key = self.text(*key)?.to_owned();
                    Some((key, self.json_within(*value, depth - 1, left)))
                });
                Json::Object(entries.collect())
            }
            _ => Json::Null,
        }
    }

    fn text(&self, id: Id) -> Option<&str> {
        match &self.values[id.0] {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The machine that a pickle is a program of.
#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    /// Performs one instruction; false at the last.
    fn step(&mut self) -> Result<bool, PickleError> {
        let [instruction] = self.take()?;
        match instruction {
            0x80 => self.take::<1>().map(|_| ())?,
            b'.' => return Ok(false),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Value::None),
            0x88 | 0x89 => self.push(Value::Bool(instruction == 0x88)),
            b'J' | b'K' | b'M' | 0x8a => self.integer(instruction)?,
            b'G' => {
                let number = f64::from_be_bytes(self.take()?);
                self.push(Value::Float(number));
            }
            b'X' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                let text = String::from_utf8_lossy(self.slice(length)?).into_owned();
                self.push(Value::Text(text));
            }
            b'q' | b'r' | b'h' | b'j' => self.memory(instruction)?,
            b')' => self.push(Value::Tuple(Vec::new())),
            b']' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(instruction - 0x84));
                let items = self.stack.split_off(from.ok_or(PickleError::Short)?);
                self.push(Value::Tuple(items));
            }
            b't' => {
                let items = self.since_mark()?;
                self.push(Value::Tuple(items));
            }
            b'a' | b'e' | b's' | b'u' => self.fill(instruction)?,
            b'c' => self.name()?,
            b'Q' => self.storage()?,
            b'R' => self.call()?,
            b'b' => self.attributes()?,
            unknown => return Err(PickleError::Instruction(unknown)),
        }
        Ok(true)
    }

    fn integer(&mut self, instruction: u8) -> Result<(), PickleError> {
        let value = match instruction {
            b'J' => i32::from_le_bytes(self.take()?).into(),
            b'K' => u8::from_le_bytes(self.take()?).into(),
            b'M' => u16::from_le_bytes(self.take()?).into(),
            _ => {
                let [length] = self.take()?;
                let bytes = self.slice(length.into())?;
                let mut wide =
                    [bytes.last().map_or(0, |last| if last & 0x80 == 0 { 0 } else { 255 }); 8];
                let fits = wide.get_mut(..bytes.len());
                fits.ok_or(PickleError::Malformed("a number is too large"))?.copy_from_slice(bytes);
                i64::from_le_bytes(wide)
            }
        };
        self.push(Value::Int(value));
        Ok(())
    }

    /// Remembers the top of the stack, or brings back what was remembered.
    fn memory(&mut self, instruction: u8) -> Result<(), PickleError> {
        let index = match instruction {
            b'q' | b'h' => u32::from(u8::from_le_bytes(self.take()?)),
            _ => u32::from_le_bytes(self.take()?),
        };
        if matches!(instruction, b'q' | b'r') {
            let top = *self.stack.last().ok_or(PickleError::Short)?;
            self.memo.insert(index, top);
        } else {
            let unknown = PickleError::Malformed("it refers to a value that was never stored");
            self.stack.push(*self.memo.get(&index).ok_or(unknown)?);
        }
        Ok(())
    }

    /// Puts one item or all since the mark into the list or dict below.
    fn fill(&mut self, instruction: u8) -> Result<(), PickleError> {
        let mut items = match instruction {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.since_mark()?,
        };
        let below = *self.stack.last().ok_or(PickleError::Short)?;
        match (&mut self.values[below.0], instruction) {
            (Value::List(list), b'a' | b'e') => list.append(&mut items),
            (Value::Dict(dict), b's' | b'u') => {
                dict.extend(items.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value)));
            }
            _ => return Err(PickleError::Malformed("items go into something that holds none")),
        }
        Ok(())
    }

    fn name(&mut self) -> Result<(), PickleError> {
        let (module, name) = (self.line()?, self.line()?);
        let full = format!("{module}.{name}");
        let known = NAMES.iter().find(|(known, _)| *known == full);
        let (_, known) = known.ok_or(PickleError::Name(full))?;
        self.push(Value::Name(*known));
        Ok(())
    }

    /// A reference to raw numbers outside the pickle: ("storage", type, key, device, length).
    fn storage(&mut self) -> Result<(), PickleError> {
        let malformed = PickleError::Malformed("it refers to something outside that is no storage");
        let id = self.pop()?;
        let Value::Tuple(parts) = &self.values[id.0] else { return Err(malformed) };
        let [_, kind, key, ..] = parts[..] else { return Err(malformed) };
        let (Value::Name(Name::Storage(dtype)), Value::Text(key)) =
            (&self.values[kind.0], &self.values[key.0])
        else {
            return Err(malformed);
        };
        let storage = Value::Storage(*dtype, key.clone());
        self.push(storage);
        Ok(())
    }

    fn call(&mut self) -> Result<(), PickleError> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let Value::Tuple(arguments) = &self.values[arguments.0] else {
            return Err(PickleError::Malformed("a call without arguments"));
        };
        let made = match &self.values[callee.0] {
            Value::Name(Name::OrderedDict) => Value::Dict(Vec::new()),
            Value::Name(Name::Passed) => Value::Passed,
            Value::Name(Name::RebuildTensor) => {
                let tensor = self.tensor(arguments);
                Value::Tensor(tensor.ok_or(PickleError::Malformed("a tensor of strange parts"))?)
            }
            _ => return Err(PickleError::Malformed("a call of something that makes nothing")),
        };
        self.push(made);
        Ok(())
    }

    /// A tensor of (storage, offset, shape, strides, ...).
    fn tensor(&self, parts: &[Id]) -> Option<TensorPlace> {
        let [storage, offset, shape, strides, ..] = parts else { return None };
        let Value::Storage(dtype, storage) = &self.values[storage.0] else { return None };
        let size = |id: &Id| match self.values[id.0] {
            Value::Int(size) => usize::try_from(size).ok(),
            _ => None,
        };
        let sizes = |id: &Id| match &self.values[id.0] {
            Value::Tuple(items) => items.iter().map(size).collect::<Option<Vec<usize>>>(),
            _ => None,
        };
        let (shape, strides) = (sizes(shape)?, sizes(strides)?);
        (shape.len() == strides.len()).then_some(TensorPlace {
            dtype: *dtype,
            storage: storage.clone(),
            shape,
            offset: size(offset)?,
            strides,
        })
    }

    /// Attributes of a value, none of which say anything about a head.
    fn attributes(&mut self) -> Result<(), PickleError> {
        self.pop()?;
        let below = *self.stack.last().ok_or(PickleError::Short)?;
        match self.values[below.0] {
            Value::Dict(_) | Value::Passed => Ok(()),
            _ => Err(PickleError::Malformed("attributes of something that has none")),
        }
    }

    fn push(&mut self, value: Value) {
        self.stack.push(Id(self.values.len()));
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        self.stack.pop().ok_or(PickleError::Short)
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or(PickleError::Malformed("a mark is missing"))?))
    }

    fn line(&mut self) -> Result<String, PickleError> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n').ok_or(PickleError::Short)?;
        let line = String::from_utf8_lossy(self.slice(end)?).into_owned();
        self.slice(1)?;
        Ok(line)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let (slice, rest) = self.bytes.split_at_checked(length).ok_or(PickleError::Short)?;
        self.bytes = rest;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let (bytes, rest) = self.bytes.split_first_chunk().ok_or(PickleError::Short)?;
        self.bytes = rest;
        Ok(*bytes)
    }
}
