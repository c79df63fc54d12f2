//! The plan of a run file, from the file and declared numbers alone.

use std::path::Path;

use anyhow::ensure;
use serde::Serialize;
use undertone_coordinator::outlet::declared_examples;
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_coordinator::task::CohortSize;
use undertone_present::numbers::{grouped, number};
use undertone_run::RunFile;
use undertone_run_directory::config::{Override, RunConfig};
use undertone_run_directory::plan_inputs::named_strategy;
use undertone_settings::{Algorithm, CorpusSpec, SourceSpec, VocabularySpec};

use crate::commands::train::{assumptions, guarantee};
use crate::output::{Output, facts};

/// The ids of a list of words that are no words: unknown, begin and end.
const SPECIAL_IDS: usize = 3;

/// Numbers of the corpus that somebody declares, because nobody has counted them here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared {
    /// Users to train on.
    pub(super) users: Option<u64>,
    /// Examples that all of them keep.
    pub(super) examples: Option<u64>,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Document {
    run: String,
    rounds: u64,
    sampling: &'static str,
    /// `true` where noise is added.
    private: bool,
    /// Users to train on, as declared.
    population: Option<u64>,
    #[serde(flatten)]
    planned: Option<Planned>,
    /// The questions that the plan leaves open, as sentences.
    open: Vec<String>,
}

/// The figures that follow where every number is known that the plan needs.
#[derive(Debug, Serialize)]
struct Planned {
    users_per_round: f64,
    sampling_probability: f64,
    noise_multiplier: Option<f64>,
    /// Standard deviation of the noise in each coordinate of the released average of the first round.
    noise_std: f64,
    /// The guarantee of all rounds.
    guarantee: Option<GuaranteeRecord>,
    /// Trained parameters.
    parameters: usize,
    /// The distance that training can move the parameters, over the norm of the noise in them.
    reach: Option<f64>,
    warning: Option<String>,
}

/// Plans the run of a file and shows the plan.
pub(super) fn run(path: &Path, set: &[Override], declared: Declared, output: &Output) -> anyhow::Result<()> {
    let file = RunFile::read(path, set)?;
    let document = plan(&file, declared, output)?;
    output.show(&document, || text(&file.config, &document))
}

fn plan(file: &RunFile, declared: Declared, output: &Output) -> anyhow::Result<Document> {
    let config = &file.config;
    let task = &config.task;
    let is_els = task.user_update.algorithm == Algorithm::Els;
    ensure!(
        declared.examples.is_none() || is_els,
        "--examples: expected a run file with `user_update.algorithm` = \"els\", which samples examples, got \"{}\"",
        task.user_update.algorithm.name()
    );
    let mut open = Vec::new();
    let ids = ids(&config.data, &file.base)?;
    if ids.is_none() {
        open.push(
            "The number of words is that of the corpus: the run counts them when it starts.".to_owned(),
        );
    }
    let weight = match (is_els, declared.users, declared.examples) {
        (false, users, _) => users.map(|users| users as f64),
        // The file may give the number of examples, and the run then takes that one.
        (true, _, examples) => declared_examples(task).or(examples.map(|examples| examples as f64)),
    };
    if declared.users.is_none() {
        open.push(
            "The number of users to train on is not in a run file: give it as --population.".to_owned(),
        );
    }
    if is_els && weight.is_none() {
        open.push(
            "The number of examples that users keep is not in a run file: give it as --examples.".to_owned(),
        );
    }
    let planned = match (declared.users, weight, ids) {
        (Some(users), Some(weight), Some(ids)) => {
            let population = Population {
                users,
                total_weight: weight,
            };
            Some(planned(file, population, ids, output)?)
        }
        _ => None,
    };
    if config.initial_model.is_some() {
        open.push(
            "What the training of the initial model cost the same people, if anything, is not counted here."
                .to_owned(),
        );
    }
    if let Some(VocabularySpec::Private { .. }) = &config.data.vocabulary {
        open.push("What the private choice of the words cost is not counted here.".to_owned());
    }
    Ok(Document {
        run: task.name.clone(),
        rounds: task.rounds,
        sampling: task.cohort.sampling.name(),
        private: task.privacy.is_some(),
        population: declared.users,
        planned,
        open,
    })
}

/// The plan that the run itself makes, over a declared population.
fn planned(file: &RunFile, population: Population, ids: usize, output: &Output) -> anyhow::Result<Planned> {
    let task = &file.config.task;
    let layout = task.model.layout(ids)?;
    let strategy = named_strategy(task, &file.base)?;
    let spinner = output.spinner("planning");
    let plan = PrivacyPlan::new(task, strategy.as_ref(), &layout, population)?;
    spinner.finish_and_clear();
    plan.check_budget()?;
    let round = plan.round(0);
    Ok(Planned {
        users_per_round: plan.users_per_round(),
        sampling_probability: plan.sampling_probability(),
        noise_multiplier: round.noise_multiplier,
        noise_std: round.noise_std,
        guarantee: plan.planned()?,
        parameters: layout.len(),
        reach: plan.reach()?,
        warning: plan.warning(task, &layout, file.config.initial_model.is_some())?,
    })
}

/// The number of ids of the vocabulary, where the run file, or a file of words that it names, tells it.
fn ids(data: &CorpusSpec, base: &Path) -> anyhow::Result<Option<usize>> {
    if let Some(vocab) = undertone_data::vocabulary_in_file(data, base)? {
        return Ok(Some(vocab.len()));
    }
    Ok(match (&data.vocabulary, &data.source) {
        (Some(VocabularySpec::PublicCorpus { size, .. } | VocabularySpec::TrainingData { size }), _) => {
            Some(size + SPECIAL_IDS)
        }
        (_, SourceSpec::Synthetic(source)) => Some(source.words + SPECIAL_IDS),
        _ => None,
    })
}

fn text(config: &RunConfig, document: &Document) -> String {
    let task = &config.task;
    let mut rows = vec![
        ("run", document.run.clone()),
        ("rounds", grouped(document.rounds)),
    ];
    if let Some(users) = document.population {
        rows.push(("users", format!("{} to train on, as declared", grouped(users))));
    }
    let size = match (&document.planned, task.cohort_size()) {
        (Some(planned), _) if task.user_update.algorithm == Algorithm::Els => {
            format!(
                "each example with probability {}",
                number(planned.sampling_probability)
            )
        }
        (Some(planned), _) => format!(
            "{} users per round, sampling probability {}",
            number(planned.users_per_round),
            number(planned.sampling_probability)
        ),
        (None, Ok(CohortSize::Count { count, key })) => format!("{key} = {}", number(count)),
        (None, Ok(CohortSize::Probability(probability))) => {
            format!("sampling probability {}", number(probability))
        }
        (None, Err(_)) => String::new(),
    };
    rows.push(("cohort", format!("{}: {size}", document.sampling)));
    if let Some(privacy) = &task.privacy {
        let asked = match (privacy.target_epsilon, privacy.noise_multiplier) {
            (Some(epsilon), _) => format!("epsilon {}", number(epsilon)),
            (None, Some(noise)) => format!("noise multiplier {}", number(noise)),
            (None, None) => "no noise multiplier".to_owned(),
        };
        let delta = match privacy.delta {
            Some(delta) => format!("delta {delta:e}"),
            None => "delta users^-1.1".to_owned(),
        };
        rows.push(("asked for", format!("{asked}, {delta}")));
    }
    if let Some(planned) = &document.planned {
        rows.push((
            "parameters",
            format!("{} trained", grouped(planned.parameters as u64)),
        ));
        if let Some(noise) = planned.noise_multiplier {
            let std = number(planned.noise_std);
            let noise = number(noise);
            rows.push((
                "noise",
                format!("multiplier {noise}; standard deviation {std} per coordinate of the average"),
            ));
        }
        match &planned.guarantee {
            Some(record) => {
                rows.push(("planned", guarantee(record)));
                rows.push(("", assumptions(record)));
            }
            None => rows.push(("planned", "this run has no guarantee".to_owned())),
        }
        if let Some(reach) = planned.reach {
            let reach = number(reach);
            rows.push((
                "reach",
                format!("training can move the parameters {reach} times as far as the noise does"),
            ));
        }
        rows.extend(planned.warning.iter().map(|warning| ("warning", warning.clone())));
    }
    rows.extend(document.open.iter().map(|open| ("open", open.clone())));
    facts(rows)
}
