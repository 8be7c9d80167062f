//! `simulate`: runs seeded worlds of protocol machines, and says what they met.

use clap::Args;
use std::process::ExitCode;
use std::time::Instant;
use tokenrouter_tests::world::{Failure, Summary, run_logged, sweep};

/// Run seeded worlds of protocol machines under faults.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// How many worlds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    threads: u64,
    /// Only the world of this seed.
    #[arg(long, conflicts_with_all = ["seeds", "from", "threads"])]
    seed: Option<u64>,
    /// Print every event of that world.
    #[arg(long, requires = "seed")]
    log: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match arguments.seed {
        Some(seed) => one(seed, arguments.log),
        None => many(arguments),
    }
}

fn one(seed: u64, log: bool) -> ExitCode {
    match run_logged(seed) {
        Ok((stats, lines)) => {
            if log {
                println!("{}", lines.join("\n"));
            }
            println!("{stats}");
            ExitCode::SUCCESS
        }
        Err(failure) => fail(&[failure]),
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let Summary { stats, failures } = sweep(arguments.from, arguments.seeds, arguments.threads);
    let seconds = start.elapsed().as_secs_f64();
    println!("{stats}\n{seconds:.1} s, {:.0} events/s", stats.events as f64 / seconds);
    if failures.is_empty() { ExitCode::SUCCESS } else { fail(&failures) }
}

fn fail(failures: &[Failure]) -> ExitCode {
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("run it again with `simulate --seed N --log`");
    ExitCode::FAILURE
}
