//! `simulate`: runs seeded worlds of protocol machines by hand, and says what they met.

use std::process::ExitCode;
use std::time::Instant;
use tokenrouter_tests::world::{Failure, Summary, run_logged, sweep};

const USAGE: &str = "usage: tokenrouter-tests simulate [--seeds N] [--from S] [--threads T]
       tokenrouter-tests simulate --seed X [--log]";

/// What the command line asks for.
#[derive(Debug)]
struct Arguments {
    seeds: u64,
    from: u64,
    threads: u64,
    seed: Option<u64>,
    log: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(arguments) => match arguments.seed {
            Some(seed) => one(seed, arguments.log),
            None => many(&arguments),
        },
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            ExitCode::from(2)
        }
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
    for failure in failures {
        println!("{failure}\nrun it again with `simulate --seed {} --log`", failure.seed);
    }
    ExitCode::FAILURE
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    if words.next().as_deref() != Some("simulate") {
        return Err("the only command is `simulate`".to_owned());
    }
    let mut arguments = Arguments { seeds: 10_000, from: 0, threads: 2, seed: None, log: false };
    while let Some(word) = words.next() {
        if word == "--log" {
            arguments.log = true;
            continue;
        }
        let number = words.next().and_then(|value| value.parse::<u64>().ok());
        let number = number.ok_or_else(|| format!("`{word}` needs a number"))?;
        match word.as_str() {
            "--seeds" => arguments.seeds = number,
            "--from" => arguments.from = number,
            "--threads" => arguments.threads = number.max(1),
            "--seed" => arguments.seed = Some(number),
            _ => return Err(format!("there is no option `{word}`")),
        }
    }
    Ok(arguments)
}
