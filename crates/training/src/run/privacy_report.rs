//! `privacy.json`: the guarantee with everything a reader must know to use it, in the form of \[Gboard\] Appendix A.

use undertone_data::VocabProvenance;

use crate::cohort::Sampling;
use crate::config::{EstimatorConfig, RunConfig};
use crate::error::Result;
use crate::plan::PrivacyPlan;
use crate::record::{GuaranteeRecord, PrivacyReport};

/// Above this, (eps, delta) says close to nothing about any one person.
const MEANINGLESS_EPSILON: f64 = 20.0;

pub(super) fn report(
    config: &RunConfig,
    plan: &PrivacyPlan,
    vocabulary: VocabProvenance,
    observed: Option<GuaranteeRecord>,
) -> Result<PrivacyReport> {
    let planned = plan.planned()?;
    let estimate = plan.estimated()?;
    Ok(PrivacyReport {
        private: plan.is_private(),
        statements: if plan.is_private() {
            statements(config)
        } else {
            Vec::new()
        },
        warnings: warnings(config, plan, vocabulary, observed.as_ref().or(planned.as_ref())),
        planned,
        observed,
        estimate,
    })
}

fn statements(config: &RunConfig) -> Vec<String> {
    let adjacency = match config.cohort.sampling {
        Sampling::Poisson => {
            "Adjacency: two populations are neighbours if one has all the examples of one user more than the other."
        }
        Sampling::FixedSize => {
            "Adjacency: two populations are neighbours if all the examples of one user are replaced by another user's."
        }
    };
    let sampling = match config.cohort.sampling {
        Sampling::Poisson => {
            "Accounting assumption: in every round each user takes part independently with the stated probability."
        }
        Sampling::FixedSize => {
            "Accounting assumption: in every round the cohort is a uniform choice without replacement."
        }
    };
    let denominator = match config.estimator {
        EstimatorConfig::FixedDenominator => {
            "the population's total weight, which the fixed denominator divides by"
        }
        EstimatorConfig::ClippedDenominator { .. } => {
            "the lower bound on the population's weight, which floors the denominator"
        }
        EstimatorConfig::Exact => "nothing",
    };
    vec![
        "Setting: central differential privacy; whoever runs the training is trusted to run it as configured.".to_owned(),
        "Data accesses covered: this training run over the training partition. Choosing hyper-parameters or a checkpoint by looking at results is not covered, nor is the choice of the vocabulary or of caps.".to_owned(),
        "Mechanism output: the sequence of noised average updates, so every intermediate model and the final model.safetensors are covered. Not covered: metrics.jsonl, ledger.jsonl, report.html and the held-out partitions, which hold exact statistics.".to_owned(),
        "Unit of privacy: a user, with all text they contributed.".to_owned(),
        adjacency.to_owned(),
        sampling.to_owned(),
        format!("Taken as public: the number of users, {denominator}, and this configuration."),
    ]
}

fn warnings(
    config: &RunConfig,
    plan: &PrivacyPlan,
    vocabulary: VocabProvenance,
    guarantee: Option<&GuaranteeRecord>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if !plan.is_private() {
        warnings.push("This run adds no noise and gives no guarantee.".to_owned());
    }
    if plan.is_private() && config.seed.is_some() {
        warnings.push("The run is seeded: whoever knows the seed can recompute the noise. The guarantee is for study only.".to_owned());
    }
    if !vocabulary.is_private_safe() {
        warnings.push("The vocabulary was taken from the training data and is not private: its words are outside the guarantee.".to_owned());
    }
    if plan.is_estimate() {
        warnings.push("The noise is scaled for a larger cohort than the run has. `estimate` is the guarantee that such a larger run would have; it is not a guarantee for the people in this run.".to_owned());
    }
    if let Some(delta) = plan.delta()
        && delta * plan.population().users as f64 >= 1.0
    {
        warnings.push("Delta is not below 1 / users: a mechanism that publishes one user's text would have such a delta.".to_owned());
    }
    if let Some(guarantee) = guarantee
        && guarantee.epsilon > MEANINGLESS_EPSILON
    {
        warnings.push(format!(
            "Epsilon is {}: above {MEANINGLESS_EPSILON} the guarantee says close to nothing about any one person.",
            crate::figures::upper_bound(guarantee.epsilon)
        ));
    }
    warnings
}
