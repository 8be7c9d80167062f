//! What is too long for a suite of tests, to be run by hand: campaigns over seeded worlds, and scenarios with their logs.

use clap::Parser;
use commands::{chaos, fuzz, play, recovery, simulate};
use std::process::ExitCode;

mod commands;

/// Runs what is too long for a suite of tests.
#[derive(Debug, Parser)]
enum Command {
    Simulate(simulate::Arguments),
    Play(play::Arguments),
    Chaos(chaos::Arguments),
    Recovery(recovery::Arguments),
    Fuzz(fuzz::Arguments),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Play(arguments) => play::run(&arguments),
        Command::Chaos(arguments) => chaos::run(&arguments),
        Command::Recovery(arguments) => recovery::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
    }
}
