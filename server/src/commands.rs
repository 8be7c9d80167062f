//! What the program does, command by command, and how it ends: 0 for success, 2 for a topology or other input that cannot
//! be used, 1 for everything else.

use crate::cli::{Cli, Command};
use crate::server::StartFailure;
use std::future::Future;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use tokenrouter_config::{Error as TopologyError, LogFormat, Topology};
use tracing_subscriber::EnvFilter;

pub mod bench;
pub mod certs;
mod chart;
pub mod check;
pub mod convert_head;
pub mod eval;
pub mod plan;
mod problem;
pub mod serve;

pub use problem::Problems;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The topology.
    #[error(transparent)]
    Topology(TopologyError),
    /// What the user named beside the topology, such as a route or a file of problems.
    #[error("{0}")]
    Input(String),
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
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Certs(arguments) => certs::run(&arguments),
        Command::ConvertHead(arguments) => convert_head::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            match error {
                CommandError::Topology(_) | CommandError::Input(_) => ExitCode::from(2),
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

/// Runs `work` on a runtime of everything but the models' own threads. What is still being done for a client when it
/// ends, such as reading a long prompt, is not waited for.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CommandError::Other(format!("the runtime cannot be started: {e}")))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(result)
}

/// Writes to standard output. A reader that wants no more is no fault.
fn print(text: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Other(format!("standard output cannot be written: {e}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_still_being_done_for_a_client_is_not_waited_for() {
        let (end, ended) = mpsc::channel::<()>();
        let result = block_on(async move {
            tokio::task::spawn_blocking(move || ended.recv());
            7
        });
        assert_eq!(result.unwrap(), 7);
        drop(end);
    }
}
