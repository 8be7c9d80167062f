//! The exponential function on slices of f32, the same bits for a value wherever it stands in the slice.
//!
//! The library's `exp` is one call per value; this one is a polynomial that the compiler turns into vector code.

/// e^x with a relative error below 3e-7 for x in [-87, 88]; 0 below that, e^88 above. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2^23 leaves the nearest integer in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // x = n ln 2 + r with |r| ≤ ln 2 / 2. ln 2 is split in two so that n times the high part is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = x.clamp(-87.0, 88.0);
    let shifted = bounded.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, bounded));
    // The minimax polynomial of Cephes.
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    p = p.mul_add(r * r, r) + 1.0;
    // n is between -126 and 127, so the exponent field neither underflows nor overflows.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f32::from_bits(n.wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { p * power }
}

/// x · sigmoid(x).
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// x · Φ(x) with the normal distribution Φ, absolute error below 1e-6 · max(1, |x|).
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function with an absolute error below 5e-7: formula 7.1.26 of Abramowitz and Stegun.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let t = 1.0 / x.abs().mul_add(0.327_591_1, 1.0);
    let mut p = 1.061_405_4_f32;
    p = p.mul_add(t, -1.453_152);
    p = p.mul_add(t, 1.421_413_7);
    p = p.mul_add(t, -0.284_496_74);
    p = p.mul_add(t, 0.254_829_6);
    (1.0 - p * t * exp(-x * x)).copysign(x)
}

/// 1 / (1 + e^-x) in double precision, never 0 or 1 for finite x in single precision's reach of ±80.
pub(crate) fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_library_everywhere() {
        for step in -870_000..=880_000 {
            let x = step as f32 * 1e-4;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got / want - 1.0).abs() < 3e-7, "e^{x} = {got}, not {want}");
        }
    }

    #[test]
    fn erf_and_gelu_take_known_values() {
        let known = [(0.0, 0.0), (0.1, 0.112_462_92), (0.5, 0.520_499_9), (1.0, 0.842_700_8)];
        let far = [(1.5, 0.966_105_1), (2.0, 0.995_322_3), (3.0, 0.999_977_9), (9.0, 1.0)];
        for (x, want) in known.into_iter().chain(far) {
            assert!((erf(x) - want).abs() < 5e-7, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!((gelu(-50.0), gelu(50.0)), (0.0, 50.0));
        assert!((gelu(1.0) - 0.841_344_7).abs() < 1e-6);
    }

    #[test]
    fn the_ends_are_numbers() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-87.1), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::INFINITY).is_finite());
        assert_eq!(silu(100.0), 100.0);
        assert_eq!(silu(0.0), 0.0);
    }
}
