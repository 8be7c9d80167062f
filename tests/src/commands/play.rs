//! `play`: plays scenarios of the seeded world, and prints what happens in them.

use clap::Args;
use std::process::ExitCode;
use tokenrouter_tests::world::{SCENARIOS, play};

/// Play scripted interleavings.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// A part of the names of those to play; all without it.
    #[arg(default_value = "")]
    name: String,
    /// Print every event.
    #[arg(long)]
    log: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut result = ExitCode::SUCCESS;
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name.contains(&arguments.name)) {
        match play(scenario) {
            Ok(log) if arguments.log => println!("{}:\n{}", scenario.name, log.join("\n")),
            Ok(_) => println!("{}: as it must be", scenario.name),
            Err(failure) => {
                println!("{failure}");
                result = ExitCode::FAILURE;
            }
        }
    }
    result
}
