//! Roots that interlace with poles: the inverse of a BLT without an eigensolver.

/// Bisections of a bracket; each halves an exponent or a mantissa bit, of which a bracket holds less.
const STEPS: usize = 160;

/// The root right of each pole of `sum_j weights[j] / (x - poles[j]) = 1`, as distances from that pole.
///
/// `poles` ascend strictly and `weights` are positive; between two poles the sum falls from `+inf` to `-inf`, after the
/// last from `+inf` to 0, so there is exactly one root after each. Relative accuracy of the distance is that of the sum,
/// down to distances far below the spacing of floating-point numbers at the pole.
///
/// # Source
/// \[BLT\] Algorithm 5 inverted; the secular equation of a diagonal matrix plus one of rank one.
pub(crate) fn roots(poles: &[f64], weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    (0..poles.len())
        .map(|i| {
            // The distance to the other end of the interval; the last root lies within the sum of the weights.
            let width = poles.get(i + 1).map_or(total, |next| next - poles[i]);
            let excess = |distance: f64| {
                let term = |j: usize| weights[j] / (distance - (poles[j] - poles[i]));
                (0..poles.len()).map(term).sum::<f64>() - 1.0
            };
            let half = 0.5 * width;
            if i + 1 == poles.len() || excess(half) <= 0.0 {
                let far = if i + 1 == poles.len() { width } else { half };
                bisect(far, excess)
            } else {
                // Nearer to the next pole: the unknown is the distance from there, where the sum falls without bound.
                let from_next = |distance: f64| {
                    let term = |j: usize| weights[j] / ((poles[i + 1] - poles[j]) - distance);
                    1.0 - (0..poles.len()).map(term).sum::<f64>()
                };
                width - bisect(half, from_next)
            }
        })
        .collect()
}

/// The zero in `(0, far]` of a function that falls from `+inf` at 0, to relative precision.
fn bisect(far: f64, excess: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (far, far);
    // Down by growing powers until the sign changes; the pole's own term decides in the end.
    let mut factor = 0.5;
    while low > f64::MIN_POSITIVE && excess(low) <= 0.0 {
        high = low;
        low *= factor;
        factor *= factor;
    }
    for _ in 0..STEPS {
        let middle = if high > 4.0 * low {
            low.max(f64::MIN_POSITIVE).sqrt() * high.sqrt()
        } else {
            0.5 * (low + high)
        };
        if middle <= low || middle >= high {
            break;
        }
        if excess(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(poles: &[f64], weights: &[f64], want: &[f64]) {
        for (got, want) in roots(poles, weights).into_iter().zip(want) {
            assert!((got / want - 1.0).abs() < 1e-13, "{got} {want}");
        }
    }

    #[test]
    fn roots_equal_those_by_hand() {
        check(&[0.25], &[0.5], &[0.5]);
        // 1 / x + 1 / (x - 3) = 1: x = (5 -+ sqrt 13) / 2.
        let root = 13f64.sqrt();
        check(
            &[0.0, 3.0],
            &[1.0, 1.0],
            &[(5.0 - root) / 2.0, (root - 1.0) / 2.0],
        );
        // A weight of 1e-30 moves its root by 1e-30 / (1 + 1 / 2), to full precision.
        check(&[0.0, 2.0], &[1e-30, 1.0], &[1e-30 / 1.5, 1.0]);
    }

    #[test]
    fn a_root_may_round_to_the_next_pole() {
        // 1 / x + 1e-20 / (x - 0.1) = 1: the first root lies 1e-20 / 9 before the second pole.
        let got = roots(&[0.0, 0.1], &[1.0, 1e-20]);
        assert_eq!(got[0], 0.1);
        assert!((got[1] - 0.9).abs() < 1e-15);
    }
}
