//! Tests of the picture.

use super::*;
use crate::commands::eval::report::tests::report;

/// Asserts that every element is closed in its order, and gives all texts.
fn texts(svg: &str) -> Vec<String> {
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    let mut pieces = svg.split('<');
    assert_eq!(pieces.next(), Some(""));
    for piece in pieces {
        let (tag, text) = piece.split_once('>').expect("a tag that ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
        if open.last() == Some(&"text") {
            texts.push(text.to_owned());
        }
    }
    assert!(open.is_empty(), "{open:?} are open");
    texts
}

#[test]
fn the_picture_is_well_formed_and_names_axes_and_all_series() {
    let svg = draw(&report());
    let texts = texts(&svg);
    let names = [
        "accuracy",
        "tokens written by the largest model",
        "tokens per second, logarithmic",
        "query-level routing, by prompt entropy",
        "small alone",
        "large alone",
        "demo",
        "r&lt;1&gt;:threshold",
    ];
    for name in names {
        assert!(texts.iter().any(|text| text == name), "{name} is not in {texts:?}");
    }
    // Each of the six routes in both panels, and all series but the line in the legend.
    assert_eq!(svg.matches("<title>").count(), 6 * 2 + 4);
}

#[test]
fn both_views_have_the_same_series_and_query_level_goes_from_small_to_large() {
    let [share, speed] = [View::Share, View::Speed].map(|view| series(&report(), view));
    let names = |series: &[Series]| series.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&share), names(&speed));
    let ends = |series: &Series| {
        let points = &series.points;
        [points[0].x, points[points.len() - 1].x]
    };
    assert_eq!((ends(&share[0]), ends(&speed[0])), ([0.0, 1.0], [1000.0, 500.0]));
}

#[test]
fn a_report_of_nothing_but_one_route_has_a_picture() {
    let mut report = report();
    report.references = None;
    report.routes.truncate(1);
    assert!(texts(&draw(&report)).contains(&"small".to_owned()));
}
