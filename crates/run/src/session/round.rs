//! An open round of a session: its users, and the sum of what they have contributed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use undertone_aggregation::{Added, AggregationError, BoundedSum};
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::head::Opened;
use undertone_coordinator::kept_examples::Example;
use undertone_coordinator::source::{Diagnostics, Gathered, Participants, RoundSum};

use super::gpu::OnGpu;
use crate::error::{Result, RunError};
use crate::source::sum_of_bits;

/// An open round of a [`Session`](super::Session).
///
/// A unit is the place of a user in [`users`](Self::users), or with example-level sampling the place of an example in
/// [`examples`](Self::examples). Several threads may add at once.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct Round {
    pub(super) opened: Opened,
    cohort: Cohort,
    /// The sampled examples, with example-level sampling.
    examples: Option<Vec<Example>>,
    pub(super) sum: BoundedSum,
    pub(super) gpu: OnGpu,
    /// The sum of the users' bits, where clipping is adaptive.
    bits: Option<BoundedSum>,
    /// `true` for units that have contributed.
    taken: Vec<AtomicBool>,
    /// Number of examples that each unit was given to read; `None` without a group size.
    given: Option<Vec<AtomicU64>>,
}

impl Round {
    /// A random number chooses the unit whose norm is computed again where a GPU measures it.
    pub(super) fn new(
        opened: Opened,
        mut cohort: Cohort,
        group_size: Option<u32>,
        random: u64,
    ) -> Result<Self> {
        let examples: Option<Vec<Example>> = cohort.microbatches.take().map(|all| all.concat());
        let units = examples.as_ref().map_or(cohort.users.len(), Vec::len);
        let given = match (&examples, group_size) {
            (Some(_), _) => Some((0..units).map(|_| AtomicU64::new(1)).collect()),
            (None, Some(_)) => Some((0..units).map(|_| AtomicU64::new(0)).collect()),
            (None, None) => None,
        };
        let bits = opened.estimate().map(|_| sum_of_bits()).transpose()?;
        Ok(Self {
            sum: BoundedSum::new(opened.bound().clone()),
            gpu: OnGpu::new(opened.bound(), units, random),
            bits,
            taken: (0..units).map(|_| AtomicBool::new(false)).collect(),
            opened,
            cohort,
            examples,
            given,
        })
    }

    /// The index of the round, from 0.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.opened.round()
    }

    /// The users of the round, ascending.
    #[must_use]
    pub fn users(&self) -> &[usize] {
        &self.cohort.users
    }

    /// The sampled examples, ordered by user, with example-level sampling.
    #[must_use]
    pub fn examples(&self) -> Option<&[Example]> {
        self.examples.as_deref()
    }

    /// Adds the contribution of a unit, bounded.
    ///
    /// # Guarantee
    /// A unit contributes once, and moves the sum by no more than the clip norm, whatever `update` holds.
    ///
    /// # Errors
    /// [`RunError::Unit`] for a place without a unit and for a unit that has contributed; a wrong length; in a session without noise
    /// values that are not finite. Nothing is added then.
    pub fn add(&self, unit: usize, update: &[f32]) -> Result<Added> {
        let taken = self.unit(unit)?;
        let expected = self.opened.bound().layout().len();
        if update.len() != expected {
            return Err(AggregationError::Length {
                what: "update",
                expected,
                got: update.len(),
            }
            .into());
        }
        // PRIVACY: before anything is added. A contribution that came twice would move the sum twice.
        if taken.swap(true, Ordering::AcqRel) {
            return Err(self.refused(unit, "it has contributed before"));
        }
        // After an error nothing was added, or the sum is lost as a whole.
        let added = self.sum.add(update, 1.0);
        let added = added.inspect_err(|_| taken.store(false, Ordering::Release))?;
        self.add_bit(added)?;
        Ok(added)
    }

    /// Adds the bit of a unit, where clipping is adaptive.
    pub(super) fn add_bit(&self, added: Added) -> Result<()> {
        if let (Some(bits), Some(estimate)) = (&self.bits, self.opened.estimate()) {
            // PRIVACY: one bit per unit, whatever happened to the update.
            let below = added.report().norm <= estimate;
            bits.add(&[if below { 0.5 } else { -0.5 }], 1.0)?;
        }
        Ok(())
    }

    pub(super) fn unit(&self, unit: usize) -> Result<&AtomicBool> {
        let expected = || match self.taken.len() {
            0 => "the round has no unit".to_owned(),
            units => format!("expected a unit from 0 to {}", units - 1),
        };
        self.taken
            .get(unit)
            .ok_or_else(|| self.refused(unit, &expected()))
    }

    pub(super) fn refused(&self, unit: usize, reason: &str) -> RunError {
        RunError::Unit {
            round: self.index(),
            unit,
            reason: reason.to_owned(),
        }
    }

    /// Notes that a user of the round was given this many examples to read. Returns whether the user is in the round.
    pub(super) fn gave(&self, user: usize, examples: usize) -> bool {
        let Ok(place) = self.cohort.users.binary_search(&user) else {
            return false;
        };
        if let Some(given) = &self.given
            && self.examples.is_none()
        {
            given[place].store(examples as u64, Ordering::Release);
        }
        true
    }

    /// Ends the summation.
    pub(super) fn close(self) -> (Opened, Gathered) {
        let summed_on_gpu = self.summed_on_gpu();
        let in_sum = self.taken.iter().map(|taken| taken.load(Ordering::Acquire));
        let examples = self.given.as_ref().map(|given| {
            let counts = given.iter().map(|count| count.load(Ordering::Acquire));
            in_sum
                .zip(counts)
                .map(|(taken, count)| if taken { count } else { 0 })
                .sum()
        });
        let who = Participants {
            names: self.cohort.pseudonyms,
            examples,
            summed_on_gpu,
            ..Participants::default()
        };
        let sum = match self.examples {
            Some(_) => RoundSum::Examples(self.sum),
            None => RoundSum::Users {
                sum: self.sum,
                bits: self.bits,
            },
        };
        let gathered = Gathered {
            sum,
            who,
            lane: None,
            diagnostics: Diagnostics::default(),
        };
        (self.opened, gathered)
    }
}
