//! Plans for a population: from its size, a number of rounds and a goal to the report goals that are feasible.
//!
//! A [`PopulationQuestion`] states what the mechanisms of production runs promise. A [`Planner`] makes for each report goal
//! the matrix that suits the participation it leads to, and answers two questions: how much noise the goal leaves in the
//! iterates, which compares mechanisms at equal privacy, and what the guarantee is at the noise that keeps utility.
//!
//! # Source
//! \[Gboard\] section 2.2: utility is kept where noise multiplier and clients per round grow together, so by the noise
//! in the average; \[BLT\] section 2 for errors and losses, section 5.1 for extrapolation ("on-the-fly optimization for
//! given customized setting").

mod candidate;
mod question;

use std::collections::BTreeMap;

use serde::Serialize;
use undertone_accounting::participation::{EffectiveParticipation, Participation, RoundsBetween};
use undertone_accounting::plan::ProductionSetting;
use undertone_accounting::{Epsilon, NoiseMultiplier, Rho, zcdp};

pub use candidate::Candidate;
pub use question::{Feasible, Goal, PopulationQuestion};

use crate::error::{Result, ensure};
use crate::loss::{CertifiedSensitivity, Errors, Losses, Objective};
use crate::optimize::Problem;
use crate::strategy::Strategy;
use crate::strategy::tree::Tree;
use crate::workload::Workload;

/// Maximum number of participations with a range of report goals of their own; more participations share one range.
const APART: u64 = 8;

/// Relative width at which the search for the minimum report goal of a range stops.
const WIDTH: f64 = 0.01;

/// A planner answers a question for one candidate. Matrices are made once for every participation schema.
///
/// # Example
/// ```
/// use undertone_accounting::{Delta, Rho};
/// use undertone_mechanisms::optimize::{Kind, Sizes};
/// use undertone_mechanisms::population_plan::{Candidate, Goal, Planner, PopulationQuestion};
/// use undertone_mechanisms::{Objective, Workload};
///
/// // Half a million users, 256 rounds, one zCDP of 0.5.
/// let question = PopulationQuestion::new(500_000, 256, Delta::new(1e-10)?, Goal::Rho(Rho::new(0.5)?))?;
/// let noise = |kind| -> undertone_mechanisms::Result<f64> {
///     let candidate = Candidate::Made(kind, Sizes::default());
///     let mut planner = Planner::new(question, candidate, Objective::RmsLoss, Workload::prefix_sum())?;
///     Ok(planner.option(6500)?.at_target.iterate_noise)
/// };
/// // At the same guarantee, a BLT leaves less noise in the models than a tree.
/// assert!(noise(Kind::Blt)? < 0.7 * noise(Kind::Tree)?);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug)]
pub struct Planner {
    question: PopulationQuestion,
    candidate: Candidate,
    /// Number of rounds of the question.
    rounds: usize,
    objective: Objective,
    workload: Workload,
    utility_noise: f64,
    /// Details of the matrices made so far, by gap and participations.
    made: BTreeMap<(u64, u64), CandidateDetails>,
}

#[derive(Debug, Clone)]
struct CandidateDetails {
    strategy: String,
    sensitivity: CertifiedSensitivity,
    errors: Errors,
}

/// A candidate at one report goal.
///
/// # Guarantee
/// The rho and epsilon of either noise level hold under the zero-out relation for every user who keeps to
/// `participation`, with no assumption on how users are sampled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Planned {
    /// Name of the candidate.
    pub candidate: &'static str,
    /// Name of the matrix.
    pub strategy: String,
    /// Rounds of the run.
    pub rounds: u64,
    /// Clients per round.
    pub report_goal: u64,
    /// The separation as rounds between (MinS); the schema has it as a gap.
    pub min_sep: RoundsBetween,
    /// The schema that results, and whether its maximum was lowered.
    pub participation: EffectiveParticipation,
    /// Squared sensitivity under the schema, exact or a proved upper bound.
    pub sensitivity: CertifiedSensitivity,
    /// Errors times sensitivity.
    pub losses: Losses,
    /// The minimum noise that meets the goal.
    pub at_target: NoiseLevel,
    /// The noise that keeps utility ([`Planner::utility_noise`]).
    pub at_utility: NoiseLevel,
    /// True if the noise that keeps utility meets the goal.
    pub is_feasible: bool,
}

/// A noise multiplier and the guarantee and the error that follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NoiseLevel {
    /// Standard deviation of the noise, before it is correlated, in clip norms.
    pub noise_multiplier: NoiseMultiplier,
    /// zCDP of the run.
    pub rho: Rho,
    /// Epsilon at the question's delta.
    pub epsilon: Epsilon,
    /// Standard deviation of the noise in the iterates that averages over the report goal add up to, in clip norms;
    /// largest or root mean square over the rounds, as the objective.
    pub iterate_noise: f64,
}

/// A range of report goals that meet the goal and keep utility.
///
/// Within a range noise per client falls as the report goal grows, so the ends decide; both are computed, not inferred.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeasibleRange {
    /// The smallest report goal, to within a hundredth.
    #[serde(rename = "least")]
    pub min: Planned,
    /// The largest report goal.
    #[serde(rename = "most")]
    pub max: Planned,
}

/// The options of a candidate up to a report goal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// The option at the report goal itself.
    pub at_report_goal: Planned,
    /// The option with the minimum noise at the goal: its report goal may be smaller and so spare a participation.
    pub best: Planned,
    /// Ranges of report goals, rising, that meet the goal at the noise that keeps utility. Empty where there is none.
    pub feasible: Vec<FeasibleRange>,
}

impl Planner {
    /// A planner without matrices yet.
    ///
    /// # Errors
    /// A workload of fewer rounds than the question.
    pub fn new(
        question: PopulationQuestion,
        candidate: Candidate,
        objective: Objective,
        workload: Workload,
    ) -> Result<Self> {
        let rounds = usize::try_from(question.rounds).unwrap_or(usize::MAX);
        let tree = Strategy::Tree(Tree::new()).errors(rounds, &workload)?;
        // What production trees left in the average of as many clients.
        let one_client = ProductionSetting::Tree.noise_multiplier(question.rounds, 1)?;
        Ok(Self {
            utility_noise: question.noise_scale * one_client.get() * error(tree, objective),
            question,
            candidate,
            rounds,
            objective,
            workload,
            made: BTreeMap::new(),
        })
    }

    /// The noise in the iterates, of averages, that keeps utility: the noise that the tree of production runs leaves
    /// (noise multiplier 7 at 6500 clients per round), times the question's noise scale.
    #[must_use]
    pub fn utility_noise(&self) -> f64 {
        self.utility_noise
    }

    /// The option of the candidate at a report goal.
    ///
    /// # Errors
    /// A report goal of 0 or above the population; a run that the candidate does not suit; a guarantee beyond what numbers
    /// hold.
    pub fn option(&mut self, report_goal: u64) -> Result<Planned> {
        let participation = self.question.schema(report_goal)?;
        let made = self.make(&participation.participation)?;
        let errors = error(made.errors, self.objective);
        let squared = made.sensitivity.squared;
        let noise_level = |noise_multiplier: NoiseMultiplier| -> Result<NoiseLevel> {
            let rho = squared.rho(noise_multiplier)?;
            Ok(NoiseLevel {
                noise_multiplier,
                rho,
                epsilon: zcdp::epsilon_of_gaussians(rho, self.question.delta)?,
                iterate_noise: noise_multiplier.get() * errors / report_goal as f64,
            })
        };
        let mut for_target = squared.noise_multiplier(self.question.target_rho)?;
        // PRIVACY: the square root is rounded; the noise that meets the target is one whose own rho does.
        while squared.rho(for_target)? > self.question.target_rho {
            for_target = NoiseMultiplier::new(for_target.get().next_up())?;
        }
        let for_utility = NoiseMultiplier::new(self.utility_noise * report_goal as f64 / errors)?;
        let at_utility = noise_level(for_utility)?;
        Ok(Planned {
            candidate: self.candidate.name(),
            strategy: made.strategy,
            rounds: self.question.rounds,
            report_goal,
            min_sep: participation.participation.gap().rounds_between(),
            participation,
            sensitivity: made.sensitivity,
            losses: made.errors.losses(squared),
            at_target: noise_level(for_target)?,
            is_feasible: at_utility.rho <= self.question.target_rho,
            at_utility,
        })
    }

    /// The outlook of the candidate over report goals up to `max_report_goal`.
    ///
    /// A larger report goal buys noise until it costs a participation, so the best option lies at `max_report_goal` or
    /// just before another participation fits. The ranges between those are searched for feasible report goals.
    ///
    /// # Errors
    /// As [`Self::option`].
    pub fn outlook(&mut self, max_report_goal: u64) -> Result<Outlook> {
        let at_report_goal = self.option(max_report_goal)?;
        let mut best = at_report_goal.clone();
        let mut feasible = Vec::new();
        let mut below = 0;
        for last in self.range_ends(max_report_goal)? {
            let end = self.option(last)?;
            if end.at_target.iterate_noise < best.at_target.iterate_noise {
                best = end.clone();
            }
            if end.is_feasible {
                feasible.push(self.range(below, end)?);
            }
            below = last;
        }
        Ok(Outlook {
            at_report_goal,
            best,
            feasible,
        })
    }

    /// A curve: the options at some report goals from a thirtieth of `max_report_goal` up. Those just before another
    /// participation fits are among them.
    ///
    /// # Errors
    /// As [`Self::option`].
    pub fn over_report_goals(&mut self, max_report_goal: u64) -> Result<Vec<Planned>> {
        const STEPS: i32 = 16;
        let step =
            |i: i32| (max_report_goal as f64 * 30f64.powf(f64::from(i - STEPS) / f64::from(STEPS))) as u64;
        let mut goals: Vec<u64> = (0..=STEPS).map(|i| step(i).clamp(1, max_report_goal)).collect();
        let min = goals.first().copied().unwrap_or(max_report_goal);
        let ends = self.range_ends(max_report_goal)?;
        goals.extend(ends.iter().flat_map(|end| [*end, end + 1]));
        goals.retain(|goal| (min..=max_report_goal).contains(goal));
        goals.sort_unstable();
        goals.dedup();
        goals.into_iter().map(|goal| self.option(goal)).collect()
    }

    /// The largest report goals of 1, 2, .. participations, and `max_report_goal`.
    fn range_ends(&self, max_report_goal: u64) -> Result<Vec<u64>> {
        let participations =
            |goal| -> Result<u64> { Ok(self.question.schema(goal)?.participation.max_participation()) };
        let mut ends = Vec::new();
        for wanted in participations(1)?..participations(max_report_goal)?.min(APART + 1) {
            let (mut within, mut beyond) = (ends.last().copied().unwrap_or(0), max_report_goal);
            while beyond - within > 1 {
                let middle = within + (beyond - within) / 2;
                if participations(middle)? <= wanted {
                    within = middle;
                } else {
                    beyond = middle;
                }
            }
            if within > 0 && ends.last() != Some(&within) {
                ends.push(within);
            }
        }
        ends.push(max_report_goal);
        Ok(ends)
    }

    /// The range above `below` that ends with a feasible report goal.
    fn range(&mut self, below: u64, max: Planned) -> Result<FeasibleRange> {
        let (mut missed, mut min) = (below, max.clone());
        while (min.report_goal - missed) as f64 > (WIDTH * min.report_goal as f64).max(1.0) {
            let middle = self.option(missed + (min.report_goal - missed) / 2)?;
            if middle.is_feasible {
                min = middle;
            } else {
                missed = middle.report_goal;
            }
        }
        Ok(FeasibleRange { min, max })
    }

    fn make(&mut self, participation: &Participation) -> Result<CandidateDetails> {
        // Who takes part once keeps every gap.
        let participation = match participation.max_participation() {
            1 => Participation::single(),
            _ => *participation,
        };
        let key = (participation.gap().get(), participation.max_participation());
        if let Some(made) = self.made.get(&key) {
            return Ok(made.clone());
        }
        let problem = Problem::new(self.rounds, participation)
            .with_objective(self.objective)
            .with_workload(self.workload.clone());
        let strategy = self.candidate.make(&problem)?;
        let made = CandidateDetails {
            strategy: strategy.name(),
            sensitivity: strategy.squared_sensitivity(self.rounds, &participation)?,
            errors: strategy.errors(self.rounds, &self.workload)?,
        };
        let expected = "a finite number > 0";
        let holds = made.errors.rms_error > 0.0 && made.errors.max_error.is_finite();
        ensure(holds, "noise in the iterates", expected, made.errors.rms_error)?;
        self.made.insert(key, made.clone());
        Ok(made)
    }
}

fn error(errors: Errors, objective: Objective) -> f64 {
    match objective {
        Objective::MaxLoss => errors.max_error,
        Objective::RmsLoss => errors.rms_error,
    }
}

#[cfg(test)]
mod tests;
