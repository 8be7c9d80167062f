//! Where a model computes, by name. It opens no device that the build does not support.

use std::fmt;
use std::str::FromStr;

/// A device as settings name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor: `cpu`.
    #[default]
    Cpu,
    /// A CUDA device: `cuda` is the first, `cuda:N` the one with index N.
    Cuda(usize),
}

/// Why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name is none that we know.
    #[error("device {0:?} is not known; use `cpu`, `cuda` or `cuda:N`")]
    Unknown(String),
    /// The build has no CUDA in it.
    #[error("device {0} needs CUDA and this program was built without it; use `device: cpu`")]
    WithoutCuda(Device),
    /// The build has CUDA but there is no attention for it yet.
    #[error("device {0} cannot be used: attention on CUDA is not implemented; use `device: cpu`")]
    NoAttention(Device),
}

impl Device {
    /// Opens the device.
    pub(crate) fn open(self) -> Result<candle_core::Device, DeviceError> {
        match self {
            Self::Cpu => Ok(candle_core::Device::Cpu),
            Self::Cuda(_) if cfg!(feature = "cuda") => Err(DeviceError::NoAttention(self)),
            Self::Cuda(_) => Err(DeviceError::WithoutCuda(self)),
        }
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(name.to_owned());
        match name {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let index = name.strip_prefix("cuda:").ok_or_else(unknown)?;
                index.parse().map(Self::Cuda).map_err(|_| unknown())
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (name, device) in
            [("cpu", Device::Cpu), ("cuda", Device::Cuda(0)), ("cuda:3", Device::Cuda(3))]
        {
            assert_eq!(name.parse(), Ok(device));
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for name in ["", "gpu", "cuda:", "cuda:-1", "cuda:x"] {
            assert_eq!(name.parse::<Device>(), Err(DeviceError::Unknown(name.to_owned())));
        }
    }

    #[test]
    fn cuda_is_refused_where_it_cannot_run() {
        assert!(Device::Cpu.open().is_ok());
        assert!(Device::Cuda(0).open().is_err());
    }
}
