//! The program `tokenrouter`.

use clap::Parser;
use std::process::ExitCode;
use tokenrouter_server::cli::Cli;
use tokenrouter_server::{commands, cpu};

fn main() -> ExitCode {
    if let Err(reason) = cpu::check() {
        eprintln!("error: {reason}");
        return ExitCode::FAILURE;
    }
    commands::run(Cli::parse())
}
