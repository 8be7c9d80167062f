//! What a plan shows: tables for people, JSON for machines, and a picture of throughput over thresholds. Pure; it measures
//! nothing.

use super::profile::Times;
use super::{TABLE_MAX, refused};
use crate::boot::StoredPlan;
use crate::commands::CommandError;
use crate::commands::chart::{Axis, Panel, Point, Series, legend, text};
use serde::Serialize;
use serde_json::json;
use tokenrouter_policies::planner::{Plan, Planner, Prediction};

/// Thresholds of a curve that are run at most.
const RUNS_MAX: usize = 8;

const WIDTH: f64 = 960.0;
/// Left edge, width, top and height of the panel.
const PANEL: [f64; 4] = [72.0, 850.0, 78.0, 320.0];
const LEGEND_TOP: f64 = 466.0;

/// What one vector of thresholds really brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) thresholds: Vec<u32>,
    pub(super) tokens_per_s: f64,
}

/// Everything that is known of one system.
#[derive(Clone, Debug)]
pub(super) struct Report {
    best: Prediction,
    /// Every vector that may be chosen, or, where they are too many, none but the best.
    table: Vec<Prediction>,
    /// For each model that may wait, its thresholds with those of all others at their best.
    curves: Vec<(usize, Vec<Prediction>)>,
    /// The names of the models and the plan for every number of live requests, where a topology was profiled.
    plan: Option<(Vec<String>, Plan)>,
    pub(super) profile: Vec<Times>,
    /// The mean context of a token, and how much longer passes of each model took in traffic than alone.
    pub(super) context: f64,
    pub(super) scales: Vec<f64>,
    pub(super) measured: Vec<Measured>,
}

impl Report {
    /// The best with `live` requests and all it was chosen from.
    ///
    /// # Errors
    /// A number of live requests that cannot be planned for.
    pub(super) fn of(planner: &mut Planner, live: u32) -> Result<Self, CommandError> {
        let best = planner.best(live).map_err(refused)?;
        let table = match planner.table(live, TABLE_MAX) {
            Some(table) => table,
            None => vec![best.clone()],
        };
        let entry = planner.system().entry;
        let mut curves = Vec::new();
        for model in (0..best.thresholds.len()).filter(|model| *model != entry) {
            let vectors = (1..=planner.system().cap(model, live)).map(|threshold| {
                let mut vector = best.thresholds.clone();
                vector[model] = threshold;
                vector
            });
            // Those with which requests could wait for each other for ever are not part of the curve.
            let curve = vectors.filter_map(|vector| planner.predict(live, &vector).ok());
            curves.push((model, curve.collect()));
        }
        Ok(Self { table, curves, ..Self::single(best) })
    }

    /// One vector alone.
    pub(super) fn single(prediction: Prediction) -> Self {
        Self {
            table: vec![prediction.clone()],
            best: prediction,
            curves: Vec::new(),
            plan: None,
            profile: Vec::new(),
            context: 0.0,
            scales: Vec::new(),
            measured: Vec::new(),
        }
    }

    /// Adds what a topology's models are called, and their plan.
    pub(super) fn describe(&mut self, names: Vec<String>, plan: Plan) {
        // A plan keeps thresholds for fewer requests in mind, so its last may differ from the best alone.
        if let Some(last) = plan.best.last() {
            self.best = last.clone();
        }
        self.plan = Some((names, plan));
    }

    /// What `scheduler: { plan: FILE }` reads; `None` without a topology.
    pub(super) fn stored(&self) -> Option<StoredPlan> {
        let (models, plan) = self.plan.clone()?;
        Some(StoredPlan { models, plan })
    }

    /// The vectors that are run: those of the curves, evenly thinned, and the best.
    pub(super) fn worth_running(&self) -> Vec<Vec<u32>> {
        let mut vectors = vec![self.best.thresholds.clone()];
        for (_, curve) in &self.curves {
            let last = curve.len().saturating_sub(1);
            let runs = RUNS_MAX.min(curve.len());
            let places = (0..runs).map(|n| n * last / runs.saturating_sub(1).max(1));
            vectors.extend(places.map(|place| curve[place].thresholds.clone()));
        }
        vectors.sort_unstable();
        vectors.dedup();
        vectors
    }

    pub(super) fn json(&self) -> String {
        let mut value = json!({ "best": self.best, "table": self.table });
        if let Some((models, plan)) = &self.plan {
            value["models"] = json!(models);
            value["plan"] = json!(plan.best);
            value["system"] = json!(plan.system);
            value["profile"] = json!(self.profile);
            value["context"] = json!(self.context);
            value["scales"] = json!(self.scales);
        }
        if !self.measured.is_empty() {
            value["measured"] = json!(self.measured);
        }
        format!("{value:#}\n")
    }

    /// All tables as Markdown.
    pub(super) fn tables(&self) -> String {
        let mut text = String::new();
        if let Some((names, plan)) = &self.plan {
            text += &self.profile_table();
            text += &self.moves_table(names, plan);
        }
        text += &self.prediction_table();
        let how = if self.best.exact { "exact" } else { "simulated" };
        text += &format!(
            "\nBest with {} live requests: {} with {:.1} tokens/s ({how}).\n",
            self.best.live,
            vector(&self.best.thresholds),
            self.best.tokens_per_s
        );
        if let Some((names, plan)) = &self.plan {
            text += &plan_table(names, plan);
        }
        text
    }

    fn profile_table(&self) -> String {
        let mut text =
            String::from("Milliseconds of a decoding pass, alone\n\n| model | context |");
        let sizes: Vec<u32> = self.sizes();
        for size in &sizes {
            text += &format!(" {size} |");
        }
        text += &format!("\n|---|---|{}\n", "---|".repeat(sizes.len()));
        for times in &self.profile {
            text += &format!("| {} | {} |", times.model, times.context);
            for size in &sizes {
                text += &match times.steps.points().iter().find(|(batch, _)| batch == size) {
                    Some((_, seconds)) => format!(" {:.3} |", 1e3 * seconds),
                    None => " |".to_owned(),
                };
            }
            text.push('\n');
        }
        text
    }

    fn sizes(&self) -> Vec<u32> {
        let points = self.profile.iter().flat_map(|times| times.steps.points());
        let mut sizes: Vec<u32> = points.map(|(batch, _)| *batch).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn moves_table(&self, names: &[String], plan: &Plan) -> String {
        let mut text = format!(
            "\nWhere requests went, at {:.0} positions in the mean\n\n| from | passes, of alone |",
            self.context
        );
        for name in names {
            text += &format!(" to {name} | tokens |");
        }
        text += &format!("\n|---|---|{}\n", "---|---|".repeat(names.len()));
        let system = &plan.system;
        for (from, name) in names.iter().enumerate() {
            let scale = self.scales.get(from).copied().unwrap_or(1.0);
            text += &format!("| {name} | {scale:.2} |");
            for (share, tokens) in system.moves[from].iter().zip(&system.commits[from]) {
                text += &format!(" {:.1}% | {tokens:.2} |", 100.0 * share);
            }
            text.push('\n');
        }
        text.push('\n');
        text
    }

    fn prediction_table(&self) -> String {
        let limited = self.table.iter().any(|entry| entry.p99_tpot.is_some());
        let mut text = String::from("| thresholds | tokens/s | of the best |");
        let mut columns = 3;
        if limited {
            text += " p99 of time per token, ms |";
            columns += 1;
        }
        if !self.measured.is_empty() {
            text += " measured | of predicted |";
            columns += 2;
        }
        text += &format!("\n|{}\n", "---|".repeat(columns));
        for entry in &self.table {
            let best = entry.thresholds == self.best.thresholds;
            let mark = if best { " *" } else { "" };
            let part = 100.0 * entry.tokens_per_s / self.best.tokens_per_s;
            let name = vector(&entry.thresholds);
            text += &format!("| {name}{mark} | {:.1} | {part:.1}% |", entry.tokens_per_s);
            if limited {
                text += &entry.p99_tpot.map_or(" |".into(), |p99| format!(" {:.2} |", 1e3 * p99));
            }
            if !self.measured.is_empty() {
                let found = self.measured.iter().find(|m| m.thresholds == entry.thresholds);
                text += &found.map_or(" | |".into(), |measured| {
                    let part = 100.0 * measured.tokens_per_s / entry.tokens_per_s;
                    format!(" {:.1} | {part:.1}% |", measured.tokens_per_s)
                });
            }
            text.push('\n');
        }
        text
    }

    /// The picture as SVG.
    pub(super) fn picture(&self) -> String {
        let name = |model: usize| match &self.plan {
            Some((names, _)) => names[model].clone(),
            None => format!("model {model}"),
        };
        let mut all = Vec::new();
        for (nth, (model, curve)) in self.curves.iter().enumerate() {
            let point = |entry: &Prediction| Point {
                x: f64::from(entry.thresholds[*model]),
                y: entry.tokens_per_s,
                interval: None,
                label: format!("{}: {:.1} tokens/s", vector(&entry.thresholds), entry.tokens_per_s),
            };
            let predicted = curve.iter().map(point).collect();
            all.push(Series::line(&format!("{}, predicted", name(*model)), predicted));
            let runs = curve.iter().filter_map(|entry| {
                let found = self.measured.iter().find(|m| m.thresholds == entry.thresholds)?;
                let tokens_per_s = found.tokens_per_s;
                Some(point(&Prediction { tokens_per_s, ..entry.clone() }))
            });
            let runs: Vec<Point> = runs.collect();
            if !runs.is_empty() {
                all.push(Series::marks(&format!("{}, measured", name(*model)), runs, nth));
            }
            let best = curve.iter().filter(|entry| entry.thresholds == self.best.thresholds);
            let best = best.map(point).collect();
            all.push(Series::reference(&format!("{}, best", name(*model)), best, nth));
        }
        let points = || all.iter().flat_map(|series| &series.points);
        let panel = Panel {
            area: PANEL,
            x: Axis::new("threshold", 0.0, points().map(|p| p.x).fold(2.0, f64::max)),
            y: Axis::new("tokens per second", 0.0, points().map(|p| p.y).fold(1.0, f64::max)),
            series: &all,
        };
        let (marks, height) = legend(&all, 64.0, LEGEND_TOP, WIDTH);
        let bottom = LEGEND_TOP + height;
        let title = format!("Throughput by threshold, {} live requests", self.best.live);
        let subtitle = "Each model's threshold with those of the others at their best.";
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {bottom}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{bottom}\" rx=\"8\" fill=\"#ffffff\"/>\n"
        );
        svg += &text([20.0, 28.0], "start", "font-size=\"16\" font-weight=\"600\"", &title);
        svg += &text([20.0, 48.0], "start", "fill=\"#59636e\"", subtitle);
        svg + &panel.svg() + &marks + "</svg>\n"
    }
}

/// The plan by live requests.
fn plan_table(names: &[String], plan: &Plan) -> String {
    let mut text = String::from("\n| live requests |");
    for name in names {
        text += &format!(" {name} |");
    }
    text += &format!(" tokens/s |\n|---|{}---|\n", "---|".repeat(names.len()));
    for entry in &plan.best {
        text += &format!("| {} |", entry.live);
        for threshold in &entry.thresholds {
            text += &format!(" {threshold} |");
        }
        text += &format!(" {:.1} |\n", entry.tokens_per_s);
    }
    text
}

fn vector(thresholds: &[u32]) -> String {
    thresholds.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
