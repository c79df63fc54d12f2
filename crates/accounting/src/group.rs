//! Group privacy without looking inside the mechanism: from one record to a group of `K` records.
//!
//! \[UserDP\] compares its accountants with this route from examples to users (Figure 1). For one Gaussian that
//! all `K` records move together it is nearly exact; where sampling hardly ever draws many of them at once it is far
//! looser than accounting for the whole user. It needs a record-level delta smaller by about `e^(K epsilon)`.
//!
//! # Source
//! Vadhan, "The Complexity of Differential Privacy" (2017), Lemma 2.2.

use crate::discrete::at_least_one;
use crate::error::no_guarantee;
use crate::special::ln_expm1;
use crate::{AccountingError, Delta, Epsilon};

/// A group of a fixed number of records: all records of one user, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    size: u64,
}

impl Group {
    /// A group of at most `size` records (`K`).
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `size` is 0.
    pub fn new(size: u64) -> Result<Self, AccountingError> {
        Ok(Self {
            size: at_least_one("group size", size)?,
        })
    }

    /// The number of records.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The guarantee for the group, from `(epsilon, delta)` for one record: `K epsilon` and
    /// `delta (e^(K epsilon) - 1) / (e^epsilon - 1)` (`K delta` at epsilon 0).
    ///
    /// # Guarantee
    /// Holds for every mechanism; adding or removing (or replacing) up to `K` records, as the record-level
    /// relation says.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] if the group's delta is 1 or more: nothing is guaranteed then.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Delta, Epsilon, group::Group};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let (epsilon, delta) = Group::new(4)?.guarantee(Epsilon::new(0.5)?, Delta::new(1e-9)?)?;
    /// assert_eq!(epsilon.get(), 2.0);
    /// assert!((delta.get() / 9.8489e-9 - 1.0).abs() < 1e-4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn guarantee(&self, epsilon: Epsilon, delta: Delta) -> Result<(Epsilon, Delta), AccountingError> {
        let log_delta = self.log_delta(epsilon, delta.get().ln());
        if log_delta >= 0.0 {
            return Err(no_guarantee(
                "the delta of the whole group reaches 1; ask for a smaller group, or for a smaller delta of one record",
            ));
        }
        // A delta next to 1 may round to it.
        let delta = log_delta.exp().min(1.0 - f64::EPSILON);
        Ok((
            Epsilon::new(self.size as f64 * epsilon.get())?,
            Delta::new(delta)?,
        ))
    }

    /// `ln` of the group's delta at `K epsilon` from `ln` of one record's delta at `epsilon`. Positive values say
    /// that nothing is guaranteed.
    #[must_use]
    pub(crate) fn log_delta(&self, epsilon: Epsilon, record_log_delta: f64) -> f64 {
        record_log_delta + self.log_growth(epsilon.get())
    }

    /// The record-level target behind a target for the group: `(epsilon / K, ln delta)` such that a mechanism
    /// which meets it gives the group `(epsilon, delta)`. The delta is a logarithm because it is often below the
    /// smallest `f64`.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Delta, Epsilon, gaussian, group::Group};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let (epsilon, log_delta) = Group::new(16)?.record_target(Epsilon::new(8.0)?, Delta::new(1e-6)?);
    /// let noise = gaussian::noise_multiplier(epsilon, Delta::new(log_delta.exp())?)?;
    /// assert!(noise.get() > 10.0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn record_target(&self, epsilon: Epsilon, delta: Delta) -> (Epsilon, f64) {
        // A quotient of a finite number >= 0 and an integer >= 1 is one again.
        let record = Epsilon::new(epsilon.get() / self.size as f64).unwrap_or(epsilon);
        (record, delta.get().ln() - self.log_growth(record.get()))
    }

    /// Smallest epsilon of the group at `delta` for a mechanism whose records have `ln delta =
    /// record_log_delta(epsilon)`, a falling function.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] if no epsilon up to 10^9 reaches the delta.
    pub fn epsilon(
        &self,
        delta: Delta,
        record_log_delta: impl Fn(Epsilon) -> f64,
    ) -> Result<Epsilon, AccountingError> {
        const HIGHEST: f64 = 1e9;
        let k = self.size as f64;
        let target = delta.get().ln();
        let holds = |group: f64| {
            Epsilon::new(group / k)
                .is_ok_and(|record| self.log_delta(record, record_log_delta(record)) <= target)
        };
        if holds(0.0) {
            return Epsilon::new(0.0);
        }
        // The group's delta may rise before it falls, so the first crossing is looked for upwards.
        let (mut low, mut high) = (0.0, 1e-6);
        while !holds(high) {
            if high > HIGHEST {
                return Err(no_guarantee(
                    "the delta of the whole group stays above its target; ask for a smaller group or a larger delta, or add noise",
                ));
            }
            (low, high) = (high, 1.1 * high);
        }
        Epsilon::new(crate::search::first_true(low, high, 1e-15, holds))
    }

    /// `ln((e^(K epsilon) - 1) / (e^epsilon - 1))`, at least `ln K`.
    fn log_growth(&self, epsilon: f64) -> f64 {
        let log_size = (self.size as f64).ln();
        if epsilon < f64::MIN_POSITIVE {
            return log_size;
        }
        (ln_expm1(self.size as f64 * epsilon) - ln_expm1(epsilon)).max(log_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoiseMultiplier, gaussian};
    use proptest::prelude::*;

    fn group(size: u64) -> Group {
        Group::new(size).unwrap()
    }

    fn eps(value: f64) -> Epsilon {
        Epsilon::new(value).unwrap()
    }

    #[test]
    fn the_sum_of_the_hybrid_argument() {
        // delta (1 + e^eps + ... + e^((K-1) eps)).
        for (size, epsilon) in [(1, 0.7), (3, 0.0), (5, 0.2), (40, 1.0), (7, 1e-12)] {
            let terms = (0..size).map(|k| (k as f64 * epsilon).exp());
            let want = terms.sum::<f64>().ln();
            let got = group(size).log_delta(eps(epsilon), 0.0);
            assert!((got - want).abs() < 1e-12, "{size} {epsilon}: {got} {want}");
        }
    }

    #[test]
    fn huge_groups_do_not_overflow() {
        let (epsilon, log_delta) = group(1_000_000).record_target(eps(5e6), Delta::new(1e-6).unwrap());
        assert!((epsilon.get() - 5.0).abs() < 1e-12 && log_delta < -4.9e6 && log_delta.is_finite());
        let back = group(1_000_000).log_delta(epsilon, log_delta);
        assert!((back - 1e-6f64.ln()).abs() < 1e-8);
        assert!(group(u64::MAX).log_delta(eps(0.0), -100.0) < 0.0);
        assert!(group(100).guarantee(eps(1.0), Delta::new(1e-6).unwrap()).is_err());
        assert!(Group::new(0).is_err());
    }

    /// The exact Gaussian of K times the sensitivity lies below the black-box bound.
    #[test]
    fn the_group_bound_is_looser_than_looking_inside() {
        let (noise, delta) = (NoiseMultiplier::new(40.0).unwrap(), Delta::new(1e-6).unwrap());
        for size in [1, 2, 8, 32] {
            let got = group(size)
                .epsilon(delta, |e| gaussian::log_delta(noise, e))
                .unwrap();
            let inside = NoiseMultiplier::new(40.0 / size as f64).unwrap();
            let exact = gaussian::epsilon(inside, delta).unwrap();
            assert!(
                got.get() >= exact.get() * (1.0 - 1e-12),
                "{size}: {got} < {exact}"
            );
            if size == 1 {
                assert!(got.get() <= exact.get() * (1.0 + 1e-12), "{got} {exact}");
            }
        }
        // Nothing to find: a record delta that never falls.
        assert!(group(3).epsilon(delta, |_| -1.0).is_err());
        assert_eq!(group(3).epsilon(delta, |_| -50.0).unwrap().get(), 0.0);
    }

    proptest! {
        #[test]
        fn targets_round_trip(size in 1u64..1000, epsilon in 0.0f64..50.0, log10_delta in -20.0f64..-1.0) {
            let (group, delta) = (group(size), Delta::new(10f64.powf(log10_delta)).unwrap());
            let (record, log_delta) = group.record_target(eps(epsilon), delta);
            prop_assert!((group.log_delta(record, log_delta) - delta.get().ln()).abs() < 1e-10);
            prop_assert!(log_delta <= delta.get().ln() + 1e-12);
            // A larger group asks for more.
            let larger = Group::new(size + 1).unwrap().record_target(eps(epsilon), delta);
            prop_assert!(larger.0 <= record);
        }

        #[test]
        fn delta_rises_with_group_size_and_epsilon(
            size in 1u64..100, epsilon in 0.0f64..2.0, log_delta in -200.0f64..-1.0,
        ) {
            let base = group(size).log_delta(eps(epsilon), log_delta);
            prop_assert!(group(size + 1).log_delta(eps(epsilon), log_delta) > base);
            prop_assert!(group(size).log_delta(eps(epsilon + 0.1), log_delta) >= base);
            prop_assert!(group(size).log_delta(eps(epsilon), log_delta + 0.1) > base);
        }
    }
}
