//! Mechanisms with discrete outputs, as the log-probabilities of their outcomes under two neighbours.

mod descent;
pub mod gaussian;
pub mod laplace;
pub mod randomized_response;

pub(crate) use descent::Descent;

use crate::error::{ensure, no_guarantee};
use crate::special::{LogSum, ln_1m_exp, ln_1p_exp, log_gap_of_loss, sampled_loss};
use crate::{AccountingError, Delta, Epsilon, SamplingProbability};

/// More outcomes than this are refused (two vectors of 128 MiB).
pub(crate) const MAX_OUTCOMES: u64 = 1 << 22;

/// Log-probabilities of every outcome of a discrete mechanism on two neighbouring inputs.
///
/// Outcomes of equal loss `ln P - ln Q` may be merged into one: neither the hockey-stick divergence nor its
/// composition can tell the difference. Their order carries no meaning.
///
/// # Guarantee
/// Every divergence computed from it is an upper bound: outcomes that were left out count with their whole
/// probability.
///
/// # Example
/// ```
/// use undertone_accounting::{Epsilon, discrete};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let outcomes = discrete::gaussian::outcomes(1.0, 1, -80.0)?;
/// assert!((outcomes.delta(Epsilon::new(1.0)?) - 0.141_351_339_405_621_92).abs() < 1e-15);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Outcomes {
    /// `ln P(x)` of every outcome (`-inf` where it cannot happen).
    pub log_p: Vec<f64>,
    /// `ln Q(x)` of every outcome, in the same order.
    pub log_q: Vec<f64>,
    /// Upper bound of the probability under `P` of all outcomes left out.
    pub missing_p: f64,
    /// Upper bound of the probability under `Q` of all outcomes left out.
    pub missing_q: f64,
}

impl Outcomes {
    /// The pair with the roles of the two neighbours exchanged.
    #[must_use]
    pub(crate) fn reversed(&self) -> Outcomes {
        Outcomes {
            log_p: self.log_q.clone(),
            log_q: self.log_p.clone(),
            missing_p: self.missing_q,
            missing_q: self.missing_p,
        }
    }

    /// The pair when the user that makes the difference joins only with `sampling_probability`:
    /// `P' = (1 - q) Q + q P`, `Q' = Q`.
    ///
    /// # Guarantee
    /// Add-or-remove one user, Poisson sampling, one release. Both directions count: the divergence of `Q`
    /// from `P'` is in general not the smaller one.
    #[must_use]
    pub(crate) fn poisson_sampled(&self, sampling_probability: SamplingProbability) -> Outcomes {
        let q = sampling_probability.get();
        if q >= 1.0 {
            return self.clone();
        }
        let (log_join, log_stay) = (q.ln(), (-q).ln_1p());
        let mixed = self.pairs().map(|(log_p, log_q)| {
            let loss = log_p - log_q;
            if log_p == f64::NEG_INFINITY {
                log_q + log_stay
            } else if log_q == f64::NEG_INFINITY {
                log_p + log_join
            } else if loss < 30.0 {
                // For tiny q the loss itself is what must stay accurate.
                log_q + sampled_loss(q, loss)
            } else {
                let (high, low) = (log_p + log_join, log_q + log_stay);
                let (high, low) = (high.max(low), high.min(low));
                high + (low - high).exp().ln_1p()
            }
        });
        Outcomes {
            log_p: mixed.collect(),
            log_q: self.log_q.clone(),
            missing_p: q * self.missing_p + (1.0 - q) * self.missing_q,
            missing_q: self.missing_q,
        }
    }

    /// Hockey-stick divergence of `P` from `Q`: the sum of `(P(x) - e^epsilon Q(x))_+`, one direction only.
    #[must_use]
    pub(crate) fn hockey_stick(&self, epsilon: f64) -> f64 {
        self.log_hockey_stick(epsilon).exp()
    }

    /// `ln` of [`Outcomes::hockey_stick`]; stays finite far below the smallest `f64`.
    #[must_use]
    pub(crate) fn log_hockey_stick(&self, epsilon: f64) -> f64 {
        let mut sum = LogSum::new();
        // PRIVACY: what was left out counts in full.
        sum.add(self.missing_p.ln());
        for (log_p, log_q) in self.pairs() {
            if log_p > log_q + epsilon {
                sum.add(log_p + ln_1m_exp(log_q + epsilon - log_p));
            }
        }
        sum.get().min(0.0)
    }

    /// Smallest delta at `epsilon`: the larger hockey-stick divergence of the two directions.
    #[must_use]
    pub fn delta(&self, epsilon: Epsilon) -> f64 {
        let epsilon = epsilon.get();
        self.hockey_stick(epsilon)
            .max(self.reversed().hockey_stick(epsilon))
    }

    /// Smallest epsilon at `delta`, the larger of the two directions.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] if outcomes that are possible under one neighbour only (or left
    /// out) have more probability than `delta`.
    pub fn epsilon(&self, delta: Delta) -> Result<Epsilon, AccountingError> {
        let log_delta = delta.get().ln();
        let epsilon = self
            .epsilon_one_way(log_delta)
            .max(self.reversed().epsilon_one_way(log_delta));
        finite_epsilon(epsilon)
    }

    /// Smallest epsilon (at least 0, `+inf` if none is finite) with `ln` of [`Outcomes::hockey_stick`] at most
    /// `log_delta`: the exact root, not a search.
    #[must_use]
    pub(crate) fn epsilon_one_way(&self, log_delta: f64) -> f64 {
        let mut descent = Descent::new((self.missing_p.ln() - log_delta).exp());
        let mut by_loss: Vec<(f64, f64)> = self
            .pairs()
            .filter(|&(log_p, _)| log_p > f64::NEG_INFINITY)
            .map(|(log_p, log_q)| (log_p - log_q, log_p))
            .collect();
        by_loss.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        for (loss, log_p) in by_loss {
            if let Some(epsilon) = descent.push(loss, (log_p - log_delta).exp()) {
                return epsilon;
            }
        }
        descent.finish()
    }

    /// Renyi divergence of `P` from `Q` at `order` (> 1); `+inf` where outcomes were left out, because no
    /// finite number then bounds it.
    #[must_use]
    pub(crate) fn renyi_divergence(&self, order: f64) -> f64 {
        if self.missing_p > 0.0 {
            return f64::INFINITY;
        }
        // What `P` never produces adds as much as a loss of minus infinity.
        let mut sum = LogSum::new();
        sum.add(self.missing_q.ln() + (order - 1.0).ln());
        for (log_p, log_q) in self.pairs() {
            if log_p == f64::NEG_INFINITY {
                sum.add(log_q + (order - 1.0).ln());
            } else if log_q == f64::NEG_INFINITY {
                return f64::INFINITY;
            } else if log_p != log_q {
                sum.add(log_q + log_gap_of_loss(log_p - log_q, order));
            }
        }
        ln_1p_exp(sum.get()) / (order - 1.0)
    }

    /// The largest loss of one direction; `+inf` where outcomes were left out.
    pub(crate) fn max_loss(&self, reversed: bool) -> f64 {
        let missing = if reversed { self.missing_q } else { self.missing_p };
        if missing > 0.0 {
            return f64::INFINITY;
        }
        let losses = self.pairs().map(|(log_p, log_q)| {
            let (log_p, log_q) = if reversed { (log_q, log_p) } else { (log_p, log_q) };
            if log_p == f64::NEG_INFINITY {
                f64::NEG_INFINITY
            } else {
                log_p - log_q
            }
        });
        losses.fold(f64::NEG_INFINITY, f64::max)
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.log_p.iter().copied().zip(self.log_q.iter().copied())
    }
}

/// A finite epsilon, or the error that says why there is none.
pub(crate) fn finite_epsilon(epsilon: f64) -> Result<Epsilon, AccountingError> {
    if epsilon == f64::INFINITY {
        return Err(no_guarantee(
            "outcomes that only one of two neighbours can produce have more probability than delta; ask for a larger delta or \
             add noise",
        ));
    }
    Epsilon::new(epsilon)
}

/// A number that must be finite and greater than zero.
pub(crate) fn positive(quantity: &'static str, value: f64) -> Result<f64, AccountingError> {
    let holds = value.is_finite() && value > 0.0;
    ensure(holds, quantity, "a finite number > 0", value)
}

/// A count that must be at least one.
pub(crate) fn at_least_one(quantity: &'static str, value: u64) -> Result<u64, AccountingError> {
    ensure(value >= 1, quantity, "an integer >= 1", 0.0)?;
    Ok(value)
}

/// The logarithm of a tail mass that may be left out.
pub(crate) fn log_tail_mass(log_tail: f64) -> Result<f64, AccountingError> {
    let holds = log_tail.is_finite() && log_tail < 0.0;
    ensure(holds, "log_tail", "a finite number < 0", log_tail)
}

/// `e^log_mass`, rounded up: a mass that is not zero never becomes zero.
pub(crate) fn mass_rounded_up(log_mass: f64) -> f64 {
    if log_mass == f64::NEG_INFINITY {
        0.0
    } else {
        (log_mass.exp() * (1.0 + 1e-12)).clamp(f64::MIN_POSITIVE, 1.0)
    }
}

/// Refuses more than [`MAX_OUTCOMES`].
pub(crate) fn outcome_count(count: u64) -> Result<usize, AccountingError> {
    let expected = "at most 2^22 outcomes within the kept mass (use the recipe 'rdp', or measure the noise in larger units)";
    ensure(count <= MAX_OUTCOMES, "outcomes", expected, count as f64)?;
    Ok(count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pair from arbitrary weights; a weight of zero is an impossible outcome.
    fn pair(weights: &[(u32, u32)]) -> Option<Outcomes> {
        let (p, q) = weights
            .iter()
            .fold((0.0, 0.0), |(p, q), w| (p + f64::from(w.0), q + f64::from(w.1)));
        let log = |weight: u32, total: f64| (f64::from(weight) / total).ln();
        (p > 0.0 && q > 0.0).then(|| Outcomes {
            log_p: weights.iter().map(|w| log(w.0, p)).collect(),
            log_q: weights.iter().map(|w| log(w.1, q)).collect(),
            missing_p: 0.0,
            missing_q: 0.0,
        })
    }

    fn naive(outcomes: &Outcomes, epsilon: f64) -> f64 {
        let terms = outcomes.pairs().map(|(p, q)| p.exp() - epsilon.exp() * q.exp());
        terms.map(|term| term.max(0.0)).sum()
    }

    #[test]
    fn an_impossible_outcome_needs_delta_of_its_mass() {
        let outcomes = pair(&[(1, 0), (3, 4)]).unwrap();
        assert!((outcomes.hockey_stick(3.0) - 0.25).abs() < 1e-15);
        assert_eq!(outcomes.reversed().hockey_stick(3.0), 0.0);
        assert_eq!(outcomes.epsilon_one_way(0.2f64.ln()), f64::INFINITY);
        assert!(outcomes.epsilon(Delta::new(0.2).unwrap()).is_err());
        // Removing the impossible outcome leaves the ratio 4/3 in the other direction.
        let epsilon = outcomes.epsilon(Delta::new(0.250_001).unwrap()).unwrap().get();
        assert!((epsilon - (4f64 / 3.0 - 0.250_001 / 0.75).max(1.0).ln()).abs() < 1e-12);
        assert_eq!(outcomes.renyi_divergence(2.0), f64::INFINITY);
        assert!((outcomes.reversed().renyi_divergence(2.0) - (4f64 / 3.0).ln()).abs() < 1e-15);
    }

    #[test]
    fn missing_mass_counts_in_full() {
        let mut outcomes = pair(&[(2, 1), (1, 2)]).unwrap();
        let before = outcomes.hockey_stick(0.1);
        outcomes.missing_p = 0.01;
        assert!((outcomes.hockey_stick(0.1) - before - 0.01).abs() < 1e-15);
        assert_eq!(outcomes.epsilon_one_way(0.005f64.ln()), f64::INFINITY);
        assert_eq!(outcomes.renyi_divergence(2.0), f64::INFINITY);
        let sampled = outcomes.poisson_sampled(SamplingProbability::new(0.1).unwrap());
        assert!((sampled.missing_p - 0.001).abs() < 1e-18);
    }

    #[test]
    fn tiny_sampling_probabilities_keep_the_loss() {
        let outcomes = gaussian::outcomes(2.0, 1, -60.0).unwrap();
        let (q, x) = (1e-9, 5);
        let sampled = outcomes.poisson_sampled(SamplingProbability::new(q).unwrap());
        let loss = outcomes.log_p[x] - outcomes.log_q[x];
        let got = sampled.log_p[x] - sampled.log_q[x];
        assert!((got - (q * loss.exp_m1()).ln_1p()).abs() < 1e-14);
        // Losses beyond e^30, and impossible outcomes on either side.
        let far = Outcomes {
            log_p: vec![-1e-9, -800.0, f64::NEG_INFINITY, -700.0],
            log_q: vec![-900.0, -1e-9, -800.0, f64::NEG_INFINITY],
            missing_p: 0.0,
            missing_q: 0.0,
        };
        let sampled = far.poisson_sampled(SamplingProbability::new(0.5).unwrap());
        let log_half = 0.5f64.ln();
        for (got, want) in sampled.log_p.iter().zip([-1e-9, -1e-9, -800.0, -700.0]) {
            assert!((got - want - log_half).abs() < 1e-12, "{got} {want}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn deltas_and_mixtures_match_their_definition(
            weights in prop::collection::vec((0u32..50, 0u32..50), 1..12),
            epsilon in 0.0f64..4.0,
            q in 0.001f64..1.0,
        ) {
            let Some(outcomes) = pair(&weights) else { return Ok(()) };
            let q = SamplingProbability::new(q).unwrap();
            let sampled = outcomes.poisson_sampled(q);
            for pair in [&outcomes, &sampled, &sampled.reversed()] {
                let delta = pair.hockey_stick(epsilon);
                prop_assert!((delta - naive(pair, epsilon)).abs() < 1e-13);
                // Mass of infinite loss alone leaves the root undetermined to rounding.
                let unbounded: f64 = pair.pairs().map(|(p, q)| if q.is_finite() { 0.0 } else { p.exp() }).sum();
                if delta > unbounded + 1e-12 {
                    let back = pair.epsilon_one_way(delta.ln());
                    prop_assert!((back - epsilon).abs() < 1e-9, "{back} {epsilon}");
                }
                prop_assert!(pair.hockey_stick(epsilon + 0.1) <= delta);
            }
            // Sampling never costs privacy, and mixes the probabilities.
            prop_assert!(sampled.hockey_stick(epsilon) <= outcomes.hockey_stick(epsilon) + 1e-13);
            for ((mixed, p), log_q) in sampled.log_p.iter().zip(&outcomes.log_p).zip(&outcomes.log_q) {
                let want = q.get() * p.exp() + (1.0 - q.get()) * log_q.exp();
                prop_assert!((mixed.exp() - want).abs() < 1e-14);
            }
        }
    }
}
