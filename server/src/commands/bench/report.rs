//! What came of a benchmark: the figures that `vllm bench serve` gives, under its names, and beside them who wrote the tokens.

use super::client::Reply;
use super::load::Run;
use crate::cli::bench::Bench;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Everything about one benchmark.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a Bench,
    pub(super) model: &'a str,
    pub(super) date: String,
    pub(super) runs: &'a [Run<Result<Reply, String>>],
}

/// One figure of every request, in milliseconds.
struct Metric {
    /// As in JSON keys.
    key: &'static str,
    /// For people.
    name: &'static str,
    values: Vec<f64>,
}

/// What one model did in all requests together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    committed: u64,
    generated: u64,
    computed: u64,
    handoffs: u64,
}

impl Report<'_> {
    fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.runs.iter().filter_map(|run| run.result.as_ref().ok())
    }

    /// From the first request to the last end, in seconds.
    fn duration(&self) -> f64 {
        let begun = self.runs.iter().map(|run| run.begun).min().unwrap_or_default();
        let ended = self.runs.iter().map(|run| run.ended).max().unwrap_or_default();
        (ended.saturating_sub(begun)).as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn metrics(&self) -> [Metric; 4] {
        let first = self.replies().filter_map(|reply| reply.first).map(ms);
        let per_token = self.replies().filter_map(per_token);
        let gaps = self.replies().flat_map(|reply| reply.gaps.iter().copied().map(ms));
        let whole = self.replies().map(|reply| ms(reply.took));
        let metric = |key, name, values: Vec<f64>| Metric { key, name, values: sorted(values) };
        [
            metric("ttft", "Time to First Token", first.collect()),
            metric("tpot", "Time per Output Token (excl. 1st token)", per_token.collect()),
            metric("itl", "Inter-token Latency", gaps.collect()),
            metric("e2el", "End-to-end Latency", whole.collect()),
        ]
    }

    /// Requests at once, at the worst moment.
    fn peak(&self) -> i64 {
        let mut turns: Vec<(Duration, i64)> =
            self.runs.iter().flat_map(|run| [(run.begun, 1), (run.ended, -1)]).collect();
        turns.sort_unstable();
        let mut now = 0;
        turns.iter().fold(0, |most, (_, turn)| {
            now += turn;
            most.max(now)
        })
    }

    /// What each model did; nothing where the server does not say.
    fn work(&self) -> BTreeMap<String, Work> {
        let mut all: BTreeMap<String, Work> = BTreeMap::new();
        for reply in self.replies() {
            for (name, share) in reply.routing["models"].as_object().into_iter().flatten() {
                let work = all.entry(name.clone()).or_default();
                let count = |key: &str| share[key].as_u64().unwrap_or(0);
                work.committed += count("committed");
                work.generated += count("generated");
                work.computed += count("computed");
                work.handoffs += count("handoffs");
            }
        }
        all
    }

    /// The share of all tokens that the route's entry model did not write.
    fn llm_ratio(&self) -> Option<f64> {
        let (mut written, mut all) = (0.0, 0.0);
        for reply in self.replies() {
            let tokens = reply.completion_tokens as f64;
            written += tokens * reply.routing["llm_ratio"].as_f64()?;
            all += tokens;
        }
        (all > 0.0).then(|| written / all)
    }

    /// All figures as JSON, with every request's own where `detailed`.
    pub(super) fn json(&self, detailed: bool) -> Value {
        let load = &self.arguments.load;
        let rate = load.request_rate;
        let (completed, duration) = (self.replies().count(), self.duration());
        let [input, output] = self.tokens();
        let mut json = json!({
            "date": self.date,
            "endpoint_type": self.backend(),
            "backend": self.backend(),
            "model_id": self.model,
            "num_prompts": load.num_prompts,
            "request_rate": if rate.is_finite() { json!(rate) } else { json!("inf") },
            "burstiness": load.burstiness,
            "max_concurrency": load.max_concurrency,
            "duration": duration,
            "completed": completed,
            "failed": self.runs.len() - completed,
            "total_input_tokens": input,
            "total_output_tokens": output,
            "request_throughput": completed as f64 / duration,
            "output_throughput": output as f64 / duration,
            "total_token_throughput": (input + output) as f64 / duration,
            "max_concurrent_requests": self.peak(),
        });
        for metric in self.metrics() {
            for (statistic, value) in metric.statistics(&self.arguments.results.metric_percentiles)
            {
                json[format!("{statistic}_{}_ms", metric.key)] = json!(value);
            }
        }
        self.insert_routing(&mut json, completed);
        if detailed {
            self.insert_details(&mut json);
        }
        json
    }

    fn tokens(&self) -> [u64; 2] {
        self.replies().fold([0, 0], |[input, output], reply| {
            [input + reply.prompt_tokens, output + reply.completion_tokens]
        })
    }

    pub(super) fn backend(&self) -> String {
        let backend = clap::ValueEnum::to_possible_value(&self.arguments.target.backend);
        backend.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn insert_routing(&self, json: &mut Value, completed: usize) {
        let work = self.work();
        if work.is_empty() {
            return;
        }
        let calls: u64 = work.values().map(|work| work.generated).sum();
        let handoffs: u64 = work.values().map(|work| work.handoffs).sum();
        let models: Map<String, Value> = work
            .iter()
            .map(|(name, work)| {
                let model = json!({
                    "committed": work.committed, "generated": work.generated,
                    "computed": work.computed, "handoffs": work.handoffs,
                    "model_call_ratio": ratio(work.generated, calls),
                });
                (name.clone(), model)
            })
            .collect();
        json["llm_ratio"] = json!(self.llm_ratio());
        json["handoffs"] = json!(handoffs);
        json["handoffs_per_request"] = json!(handoffs as f64 / completed.max(1) as f64);
        json["models"] = Value::Object(models);
    }

    fn insert_details(&self, json: &mut Value) {
        let all = |of: &dyn Fn(&Reply) -> Value| -> Value {
            let none = Reply::default();
            self.runs.iter().map(|run| of(run.result.as_ref().unwrap_or(&none))).collect()
        };
        let seconds =
            |times: &[Duration]| json!(times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>());
        json["input_lens"] = all(&|reply| json!(reply.prompt_tokens));
        json["output_lens"] = all(&|reply| json!(reply.completion_tokens));
        json["ttfts"] = all(&|reply| json!(reply.first.unwrap_or_default().as_secs_f64()));
        json["itls"] = all(&|reply| seconds(&reply.gaps));
        json["generated_texts"] = all(&|reply| json!(reply.text));
        json["start_times"] = self.runs.iter().map(|run| json!(run.begun.as_secs_f64())).collect();
        let errors = self.runs.iter().map(|run| json!(run.result.as_ref().err().map_or("", |e| e)));
        json["errors"] = errors.collect();
    }

    /// All figures for people.
    pub(super) fn table(&self) -> String {
        let json = self.json(false);
        let mut text = heading("Serving Benchmark Result", '=');
        for (name, key) in ROWS {
            line(&mut text, name, &json[key]);
        }
        for metric in self.metrics() {
            text += &heading(metric.name, '-');
            for (statistic, value) in metric.statistics(&self.arguments.results.metric_percentiles)
            {
                let name = statistic[..1].to_uppercase() + &statistic[1..];
                line(
                    &mut text,
                    &format!("{name} {} (ms):", metric.key.to_uppercase()),
                    &value.into(),
                );
            }
        }
        if let Some(models) = json["models"].as_object() {
            text += &heading("Routing", '-');
            line(&mut text, "Share of the larger models:", &json["llm_ratio"]);
            line(&mut text, "Handoffs per request:", &json["handoffs_per_request"]);
            for (name, model) in models {
                line(&mut text, &format!("Share of calls, {name}:"), &model["model_call_ratio"]);
            }
        }
        text + &"=".repeat(WIDTH) + "\n"
    }
}

/// What the head of the table shows.
const ROWS: [(&str, &str); 10] = [
    ("Successful requests:", "completed"),
    ("Failed requests:", "failed"),
    ("Maximum request concurrency:", "max_concurrency"),
    ("Benchmark duration (s):", "duration"),
    ("Total input tokens:", "total_input_tokens"),
    ("Total generated tokens:", "total_output_tokens"),
    ("Request throughput (req/s):", "request_throughput"),
    ("Output token throughput (tok/s):", "output_throughput"),
    ("Peak concurrent requests:", "max_concurrent_requests"),
    ("Total token throughput (tok/s):", "total_token_throughput"),
];

const WIDTH: usize = 56;

fn heading(name: &str, fill: char) -> String {
    let width = WIDTH - name.len() - 2;
    let side = |width: usize| fill.to_string().repeat(width);
    format!("{} {name} {}\n", side(width / 2), side(width.div_ceil(2)))
}

fn line(text: &mut String, name: &str, value: &Value) {
    let value = match value {
        Value::Number(number) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or_default())
        }
        Value::Null => return,
        other => other.to_string(),
    };
    // A String takes everything.
    let _ = writeln!(text, "{name:<40} {value:>width$}", width = WIDTH - 41);
}

impl Metric {
    /// Mean, median, deviation and the percentiles asked for, by name; nothing of nothing.
    fn statistics(&self, percentiles: &[f64]) -> Vec<(String, f64)> {
        if self.values.is_empty() {
            return Vec::new();
        }
        let count = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / count;
        let variance = self.values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let mut all = vec![
            ("mean".to_owned(), mean),
            ("median".to_owned(), percentile(&self.values, 50.0)),
            ("std".to_owned(), variance.sqrt()),
        ];
        all.extend(percentiles.iter().map(|p| (format!("p{p}"), percentile(&self.values, *p))));
        all
    }
}

/// Milliseconds per token after the first.
fn per_token(reply: &Reply) -> Option<f64> {
    let tokens = reply.completion_tokens.checked_sub(1).filter(|tokens| *tokens > 0)?;
    Some(ms(reply.took.saturating_sub(reply.first?)) / tokens as f64)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The value below which `percent` of `sorted` lies, between two where it falls between.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let place = percent / 100.0 * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn run(
        begun: u64,
        first: u64,
        gaps: &[u64],
        result: Option<&str>,
    ) -> Run<Result<Reply, String>> {
        let ms = Duration::from_millis;
        let took = first + gaps.iter().sum::<u64>();
        let routing = json!({"llm_ratio": 0.25, "models": {
            "small": {"committed": 3, "generated": 4, "computed": 9, "handoffs": 1},
            "large": {"committed": 1, "generated": 1, "computed": 6, "handoffs": 1},
        }});
        let reply = Reply {
            first: Some(ms(first)),
            gaps: gaps.iter().map(|gap| ms(*gap)).collect(),
            took: ms(took),
            prompt_tokens: 5,
            completion_tokens: 1 + gaps.len() as u64,
            text: "abc".to_owned(),
            routing,
        };
        let result = result.map_or(Ok(reply), |reason| Err(reason.to_owned()));
        Run { begun: ms(begun), ended: ms(begun + took), result }
    }

    #[test]
    fn figures_have_the_names_and_values_of_the_field() {
        let line = Line::parse_from(["bench", "--metric-percentiles", "25,99.9"]);
        let runs = [
            run(0, 10, &[20, 30, 40], None),
            run(50, 20, &[10, 10, 10], None),
            run(60, 5, &[], Some("no room")),
        ];
        let report =
            Report { arguments: &line.bench, model: "m", date: "now".to_owned(), runs: &runs };
        let json = report.json(true);
        let expected = json!({
            "completed": 2, "failed": 1, "duration": 0.1, "total_input_tokens": 10,
            "total_output_tokens": 8, "request_throughput": 20.0, "output_throughput": 80.0,
            "total_token_throughput": 180.0, "max_concurrent_requests": 3, "request_rate": "inf",
            "mean_ttft_ms": 15.0, "median_ttft_ms": 15.0, "std_ttft_ms": 5.0, "p25_ttft_ms": 12.5,
            "p99.9_ttft_ms": 19.99, "mean_tpot_ms": 20.0, "mean_itl_ms": 20.0, "median_itl_ms": 15.0,
            "mean_e2el_ms": 75.0, "llm_ratio": 0.25, "handoffs": 4, "handoffs_per_request": 2.0,
            "output_lens": [4, 4, 0], "errors": ["", "", "no room"],
        });
        for (key, value) in expected.as_object().unwrap() {
            match (json[key].as_f64(), value.as_f64()) {
                (Some(is), Some(should)) => assert!((is - should).abs() < 1e-9, "{key}: {is}"),
                _ => assert_eq!(&json[key], value, "{key}"),
            }
        }
        assert_eq!(json["models"]["small"]["model_call_ratio"], 0.8);
        let table = report.table();
        assert!(table.contains("P99.9 TTFT (ms):") && table.contains("19.99"), "{table}");
        assert!(table.contains("Share of calls, small:") && table.contains("0.80"), "{table}");
    }

    #[test]
    fn nothing_has_no_figures() {
        let line = Line::parse_from(["bench"]);
        let runs = [run(0, 5, &[], Some("no room"))];
        let report =
            Report { arguments: &line.bench, model: "m", date: "now".to_owned(), runs: &runs };
        let json = report.json(false);
        assert_eq!((&json["completed"], &json["failed"]), (&json!(0), &json!(1)));
        assert!(json.get("mean_ttft_ms").is_none() && json.get("models").is_none());
    }
}
