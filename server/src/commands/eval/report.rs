//! The report: tables for people and JSON for machines. Pure; it measures nothing and judges nothing but which value of
//! a sweep is the cheapest that keeps the quality.

use super::query::QueryLevel;
use super::score::{Score, Spread};
use serde::Serialize;
use serde_json::{Value, json};

/// The part of the large model's accuracy that a route should reach.
pub(super) const TARGET: f64 = 0.98;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// One for each route, in the order measured.
    pub(super) routes: Vec<Score>,
    /// What the routes are compared with, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) references: Option<References>,
    /// Problems passed over before the first one.
    pub(super) skipped: usize,
    /// Problems at a time.
    pub(super) concurrency: usize,
    /// How often everything was run; speed and times are those of the fastest round.
    pub(super) rounds: u32,
    /// The most tokens of a reply.
    pub(super) max_tokens: u32,
}

/// One model alone, and each question to one of two.
#[derive(Clone, Debug, Serialize)]
pub(super) struct References {
    /// The route of the small model alone.
    pub(super) small: String,
    /// The route of the large model alone.
    pub(super) large: String,
    /// Each question wholly to one of them.
    pub(super) query_level: QueryLevel,
}

impl Report {
    /// The routes alone: `{"routes": […]}`.
    pub(super) fn json(&self) -> Value {
        json!({ "routes": self.routes })
    }

    /// The score of the route called `name`.
    pub(super) fn score(&self, name: &str) -> Option<&Score> {
        self.routes.iter().find(|score| score.route == name)
    }

    /// All tables as Markdown.
    pub(super) fn tables(&self) -> String {
        let rows = self.routes.iter().map(|score| route_row(&score.route, score));
        let mut text = table(&ROUTE_HEAD, rows.collect());
        if let Some(references) = &self.references {
            text += &references.table();
            text += &self.choice(references);
        }
        text
    }

    /// For each sweep, the value with the fewest tokens of the large model that reaches the target.
    fn choice(&self, references: &References) -> String {
        let Some(large) = self.score(&references.large) else { return String::new() };
        let least = TARGET * large.accuracy;
        let mut rows: Vec<[String; 5]> = Vec::new();
        for (series, scores) in self.sweeps() {
            let good = scores.iter().filter(|score| score.accuracy >= least);
            let best = good.min_by(|a, b| a.large_share.total_cmp(&b.large_share));
            rows.push(match best {
                Some(best) => {
                    let [value, accuracy] = [value(best), format!("{:.3}", best.accuracy)];
                    [series, value, accuracy, interval(best), percent(best.large_share)]
                }
                None => [series, "none".into(), String::new(), String::new(), String::new()],
            });
        }
        if rows.is_empty() {
            return String::new();
        }
        let head = ["sweep", "value", "accuracy", "95%", "tokens from large"];
        let title = format!(
            "The value of each sweep that takes the fewest tokens from `{}` among those that reach {:.0}% of its accuracy, {least:.3}:",
            references.large,
            100.0 * TARGET
        );
        format!("\n{title}\n\n{}", table(&head, rows))
    }

    /// The sweeps by their names, each with its values in order.
    pub(super) fn sweeps(&self) -> Vec<(String, Vec<&Score>)> {
        let mut sweeps: Vec<(String, Vec<&Score>)> = Vec::new();
        for score in &self.routes {
            let Some(variant) = &score.sweep else { continue };
            let series = variant.series();
            match sweeps.iter_mut().find(|(known, _)| *known == series) {
                Some((_, scores)) => scores.push(score),
                None => sweeps.push((series, vec![score])),
            }
        }
        sweeps
    }
}

impl References {
    fn table(&self) -> String {
        let rows = self.query_level.measured.iter().map(|mix| {
            let [_, rest @ ..] = route_row("", &mix.score);
            let mut row = [const { String::new() }; 10];
            row[0] = percent(mix.questions);
            row[1..].clone_from_slice(&rest);
            row
        });
        let mut head = ROUTE_HEAD;
        head[0] = "questions to large";
        format!(
            "\nQuery-level routing: each question wholly to `{}` or `{}`, those to the latter whose prompts have the largest mean entropy at the former.\n\n{}",
            self.small,
            self.large,
            table(&head, rows.collect())
        )
    }
}

const ROUTE_HEAD: [&str; 10] = [
    "route",
    "accuracy",
    "95%",
    "tokens from large",
    "handoffs/reply",
    "tokens/s",
    "TTFT ms, mean / p50 / p90",
    "TPOT ms, mean / p50 / p90",
    "cut",
    "tokens written by",
];

fn route_row(name: &str, score: &Score) -> [String; 10] {
    let written = score
        .shares
        .iter()
        .map(|(model, share)| format!("{model} {}", percent(share.as_f64().unwrap_or_default())));
    let written: Vec<String> = written.collect();
    [
        name.to_owned(),
        format!("{:.3}", score.accuracy),
        interval(score),
        percent(score.large_share),
        format!("{:.2}", score.handoffs_per_reply),
        format!("{:.0}", score.tokens_per_s),
        spread(score.ttft_ms),
        spread(score.tpot_ms),
        score.cut_by_length.to_string(),
        written.join(", "),
    ]
}

fn value(score: &Score) -> String {
    score.sweep.as_ref().map(|variant| variant.value.clone()).unwrap_or_default()
}

fn interval(score: &Score) -> String {
    let [low, high] = score.accuracy_95;
    format!("{low:.3}–{high:.3}")
}

fn percent(part: f64) -> String {
    format!("{:.1}%", 100.0 * part)
}

fn spread(spread: Spread) -> String {
    format!("{:.2} / {:.2} / {:.2}", spread.mean, spread.p50, spread.p90)
}

/// A Markdown table that also reads well as plain text.
fn table<const N: usize>(head: &[&str; N], rows: Vec<[String; N]>) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let body: String = rows.iter().map(|row| line(row.each_ref().map(String::as_str))).collect();
    format!("{}|{rule}\n{body}", line(*head))
}

#[cfg(test)]
pub(super) mod tests;
