//! The loops of clipping: squared distances, and moves toward the origin that never overshoot.

use undertone_simd::vectorised;

/// Partial sums kept side by side; fixes the order of summation on every machine.
const LANES: usize = 32;

/// Bound on the relative error of [`squared_distance`] over `len` values, with a factor of four to spare.
pub(super) fn slack(len: usize) -> f64 {
    (len / LANES + 4 * LANES) as f64 * f64::EPSILON * 2.0
}

/// Relative room that the factor must leave for the `f32` arithmetic of [`shrink_toward`] and [`shrink`]: more than
/// twice their worst case of `3.1 * 2^-24`, so that the rest covers underflow (`2^-149` a coordinate) as well.
pub(super) const SHRINK_SLACK: f64 = 1.0 / (1 << 21) as f64;

vectorised! {
    /// `sum (x - origin)^2` in `f64`.
    pub(super) fn squared_distance(x: &[f32], origin: &[f32]) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let (xs, x_rest) = x.as_chunks::<LANES>();
        let (os, o_rest) = origin.as_chunks::<LANES>();
        for (x, o) in xs.iter().zip(os) {
            for lane in 0..LANES {
                let d = f64::from(x[lane]) - f64::from(o[lane]);
                lanes[lane] += d * d;
            }
        }
        for ((x, o), lane) in x_rest.iter().zip(o_rest).zip(&mut lanes) {
            let d = f64::from(*x) - f64::from(*o);
            *lane += d * d;
        }
        lanes.iter().sum()
    }
}

vectorised! {
    /// `sum x^2` in `f64`.
    pub(super) fn squared_norm(x: &[f32]) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let (xs, rest) = x.as_chunks::<LANES>();
        for x in xs {
            for lane in 0..LANES {
                lanes[lane] += f64::from(x[lane]) * f64::from(x[lane]);
            }
        }
        for (x, lane) in rest.iter().zip(&mut lanes) {
            *lane += f64::from(*x) * f64::from(*x);
        }
        lanes.iter().sum()
    }
}

vectorised! {
    /// `x <- origin + factor (x - origin)`, each coordinate within [`SHRINK_SLACK`] of that distance or nearer.
    pub(super) fn shrink_toward(x: &mut [f32], origin: &[f32], factor: f32) -> () {
        for (x, &o) in x.iter_mut().zip(origin) {
            *x = shrunk(*x, o, factor);
        }
    }
}

vectorised! {
    /// `x <- factor x`, each coordinate within [`SHRINK_SLACK`] of that magnitude or smaller.
    pub(super) fn shrink(x: &mut [f32], factor: f32) -> () {
        for x in x {
            *x *= factor;
        }
    }
}

/// An `f32` next to `o + factor (x - o)` whose distance from `o` exceeds `factor |x - o|` by a relative `3.1 * 2^-24`
/// and an absolute `2^-149` at most; `0 <= factor <= 1`, `x - o` finite.
#[inline(always)]
fn shrunk(x: f32, o: f32, factor: f32) -> f32 {
    let target = factor * (x - o);
    let nearest = o + target;
    let moved = nearest - o;
    // PRIVACY: where the parameter is large and the step small, rounding to nearest can lengthen the update by far more
    // than a relative 2^-24; a coordinate that would overshoot takes the next value toward the origin instead.
    let overshoots = moved.abs() > target.abs();
    // Away from zero if value and move have opposite signs; from zero itself toward the origin's sign.
    let (bits, sign) = (nearest.to_bits(), 1u32 << 31);
    let opposite = (bits ^ moved.to_bits()) >> 31;
    let stepped = bits.wrapping_sub(1).wrapping_add(2 * opposite);
    let inward = if bits & !sign == 0 {
        o.to_bits() & sign | 1
    } else {
        stepped
    };
    f32::from_bits(if overshoots { inward } else { bits })
}

/// Returns `true` if `sum (x - origin)^2 <= bound^2`, decided in double-double arithmetic (relative error below `1e-24`).
pub(super) fn is_within(x: impl Iterator<Item = (f32, f32)>, bound: f64) -> bool {
    let (mut high, mut low) = (0.0, 0.0);
    for (x, o) in x {
        let (d, rest) = two_sum(f64::from(x), -f64::from(o));
        let (square, error) = two_product(d, d);
        let (sum, carry) = two_sum(high, square);
        low += carry + error + 2.0 * d * rest;
        high = sum;
    }
    let (limit, limit_error) = two_product(bound, bound);
    let (difference, rest) = two_sum(high, -limit);
    difference + (rest + (low - limit_error)) <= 0.0
}

/// `a + b` as a rounded sum and its exact error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// `a * b` as a rounded product and its exact error (barring underflow, far below any clip norm in use).
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrunk_never_overshoots_and_stays_next_to_its_target() {
        let values = [
            0.0f32,
            -0.0,
            1.0,
            -1.0,
            1e-45,
            -1e-45,
            1e-38,
            3.5e-8,
            -0.1,
            1e30,
            -7.25,
            1.000_000_1,
        ];
        for &x in &values {
            for &o in &values {
                for factor in [0.0f32, 1e-9, 0.3, 0.5, 0.999_999_9, 1.0] {
                    let y = shrunk(x, o, factor);
                    let distance = |y: f32| (f64::from(y) - f64::from(o)).abs();
                    let target = f64::from(factor) * distance(x);
                    let (room, tiny) = (3.1 * 0.5f64.powi(24), 0.5f64.powi(149));
                    assert!(
                        distance(y) <= target * (1.0 + room) + tiny,
                        "{x} {o} {factor}: {y}"
                    );
                    let outward = if x > o { y.next_up() } else { y.next_down() };
                    assert!(
                        distance(outward) >= target * (1.0 - room) - tiny,
                        "{x} {o} {factor}: {y} is too far in"
                    );
                }
            }
        }
    }

    #[test]
    fn every_length_is_summed() {
        for len in 0..100 {
            let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let o = vec![1.0; len];
            let exact = |shift: f64| (0..len).map(|i| (i as f64 - shift).powi(2)).sum::<f64>();
            assert_eq!(
                (squared_norm(&x), squared_distance(&x, &o)),
                (exact(0.0), exact(1.0))
            );
        }
    }

    #[test]
    fn exact_comparison_sees_the_last_bit() {
        let within = |x: &[f32], bound| is_within(x.iter().map(|&x| (x, 0.0)), bound);
        assert!(within(&[3.0, 4.0], 5.0));
        assert!(!within(&[3.0, 4.0], 5.0f64.next_down()));
        assert!(!within(&[3.0, 4.0, 1e-20], 5.0));
        assert!(within(&[], 0.0));
    }
}
