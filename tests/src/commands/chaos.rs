//! `chaos`: asks a server of the demo pair the same things again and again while its actors die.

use clap::Args;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokenrouter_tests::chaos::Chaos;

/// Kill actors of a server under load, and compare every reply with that of an undisturbed run.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// How long; at least one round is run.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// Requests of a round.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=1000))]
    requests: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(soak(arguments)),
        Err(error) => {
            eprintln!("cannot start a runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(arguments: &Arguments) -> ExitCode {
    let (begun, count) = (Instant::now(), arguments.requests as usize);
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let chaos = Chaos::start().await;
    let expected = chaos.round(count, false).await;
    let mut rounds = 0;
    while rounds == 0 || begun.elapsed() < Duration::from_secs(60 * arguments.minutes) {
        let replies = chaos.round(count, true).await;
        let same = |(reply, expected): &(_, _)| reply == expected;
        if let Some((reply, expected)) = replies.iter().zip(&expected).find(|pair| !same(pair)) {
            println!("{reply:#?}\nis not\n{expected:#?}");
            return ExitCode::FAILURE;
        }
        rounds += 1;
        println!("{rounds} rounds of {count} identical replies; {}", chaos.toll());
    }
    chaos.stop(tasks).await;
    ExitCode::SUCCESS
}
