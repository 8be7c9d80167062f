//! What can go wrong in the engine. A message says what is wrong and, where there is one, the way to mend it.

use crate::arch::ConfigError;
use crate::device::DeviceError;
use crate::head::HeadError;
use crate::runner::RowError;
use crate::weights::WeightsError;
use tokenrouter_policies::Position;
use tokenrouter_protocol::SequenceId;

/// An error of loading or of a step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description of the model.
    #[error("config.json: {0}")]
    Config(#[from] ConfigError),
    /// The weights of the model.
    #[error("weights: {0}")]
    Weights(#[from] WeightsError),
    /// A router head.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The device to run on.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A row that cannot be fed; nothing has changed.
    #[error("row refused: {0}")]
    Row(#[from] RowError),
    /// The logits of a position are not numbers, or none of them is above minus infinity.
    #[error("the logits of sequence {} at position {position} are not numbers; check the model's weights", sequence.0)]
    Logits {
        /// The sequence.
        sequence: SequenceId,
        /// The position.
        position: Position,
    },
    /// The system refuses the memory of the KV pool.
    #[error(
        "the system refuses {bytes} bytes for the KV pool; lower the memory limit or the positions"
    )]
    Pool {
        /// Bytes of the pool.
        bytes: u64,
    },
    /// A failure of the tensor library.
    #[error("tensor operation: {0}")]
    Tensor(#[from] candle_core::Error),
    /// The engine's thread could not be started.
    #[error("cannot start the threads of engine {name}: {source}")]
    Spawn {
        /// The engine.
        name: String,
        /// Why.
        source: rayon::ThreadPoolBuildError,
    },
}
