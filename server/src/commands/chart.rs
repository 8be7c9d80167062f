//! Charts as SVG text: axes with ticks, lines with marks, a legend. Nothing here knows what is shown.

use std::fmt::Write;

/// Colours that differ for all kinds of eyes (after Okabe and Ito), dark enough for a white ground.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d3b"];
const REFERENCE: &str = "#59636e";
const INK: &str = "#1f2328";
/// Ticks that an axis has about.
const TICKS: f64 = 5.0;
const LEGEND_COLUMN: f64 = 296.0;
const LEGEND_LINE: f64 = 20.0;
/// Characters that fit into a column of the legend.
const LEGEND_CHARACTERS: usize = 42;

/// One axis.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Axis {
    name: String,
    scale: Scale,
    /// Both ends are ticks.
    ticks: Vec<f64>,
}

/// How values lie on an axis, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Plain,
    Percent,
    Logarithmic,
}

/// One point of a series.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Point {
    pub(in crate::commands) x: f64,
    pub(in crate::commands) y: f64,
    /// What a vertical bar through it spans.
    pub(in crate::commands) interval: Option<[f64; 2]>,
    /// What a reader sees who points at it.
    pub(in crate::commands) label: String,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Series {
    pub(in crate::commands) name: String,
    pub(in crate::commands) points: Vec<Point>,
    colour: &'static str,
    /// The shape of its marks; one without is a dashed line.
    shape: Option<usize>,
}

/// Axes with their series.
pub(in crate::commands) struct Panel<'a> {
    /// Left edge, width, top, height.
    pub(in crate::commands) area: [f64; 4],
    pub(in crate::commands) x: Axis,
    pub(in crate::commands) y: Axis,
    pub(in crate::commands) series: &'a [Series],
}

impl Axis {
    /// From `from` to `to`, or a little further, where ticks are.
    pub(in crate::commands) fn new(name: &str, from: f64, to: f64) -> Self {
        let step = round_up((to - from) / TICKS);
        let first = (from / step + 1e-9).floor();
        let last = (to / step - 1e-9).ceil().max(first + 1.0);
        let count = (last - first) as usize;
        let ticks = (0..=count).map(|index| (first + index as f64) * step).collect();
        Self { name: name.to_owned(), scale: Scale::Plain, ticks }
    }

    /// The same, its ticks being percentages.
    pub(in crate::commands) fn percent(name: &str, from: f64, to: f64) -> Self {
        Self { scale: Scale::Percent, ..Self::new(name, from, to) }
    }

    /// One on which equal distances are equal ratios; both ends are above 0.
    pub(in crate::commands) fn logarithmic(name: &str, from: f64, to: f64) -> Self {
        let mut ticks = vec![round_down(from)];
        let mut last = ticks[0];
        while last < to || ticks.len() < 2 {
            last = round_up(last * 1.01);
            ticks.push(last);
        }
        Self { name: name.to_owned(), scale: Scale::Logarithmic, ticks }
    }

    /// The ticks and how they are written.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        self.ticks.iter().map(|&value| {
            let text = match self.scale {
                Scale::Percent => format!("{:.0}%", 100.0 * value),
                _ if self.ticks[0].fract() == 0.0 && value.fract() == 0.0 && value > 1.0 => {
                    format!("{value:.0}")
                }
                _ => format!("{value:.1}"),
            };
            (value, text)
        })
    }

    /// Where a value stands between the ends, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| match self.scale {
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
            _ => value,
        };
        let [from, to] =
            [self.ticks.first(), self.ticks.last()].map(|end| end.map_or(0.0, |end| scaled(*end)));
        ((scaled(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not less than `value`, which is above 0.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let nice = [1.0, 2.0, 5.0].into_iter().find(|nice| nice * power >= value * 0.999_999);
    nice.unwrap_or(10.0) * power
}

/// The largest of them that is not more than `value`.
fn round_down(value: f64) -> f64 {
    1.0 / round_up(1.0 / value)
}

impl Series {
    /// A dashed line through the points, for what others are compared with.
    pub(in crate::commands) fn line(name: &str, points: Vec<Point>) -> Self {
        Self { name: name.to_owned(), points, colour: REFERENCE, shape: None }
    }

    /// Marks in black.
    pub(in crate::commands) fn reference(name: &str, points: Vec<Point>, nth: usize) -> Self {
        Self { name: name.to_owned(), points, colour: INK, shape: Some(nth) }
    }

    /// Marks in a colour of their own, with a thin line where there are several.
    pub(in crate::commands) fn marks(name: &str, points: Vec<Point>, nth: usize) -> Self {
        let colour = COLOURS[nth % COLOURS.len()];
        Self { name: name.to_owned(), points, colour, shape: Some(nth) }
    }
}

impl Panel<'_> {
    /// The panel as SVG.
    pub(in crate::commands) fn svg(&self) -> String {
        let mut svg = self.axes();
        for series in self.series {
            let (colour, shape) = (series.colour, series.shape);
            let places: Vec<[f64; 2]> =
                series.points.iter().map(|point| self.place(point.x, point.y)).collect();
            svg += &line(&places, colour, shape.is_none());
            for (point, place) in series.points.iter().zip(&places) {
                let Some(shape) = shape else { continue };
                if let Some([low, high]) = point.interval {
                    let ends = [self.place(point.x, low), self.place(point.x, high)];
                    svg += &bar(ends, colour);
                }
                svg += &mark(shape, *place, colour, &point.label);
            }
        }
        svg
    }

    fn place(&self, x: f64, y: f64) -> [f64; 2] {
        let [left, width, top, height] = self.area;
        [left + width * self.x.place(x), top + height * (1.0 - self.y.place(y))]
    }

    fn axes(&self) -> String {
        let [left, width, top, height] = self.area;
        let (right, bottom) = (left + width, top + height);
        let mut svg = String::from("<g stroke=\"#d1d9e0\">\n");
        for (value, _) in self.x.ticks() {
            let x = self.place(value, 0.0)[0];
            svg += &format!("<path d=\"M{x:.1} {top}V{bottom}\"/>\n");
        }
        for (value, _) in self.y.ticks() {
            let y = self.place(0.0, value)[1];
            svg += &format!("<path d=\"M{left} {y:.1}H{right}\"/>\n");
        }
        svg += "</g>\n";
        for (value, name) in self.x.ticks() {
            svg += &text([self.place(value, 0.0)[0], bottom + 16.0], "middle", "", &name);
        }
        for (value, name) in self.y.ticks() {
            svg += &text([left - 8.0, self.place(0.0, value)[1] + 4.0], "end", "", &name);
        }
        let middle = (top + bottom) / 2.0;
        let turned = format!("transform=\"rotate(-90 {} {middle})\"", left - 40.0);
        svg += &text([(left + right) / 2.0, bottom + 38.0], "middle", "", &self.x.name);
        svg + &text([left - 40.0, middle], "middle", &turned, &self.y.name)
    }
}

/// The marks and names of all series in columns below `top`, and the height they take.
pub(in crate::commands) fn legend(
    series: &[Series],
    left: f64,
    top: f64,
    width: f64,
) -> (String, f64) {
    let columns = ((width - left) / LEGEND_COLUMN).floor().max(1.0) as usize;
    let mut svg = String::new();
    for (index, series) in series.iter().enumerate() {
        let x = left + LEGEND_COLUMN * (index % columns) as f64;
        let y = top + LEGEND_LINE * (index / columns) as f64;
        svg += &match series.shape {
            None => line(&[[x - 8.0, y], [x + 16.0, y]], series.colour, true),
            Some(shape) => mark(shape, [x + 4.0, y], series.colour, &series.name),
        };
        let mut name: String = series.name.chars().take(LEGEND_CHARACTERS).collect();
        if name.len() < series.name.len() {
            name.push('…');
        }
        svg += &text([x + 22.0, y + 4.0], "start", "", &name);
    }
    (svg, LEGEND_LINE * series.len().div_ceil(columns) as f64)
}

/// A line of text. `place` is the baseline, `more` further attributes.
pub(in crate::commands) fn text(
    [x, y]: [f64; 2],
    anchor: &str,
    more: &str,
    content: &str,
) -> String {
    let fill = if more.contains("fill=") { "" } else { " fill=\"#1f2328\"" };
    let content = escape(content);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{fill} {more}>{content}</text>\n"
    )
}

fn line(places: &[[f64; 2]], colour: &str, dashed: bool) -> String {
    if places.len() < 2 {
        return String::new();
    }
    let mut path = String::new();
    for (index, [x, y]) in places.iter().enumerate() {
        let verb = if index == 0 { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(path, "{verb}{x:.1} {y:.1}");
    }
    let style =
        if dashed { "stroke-width=\"2\" stroke-dasharray=\"6 4\"" } else { "stroke-width=\"1.5\"" };
    format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" {style}/>\n")
}

fn bar([low, high]: [[f64; 2]; 2], colour: &str) -> String {
    let ([x, low], high) = (low, high[1]);
    format!(
        "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\" opacity=\"0.35\"/>\n"
    )
}

/// A mark in one of five shapes.
fn mark(shape: usize, [x, y]: [f64; 2], colour: &str, label: &str) -> String {
    let path = match shape % 5 {
        0 => "M-4 -4H4V4H-4z",
        1 => "M0 -5.5L5.5 0L0 5.5L-5.5 0z",
        2 => "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        3 => "M0 -5.5L5 4H-5z",
        _ => "M0 5.5L5 -4H-5z",
    };
    let label = escape(label);
    format!(
        "<path transform=\"translate({x:.1} {y:.1})\" d=\"{path}\" fill=\"{colour}\" stroke=\"#ffffff\"><title>{label}</title></path>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis) -> Vec<String> {
        axis.ticks().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_span_the_axis() {
        assert_eq!(ticks(&Axis::new("", 0.23, 1.0)), ["0.2", "0.4", "0.6", "0.8", "1.0"]);
        let percent = Axis::percent("", 0.0, 1.0);
        assert_eq!(ticks(&percent), ["0%", "20%", "40%", "60%", "80%", "100%"]);
        assert_eq!((percent.place(0.25), percent.place(1.5)), (0.25, 1.0));
    }

    #[test]
    fn equal_ratios_are_equal_distances_on_a_logarithmic_axis() {
        let axis = Axis::logarithmic("", 110.0, 9000.0);
        assert_eq!(ticks(&axis), ["100", "200", "500", "1000", "2000", "5000", "10000"]);
        assert!((axis.place(1000.0) - 0.5).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        assert_eq!(ticks(&Axis::logarithmic("", 100.0, 100.0)), ["100", "200"]);
    }

    #[test]
    fn markup_in_names_is_text() {
        let svg = text([1.0, 2.0], "end", "", "a<b> & \"c\"");
        assert!(svg.contains(">a&lt;b&gt; &amp; &quot;c&quot;</text>"), "{svg}");
    }
}
