//! The question of a plan, answered for the mechanisms of production runs.
//!
//! Two facts carry a plan. Scaling the report goal (clients per round) and the noise multiplier together keeps the
//! noise in the average, and so the utility. No separation can exceed the number of rounds that the population lasts,
//! `population / report_goal`. A larger report goal therefore buys noise and pays with participations.
//!
//! # Source
//! \[Gboard\] sections 2.2 and 2.5, Figure 4; \[BLT\] section 5.1, Figures 8-9.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::{
    EffectiveParticipation, Gap, Participation, RoundsBetween, largest_gap,
};
use undertone_accounting::plan::ProductionSetting;
use undertone_accounting::sensitivity::SquaredSensitivity;
use undertone_accounting::{AccountingError, Delta, Epsilon, NoiseMultiplier, Rho, gaussian, zcdp};

/// The guarantee that a run should reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// A guarantee of at most this epsilon at the question's delta.
    Epsilon(Epsilon),
    /// A guarantee of at most this rho.
    Rho(Rho),
}

impl Goal {
    /// The goal as a rho; epsilon by the exact Gaussian, which these mechanisms are.
    ///
    /// # Errors
    /// [`AccountingError::Unreachable`] for an epsilon next to zero.
    pub fn rho(self, delta: Delta) -> Result<Rho, AccountingError> {
        match self {
            Goal::Rho(rho) => Ok(rho),
            Goal::Epsilon(epsilon) => zcdp::rho_of_gaussian(gaussian::noise_multiplier(epsilon, delta)?),
        }
    }
}

/// A population, a number of rounds and a goal: what a plan answers.
///
/// # Example
/// ```
/// use undertone_accounting::plan::ProductionSetting;
/// use undertone_mechanisms::population_plan::{Goal, PopulationQuestion};
/// use undertone_accounting::{Delta, Rho};
///
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// // Ten million users, 2000 rounds.
/// let question = PopulationQuestion::new(10_000_000, 2000, Delta::new(1e-10)?, Goal::Rho(Rho::new(0.5)?))?;
/// let option = question.option(ProductionSetting::Tree, 6500)?;
/// assert_eq!(option.participation.participation.max_participation(), 2);
/// assert!(option.meets_target && option.rho.get() < 0.35);
/// // A smaller report goal would do.
/// let options = question.over_report_goals(ProductionSetting::Tree, 6500)?;
/// let smallest = options.iter().find(|option| option.meets_target).map(|option| option.report_goal);
/// assert_eq!(smallest, Some(3100));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PopulationQuestion {
    /// Users who can take part.
    pub population: u64,
    /// Rounds of the run.
    pub rounds: u64,
    /// Delta of every epsilon.
    pub delta: Delta,
    /// The goal of the run.
    pub target: Goal,
    /// The goal as a rho.
    pub target_rho: Rho,
    /// Maximum participations, after which devices stop; `None`: as many as the separation allows.
    pub max_participation: Option<u64>,
    /// Fraction of the largest possible separation that the device timers reach.
    pub separation_share: f64,
    /// Factor of all noise multipliers, relative to those of the production runs at the same report goal.
    pub noise_scale: f64,
}

/// One feasible run.
///
/// # Guarantee
/// `rho` and `epsilon` hold under the zero-out relation for every user who keeps to `participation`, with no
/// assumption on how users are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Feasible {
    /// The mechanism.
    pub mechanism: ProductionSetting,
    /// Rounds of this run.
    pub rounds: u64,
    /// Clients per round.
    pub report_goal: u64,
    /// Noise standard deviation in clip norms of one user's update.
    pub noise_multiplier: NoiseMultiplier,
    /// The separation as rounds between (MinS); the schema has it as a gap.
    pub min_sep: RoundsBetween,
    /// The schema that results, and whether its maximum was lowered.
    pub participation: EffectiveParticipation,
    /// Squared sensitivity of the strategy under the schema.
    pub squared_sensitivity: SquaredSensitivity,
    /// True if that is the exact value, false for an upper bound (trees with more than a hundred participations).
    pub exact: bool,
    /// zCDP of the run.
    pub rho: Rho,
    /// Epsilon at the question's delta.
    pub epsilon: Epsilon,
    /// True if `rho` is within the goal.
    pub meets_target: bool,
    /// The noise multiplier that meets the goal exactly at this report goal. A value above `noise_multiplier` costs
    /// utility, a value below it gains some.
    pub noise_for_target: NoiseMultiplier,
}

impl PopulationQuestion {
    /// A question with device timers at the largest separation and no other limit on participations.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no population, no rounds or more than 10^6 of them, a target rho of 0;
    /// otherwise as [`Goal::rho`].
    pub fn new(population: u64, rounds: u64, delta: Delta, target: Goal) -> Result<Self, AccountingError> {
        at_least_one(population, "population")?;
        at_least_one(rounds, "rounds")?;
        let max = "at most 10^6 in a plan";
        ensure(rounds <= 1_000_000, "rounds", max, rounds as f64)?;
        let target_rho = target.rho(delta)?;
        let rho = target_rho.get();
        ensure(rho > 0.0, "target rho", "a finite number > 0", rho)?;
        Ok(Self {
            population,
            rounds,
            delta,
            target,
            target_rho,
            max_participation: None,
            separation_share: 1.0,
            noise_scale: 1.0,
        })
    }

    /// Sets the maximum participations, after which devices stop.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for 0.
    pub fn with_max_participation(self, max_participation: u64) -> Result<Self, AccountingError> {
        Ok(Self {
            max_participation: Some(at_least_one(max_participation, "max_participation")?),
            ..self
        })
    }

    /// Sets the fraction of the largest separation that device timers reach (the es-ES run of \[Gboard\]: 526 of 647).
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] outside `(0, 1]`.
    pub fn with_separation_share(self, separation_share: f64) -> Result<Self, AccountingError> {
        let holds = separation_share > 0.0 && separation_share <= 1.0;
        ensure(holds, "separation_share", "a number in (0, 1]", separation_share)?;
        Ok(Self {
            separation_share,
            ..self
        })
    }

    /// Sets the factor of all noise multipliers: the noise that keeps utility differs between tasks.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for anything but a finite number above 0.
    pub fn with_noise_scale(self, noise_scale: f64) -> Result<Self, AccountingError> {
        let holds = noise_scale.is_finite() && noise_scale > 0.0;
        ensure(holds, "noise_scale", "a finite number > 0", noise_scale)?;
        Ok(Self { noise_scale, ..self })
    }

    /// The participation schema at a report goal: the gap is the fraction that timers reach of the largest one, and
    /// participations are as many as fit or as devices stop after.
    ///
    /// # Errors
    /// [`AccountingError::CohortSize`] as [`largest_gap`].
    ///
    /// # Example
    /// ```
    /// use undertone_mechanisms::population_plan::{Goal, PopulationQuestion};
    /// use undertone_accounting::{Delta, Rho};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let question = PopulationQuestion::new(4_210_000, 1900, Delta::new(1e-10)?, Goal::Rho(Rho::new(0.5)?))?;
    /// let schema = question.schema(6500)?.participation;
    /// assert_eq!((schema.gap().get(), schema.max_participation()), (647, 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn schema(&self, report_goal: u64) -> Result<EffectiveParticipation, AccountingError> {
        let largest = largest_gap(self.population, report_goal)?.get();
        let gap = Gap::new(((largest as f64 * self.separation_share) as u64).clamp(1, largest))?;
        let max = self.max_participation.unwrap_or_else(|| gap.fitting(self.rounds));
        Participation::at_least(gap, max)?.effective(self.rounds)
    }

    /// The run with this mechanism and report goal.
    ///
    /// # Errors
    /// [`AccountingError::CohortSize`] as [`largest_gap`]; [`AccountingError::OutOfRange`] on overflow.
    pub fn option(
        &self,
        mechanism: ProductionSetting,
        report_goal: u64,
    ) -> Result<Feasible, AccountingError> {
        let participation = self.schema(report_goal)?;
        let noise_multiplier = mechanism.noise_multiplier(self.rounds, report_goal)?;
        let noise_multiplier = NoiseMultiplier::new(noise_multiplier.get() * self.noise_scale)?;
        let (squared_sensitivity, exact) =
            mechanism.squared_sensitivity(self.rounds, &participation.participation)?;
        let rho = squared_sensitivity.rho(noise_multiplier)?;
        Ok(Feasible {
            mechanism,
            rounds: self.rounds,
            report_goal,
            noise_multiplier,
            min_sep: participation.participation.gap().rounds_between(),
            participation,
            squared_sensitivity,
            exact,
            rho,
            epsilon: zcdp::epsilon_of_gaussians(rho, self.delta)?,
            meets_target: rho <= self.target_rho,
            noise_for_target: squared_sensitivity.noise_multiplier(self.target_rho)?,
        })
    }

    /// One option for each report goal with two significant digits from 10 up to `max_report_goal`, and for that maximum
    /// itself: the curves of \[Gboard\] Figure 4 (a, b).
    ///
    /// # Errors
    /// The errors of [`PopulationQuestion::option`].
    pub fn over_report_goals(
        &self,
        mechanism: ProductionSetting,
        max_report_goal: u64,
    ) -> Result<Vec<Feasible>, AccountingError> {
        largest_gap(self.population, max_report_goal)?;
        round_numbers(10, max_report_goal)
            .into_iter()
            .map(|goal| self.option(mechanism, goal))
            .collect()
    }

    /// One option for each of some forty lengths up to the question's rounds: the curves of \[BLT\] Figure 9.
    ///
    /// # Errors
    /// The errors of [`PopulationQuestion::option`].
    pub fn over_rounds(
        &self,
        mechanism: ProductionSetting,
        report_goal: u64,
    ) -> Result<Vec<Feasible>, AccountingError> {
        let step = self.rounds.div_ceil(40);
        let lengths = (1..).map(|i| i * step).take_while(|&rounds| rounds < self.rounds);
        let at = |rounds| Self { rounds, ..*self }.option(mechanism, report_goal);
        lengths.chain([self.rounds]).map(at).collect()
    }
}

/// Refuses a quantity outside its range.
fn ensure(
    holds: bool,
    quantity: &'static str,
    expected: &'static str,
    got: f64,
) -> Result<(), AccountingError> {
    let refused = AccountingError::OutOfRange {
        quantity,
        expected,
        got,
    };
    if holds { Ok(()) } else { Err(refused) }
}

fn at_least_one(value: u64, quantity: &'static str) -> Result<u64, AccountingError> {
    ensure(value > 0, quantity, "a whole number >= 1", 0.0)?;
    Ok(value)
}

/// Numbers of at most two significant digits from `min` to `max`, and `max`.
fn round_numbers(min: u64, max: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    let (mut mantissa, mut unit) = (10u64, (min / 10).max(1));
    while mantissa.saturating_mul(unit) < max {
        numbers.push(mantissa * unit);
        mantissa += 1;
        if mantissa == 100 {
            (mantissa, unit) = (10, unit.saturating_mul(10));
        }
    }
    numbers.push(max);
    numbers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(population: u64, rounds: u64, rho: f64) -> PopulationQuestion {
        let target = Goal::Rho(Rho::new(rho).unwrap());
        PopulationQuestion::new(population, rounds, Delta::new(1e-10).unwrap(), target).unwrap()
    }

    #[test]
    fn a_small_population_cannot_be_strong() {
        // [Gboard] section 2.2: a million users and 3000 rounds; nineteen participations or more.
        let option = question(1_000_000, 3000, 1.0)
            .option(ProductionSetting::Tree, 6500)
            .unwrap();
        assert_eq!(option.min_sep.get(), 152);
        assert_eq!(option.participation.participation.max_participation(), 20);
        assert!(option.rho.get() > 4.0 && !option.meets_target, "{}", option.rho);
        assert!(option.noise_for_target.get() > 2.0 * option.noise_multiplier.get());
    }

    #[test]
    fn blt_beats_the_tree_and_the_tree_independent_noise() {
        let question = question(5_000_000, 2000, 1.0);
        let rho = |mechanism| question.option(mechanism, 6500).unwrap().rho.get();
        assert!(rho(ProductionSetting::Blt400) < rho(ProductionSetting::Tree));
        assert!(rho(ProductionSetting::Tree) < rho(ProductionSetting::Independent));
    }

    #[test]
    fn impossible_participation_is_lowered_and_said() {
        let question = question(6_500_000, 2000, 1.0).with_max_participation(9).unwrap();
        let option = question.option(ProductionSetting::Tree, 6500).unwrap();
        assert_eq!(
            option.participation.to_string(),
            "max participation lowered from 9 to 2: no more fit into 2000 rounds with a gap of 1000 rounds"
        );
        assert_eq!(
            option.rho,
            self::question(6_500_000, 2000, 1.0)
                .option(ProductionSetting::Tree, 6500)
                .unwrap()
                .rho
        );
    }

    #[test]
    fn the_noise_for_the_target_meets_it() {
        let question = question(3_000_000, 1500, 0.3);
        for mechanism in ProductionSetting::ALL {
            let option = question.option(mechanism, 6500).unwrap();
            let scale = option.noise_for_target.get() / option.noise_multiplier.get();
            let scaled = question.with_noise_scale(scale * (1.0 + 1e-12)).unwrap();
            let scaled = scaled.option(mechanism, 6500).unwrap();
            assert!(
                scaled.meets_target && scaled.rho.get() > 0.3 * (1.0 - 1e-9),
                "{mechanism}"
            );
        }
    }

    #[test]
    fn an_epsilon_target_is_the_exact_gaussian() {
        let (epsilon, delta) = (Epsilon::new(9.01).unwrap(), Delta::new(1e-10).unwrap());
        let rho = Goal::Epsilon(epsilon).rho(delta).unwrap();
        assert!((rho.get() - 0.89).abs() < 0.002, "{rho}");
    }

    #[test]
    fn questions_out_of_range_are_refused() {
        let (delta, target) = (Delta::new(1e-10).unwrap(), Goal::Rho(Rho::new(1.0).unwrap()));
        assert!(
            PopulationQuestion::new(0, 1, delta, target).is_err()
                && PopulationQuestion::new(1, 0, delta, target).is_err()
        );
        assert!(PopulationQuestion::new(1, 2_000_000, delta, target).is_err());
        assert!(PopulationQuestion::new(1, 1, delta, Goal::Rho(Rho::new(0.0).unwrap())).is_err());
        let question = question(100, 10, 1.0);
        assert!(question.with_separation_share(0.0).is_err() && question.with_separation_share(1.1).is_err());
        assert!(question.with_noise_scale(f64::NAN).is_err() && question.with_max_participation(0).is_err());
        assert!(question.option(ProductionSetting::Tree, 101).is_err());
        assert!(question.over_report_goals(ProductionSetting::Tree, 101).is_err());
    }

    #[test]
    fn curves_have_round_numbers_up_to_their_end() {
        assert_eq!(round_numbers(10, 13), [10, 11, 12, 13]);
        assert_eq!(round_numbers(10, 6500).len(), 90 + 90 + 56);
        assert_eq!(round_numbers(10, 5), [5]);
        assert_eq!(round_numbers(10, 1234).last(), Some(&1234));
        let question = question(1_000_000, 410, 1.0);
        let lengths = |options: Vec<Feasible>| options.iter().map(|option| option.rounds).collect::<Vec<_>>();
        let lengths = lengths(question.over_rounds(ProductionSetting::Blt100, 1000).unwrap());
        assert_eq!(
            (lengths[0], lengths.len(), lengths[lengths.len() - 1]),
            (11, 38, 410)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn rho_falls_with_population_and_rises_with_rounds(
            population in 50_000u64..20_000_000,
            rounds in 10u64..3000,
            more in 1u64..1000,
            mechanism in prop::sample::select(ProductionSetting::ALL.to_vec()),
        ) {
            let base = question(population, rounds, 1.0);
            let rho = |question: PopulationQuestion| question.option(mechanism, 6500).unwrap().rho.get() * (1.0 + 1e-12);
            let floor = rho(base) / (1.0 + 3e-12);
            // More users are farther apart; more rounds, more participation and less separation only cost.
            prop_assert!(rho(question(population + 1000 * more, rounds, 1.0)) <= rho(base) * (1.0 + 1e-12));
            if mechanism != ProductionSetting::Independent {
                // Its noise is set by the rounds.
                prop_assert!(rho(question(population, rounds + more, 1.0)) >= floor);
            }
            prop_assert!(rho(base.with_separation_share(0.5).unwrap()) >= floor);
            prop_assert!(rho(base.with_noise_scale(0.9).unwrap()) >= floor);
            let one = rho(base.with_max_participation(1).unwrap());
            prop_assert!(one <= rho(base.with_max_participation(2).unwrap()) * (1.0 + 1e-12));
        }
    }
}
