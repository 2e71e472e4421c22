//! Branch-free scalar functions that compilers turn into vector code.

/// `a * b + c`, fused where the instruction set has it.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// e^x to about 1e-7 relative; 0 below -87.3, saturating above 88.7. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    const LOW: f32 = -87.3;
    const HIGH: f32 = 88.7;
    const MAGIC: f32 = 12_582_912.0;
    let clamped = if x < LOW { LOW } else { x };
    let clamped = if clamped > HIGH { HIGH } else { clamped };
    // x = k ln 2 + r: adding 1.5 * 2^23 rounds to the integer k, which is then in the low bits.
    let shifted = fma::<FMA>(clamped, std::f32::consts::LOG2_E, MAGIC);
    let k = shifted - MAGIC;
    let r = fma::<FMA>(k, -0.693_359_4, clamped);
    let r = fma::<FMA>(k, 2.121_944_4e-4, r);
    // Coefficients of the Cephes library's expf.
    let mut p = 1.987_569_1e-4;
    p = fma::<FMA>(p, r, 1.398_2e-3);
    p = fma::<FMA>(p, r, 8.333_452e-3);
    p = fma::<FMA>(p, r, 4.166_579_6e-2);
    p = fma::<FMA>(p, r, 0.166_666_65);
    p = fma::<FMA>(p, r, 0.5);
    let p = fma::<FMA>(p, r * r, r + 1.0);
    // 2^k in two factors, so that k = 128 does not overflow before its time.
    let k = shifted.to_bits().wrapping_sub(MAGIC.to_bits()) as i32;
    let half = k >> 1;
    // Nothing wraps; a check of that would keep the loop from becoming vector code.
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) as u32) << 23);
    let (first, second) = (power(half), power(k.wrapping_sub(half)));
    let y = p * first * second;
    if x < LOW { 0.0 } else { y }
}

/// [`exp`] of a number that is not above zero (or NaN): a single factor of two suffices.
#[inline(always)]
pub(crate) fn exp_below_zero<const FMA: bool>(x: f32) -> f32 {
    const LOW: f32 = -87.3;
    const MAGIC: f32 = 12_582_912.0;
    let clamped = if x < LOW { LOW } else { x };
    let shifted = fma::<FMA>(clamped, std::f32::consts::LOG2_E, MAGIC);
    let k = shifted - MAGIC;
    let r = fma::<FMA>(k, -0.693_359_4, clamped);
    let r = fma::<FMA>(k, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    p = fma::<FMA>(p, r, 1.398_2e-3);
    p = fma::<FMA>(p, r, 8.333_452e-3);
    p = fma::<FMA>(p, r, 4.166_579_6e-2);
    p = fma::<FMA>(p, r, 0.166_666_65);
    p = fma::<FMA>(p, r, 0.5);
    let p = fma::<FMA>(p, r * r, r + 1.0);
    // k is -126 or more, so 2^k is a normal number: its exponent is k added to that of one.
    let power = shifted.to_bits().wrapping_sub(MAGIC.to_bits()) << 23;
    let y = p * f32::from_bits(power.wrapping_add(1.0f32.to_bits()));
    if x < LOW { 0.0 } else { y }
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// Hyperbolic tangent. Near zero, where the quotient would cancel, an odd polynomial.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    let far = 1.0 - 2.0 / (exp::<FMA>(2.0 * x) + 1.0);
    let s = x * x;
    let mut p = -0.053_968_254;
    p = fma::<FMA>(p, s, 0.133_333_33);
    p = fma::<FMA>(p, s, -0.333_333_34);
    let near = fma::<FMA>(p * s, x, x);
    if x.abs() < 0.2 { near } else { far }
}

/// The error function, to 1.5e-7 absolute (Abramowitz and Stegun 7.1.26).
#[inline(always)]
pub(crate) fn erf<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / fma::<FMA>(a, 0.327_591_1, 1.0);
    let mut p = 1.061_405_4;
    p = fma::<FMA>(p, t, -1.453_152_1);
    p = fma::<FMA>(p, t, 1.421_413_8);
    p = fma::<FMA>(p, t, -0.284_496_72);
    p = fma::<FMA>(p, t, 0.254_829_6);
    let y = 1.0 - p * t * exp::<FMA>(-a * a);
    if x < 0.0 { -y } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_doubles() {
        for i in -4000..=4000 {
            let x = i as f32 * 0.02;
            let wide = f64::from(x);
            let close = |name: &str, got: f32, want: f64, tolerance: f64| {
                let error = (f64::from(got) - want).abs();
                assert!(error <= tolerance, "{name}({x}) = {got}, want {want}");
            };
            for got in [exp::<true>(x), exp::<false>(x)] {
                close("exp", got, wide.exp(), 4e-7 * wide.exp());
            }
            close("tanh", tanh::<true>(x), wide.tanh(), 3e-7);
            close("sigmoid", sigmoid::<true>(x), 1.0 / (1.0 + (-wide).exp()), 3e-7);
        }
        // erf at a few points, from tables.
        for (x, want) in [(0.0, 0.0), (0.5, 0.520_499_88), (1.0, 0.842_700_79), (2.0, 0.995_322_27)]
        {
            assert!((f64::from(erf::<true>(x)) - want).abs() < 5e-7);
            assert!((f64::from(erf::<true>(-x)) + want).abs() < 5e-7);
        }
    }

    #[test]
    fn the_edges_of_exp() {
        assert_eq!(exp::<true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp::<true>(-100.0), 0.0);
        assert!(exp::<true>(f32::INFINITY) > 3e38);
        assert!(exp::<true>(f32::NAN).is_nan());
        assert_eq!(exp::<true>(0.0), 1.0);
    }
}
