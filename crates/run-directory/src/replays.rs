//! The result of a replay beside neighbours, as `audit.json` and `replays.json` hold it.

pub mod live;

use serde::{Deserialize, Serialize};
use undertone_accounting::Adjacency;
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::TaskConfig;
use undertone_settings::Algorithm;

/// The contributions that stand in the audited slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Battery {
    /// The users' own texts.
    #[default]
    Natural,
    /// Invented texts and updates that attack the bound: not finite, too long, at the worst rounding.
    Adversarial,
}

/// The numbers that the neighbour is planned with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PopulationMode {
    /// The numbers of users and the denominator stay as planned.
    #[default]
    Public,
    /// The plan is made again for the neighbour: nothing may follow from what people wrote.
    Recomputed,
}

/// The name of the tested run where a run without a seed is replayed.
pub const TWIN: &str = "a twin of this run";

/// The result of a replay, as `audit.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// `this run`, `a twin of this run`, or `this run, while it ran`.
    pub tested: String,
    /// The relation between neighbours.
    pub adjacency: Adjacency,
    /// The bound on one round, in clip norms: 1, or 2 where another text stands in the slot of a user.
    pub clip_norms_per_round: f64,
    /// The numbers that the neighbour was planned with.
    pub population: PopulationMode,
    /// The contributions that stood in the audited slot.
    pub battery: Battery,
    /// Number of audited users.
    pub users: usize,
    /// Number of replayed rounds.
    pub rounds: u64,
    /// Number of (user, round) pairs whose sums were made twice.
    pub pairs: u64,
    /// Number of users all of whose rounds were audited, so that R5 speaks of them.
    pub whole_users: usize,
    /// The checks, R0 to R6.
    pub checks: Vec<ReplayCheck>,
    /// Public statistics that the result is conditional on.
    pub conditional_on: Vec<String>,
}

impl Replay {
    /// `true` if a check failed.
    #[must_use]
    pub fn contradicts(&self) -> bool {
        self.checks.iter().any(|check| check.failed > 0)
    }

    /// The public statistics that every replay with this population is conditional on.
    #[must_use]
    pub fn conditional_on(population: PopulationMode) -> Vec<String> {
        let mut names = vec!["number of users".to_owned()];
        if population == PopulationMode::Public {
            names.push("denominator of the average".to_owned());
        }
        names
    }
}

/// One check over all audited rounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayCheck {
    /// `R0` to `R6`.
    pub name: String,
    /// The property that the check compares.
    pub property: String,
    /// Number of comparisons.
    pub compared: u64,
    /// Number of comparisons that failed.
    pub failed: u64,
    /// The first round in which one failed.
    pub first_failure: Option<u64>,
}

impl ReplayCheck {
    /// The names of the checks, with the property that each compares.
    pub const CHECKS: [(&str, &str); 7] = [
        ("R0", "plans, ledger lines and errors do not depend on one user"),
        ("R1", "one user moves the sum by at most the clip norm"),
        (
            "R2",
            "one user moves the average by at most the stated sensitivity",
        ),
        ("R3", "the noise does not depend on the sum"),
        (
            "R4",
            "the sum less the user's own part is the sum without the user",
        ),
        (
            "R5",
            "all rounds of one user move the run by at most its sensitivity",
        ),
        (
            "R6",
            "participation and cohorts are those that the guarantee assumes",
        ),
    ];

    /// All checks before the first comparison.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::CHECKS
            .map(|(name, property)| Self::before(name, property))
            .into()
    }

    /// A check before its first comparison.
    #[must_use]
    pub fn before(name: &str, property: &str) -> Self {
        Self {
            name: name.to_owned(),
            property: property.to_owned(),
            compared: 0,
            failed: 0,
            first_failure: None,
        }
    }
}

/// Returns true if another text stands in the slot of a user in the neighbours of this run, which then moves a sum by twice the clip norm.
#[must_use]
pub fn replaces(task: &TaskConfig) -> bool {
    let by_schema = (task.privacy.as_ref()).is_some_and(|privacy| privacy.mechanism.is_some());
    task.aggregation.is_none()
        && task.user_update.algorithm != Algorithm::Els
        && !by_schema
        && task.cohort.sampling != Sampling::Poisson
}

/// The bound on the difference of the sum of a round between neighbours of this run, in clip norms.
#[must_use]
pub fn clip_norms(task: &TaskConfig) -> f64 {
    if replaces(task) { 2.0 } else { 1.0 }
}
