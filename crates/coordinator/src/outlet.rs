//! The obstacles in front of every outlet: what stands between a model and its release.
//!
//! PRIVACY: `publish`, the record for a registry, an export, the header of a model and the directory of an exported task ask this one
//! function. The first two refuse where the list is not empty; the others write it into what they make.

use undertone_settings::Algorithm;
use undertone_text::VocabProvenance;

use crate::plan::{PrivacyPlan, StartCost};
use crate::privacy_report::Claims;
use crate::record::PrivacyReport;
use crate::task::{CohortSize, TaskConfig};

/// Names all that the stated guarantee does not cover: the key, the reason and a way out. The report is the one of these claims.
#[must_use]
pub fn obstacles(claims: &Claims<'_>, report: &PrivacyReport) -> Vec<String> {
    let (task, plan) = (claims.task, claims.plan);
    let mut found = Vec::new();
    if !report.private {
        found.push(WITHOUT_NOISE.to_owned());
        return found;
    }
    if plan.selection().is_some() && report.selected.is_none() {
        found.push("privacy.json, selected: no guarantee of the private sweep can be stated".to_owned());
    }
    if report.alone().is_none() {
        found
            .push("privacy.json, observed: the noise is too small for any guarantee to be stated".to_owned());
    }
    if claims.seeded {
        let file = match claims.service {
            Some(_) => "task.toml",
            None => "config.toml",
        };
        found.push(format!(
            "{file}, seed: everybody who reads the seed can subtract the noise; train without a seed"
        ));
    }
    if claims.vocabulary == VocabProvenance::TrainingData {
        found.push(
            "data.vocabulary: the words were counted on the text of the users, without noise; take public words, or words of \
             `undertone data vocab --private`"
                .to_owned(),
        );
    }
    if let Some(why) = plan.vocabulary_warning() {
        found.push(format!("data.vocabulary: {why}"));
    }
    if let Some(why) = plan.start().and_then(|start| start.uncountable()) {
        found.push(format!("initial_model: {why}"));
    }
    if plan.start().is_some_and(StartCost::is_seeded) {
        found.push(SEEDED_START.to_owned());
    }
    if claims.service.is_none() && counts_examples(task, plan) {
        found.push(COUNTED_EXAMPLES.to_owned());
    }
    found
}

/// The obstacle of a model that no noise protects.
pub const WITHOUT_NOISE: &str = "privacy: expected a run that adds noise, got one without a guarantee";

/// The obstacle of a start on the same people whose noise a seed repeats.
const SEEDED_START: &str = "initial_model: it was trained on the same people with noise from a known seed, which everybody who reads the seed \
    can subtract; start from a model that was trained without a seed";

/// The obstacle of a number that was counted on people's text.
pub const COUNTED_EXAMPLES: &str = "cohort, estimator: with example-level sampling, privacy.json and the ledger would tell the number of \
    examples, which was counted on the text; give cohort.sampling_probability and estimator.expected_weight, the expected number of \
    examples per round, so that no figure is counted";

/// `true` if the files of example-level sampling tell how many examples the users have.
#[must_use]
pub fn counts_examples(task: &TaskConfig, plan: &PrivacyPlan) -> bool {
    if task.user_update.algorithm != Algorithm::Els {
        return false;
    }
    match declared_examples(task) {
        // Runs of earlier versions counted although the file gave both.
        Some(declared) => plan.population().total_weight.to_bits() != declared.to_bits(),
        None => true,
    }
}

/// The number of examples that a task file with example-level sampling gives: the expected number per round over the probability of
/// one. `None` where the file leaves one of both to be counted.
#[must_use]
pub fn declared_examples(task: &TaskConfig) -> Option<f64> {
    match (
        task.user_update.algorithm,
        task.cohort_size(),
        task.estimator.expected_weight(),
    ) {
        (Algorithm::Els, Ok(CohortSize::Probability(q)), Some(expected)) => Some(expected / q),
        _ => None,
    }
}
