//! The picture of a report: accuracy against the large model's share of the tokens, and against speed. A report becomes
//! series here; `chart` knows how axes and marks look. It shows what was measured and computes nothing new.

use super::query::{Cut, QueryLevel};
use super::report::{References, Report};
use super::score::Score;
use crate::commands::chart::{Axis, Panel, Point, Series, legend, text};

const WIDTH: f64 = 960.0;
/// Left edge, width, top and height of the panels.
const PANELS: [[f64; 4]; 2] = [[64.0, 380.0, 78.0, 300.0], [536.0, 380.0, 78.0, 300.0]];
const LEGEND_TOP: f64 = 446.0;

/// The picture as SVG. It has a background of its own, so that it can be read on light and dark pages.
pub(super) fn draw(report: &Report) -> String {
    let [by_share, by_speed] = [series(report, View::Share), series(report, View::Speed)];
    let lowest = report.routes.iter().map(|score| score.accuracy_95[0]).fold(1.0, f64::min);
    let accuracy = Axis::new("accuracy", lowest, 1.0);
    let speeds = report.routes.iter().map(|score| score.tokens_per_s.max(0.1));
    let (slowest, fastest) = (speeds.clone().fold(f64::MAX, f64::min), speeds.fold(0.1, f64::max));
    let panels = [
        Panel {
            area: PANELS[0],
            x: Axis::percent("tokens written by the largest model", 0.0, 1.0),
            y: accuracy.clone(),
            series: &by_share,
        },
        Panel {
            area: PANELS[1],
            x: Axis::logarithmic("tokens per second, logarithmic", slowest, fastest),
            y: accuracy,
            series: &by_speed,
        },
    ];
    let (marks, height) = legend(&by_share, 64.0, LEGEND_TOP, WIDTH);
    let bottom = LEGEND_TOP + height;
    let problems = report.routes.first().map_or(0, |score| score.problems);
    let subtitle = format!(
        "{problems} problems, {} at a time. Bars are 95% intervals. Up and left is better in the left picture, up and right in the right one.",
        report.concurrency
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {bottom}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{bottom}\" rx=\"8\" fill=\"#ffffff\"/>\n"
    );
    svg +=
        &text([20.0, 28.0], "start", "font-size=\"16\" font-weight=\"600\"", "What routing buys");
    svg += &text([20.0, 48.0], "start", "fill=\"#59636e\"", &subtitle);
    svg.extend(panels.iter().map(Panel::svg));
    svg + &marks + "</svg>\n"
}

/// What stands on the horizontal axis.
#[derive(Clone, Copy)]
enum View {
    Share,
    Speed,
}

impl View {
    fn point(self, score: &Score) -> Point {
        let x = match self {
            Self::Share => score.large_share,
            Self::Speed => score.tokens_per_s,
        };
        let label = format!(
            "{}: accuracy {:.3}, {:.1}% from the largest, {:.0} tokens/s",
            score.route,
            score.accuracy,
            100.0 * score.large_share,
            score.tokens_per_s
        );
        Point { x, y: score.accuracy, interval: Some(score.accuracy_95), label }
    }
}

/// The series of a report: the same names in the same order in every view, so that one legend serves all.
fn series(report: &Report, view: View) -> Vec<Series> {
    let mut all = Vec::new();
    let mut alone: Vec<&Score> = Vec::new();
    if let Some(references) = &report.references {
        let pair = [&references.small, &references.large];
        alone.extend(pair.into_iter().filter_map(|name| report.score(name)));
        let points = query_level(references, &alone, view);
        all.push(Series::line("query-level routing, by prompt entropy", points));
    }
    for (nth, score) in alone.iter().enumerate() {
        let name = format!("{} alone", score.route);
        all.push(Series::reference(&name, vec![view.point(score)], nth));
    }
    let single = report.routes.iter().filter(|score| score.sweep.is_none());
    let single = single.filter(|score| alone.iter().all(|alone| alone.route != score.route));
    let single = single.map(|score| (score.route.clone(), vec![score]));
    for (nth, (name, scores)) in single.chain(report.sweeps()).enumerate() {
        let points = scores.into_iter().map(|score| view.point(score)).collect();
        all.push(Series::marks(&name, points, nth));
    }
    all
}

/// Query-level routing from the small model alone to the large one: by share at every cut-off, by speed where it was run.
fn query_level(references: &References, alone: &[&Score], view: View) -> Vec<Point> {
    let QueryLevel { curve, measured } = &references.query_level;
    match view {
        View::Share => {
            let point = |cut: &Cut| {
                let label = format!("{} questions to {}", cut.questions_to_large, references.large);
                Point { x: cut.large_share, y: cut.accuracy, interval: None, label }
            };
            curve.iter().map(point).collect()
        }
        View::Speed => {
            let ends = alone.split_at(alone.len().min(1));
            let mixes = measured.iter().map(|mix| &mix.score);
            let scores = ends.0.iter().copied().chain(mixes).chain(ends.1.iter().copied());
            scores.map(|score| view.point(score)).collect()
        }
    }
}

#[cfg(test)]
mod tests;
