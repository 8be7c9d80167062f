//! `tokenrouter bench`: puts load on an OpenAI-compatible server, this one or another, and says how fast it answered and
//! which models wrote. Flags and JSON keys are those of `vllm bench serve`.

use super::{CommandError, block_on, print};
use crate::cli::bench::Bench;
use crate::date;
use client::{Client, Reply};
use indicatif::{ProgressBar, ProgressStyle};
use load::Run;
use rand::SeedableRng;
use rand::rngs::StdRng;
use report::Report;
use std::time::{Duration, Instant};

mod client;
mod dataset;
mod load;
mod report;

/// Measures, and prints what it saw.
///
/// # Errors
/// Arguments that cannot be used, a server that does not answer or answers nothing well, a file that cannot be written.
pub fn run(arguments: &Bench) -> Result<(), CommandError> {
    if let Some(bad) =
        arguments.results.metric_percentiles.iter().find(|p| !(0.0..=100.0).contains(*p))
    {
        let reason = format!("flag --metric-percentiles: {bad} is not between 0 and 100");
        return Err(CommandError::Input(reason));
    }
    let client = Client::new(arguments)?;
    block_on(measure(arguments, client))?
}

async fn measure(arguments: &Bench, mut client: Client) -> Result<(), CommandError> {
    let load = &arguments.load;
    let count = load.num_prompts as usize;
    let mut random = StdRng::seed_from_u64(load.seed);
    let arrivals = load::arrivals(load, &mut random, count)?;
    let models = models(arguments, &client).await?;
    let model = arguments.target.model.clone().unwrap_or_else(|| models[0].clone());
    client.ask_for(&model);
    let warmups = load.num_warmups as usize;
    let mut prompts =
        dataset::prompts(arguments, &client, &mut random, warmups + count).await?.into_iter();
    let work = |prompt| {
        let client = client.clone();
        async move { client.reply(&prompt).await }
    };
    let first = prompts.by_ref().take(warmups).map(|prompt| (Duration::ZERO, work(prompt)));
    load::run(first.collect(), load.max_concurrency, || {}).await?;
    let bar = bar(arguments, count);
    let counted = arrivals.into_iter().zip(prompts.map(work)).collect();
    let runs = load::run(counted, load.max_concurrency, || bar.inc(1)).await?;
    bar.finish_and_clear();
    conclude(arguments, &model, &runs)
}

/// The models of the server, once it answers.
async fn models(arguments: &Bench, client: &Client) -> Result<Vec<String>, CommandError> {
    if let (Some(name), 0) = (&arguments.target.model, arguments.target.ready_check_timeout_sec) {
        return Ok(vec![name.clone()]);
    }
    let patience = Duration::from_secs(arguments.target.ready_check_timeout_sec);
    let begun = Instant::now();
    loop {
        match client.models().await {
            Ok(models) => return Ok(models),
            Err(_) if begun.elapsed() < patience => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(reason) => {
                let base = client.base();
                let hint = "is the server running? --base-url says where it is, --model spares this question";
                return Err(CommandError::Other(format!("{base}/v1/models: {reason}; {hint}")));
            }
        }
    }
}

fn conclude(
    arguments: &Bench,
    model: &str,
    runs: &[Run<Result<Reply, String>>],
) -> Result<(), CommandError> {
    let results = &arguments.results;
    let date = date::format("%Y%m%d-%H%M%S", date::now());
    let report = Report { arguments, model, date, runs };
    let failed: Vec<&String> = runs.iter().filter_map(|run| run.result.as_ref().err()).collect();
    if let Some(first) = failed.first() {
        eprintln!(
            "warning: {} of {} requests failed; the first: {first}",
            failed.len(),
            runs.len()
        );
    }
    if results.save_result {
        let path = results.result_dir.join(name(&report));
        let text = report.json(results.save_detailed).to_string() + "\n";
        std::fs::write(&path, text).map_err(|e| {
            CommandError::Other(format!("{} cannot be written: {e}", path.display()))
        })?;
    }
    if results.json {
        print(&format!("{:#}\n", report.json(false)))?;
    } else {
        print(&report.table())?;
    }
    match failed.len() == runs.len() {
        true => Err(CommandError::Other("no request succeeded".to_owned())),
        false => Ok(()),
    }
}

/// The name of the results: as asked for, or made of what was measured.
fn name(report: &Report<'_>) -> String {
    let Report { arguments, model, date, .. } = report;
    arguments.results.result_filename.clone().unwrap_or_else(|| {
        let backend = report.backend();
        let rate = arguments.load.request_rate;
        let most = arguments.load.max_concurrency;
        let most = most.map_or_else(String::new, |most| format!("-concurrency{most}"));
        let model = model.rsplit('/').next().unwrap_or(model);
        format!("{backend}-{rate}qps{most}-{model}-{date}.json")
    })
}

fn bar(arguments: &Bench, count: usize) -> ProgressBar {
    if arguments.results.disable_tqdm {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(count as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} requests, {per_sec}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
