//! The claims of a session, which its training makes and verification makes again.

use undertone_aggregation::ParamLayout;
use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::outlet;
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::privacy_report::Claims;
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry, PrivacyReport};
use undertone_coordinator::trainings::{Training, unknown_source};
use undertone_settings::Algorithm;
use undertone_text::VocabProvenance;

use super::SessionConfig;
use crate::initial_model::Description;

/// The sentence of a session with sums of a GPU about the assumptions of its guarantee.
const ASSUMES_THE_GPU: &str = "A device such as a GPU, led by the program that trained, measured the updates of units and added them up. \
     The guarantee assumes that it computes what its program says. The sum is one of integers, so it has the bits that the processor would give. In each such round the processor computed the \
     exact norm of one unit again, chosen at random among all units of the round, if that unit contributed.";

/// The assumption about a GPU that the guarantee of a session with this ledger rests on, where there is one.
fn assumption(entries: &[LedgerEntry]) -> Option<&'static str> {
    let on_gpu = entries.iter().any(|entry| entry.summed_on_gpu);
    on_gpu.then_some(ASSUMES_THE_GPU)
}

/// The claims of a session with this ledger, which verification makes again.
pub fn claims<'a>(
    config: &'a SessionConfig,
    plan: &'a PrivacyPlan,
    counts: ParameterCounts,
    planned: Option<GuaranteeRecord>,
    entries: &[LedgerEntry],
) -> Claims<'a> {
    Claims {
        task: &config.task,
        service: None,
        seeded: config.seed.is_some(),
        // A session has no words; what the other program reads its data by is its own affair.
        vocabulary: VocabProvenance::File,
        counts,
        plan,
        planned,
        estimate: None,
        assumptions: (config.unit_rng.statement().into_iter())
            .chain(assumption(entries))
            .collect(),
    }
}

/// The description of a session's model. A session knows neither what its program started from nor the text that it read.
///
/// PRIVACY: the model was trained on people's text, so a run that starts from it counts the guarantee as one on its own text.
#[must_use]
pub fn described(claims: &Claims<'_>, report: &PrivacyReport, rounds: u64) -> Description {
    // Nobody knows what the program of a session reads.
    let own = claims.training(report, unknown_source(), true);
    Description {
        obstacles: outlet::obstacles(claims, report),
        ..Description::of_session(rounds, vec![Training::Undescribed {}, own])
    }
}

/// The population of a session, whose ledger says the number of kept examples with example-level sampling.
#[must_use]
pub fn population(config: &SessionConfig, kept: Option<f64>) -> Population {
    Population {
        users: config.users,
        total_weight: kept.unwrap_or(config.users as f64),
    }
}

/// `true` if the session needs the number of examples of each user.
#[must_use]
pub fn reads_counts(config: &SessionConfig) -> bool {
    config.task.user_update.algorithm == Algorithm::Els
}

/// Max size in bytes of the model file of a layout: its values, with 4 MiB, or 256 bytes per tensor, for names, shapes and a description.
#[must_use]
pub fn max_model_bytes(layout: &ParamLayout) -> u64 {
    4 * layout.len() as u64 + (256 * layout.tensors().len() as u64).max(4 << 20)
}
