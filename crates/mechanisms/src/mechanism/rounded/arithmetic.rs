//! Arithmetic of integer recurrences: roundings, fixed-point buffers, trees' estimates; loops in vector registers.

use undertone_simd::vectorised;
use zeroize::Zeroizing;

/// Coordinates that the passes over the buffers take at once.
const STRIP: usize = 256;

/// One round of buffers in fixed point: `noise` holds the fresh integers and receives the output.
pub(super) fn buffers(
    noise: &mut [i64],
    state: &mut [i64],
    weights: &[f64],
    complement: &[f64],
    factor: f64,
) {
    let length = noise.len();
    let (mut sums, mut added) = (Zeroizing::new([0.0; STRIP]), Zeroizing::new([0; STRIP]));
    for (index, strip) in noise.chunks_mut(STRIP).enumerate() {
        let begin = index * STRIP;
        let (sums, added) = (&mut sums[..strip.len()], &mut added[..strip.len()]);
        sums.fill(0.0);
        for (j, weight) in weights.iter().enumerate() {
            weigh(sums, *weight, &state[j * length + begin..][..strip.len()]);
        }
        to_units(strip, sums, added, factor);
        for (j, complement) in complement.iter().enumerate() {
            decay(
                &mut state[j * length + begin..][..strip.len()],
                *complement,
                added,
            );
        }
    }
}

vectorised! {
    /// `sums += weight * state`.
    fn weigh(sums: &mut [f64], weight: f64, state: &[i64]) {
        for (sum, state) in sums.iter_mut().zip(state) {
            *sum += weight * *state as f64;
        }
    }
}

vectorised! {
    /// `values -= round(sums)`, and `units = round(factor * values)` with the product exact to half a unit.
    fn to_units(values: &mut [i64], sums: &[f64], units: &mut [i64], factor: f64) {
        // The halves of a Dekker product: 26 bits each, so that products of halves are exact.
        const SPLIT: f64 = ((1u64 << 27) + 1) as f64;
        let high = factor * SPLIT - (factor * SPLIT - factor);
        let low = factor - high;
        for ((value, sum), units) in values.iter_mut().zip(sums).zip(units) {
            *value -= nearest(*sum);
            let value = *value as f64;
            let value_high = value * SPLIT - (value * SPLIT - value);
            let value_low = value - value_high;
            let product = value * factor;
            let rest = ((value_high * high - product) + value_high * low + value_low * high) + value_low * low;
            // The leading part beyond 2^53 is an integer; below, it and the rest are rounded together.
            let whole = product.round_ties_even();
            *units = nearest(whole) + nearest((product - whole) + rest);
        }
    }
}

vectorised! {
    /// `state <- state - round(complement * state) + added`.
    fn decay(state: &mut [i64], complement: f64, added: &[i64]) {
        for (state, added) in state.iter_mut().zip(added) {
            *state += added - nearest(complement * *state as f64);
        }
    }
}

/// The nearest integer, ties to even, for `|x| < 2^62`; beyond, some integer. The language's own conversion saturates, which
/// no vector instruction does.
#[inline(always)]
pub(super) fn nearest(x: f64) -> i64 {
    // Adding 1.5 * 2^52 leaves an integer in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    const HALF_WORD: f64 = (1u64 << 32) as f64;
    let shifted_high = x * HALF_WORD.recip() + MAGIC;
    let low = x - (shifted_high - MAGIC) * HALF_WORD;
    let integer = |shifted: f64| (shifted.to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64);
    (integer(shifted_high) << 32).wrapping_add(integer(low + MAGIC))
}

vectorised! {
    /// See [`crate::stream::kernel::join`]. PRIVACY: the noise's own part enters only through `node - children`, which the
    /// averages under the node do not change: that makes the release post-processing of the node sums.
    pub(super) fn join(newest: &mut [i64], removed: &mut [i64], left: &[i64], node: &[i64], weight: f64) {
        for (((newest, removed), left), node) in newest.iter_mut().zip(removed).zip(left).zip(node) {
            let children = left + *newest;
            *removed += left;
            *newest = children + nearest(weight * (node - children) as f64);
        }
    }
}

vectorised! {
    /// The conversion is exact below `2^53`.
    pub(super) fn to_reals(out: &mut [f64], values: &[i64]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = *value as f64;
        }
    }
}

vectorised! {
    /// `values += round(sums)`.
    pub(super) fn add_nearest(values: &mut [i64], sums: &[f64]) {
        for (value, sum) in values.iter_mut().zip(sums) {
            *value += nearest(*sum);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Splitmix64: test data.
    pub(in crate::mechanism::rounded) fn random(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = *state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) >> 11) as f64 * 0.5f64.powi(52) - 1.0
    }

    #[test]
    fn nearest_integers_break_ties_to_even() {
        let mut seed = 5;
        let cases = [
            0.0,
            -0.0,
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            4_294_967_295.5,
            2_147_483_648.5,
            -2_147_483_648.5,
        ];
        let random = (0..64).map(|exponent| f64::from(exponent - 2).exp2() * random(&mut seed));
        for x in cases.into_iter().chain(random.filter(|x| x.abs() < 62f64.exp2())) {
            for x in [x, x.trunc() + 0.5, x.trunc()] {
                assert_eq!(nearest(x), x.round_ties_even() as i64, "{x}");
            }
        }
        for x in [62f64.exp2().next_down(), -62f64.exp2().next_down()] {
            assert_eq!(nearest(x), x as i64);
        }
    }

    #[test]
    fn products_of_buffers_are_rounded_once() {
        let mut seed = 9;
        for factor in [1.0, (1u64 << 20) as f64, 12_345.678_9, 1e9 / 7.0] {
            for magnitude in [10.0, 1e6, (1u64 << 52) as f64 / factor * 8.0] {
                let value = (magnitude.min(9e15) * random(&mut seed)) as i64;
                let (mut values, mut units) = ([value + 5], [0]);
                to_units(&mut values, &[5.0], &mut units, factor);
                assert_eq!(values, [value]);
                // factor = mantissa * 2^exponent, in integers.
                let bits = factor.to_bits();
                let mantissa = i128::from(bits & 0x000f_ffff_ffff_ffff | 1 << 52);
                let exponent = (bits >> 52) as i32 - 1075;
                let exact = i128::from(value) * mantissa;
                let scaled = i128::from(units[0]) << (-exponent);
                assert!(
                    (scaled - exact).abs() * 2 <= 1 << (-exponent),
                    "{factor} * {value}: {units:?}"
                );
            }
        }
    }
}
