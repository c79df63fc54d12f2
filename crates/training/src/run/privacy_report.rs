//! `privacy.json`: the guarantee with everything a reader must know to use it, in the form of \[Gboard\] Appendix A.

use undertone_data::VocabProvenance;

use crate::cohort::Sampling;
use crate::config::{AggregationConfig, Algorithm, EstimatorConfig, RunConfig, SumName};
use crate::identity::ParameterCounts;
use crate::plan::PrivacyPlan;
use crate::record::{GuaranteeRecord, PrivacyReport};
use crate::update::CLIP_MARGIN;

/// Above this, (eps, delta) says close to nothing about any one person.
const MEANINGLESS_EPSILON: f64 = 20.0;

/// Every guarantee that is stated of a run.
pub(super) struct Guarantees {
    /// Before training.
    pub(super) planned: Option<GuaranteeRecord>,
    /// Of the rounds that were made, for everyone who keeps to the declared schema, where there is one.
    pub(super) worst_case: Option<GuaranteeRecord>,
    /// What the ledger shows.
    pub(super) observed: Option<GuaranteeRecord>,
    /// Of the larger run that this one stands for.
    pub(super) estimate: Option<GuaranteeRecord>,
}

pub(super) fn report(
    config: &RunConfig,
    counts: ParameterCounts,
    plan: &PrivacyPlan,
    vocabulary: VocabProvenance,
    guarantees: Guarantees,
) -> PrivacyReport {
    let Guarantees {
        planned,
        worst_case,
        observed,
        estimate,
    } = guarantees;
    // What the words cost comes on top of what was observed.
    let with_vocabulary = plan
        .vocabulary()
        .zip(observed.as_ref())
        .map(|(words, observed)| words.with(observed));
    PrivacyReport {
        private: plan.is_private(),
        statements: statements(config, counts),
        warnings: warnings(config, plan, vocabulary, observed.as_ref().or(planned.as_ref())),
        planned,
        worst_case,
        observed,
        with_vocabulary,
        estimate,
    }
}

/// What a reader must know to use the guarantee; nothing where there is none.
pub(crate) fn statements(config: &RunConfig, counts: ParameterCounts) -> Vec<String> {
    if config.privacy.is_none() {
        return Vec::new();
    }
    let schema = config.encoding_is_noisy()
        || config
            .privacy
            .as_ref()
            .is_some_and(|privacy| privacy.mechanism.is_some());
    let of_examples = config.user_update.algorithm == Algorithm::Els;
    let (adjacency, assumption) = match config.cohort.sampling {
        _ if schema => (
            "Adjacency: two populations are neighbours if all the examples of one user are zeroed out.",
            "Accounting assumption: who takes part, and when, does not depend on anyone's examples. Planned and worst case \
             hold for everyone who keeps to the declared separation and number of participations; observed holds for the \
             participation that the ledger shows.",
        ),
        Sampling::Poisson if of_examples => (
            "Adjacency: two populations are neighbours if one has all the examples of one user more than the other.",
            "Accounting assumption: in every round each kept example takes part independently with the stated probability.",
        ),
        Sampling::Poisson => (
            "Adjacency: two populations are neighbours if one has all the examples of one user more than the other.",
            "Accounting assumption: in every round each user takes part independently with the stated probability.",
        ),
        _ => (
            "Adjacency: two populations are neighbours if all the examples of one user are replaced by another user's.",
            "Accounting assumption: in every round the cohort is a uniform choice without replacement.",
        ),
    };
    let denominator = match config.estimator {
        EstimatorConfig::FixedDenominator if of_examples => {
            "the number of kept examples of all users, which the fixed denominator divides by"
        }
        EstimatorConfig::FixedDenominator => {
            "the population's total weight, which the fixed denominator divides by"
        }
        EstimatorConfig::ClippedDenominator { .. } => {
            "the lower bound on the population's weight, which floors the denominator"
        }
        EstimatorConfig::Exact => "nothing",
    };
    let mut statements = vec![
        "Setting: central differential privacy; whoever runs the training is trusted to run it as configured.".to_owned(),
        format!("Data accesses covered: this training run over the training partition. Choosing hyper-parameters or a checkpoint by looking at results is not covered, nor is the choice of the vocabulary or of caps.{}", if config.initial_model.is_some() { " The model that the run started from is taken as public." } else { "" }),
        "Mechanism output: the sequence of noised average updates, so every intermediate model and the final model.safetensors are covered. Not covered: metrics.jsonl, ledger.jsonl, report.html and the held-out partitions, which hold exact statistics.".to_owned(),
        "Unit of privacy: a user, with all text they contributed.".to_owned(),
        adjacency.to_owned(),
        assumption.to_owned(),
        format!("Taken as public: the number of users, {denominator}, and this configuration."),
    ];
    statements.extend(config.model.lora().map(|lora| {
        format!(
            "Adapters: {counts}, of rank {}. The others are those of the initial model: nobody's text here changes them.",
            lora.rank
        )
    }));
    statements.extend(of_gradients(config, schema));
    if let Some(aggregation) = &config.aggregation {
        statements.push(of_aggregation(aggregation));
    }
    statements
}

/// What ULS and ELS bound, and what that rests on.
fn of_gradients(config: &RunConfig, schema: bool) -> Option<String> {
    let update = &config.user_update;
    let group_size = update.group_size?;
    if update.algorithm == Algorithm::Uls {
        let amplification = match schema {
            true => " Nothing is amplified by sampling: no figure of a Poisson sample applies.",
            false => "",
        };
        return Some(format!(
            "Bound: the average gradient of at most {group_size} examples that a user draws anew each round, clipped as a \
             whole.{amplification}"
        ));
    }
    let precision = match update.batch_size() {
        1 => "Each gradient is clipped on its own, in exact arithmetic.".to_owned(),
        size => format!(
            "Gradients are bounded and added up in microbatches of {size}, in single precision: each is scaled to a norm of at \
             most 1 - {CLIP_MARGIN} times the clip norm as computed, and it is assumed that this margin covers the roundings of \
             norms and sums (`batch_size = 1` needs no such assumption)."
        ),
    };
    Some(format!(
        "Bound: the gradient of each example, of which at most {group_size} a user are ever read, chosen once at random. The \
         guarantee is for the user, over all its examples that one round can sample. {precision}"
    ))
}

/// Who sees what of the updates, and whose noise the guarantee rests on.
fn of_aggregation(aggregation: &AggregationConfig) -> String {
    let seen = match aggregation.sum {
        SumName::Plain => "every update is seen by whoever runs the training",
        SumName::SecAgg => {
            "only the sum of a round leaves secure aggregation, which this process ran with both sides in it, so that \
             nothing was hidden from whoever runs the process"
        }
    };
    let graph = match aggregation.graph {
        Some(graph) if aggregation.sum == SumName::SecAgg => format!(
            " (on a graph for {} of users dropping out and {} working with the server, except with probability 2^-{})",
            graph.drop_out_rate, graph.corrupt_rate, graph.privacy_bits
        ),
        _ => String::new(),
    };
    let floor = aggregation.min_clients;
    let noise = match aggregation.encoding.is_distributed() {
        true => format!(
            "the noise is that of at least {floor} users who add their share as they should; users who lie about it are \
             not covered"
        ),
        false => "the noise is the server's, for the sensitivity of rounded updates".to_owned(),
    };
    format!(
        "Aggregation: updates are encoded by `{}`; {seen}{graph}; {noise}. Rounds of fewer than {floor} survivors release nothing, \
         but participation in them counts.",
        aggregation.encoding.name()
    )
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
    if plan.is_private() && guarantee.is_none() {
        warnings.push(
            "The noise is so small that no guarantee can be stated for the people in this run.".to_owned(),
        );
    }
    if plan.is_private() && config.seed.is_some() {
        warnings.push("The run is seeded: whoever knows the seed can recompute the noise. The guarantee is for study only.".to_owned());
    }
    if !vocabulary.is_private_safe() && vocabulary != VocabProvenance::Private {
        warnings.push("The vocabulary was taken from the training data and is not private: its words are outside the guarantee.".to_owned());
    }
    if vocabulary == VocabProvenance::Private {
        warnings.push("The vocabulary was chosen from people's text with a guarantee of its own. Planned, worst case and observed speak of the training alone; `with_vocabulary` is both together, and `privacy.max_epsilon` bounds both together.".to_owned());
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
