//! The engine knows tensors: it turns rows of tokens into sampled tokens and signals, with a paged KV cache between.
//!
//! [`load`] gives a [`Runner`], [`Engine`] runs one on threads of its own, [`Script`] stands in for one where no model is
//! wanted. Scheduling is somebody else's: the engine never decides which row runs, which sequence lives or when to wait.
//!
//! On the CPU a row's logits are the same bits whatever else is in the step, however its tokens were split over steps and
//! however many threads compute: every sum runs in one fixed order that depends on the row alone.

pub mod arch;
mod attention;
mod checkpoint;
mod decoder;
pub mod device;
mod error;
mod exp;
mod head;
mod kv;
mod linear;
mod load;
pub mod memory;
mod runner;
pub mod sampler;
pub mod scripted;
pub mod signals;
mod thread;
pub mod weights;

pub use arch::Arch;
pub use checkpoint::{CheckpointError, Converted};
pub use decoder::Decoder;
pub use device::Device;
pub use error::Error;
pub use head::{HeadCard, HeadError, HeadFacts, HeadFiles, describe_head};
pub use kv::BLOCK;
pub use load::{LoadOptions, ModelFiles, describe, load, load_decoder};
pub use memory::Footprint;
pub use runner::{Facts, RowError, Runner};
pub use scripted::{Script, Scripted};
pub use thread::{Deliver, Done, Engine, JobReport, Refused, StepError, on_threads};
pub use weights::Weights;
