use std::borrow::Cow;

use crate::{Adjacency, Delta, Epsilon, Recipe};

/// Everything that can go wrong in this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AccountingError {
    /// A number outside its domain (NaN and infinities included).
    #[error("{quantity}: expected {expected}, got {got}")]
    OutOfRange {
        /// The quantity, in words.
        quantity: &'static str,
        /// Domain of the quantity, in words.
        expected: &'static str,
        /// The value received.
        got: f64,
    },
    /// A fixed-size cohort that its population cannot supply.
    #[error(
        "cohort_size: expected a number of users in [1, population], got {cohort_size} of a population of \
         {population}"
    )]
    CohortSize {
        /// Users in the population.
        population: u64,
        /// Users requested for each round.
        cohort_size: u64,
    },
    /// An event that is stated for another relation between neighbouring populations.
    #[error(
        "adjacency: the events so far are for '{accountant}', got an event for '{event}'; events of two relations cannot be \
         composed, so account for them separately"
    )]
    AdjacencyMismatch {
        /// Relation of the events composed so far.
        accountant: Adjacency,
        /// Relation of the event that was refused.
        event: Adjacency,
    },
    /// An event outside what a recipe can account for.
    #[error("recipe: '{recipe}' covers {covers}, got a {event} event")]
    UnsupportedEvent {
        /// The recipe in use.
        recipe: Recipe,
        /// The events that the recipe covers, in words.
        covers: &'static str,
        /// The event's kind, in words.
        event: &'static str,
    },
    /// An event whose pair of distributions no population is known to attain.
    #[error(
        "lower bound: the loss distribution of a {event} event is itself an upper bound, so none is known from below"
    )]
    NoLowerBound {
        /// The event's kind, in words.
        event: &'static str,
    },
    /// An event wrapped around one that it cannot wrap.
    #[error("event: {outer} covers {covers}, got a {inner} event inside")]
    UnsupportedInner {
        /// The outer event's kind, in words.
        outer: &'static str,
        /// The events that may be wrapped, in words.
        covers: &'static str,
        /// The inner event's kind, in words.
        inner: &'static str,
    },
    /// A relation that an event cannot be accounted for under.
    #[error("adjacency: a {event} event cannot be accounted for under '{adjacency}'")]
    UnsupportedAdjacency {
        /// The requested relation.
        adjacency: Adjacency,
        /// The event's kind, in words.
        event: &'static str,
    },
    /// An event of which no Renyi divergences are known.
    #[error("recipe: the Renyi divergences of the event {event} are unknown; use the recipe 'pld'")]
    UnsupportedCurve {
        /// The event's kind, in words.
        event: &'static str,
    },
    /// Nothing can be promised: an un-noised release took place, or the bound overflowed.
    #[error("guarantee: no finite guarantee exists, because {reason}")]
    NoFiniteGuarantee {
        /// The reason, in words, with the event and what to change.
        reason: Cow<'static, str>,
    },
    /// A delta below that of the events themselves.
    #[error(
        "delta: the stated deltas add up to {stated:e}, which is more than {asked:e}; ask for at least {stated:e}, or state \
         the approximate-DP events with a smaller delta"
    )]
    DeltaBelowStated {
        /// Delta that the events set aside, all together.
        stated: f64,
        /// The requested delta.
        asked: f64,
    },
    /// A composition by loss distributions that would take too much memory or time.
    #[error(
        "releases: {releases} of the {event} event are more than loss distributions compose within ten seconds and a gigabyte; \
         {nearest}"
    )]
    TooLarge {
        /// Releases of the event that asks for most.
        releases: u64,
        /// The event's kind, in words.
        event: &'static str,
        /// The nearest question that is answered, in words.
        nearest: String,
    },
    /// Two bounds that contradict each other: neither is shown.
    #[error(
        "epsilon: the lower bound {lower} lies above the upper bound {upper}, so one of the two is wrong and neither is \
         shown; use the recipe 'rdp', and report the events with the delta as a defect of this program"
    )]
    BoundsDisagree {
        /// The lower bound on epsilon.
        lower: f64,
        /// The upper bound on epsilon.
        upper: f64,
    },
    /// More rounds than can be counted.
    #[error("rounds: expected at most 2^53 in total, got {composed} + {added}")]
    TooManyRounds {
        /// Rounds composed so far.
        composed: u64,
        /// Rounds to be added.
        added: u64,
    },
    /// Binomial noise outside the condition of its theorem.
    #[error(
        "binomial mechanism: Theorem 1 needs N p (1 - p) >= max(23 ln(10 d / delta), 2 l_inf / s), got \
         {variance} < max({concentration:.1}, {movement})"
    )]
    BinomialVariance {
        /// `N p (1 - p)`.
        variance: f64,
        /// `23 ln(10 d / delta)`.
        concentration: f64,
        /// `2 l_inf / s`.
        movement: f64,
    },
    /// No value of the calibrated quantity reaches the target.
    #[error(
        "{quantity}: the target (epsilon = {target_epsilon}, delta = {delta:e}) is out of reach; the smallest \
         reachable epsilon is {best_epsilon} at {quantity} = {at}"
    )]
    Unreachable {
        /// The quantity that was searched.
        quantity: &'static str,
        /// The requested epsilon.
        target_epsilon: f64,
        /// The requested delta.
        delta: f64,
        /// The smallest epsilon found (`+inf` if none is finite).
        best_epsilon: f64,
        /// The value at which it was found.
        at: f64,
    },
    /// The number of participations is too large for the exact maximum over participation sets.
    #[error(
        "max_participation: the exact sensitivity for {max_participation} participations would take too long to \
         compute; lower it, or ask for an upper bound (in the library: the functions ending in `_bound`)"
    )]
    SensitivityTooLarge {
        /// The largest number of participations of the schema, after lowering it to what fits.
        max_participation: u64,
    },
    /// A strategy matrix for which no exact method is known under the schema.
    #[error(
        "strategy: expected {expected}, got {found} at position {position}; change it there, or ask for an upper bound (in \
         the library: the functions ending in `_bound`)"
    )]
    NoExactSensitivity {
        /// The condition of the exact method, in words.
        expected: &'static str,
        /// Index of the first coefficient, column or entry that breaks it (rounds are counted from 0).
        position: usize,
        /// The value found.
        found: f64,
    },
    /// Two sizes that do not belong together.
    #[error("{quantity}: expected {expected}, got {got}")]
    Size {
        /// Name of the counted things.
        quantity: &'static str,
        /// The expected number, in words.
        expected: String,
        /// The number found.
        got: u64,
    },
    /// Noise on the clipped fraction that leaves nothing of the total for the sum.
    #[error(
        "bit_noise_std: expected more than half the noise multiplier ({noise_multiplier}), got {bit_noise_std}: the \
         estimate of the clipped fraction alone would cost more than the whole release"
    )]
    BitNoise {
        /// Noise multiplier of the whole release.
        noise_multiplier: f64,
        /// Standard deviation on the sum of bits.
        bit_noise_std: f64,
    },
}

/// [`AccountingError::OutOfRange`], to be returned.
pub(crate) fn out_of_range(quantity: &'static str, expected: &'static str, got: f64) -> AccountingError {
    AccountingError::OutOfRange {
        quantity,
        expected,
        got,
    }
}

/// [`AccountingError::NoFiniteGuarantee`], to be returned.
pub(crate) fn no_guarantee(reason: impl Into<Cow<'static, str>>) -> AccountingError {
    let reason = reason.into();
    AccountingError::NoFiniteGuarantee { reason }
}

/// The refusal of a release without noise.
pub(crate) fn without_noise() -> AccountingError {
    no_guarantee("a release without noise was composed; give it noise or leave it out")
}

/// Refuses an empty list of what a run has one of per round.
pub(crate) fn ensure_any(quantity: &'static str, numbers: &[f64]) -> Result<(), AccountingError> {
    if !numbers.is_empty() {
        return Ok(());
    }
    let expected = "one per round, at least one".to_owned();
    let got = 0;
    Err(AccountingError::Size {
        quantity,
        expected,
        got,
    })
}

/// The number `got` if it is in its domain, otherwise the refusal.
pub(crate) fn ensure(
    holds: bool,
    quantity: &'static str,
    expected: &'static str,
    got: f64,
) -> Result<f64, AccountingError> {
    if holds {
        Ok(got)
    } else {
        Err(out_of_range(quantity, expected, got))
    }
}

/// A Renyi order: a finite number above 1.
pub(crate) fn finite_order(order: f64) -> Result<f64, AccountingError> {
    let holds = order.is_finite() && order > 1.0;
    ensure(holds, "order", "a finite number > 1", order)
}

/// [`AccountingError::Unreachable`], to be returned.
pub(crate) fn unreachable(
    quantity: &'static str,
    (epsilon, delta): (Epsilon, Delta),
    best_epsilon: f64,
    at: f64,
) -> AccountingError {
    AccountingError::Unreachable {
        quantity,
        target_epsilon: epsilon.get(),
        delta: delta.get(),
        best_epsilon,
        at,
    }
}
