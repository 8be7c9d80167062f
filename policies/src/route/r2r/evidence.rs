//! The largest logits taken as evidence for their tokens (LogU): the parameters of a Dirichlet distribution whose spread
//! says how uncertain the model is, and why.
//!
//! Evidence is not negative: a logit below zero counts as none. Models whose logits lie there have nothing to say here.

/// Two kinds of uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evidence {
    /// The evidence is spread over several tokens; in nats.
    pub(super) aleatoric: f64,
    /// There is little evidence at all; in `(0, 1]`.
    pub(super) epistemic: f64,
}

impl Evidence {
    /// That of raw logits `x`: with `S = Σ x` and `q = x / S` the aleatoric part is `-Σ q (ψ(x + 1) - ψ(S + 1))`, the
    /// epistemic one `k / (S + k)`.
    pub(super) fn of(logits: &[f32]) -> Self {
        let evidence = || logits.iter().map(|&logit| f64::from(logit.max(0.0)));
        let (k, total): (f64, f64) = (logits.len() as f64, evidence().sum());
        let whole = digamma(total + 1.0);
        // With no evidence there is no share of it either; the limit is 0.
        let share = |x: f64| if total > 0.0 { x / total } else { 0.0 };
        let aleatoric = evidence().map(|x| share(x) * (whole - digamma(x + 1.0))).sum();
        Self { aleatoric, epistemic: k / (total + k) }
    }
}

/// The digamma function for `x > 0`, to about 1e-12: the recurrence up to 8, then the asymptotic series.
fn digamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < 8.0 {
        below -= 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = square
        * (1.0 / 12.0
            - square
                * (1.0 / 120.0 - square * (1.0 / 252.0 - square * (1.0 / 240.0 - square / 132.0))));
    below + x.ln() - 0.5 / x - series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digamma_at_points_that_are_known() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        let half = -EULER - 2.0 * 2f64.ln();
        let cases = [(1.0, -EULER), (0.5, half), (2.0, 1.0 - EULER), (1.5, half + 2.0)];
        for (x, expected) in cases {
            assert!((digamma(x) - expected).abs() < 1e-11, "ψ({x}) = {}", digamma(x));
        }
        // ψ(n + 1) = H(n) - γ.
        let harmonic: f64 = (1..=30).map(|n| 1.0 / f64::from(n)).sum();
        assert!((digamma(31.0) - (harmonic - EULER)).abs() < 1e-11);
    }

    #[test]
    fn evidence_for_one_token_is_certain_and_for_ten_it_is_not() {
        let mut one = [0.0; 10];
        one[0] = 30.0;
        let certain = Evidence::of(&one);
        assert!(certain.aleatoric.abs() < 1e-12, "{certain:?}");
        assert_eq!(certain.epistemic, 10.0 / 40.0);
        // Ten times x: the spread is ψ(10 x + 1) - ψ(x + 1), which for whole x is a sum of fractions.
        let even = Evidence::of(&[3.0; 10]);
        let expected: f64 = (4..=30).map(|n| 1.0 / f64::from(n)).sum();
        assert!((even.aleatoric - expected).abs() < 1e-11, "{even:?}");
        assert_eq!(even.epistemic, 0.25);
    }

    #[test]
    fn logits_without_evidence_give_numbers() {
        let none = Evidence { aleatoric: 0.0, epistemic: 1.0 };
        for logits in [[-3.0; 10], [0.0; 10], [f32::NEG_INFINITY; 10]] {
            assert_eq!(Evidence::of(&logits), none);
        }
        let some = Evidence::of(&[2.0, 1.0, -5.0, f32::NEG_INFINITY]);
        assert!(some.aleatoric.is_finite() && some.aleatoric > 0.0);
        assert_eq!(some.epistemic, 4.0 / 7.0);
    }
}
