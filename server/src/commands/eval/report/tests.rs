//! Tests of the report, and a report for the tests of others. Nothing here measures.

use super::*;
use crate::commands::eval::query::{Cut, Mix};
use crate::commands::eval::sweep::Variant;

pub(crate) fn score(route: &str, accuracy: f64, large_share: f64) -> Score {
    Score {
        route: route.to_owned(),
        accuracy,
        large_share,
        handoffs_per_reply: 2.0,
        tokens_per_s: 1000.0 - 500.0 * large_share,
        accuracy_95: [accuracy - 0.02, accuracy + 0.02],
        problems: 100,
        right: (100.0 * accuracy) as usize,
        shares: [("large".to_owned(), json!(large_share))].into_iter().collect(),
        llm_ratio: large_share,
        tokens: 5000,
        cut_by_length: 0,
        seconds: 5.0,
        ttft_ms: Spread::default(),
        tpot_ms: Spread::default(),
        sweep: None,
    }
}

/// Two models, one route, a sweep over two values, and query-level routing.
pub(crate) fn report() -> Report {
    let swept = |value: &str, accuracy, share| {
        let (route, key, value) = ("r<1>".into(), "threshold".into(), value.into());
        let variant = Variant { route, key, value };
        Score { sweep: Some(variant.clone()), ..score(&variant.name(), accuracy, share) }
    };
    let cut = |questions_to_large, accuracy, large_share| Cut {
        questions_to_large,
        accuracy,
        large_share,
    };
    Report {
        routes: vec![
            score("small", 0.3, 0.0),
            score("large", 0.9, 1.0),
            score("demo", 0.88, 0.2),
            swept("0.1", 0.6, 0.05),
            swept("0.05", 0.89, 0.1),
            swept("0.01", 0.9, 0.15),
        ],
        references: Some(References {
            small: "small".into(),
            large: "large".into(),
            query_level: QueryLevel {
                curve: vec![cut(0, 0.3, 0.0), cut(1, 0.5, 0.4), cut(2, 0.9, 1.0)],
                measured: vec![Mix { questions: 0.5, score: score("", 0.5, 0.4) }],
            },
        }),
        skipped: 0,
        concurrency: 8,
        rounds: 1,
        max_tokens: 400,
    }
}

#[test]
fn json_begins_with_what_people_look_for_and_has_nothing_but_routes() {
    let json = report().json().to_string();
    let begin = "{\"routes\":[{\"route\":\"small\",\"accuracy\":0.3,\"large_share\":0.0,\"handoffs_per_reply\":2.0,\"tokens_per_s\":1000.0,";
    assert!(json.starts_with(begin), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 1);
    assert_eq!(json["routes"][3]["sweep"]["value"], "0.1");
    let keys = ["accuracy_95", "shares", "ttft_ms", "tpot_ms", "problems", "cut_by_length"];
    assert!(keys.iter().all(|key| !json["routes"][0][key].is_null()));
    assert!(json["routes"][0]["sweep"].is_null());
}

#[test]
fn tables_are_rectangles_and_name_the_cheapest_good_value() {
    let text = report().tables();
    let lines = || text.lines().filter(|line| line.starts_with('|'));
    // 6 routes, 1 mix and 1 sweep, and 2 lines of head each.
    assert_eq!(lines().count(), 6 + 1 + 1 + 3 * 2);
    assert!(lines().all(|line| line.ends_with('|')));
    let choice = lines().next_back().unwrap();
    for part in ["r<1>:threshold", " 0.05 ", "0.890", "0.870–0.910", "10.0%"] {
        assert!(choice.contains(part), "{part} is not in {choice}");
    }
    assert!(text.contains("reach 98% of its accuracy, 0.882"), "{text}");
    let plain = Report { references: None, ..report() };
    assert_eq!(plain.tables().lines().count(), 6 + 2);
}

#[test]
fn a_sweep_without_a_good_value_says_so() {
    let mut report = report();
    report.routes.truncate(4);
    assert!(report.tables().lines().last().unwrap().contains("| none "));
}
