//! The space of vectors, and searches in it over throughputs that are made up.

use super::*;

fn space(live: u32, most: &[u32]) -> Space {
    Space { live, most: most.to_vec(), floor: vec![1; most.len()] }
}

fn made_up(thresholds: &[u32], tokens_per_s: f64, p99_tpot: Option<f64>) -> Prediction {
    Prediction { live: 1, thresholds: thresholds.to_vec(), tokens_per_s, exact: true, p99_tpot }
}

#[test]
fn all_vectors_keep_the_bound() {
    let all = space(3, &[3, 3]).all(100).unwrap();
    assert_eq!(all, [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [3, 1]]);
    assert!(space(3, &[3, 3]).all(5).is_none());
    assert_eq!(space(4, &[1, 2]).all(100).unwrap(), [[1, 1], [1, 2]]);
}

#[test]
fn thresholds_for_fewer_requests_count_against_the_bound() {
    let raised = Space { live: 4, most: vec![4, 4], floor: vec![3, 1] };
    assert!(raised.holds(&[1, 2]) && raised.holds(&[3, 2]) && !raised.holds(&[1, 3]));
}

#[test]
fn one_top_is_found_wherever_it_is() {
    for most in [[1, 40], [40, 40]] {
        let space = space(40, &most);
        for top in [[1, 1], [1, 17], [1, 40], [8, 23], [30, 2]] {
            let found = space.best(Objective::Throughput, None, |b| {
                let away: f64 =
                    b.iter().zip(top).map(|(b, t)| (f64::from(*b) - f64::from(t)).powi(2)).sum();
                made_up(b, 1000.0 - away, None)
            });
            let reachable = top[0] <= most[0];
            assert!(!reachable || found.thresholds == top, "{:?} is not {top:?}", found.thresholds);
        }
    }
}

#[test]
fn a_search_asks_for_few_of_many_vectors_and_for_none_twice() {
    let mut asked = Vec::new();
    space(1000, &[1, 1000]).best(Objective::Throughput, Some(&[1, 600]), |b| {
        asked.push(b.to_vec());
        made_up(b, -(f64::from(b[1]) - 613.0).abs(), None)
    });
    assert!(asked.contains(&vec![1, 613]) && asked.len() < 60, "{}", asked.len());
    let count = asked.len();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), count);
}

#[test]
fn limits_come_before_throughput() {
    let limit = Objective::P99Tpot(0.1);
    let (slow, fast) = (made_up(&[1], 1.0, Some(0.09)), made_up(&[2], 2.0, Some(0.11)));
    let worse = made_up(&[3], 3.0, Some(0.12));
    assert!(limit.prefers(&slow, &fast) && limit.prefers(&fast, &worse));
    assert!(Objective::Throughput.prefers(&worse, &slow));
    assert!(limit.gains(&fast, &slow, 0.02) && !limit.gains(&slow, &fast, 0.02));
    let nearly = made_up(&[2], 2.0, Some(0.1005));
    assert!(!limit.gains(&nearly, &slow, 0.02), "half a percent over the limit is not worth it");
    let throughput = Objective::Throughput;
    assert!(throughput.gains(&made_up(&[1], 1.0, None), &made_up(&[1], 1.03, None), 0.02));
    assert!(!throughput.gains(&made_up(&[1], 1.0, None), &made_up(&[1], 1.01, None), 0.02));
}
