//! `fuzz`: frames that no node would send, by the million.

use clap::Args;
use std::process::ExitCode;
use tokenrouter_tests::fuzz::frames;

/// Feed the decoder of frames with broken ones.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// How many.
    #[arg(long, default_value_t = 10_000_000)]
    inputs: u64,
    /// Which.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let fared = frames(arguments.inputs, arguments.seed);
    println!(
        "{} inputs: {} were frames, {} were refused",
        arguments.inputs, fared.accepted, fared.refused
    );
    ExitCode::SUCCESS
}
