//! `privacy.json`: the guarantee with everything a reader must know to use it, in the form of \[Gboard\] Appendix A.

mod service;

use undertone_text::VocabProvenance;

use crate::account::Account;
use crate::error::Result;
use crate::identity::ParameterCounts;
use crate::plan::{PrivacyPlan, StartCost};
use crate::record::{GuaranteeRecord, LedgerEnd, LedgerEntry, PrivacyReport, StopRecord};
use crate::sampling::Sampling;
use crate::task::{AggregationConfig, EstimatorConfig, SumName, TaskConfig, TaskFile};
use crate::trainings::{StatedGuarantee, Training};
use undertone_aggregation::CLIP_MARGIN;
use undertone_present::numbers::grouped;
use undertone_settings::Algorithm;

/// Above this epsilon, a guarantee says close to nothing about any one user.
const MEANINGLESS_EPSILON: f64 = 20.0;

/// The inputs of `privacy.json` beside the ledger, known before the first round.
#[derive(Debug)]
pub struct Claims<'a> {
    /// The task.
    pub task: &'a TaskConfig,
    /// The task file of a service; `None` for a run.
    pub service: Option<&'a TaskFile>,
    /// `true` if cohorts and noise follow from a known seed.
    pub seeded: bool,
    /// The origin of the words of the model.
    pub vocabulary: VocabProvenance,
    /// The numbers of trained and of frozen parameters.
    pub counts: ParameterCounts,
    /// The plan of the task.
    pub plan: &'a PrivacyPlan,
    /// [`PrivacyPlan::planned`].
    pub planned: Option<GuaranteeRecord>,
    /// [`PrivacyPlan::estimated`].
    pub estimate: Option<GuaranteeRecord>,
    /// Sentences about the machine and the program that train, where the guarantee assumes something of them.
    pub assumptions: Vec<&'a str>,
}

impl Claims<'_> {
    /// The claims of a task of the service, with its plan.
    ///
    /// # Errors
    /// From the accountant.
    pub fn of_task<'a>(
        file: &'a TaskFile,
        counts: ParameterCounts,
        plan: &'a PrivacyPlan,
    ) -> Result<Claims<'a>> {
        Ok(Claims {
            task: &file.task,
            service: Some(file),
            seeded: file.seed.is_some(),
            vocabulary: VocabProvenance::File,
            counts,
            plan,
            planned: plan.planned()?,
            estimate: None,
            assumptions: Vec::new(),
        })
    }

    /// The report of a run with this ledger, of which `end` is the last line where there is one. A run writes it, and verification
    /// compares it with the written one.
    ///
    /// # Errors
    /// From the accountant; a ledger that is not the plan's.
    pub fn report(&self, ledger: &[LedgerEntry], end: Option<&LedgerEnd>) -> Result<PrivacyReport> {
        self.report_of(ledger, end, true)
    }

    /// The report as versions wrote it that claimed the epsilon of the last round after every stop. Their folders are verified against
    /// it.
    ///
    /// # Errors
    /// The errors of [`report`](Self::report).
    pub fn earlier_report(&self, ledger: &[LedgerEntry], end: Option<&LedgerEnd>) -> Result<PrivacyReport> {
        self.report_of(ledger, end, false)
    }

    fn report_of(
        &self,
        ledger: &[LedgerEntry],
        end: Option<&LedgerEnd>,
        counts_stops: bool,
    ) -> Result<PrivacyReport> {
        let mut account = Account::new(self.task, self.plan)?;
        for entry in ledger {
            account.add(entry)?;
        }
        if let Some(end) = end {
            account.end(end)?;
        }
        let observed = account.observed()?;
        let stopped = match counts_stops {
            true => account.stopped(end, self.planned.as_ref())?,
            false => None,
        };
        let claimed = match &stopped {
            Some(stopped) => stopped.claimed.as_ref(),
            None => observed.as_ref(),
        };
        let selected = self.plan.selected()?;
        let stated = match self.plan.selection() {
            Some(_) => selected.as_ref(),
            None if stopped.is_some() => claimed,
            None => claimed.or(self.planned.as_ref()),
        };
        let mut statements = match self.service {
            Some(file) => service::statements(self, file),
            None => statements(self.task, self.vocabulary, self.counts, self.plan),
        };
        statements.extend(self.assumptions.iter().map(|&said| said.to_owned()));
        statements.extend(stopped.as_ref().map(of_stop));
        Ok(PrivacyReport {
            private: self.plan.is_private(),
            statements,
            warnings: self.warnings(stated),
            planned: self.planned.clone(),
            worst_case: account.worst_case()?,
            selected,
            with_vocabulary: claimed.and_then(|claimed| self.plan.with_words(claimed)),
            with_initial_model: claimed.and_then(|claimed| self.plan.with_initial_model(claimed)),
            observed,
            stopped,
            estimate: self.estimate.clone(),
        })
    }

    /// The description of a run with this report that its model carries, for runs that start from it. The digest names the run's
    /// text, and `from_people` is `false` only for text that no person wrote.
    #[must_use]
    pub fn training(&self, report: &PrivacyReport, source_sha256: String, from_people: bool) -> Training {
        if !report.private {
            return Training::NotPrivate {
                source_sha256,
                from_people,
            };
        }
        // PRIVACY: words without a guarantee leave the model without one.
        let stated = match self.plan.selection() {
            // PRIVACY: the best of several candidates says more than one candidate.
            Some(_) => report.selected.as_ref(),
            None => report.with_vocabulary.as_ref().or(report.claimed()),
        };
        let stated = stated.filter(|_| self.plan.vocabulary_warning().is_none());
        Training::Private {
            source_sha256,
            adjacency: self.plan.adjacency(),
            guarantee: stated.map(|record| StatedGuarantee {
                epsilon: record.epsilon,
                delta: record.delta,
            }),
            seeded: self.seeded,
        }
    }

    fn warnings(&self, guarantee: Option<&GuaranteeRecord>) -> Vec<String> {
        let (plan, vocabulary) = (self.plan, self.vocabulary);
        let mut warnings = Vec::new();
        if !plan.is_private() {
            warnings.push("This run adds no noise and gives no guarantee.".to_owned());
        }
        if plan.is_private() && guarantee.is_none() {
            warnings.push(
                "The noise is so small that no guarantee can be stated for the people in this run."
                    .to_owned(),
            );
        }
        if let Some(selection) = plan.selection() {
            warnings.push(format!(
                "A private sweep chose this run as the best of a secret number of candidates over {} combinations of settings. Planned \
                 and observed speak of one candidate alone; `selected` is the guarantee of the release.",
                selection.combinations()
            ));
        }
        warnings.extend(self.service.and_then(service::warning));
        if plan.is_private() && self.seeded {
            warnings.push("The run is seeded. Anyone who knows the seed can recompute the noise. The guarantee is for study only.".to_owned());
        }
        if !vocabulary.is_private_safe() && vocabulary != VocabProvenance::Private {
            warnings.push("The vocabulary was taken from the training data and is not private: its words are outside the guarantee.".to_owned());
        }
        if let Some(warning) = plan.vocabulary_warning() {
            warnings.push(warning.to_owned());
        } else if vocabulary == VocabProvenance::Private {
            warnings.push("The vocabulary was chosen from people's text with a guarantee of its own. Planned, worst case and observed speak of the training alone; `with_vocabulary` is both together, and `privacy.max_epsilon` bounds both together.".to_owned());
        }
        warnings.extend(
            plan.start()
                .map(StartCost::warnings)
                .unwrap_or_default()
                .iter()
                .cloned(),
        );
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
            undertone_present::numbers::upper_bound(guarantee.epsilon)
        ));
        }
        warnings
    }
}

/// The sentence about words that no record speaks of. Reports of earlier versions lack it.
pub const DECLARED_WORDS: &str = " The words are declared public by the run file.";

/// The sentence about the words of a model; empty where they are not a person's claim.
fn of_words(config: &TaskConfig, vocabulary: VocabProvenance) -> &'static str {
    match vocabulary {
        VocabProvenance::File | VocabProvenance::PublicCorpus if !config.model.is_external() => {
            DECLARED_WORDS
        }
        _ => "",
    }
}

/// The claim after a stop, and the condition of the figure beside it.
fn of_stop(stopped: &StopRecord) -> String {
    let StopRecord {
        rounds,
        planned_rounds,
        ..
    } = stopped;
    format!(
        "Stop: {} of {} rounds were made. Nothing here shows that the choice of the last one depends on no release. So the claim is \
         the guarantee of all {} rounds, `stopped.claimed`. `observed` is that of the rounds that were made, on one condition: \
         nobody looked at a release, a loss or a score before the stop.",
        grouped(*rounds),
        grouped(*planned_rounds),
        grouped(*planned_rounds)
    )
}

/// The statements that a reader needs to use the guarantee; empty where there is none.
fn statements(
    config: &TaskConfig,
    vocabulary: VocabProvenance,
    counts: ParameterCounts,
    plan: &PrivacyPlan,
) -> Vec<String> {
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
    let taken_as_public = match config.estimator {
        EstimatorConfig::FixedDenominator { .. }
            if of_examples && config.cohort.sampling_probability.is_none() =>
        {
            "the number of users, the number of kept examples of all users, which the sampling probability of an example \
             follows from, and this configuration with the denominator of the average"
        }
        EstimatorConfig::FixedDenominator {
            expected_weight: Some(_),
        } => "the number of users, and this configuration with the denominator of the average",
        EstimatorConfig::FixedDenominator {
            expected_weight: None,
        } => {
            "the number of users, which sampling and the denominator of the average follow from, and this configuration"
        }
        EstimatorConfig::ClippedDenominator { .. } => {
            "the number of users, and this configuration with the lower bound on the population's weight, which floors the \
             denominator of the average"
        }
        EstimatorConfig::Exact => "the number of users, and this configuration",
    };
    let mut statements = vec![
        "Setting: central differential privacy. The operator, who runs the training, is trusted to run it as configured.".to_owned(),
        format!(
            "Data accesses covered: this training run over the training partition{}. Choosing hyper-parameters or a checkpoint by \
             looking at results is not covered, nor is the choice of the vocabulary or of caps.{}{}",
            match plan.selection() {
                Some(_) => ", and by `selected` all candidates of its private sweep, whose score was computed on text that sweep.json \
                            declares public; only that choice of hyper-parameters is covered",
                None => "",
            },
            of_words(config, vocabulary),
            plan.start().map_or("", StartCost::statement)
        ),
        "Mechanism output: the sequence of noised average updates, so every intermediate model and the final model.safetensors are covered. Not covered: metrics.jsonl, ledger.jsonl, report.html and the held-out partitions, which hold exact statistics.".to_owned(),
        "Unit of privacy: a user, with all text they contributed.".to_owned(),
        adjacency.to_owned(),
        assumption.to_owned(),
        format!("Taken as public: {taken_as_public}."),
    ];
    statements.extend(config.model.lora().map(|lora| {
        format!(
            "Adapters: {counts}, of rank {}. The others are those of the initial model: nobody's text here changes them.",
            lora.rank
        )
    }));
    statements.extend(of_gradients(config, schema));
    statements.extend(config.model.is_external().then(|| TRAINED_OUTSIDE.to_owned()));
    if let Some(aggregation) = &config.aggregation {
        statements.push(of_aggregation(aggregation));
        let of_others = match (config.encoding_is_noisy(), plan.adds_noise_after_lifting()) {
            (true, _) => None,
            (false, true) => Some(FOLLOWS_THE_ENCODING),
            (false, false) => Some(COVERS_FOLLOWERS),
        };
        statements.extend(of_others.map(str::to_owned));
    }
    statements
}

/// The bound of ULS and ELS, and its conditions.
fn of_gradients(config: &TaskConfig, schema: bool) -> Option<String> {
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
             norms and of the sums of the microbatches around one user's examples (`batch_size = 1` needs no such assumption). One \
             user's examples change no other microbatch."
        ),
    };
    Some(format!(
        "Bound: the gradient of each example, of which at most {group_size} per user are ever read, chosen once at random. The \
         guarantee is for the user, over all its examples that one round can sample. {precision}"
    ))
}

/// The condition for the guarantee of a session, whose updates and model come from another program, and its reach.
///
/// PRIVACY: a bounded update of one user can still move the updates of all users after it, by running statistics, by an optimizer that
/// is kept, or by the draws of one generator. Then the sum moves by more than one clip norm when a user leaves.
const TRAINED_OUTSIDE: &str = "Trained outside: another program computed the updates and the model, and gave each update to a \
    session under the place of its user. Each was bounded here, whatever it held. The guarantee assumes that a unit's update is a \
    function of that unit and of the released model alone, and of no other unit. It covers the released averages and \
    everything that follows from them alone, so it covers the model if nothing else that was computed from these users' data went \
    into it: no statistics of their batches, and no choice by looking at them.";

/// The reach of the guarantee of sums modulo a number, to which the server adds the noise before it reads anything from them.
const COVERS_FOLLOWERS: &str = "Reach of the aggregation: the server adds its noise to the sum modulo a number before it \
    reads anything from it. So the guarantee covers each participant who follows the encoding, whatever integers the others send.";

/// The condition for the guarantee of sums modulo a number in runs of earlier versions.
///
/// PRIVACY: the noise was added after a sum was brought back from residues. One participant who moves a coordinate close to
/// half the modulus makes another one's step change that coordinate by the whole modulus, which no sensitivity accounts for.
pub const FOLLOWS_THE_ENCODING: &str = "Condition of the aggregation: updates are added modulo a number before the \
    server adds its noise, so the guarantee holds if every participant follows the encoding. One participant who sends \
    integers outside of it can make the sum wrap around, and then the noise does not cover the others.";

/// The parties that see updates or sums, and the noise that the guarantee rests on.
fn of_aggregation(aggregation: &AggregationConfig) -> String {
    let seen = match aggregation.sum {
        SumName::Plain => "the operator sees every update",
        SumName::SecAgg => {
            "only the sum of a round leaves secure aggregation, which this process ran with both sides in it, so that \
             nothing was hidden from the operator"
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
