//! The signals of one position, from its raw logits and its final hidden state.
//!
//! Pure functions of one row: no other row, no temperature, no penalty enters. A logit of minus infinity is a token that
//! cannot be; a defer token is such a token for everything but its own signal.

use crate::exp::{exp, sigmoid};
use tokenrouter_policies::{SignalSet, Signals, Token};

/// The largest logits of a row and where the largest stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Top {
    /// The first token that has the largest logit.
    pub token: Token,
    /// That logit.
    pub first: f32,
    /// The largest logit of all other tokens.
    pub second: f32,
}

/// The two largest logits; `None` where one is NaN or plus infinity, or none is above minus infinity.
pub fn top(logits: &[f32]) -> Option<Top> {
    let mut top = Top { token: 0, first: f32::NEG_INFINITY, second: f32::NEG_INFINITY };
    // NaN and plus infinity show in the sum, without a branch for each logit.
    let mut strange = false;
    for (token, &logit) in logits.iter().enumerate() {
        strange |= logit.is_nan() || logit == f32::INFINITY;
        if logit > top.first {
            top = Top { token: token as Token, first: logit, second: top.first };
        } else if logit > top.second {
            top.second = logit;
        }
    }
    (!strange && top.first > f32::NEG_INFINITY).then_some(top)
}

/// Takes the defer token out of the logits and gives its sigmoid, which is never exactly 0 or 1.
pub fn defer(logits: &mut [f32], token: Token) -> Option<f32> {
    let logit = std::mem::replace(logits.get_mut(token as usize)?, f32::NEG_INFINITY);
    Some(sigmoid(logit).clamp(f32::MIN_POSITIVE, 1.0 - f32::EPSILON / 2.0))
}

/// The signals that are asked for, except `defer` and `head`. The defer token must be masked before; `hidden` is the
/// input of the lm_head.
pub fn compute(logits: &[f32], top: &Top, hidden: &[f32], set: &SignalSet) -> Signals {
    let mut signals = Signals::default();
    if set.entropy || set.max_probability {
        let (total, weighted) = sums(logits, top.first);
        // ln p = d - ln Σ e^d where d is the distance to the largest logit, so H = ln Σ e^d - Σ d e^d / Σ e^d.
        let entropy = (total.ln() - weighted / total).max(0.0);
        let whole = (logits.len().max(2) as f64).ln();
        signals.entropy = set.entropy.then_some(entropy as f32);
        signals.entropy_normalised = set.entropy.then_some((entropy / whole).min(1.0) as f32);
        signals.max_probability = set.max_probability.then_some((1.0 / total).min(1.0) as f32);
    }
    signals.margin = set.margin.then_some((top.first - top.second).min(f32::MAX));
    signals.top_logits = (set.top_logits > 0).then(|| largest(logits, set.top_logits.into()));
    signals.hidden = set.hidden.then(|| hidden.into());
    signals
}

/// Σ e^d and Σ d e^d over all logits, d being the distance to the largest. A masked logit adds nothing to either.
fn sums(logits: &[f32], largest: f32) -> (f64, f64) {
    const LANES: usize = 8;
    let (mut totals, mut weighted) = ([0.0; LANES], [0.0; LANES]);
    let mut add = |lanes: &[f32; LANES]| {
        for lane in 0..LANES {
            // The bound keeps minus infinity times 0 from being NaN; e^-1000 is 0 all the same.
            let distance = (lanes[lane] - largest).max(-1000.0);
            let power = exp(distance);
            totals[lane] += f64::from(power);
            weighted[lane] += f64::from(distance * power);
        }
    };
    let (lanes, rest) = logits.as_chunks::<LANES>();
    lanes.iter().for_each(&mut add);
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    add(&last);
    (totals.into_iter().sum(), weighted.into_iter().sum())
}

/// The `count` largest logits, or all, sorted descending.
pub(crate) fn largest(logits: &[f32], count: usize) -> Box<[f32]> {
    let count = count.min(logits.len());
    let mut logits = logits.to_vec();
    if count < logits.len() {
        logits.select_nth_unstable_by(count, |a, b| b.total_cmp(a));
        logits.truncate(count);
    }
    logits.sort_unstable_by(|a, b| b.total_cmp(a));
    logits.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: SignalSet = SignalSet {
        entropy: true,
        max_probability: true,
        margin: true,
        top_logits: 3,
        hidden: true,
        defer: None,
        head: None,
    };

    fn all(logits: &[f32]) -> Signals {
        compute(logits, &top(logits).unwrap(), &[1.0, 2.0], &ALL)
    }

    fn close(got: Option<f32>, want: f64) {
        let got = f64::from(got.unwrap());
        assert!((got - want).abs() < 1e-6, "{got} is not {want}");
    }

    #[test]
    fn known_distributions() {
        // Four equal tokens.
        let even = all(&[2.5; 4]);
        close(even.entropy, 4f64.ln());
        close(even.entropy_normalised, 1.0);
        close(even.max_probability, 0.25);
        assert_eq!(even.margin, Some(0.0));
        // Probabilities 1/2, 1/4, 1/4: H = 1.5 ln 2.
        let half = all(&[0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln()]);
        close(half.entropy, 1.5 * 2f64.ln());
        close(half.entropy_normalised, 1.5 * 2f64.ln() / 3f64.ln());
        close(half.max_probability, 0.5);
        close(half.margin, 2f64.ln());
        assert_eq!(half.hidden.as_deref(), Some(&[1.0, 2.0][..]));
    }

    #[test]
    fn only_what_is_asked_for_is_there() {
        let logits = [1.0, 0.0];
        let none = compute(&logits, &top(&logits).unwrap(), &[], &SignalSet::NONE);
        assert_eq!(none, Signals::default());
    }

    #[test]
    fn masked_tokens_count_in_v_and_nowhere_else() {
        let mut logits = vec![0.0; 19];
        logits[3] = 7.0;
        assert!(defer(&mut logits, 3).unwrap() > 0.999);
        let signals = all(&logits);
        close(signals.entropy, 18f64.ln());
        close(signals.entropy_normalised, 18f64.ln() / 19f64.ln());
        close(signals.max_probability, 1.0 / 18.0);
        assert_eq!(signals.top_logits.as_deref(), Some(&[0.0; 3][..]));
        assert_ne!(top(&logits).unwrap().token, 3);
    }

    #[test]
    fn extremes_are_numbers() {
        let lone = all(&[f32::NEG_INFINITY, 5.0, f32::NEG_INFINITY]);
        assert_eq!((lone.entropy, lone.entropy_normalised), (Some(0.0), Some(0.0)));
        assert_eq!((lone.max_probability, lone.margin), (Some(1.0), Some(f32::MAX)));
        let far = all(&[3e38, -3e38, 0.0]);
        assert_eq!((far.entropy, far.max_probability), (Some(0.0), Some(1.0)));
        assert!(far.margin.unwrap().is_finite());
        for strange in [&[f32::NAN, 1.0][..], &[f32::INFINITY, 1.0], &[f32::NEG_INFINITY; 2], &[]] {
            assert_eq!(top(strange), None);
        }
        for logit in [-1e30, -90.0, 0.0, 90.0, 1e30] {
            let sigmoid = defer(&mut [logit], 0).unwrap();
            assert!(sigmoid > 0.0 && sigmoid < 1.0, "{logit}: {sigmoid}");
        }
    }

    #[test]
    fn the_first_of_equals_is_the_top() {
        let top = top(&[1.0, 4.0, 2.0, 4.0]).unwrap();
        assert_eq!(top, Top { token: 1, first: 4.0, second: 4.0 });
    }

    #[test]
    fn the_largest_are_sorted() {
        let logits = [3.0, -1.0, 7.0, 0.0, 7.0];
        assert_eq!(*largest(&logits, 3), [7.0, 7.0, 3.0]);
        assert_eq!(*largest(&logits, 99), [7.0, 7.0, 3.0, 0.0, -1.0]);
    }
}
