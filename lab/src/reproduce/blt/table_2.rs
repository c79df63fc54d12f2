//! Table 2: time to compute the Toeplitz coefficients of the inverse.

use undertone_accounting::sensitivity::production::BLT_400;
use undertone_mechanisms::{Blt, output_scales};

use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, ReproduceError, Statement};

pub(crate) const CHECK: Check = Check {
    id: "blt-table-2",
    title: "seconds to compute n Toeplitz coefficients of the inverse of a BLT",
    source: "[BLT] Table 2",
    recipe: "brute force: coefficients of C, then forward substitution; via Algorithm 5: scales from both sets of decays, \
             then sums of powers; one core, wall clock, fastest call, the 4 buffers of appendix A's b = 400",
    body,
};

/// Coefficients, calls by brute force, and the paper's seconds and speedup.
const PRINTED: [(usize, usize, &str, &str, &str); 3] = [
    (2000, 5, "0.021", "3.8e-5", "550"),
    (20_000, 2, "0.258", "3.6e-5", "7176"),
    (200_000, 1, "4.772", "4.5e-5", "104884"),
];

/// Calls of what takes well below a second.
const CALLS: usize = 20;

const OTHER_MACHINE: &str =
    "seconds are this machine's, on one core; the paper's are a V100's, compiled by JAX";

/// Two ways to the same coefficients, timed.
struct Timed {
    brute_force: f64,
    closed_form: f64,
    recursion: f64,
    /// Largest difference of any two ways.
    difference: f64,
}

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let blt = Blt::production(&BLT_400)?;
    let mut rows = Vec::new();
    let (mut difference, mut recursion) = (0.0f64, Vec::new());
    for (rounds, calls, brute_force, closed_form, speedup) in PRINTED {
        let timed = Timed::new(conditions, &blt, rounds, calls)?;
        difference = difference.max(timed.difference);
        recursion.push(format!("{:.1e} s for {rounds}", timed.recursion));
        let entry = |paper, ours, digits| Entry::measured(paper, ours, digits, OTHER_MACHINE);
        rows.push(Row {
            parameters: vec![rounds.to_string(), format!("{} KiB", 2 * rounds * 8 / 1024)],
            entries: vec![
                entry(brute_force, timed.brute_force, 2),
                entry(closed_form, timed.closed_form, 2),
                entry(speedup, timed.brute_force / timed.closed_form, 2),
            ],
        });
    }
    Ok(Body {
        parameters: vec!["n", "memory"],
        columns: ["brute force, s", "via Algorithm 5, s", "speedup"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        statements: vec![Statement {
            says: "brute force, Algorithm 5 and (not timed in the paper) Algorithm 3 on the identity give the same \
                       coefficients (largest difference below 1e-12)",
            found: format!("{difference:.1e}; Algorithm 3 takes {}", recursion.join(", ")),
            holds: difference < 1e-12,
        }],
        notes: vec![
            "memory is that of brute force, 2 n numbers of 8 bytes; via Algorithm 5 only the n results are kept",
            "the second way is one pass: on a core its time grows with n, where the paper's GPU hides it",
        ],
        ..Body::default()
    })
}

impl Timed {
    fn new(
        conditions: &Conditions<'_>,
        blt: &Blt,
        rounds: usize,
        calls: usize,
    ) -> Result<Self, ReproduceError> {
        let (theta, theta_hat) = (blt.decays(), blt.inverse().decays);
        let (brute_force, solved) = conditions.time(calls, || {
            Ok::<_, ReproduceError>(forward_substitution(&blt.coefficients(rounds)))
        })?;
        let (closed_form, summed) = conditions.time(CALLS, || {
            let (_, omega_hat) = output_scales(&theta, &theta_hat)?;
            Ok::<_, ReproduceError>(sums_of_powers(&theta_hat, &omega_hat, rounds))
        })?;
        let (recursion, walked) = conditions.time(CALLS, || {
            Ok::<_, ReproduceError>(blt.inverse_coefficients(rounds))
        })?;
        let apart = |other: &[f64]| {
            let pairs = solved.iter().zip(other);
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        Ok(Self {
            brute_force,
            closed_form,
            recursion,
            difference: apart(&summed).max(apart(&walked)),
        })
    }
}

/// The first column of the inverse of a lower-triangular Toeplitz matrix with a leading 1.
fn forward_substitution(coefficients: &[f64]) -> Vec<f64> {
    let rounds = coefficients.len();
    // Backwards, so that both factors of the sums run forwards.
    let mut backwards = vec![0.0; rounds];
    for i in 0..rounds {
        let past = &backwards[rounds - i..];
        backwards[rounds - 1 - i] = f64::from(u8::from(i == 0)) - dot(&coefficients[1..=i], past);
    }
    backwards.reverse();
    backwards
}

/// Inner product, added up in lanes: sums in order would wait for each other.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [0.0; LANES];
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x_chunks.iter().zip(y_chunks) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Equation 2: 1, then `sum_j omega_j theta_j^(i-1)`.
fn sums_of_powers(theta: &[f64], omega: &[f64], rounds: usize) -> Vec<f64> {
    let mut coefficients = vec![0.0; rounds];
    for (theta, omega) in theta.iter().zip(omega) {
        let mut power = *omega;
        for coefficient in coefficients.iter_mut().skip(1) {
            *coefficient += power;
            power *= theta;
        }
    }
    if let Some(first) = coefficients.first_mut() {
        *first = 1.0;
    }
    coefficients
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn three_ways_give_the_same_coefficients() {
        let now = Cell::new(0.0);
        let clock = || now.replace(now.get() + 1.0);
        let blt = Blt::production(&BLT_400).unwrap();
        let timed = Timed::new(&Conditions::new(&clock), &blt, 2000, 1).unwrap();
        assert!(timed.difference < 1e-13, "{}", timed.difference);
        assert_eq!(
            (timed.brute_force, timed.closed_form, timed.recursion),
            (1.0, 1.0, 1.0)
        );
    }

    #[test]
    fn one_buffer_matches_the_inverse_by_hand() {
        // 1 / (1 + x / 2 + x^2 / 4 + ..) = 1 - x / 2.
        let coefficients: Vec<f64> = (0..20).map(|i| 0.5f64.powi(i)).collect();
        let inverse = forward_substitution(&coefficients);
        assert_eq!(inverse[..2], [1.0, -0.5]);
        assert!(inverse[2..].iter().all(|entry| *entry == 0.0));
        assert_eq!(sums_of_powers(&[0.5], &[0.5], 20), coefficients);
    }
}
