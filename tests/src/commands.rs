//! The commands of this binary, one module each. They read arguments and print; what they run is in the library.

pub(crate) mod chaos;
pub(crate) mod fuzz;
pub(crate) mod play;
pub(crate) mod recovery;
pub(crate) mod simulate;
