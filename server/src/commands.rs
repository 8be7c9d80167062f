//! What the program does, command by command, and how it ends: 0 for success, 2 for a topology that cannot be used, 1
//! for everything else.

use crate::cli::{Cli, Command};
use crate::server::StartFailure;
use std::io::IsTerminal;
use std::process::ExitCode;
use tokenrouter_config::{Error as TopologyError, LogFormat, Topology};
use tracing_subscriber::EnvFilter;

pub mod check;
pub mod eval;
pub mod serve;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The topology.
    #[error(transparent)]
    Topology(TopologyError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<TopologyError> for CommandError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(error)
    }
}

impl From<StartFailure> for CommandError {
    fn from(failure: StartFailure) -> Self {
        match failure {
            StartFailure::Topology(error) => Self::Topology(error),
            other => Self::Other(other.to_string()),
        }
    }
}

/// Runs a command to its end.
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            match error {
                CommandError::Topology(_) => ExitCode::from(2),
                CommandError::Other(_) => ExitCode::FAILURE,
            }
        }
    }
}

/// Starts the log, on standard error.
fn start_log(topology: &Topology) -> Result<(), CommandError> {
    let filter = EnvFilter::try_new(&topology.log.level).map_err(|e| {
        let reason =
            format!("{e}; write a level such as info, or a list like info,tokenrouter=debug");
        topology.error(&["log", "level"], reason)
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match topology.log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|e| CommandError::Other(format!("the log cannot be started: {e}")))
}

/// The runtime of everything but the models' own threads.
fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandError::Other(format!("the runtime cannot be started: {e}")))
}
