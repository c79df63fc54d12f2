//! `sweep.json`: the statement of a private sweep, which each of its candidates has in its directory.
//!
//! A private sweep trains a secret number of candidates and keeps the best one. Its guarantee follows from the law of that number and
//! from the plans of all combinations of settings, so the statement holds both. Nothing in it depends on people's text.

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::plan::{PrivacyPlan, SecretNumber, SelectionCost};
use undertone_settings::{SourceSpec, VocabularySpec};

use crate::config::RunConfig;
use crate::config::public::public;
use crate::error::{DirectoryError, Result};
use crate::files;
use crate::files::names::{CONFIG_FILE, SWEEP_FILE};
use crate::plan_inputs::config_text;

/// Name of the folder in which a private sweep trains, beside the run that it chooses.
pub const CANDIDATES: &str = ".candidates";

/// The statement of a private sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepStatement {
    /// Version of the format.
    pub version: u32,
    /// The name of the sweep: 32 hexadecimal digits of random bytes, drawn before the first candidate.
    pub id: String,
    /// Expected number of candidates, whose number is geometric. The number that was drawn is secret.
    pub mean_runs: SecretNumber,
    /// The score of a candidate.
    pub score: Score,
    /// The combinations, of which each candidate drew one uniformly.
    pub combinations: Vec<Combination>,
}

/// The score of a candidate: minus the mean loss of its model on a text that is no person's secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The text; its path is blank in a statement. That it is public is the word of the party that ran the sweep.
    pub public: SourceSpec,
}

/// One combination of settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combination {
    /// The name of its runs.
    pub name: String,
    /// The text of its `config.toml`, with its private parts blank. Earlier versions wrote all of it.
    pub config: String,
}

impl SweepStatement {
    /// The statement of a sweep over these run files, with the 16 bytes as its name.
    ///
    /// # Errors
    /// Settings that a private sweep cannot account for, by key.
    pub fn new(configs: &[&RunConfig], mean_runs: SecretNumber, score: &Score, id: [u8; 16]) -> Result<Self> {
        // Before the paths are blank.
        for config in configs {
            accountable(config, configs[0], score)?;
        }
        let combinations = configs.iter().map(|config| {
            Ok(Combination {
                name: config.task.name.clone(),
                config: public(&config_text(config)?, Path::new(SWEEP_FILE))?,
            })
        });
        let statement = Self {
            version: 1,
            id: undertone_present::numbers::hex(&id),
            mean_runs,
            score: Score {
                public: score.public.without_path(),
            },
            combinations: combinations.collect::<Result<_>>()?,
        };
        statement.configs(Path::new(SWEEP_FILE))?;
        Ok(statement)
    }

    /// Reads the statement of a run, if a private sweep chose it.
    ///
    /// # Errors
    /// [`DirectoryError::Io`], [`DirectoryError::Damaged`].
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(SWEEP_FILE);
        match files::exists(&path) {
            true => files::read_json(&path).map(Some),
            false => Ok(None),
        }
    }

    /// The settings of the combinations, checked.
    pub fn configs(&self, path: &Path) -> Result<Vec<RunConfig>> {
        let configs: Vec<RunConfig> = (self.combinations.iter())
            .map(|combination| RunConfig::parse(&combination.config, path, &[]))
            .collect::<Result<_>>()?;
        let Some(first) = configs.first() else {
            return Err(DirectoryError::value("axis", "at least one combination", 0));
        };
        for config in &configs {
            accountable(config, first, &self.score)?;
        }
        Ok(configs)
    }

    fn cost(&self, path: &Path, plan: &PrivacyPlan, words: usize) -> Result<SelectionCost> {
        let population = plan.population();
        let configs = self.configs(path)?;
        let plans = configs.iter().map(|config| {
            let layout = config.task.model.layout(words)?;
            Ok(PrivacyPlan::new(&config.task, None, &layout, population)?)
        });
        let plans: Vec<PrivacyPlan> = plans.collect::<Result<_>>()?;
        Ok(SelectionCost::new(&plans, self.mean_runs)?)
    }
}

/// PRIVACY: refuses what the guarantee of a sweep does not cover. Whatever reads people's text beside the candidates' training must be
/// equal in all combinations, or absent.
fn accountable(config: &RunConfig, first: &RunConfig, score: &Score) -> Result<()> {
    let refuse = |key: &str, expected: &str, got: &str| Err(DirectoryError::value(key, expected, got));
    let Some(privacy) = &config.task.privacy else {
        return refuse(
            "privacy",
            "noise in every combination of a private sweep",
            "no such table",
        );
    };
    if config.seed.is_some() {
        let expected = "runs without a seed, because nobody who knows the seed is kept from their losers";
        return refuse("seed", expected, "a seed");
    }
    if privacy.mechanism.is_some() || config.task.encoding_is_noisy() {
        let expected =
            "noise of its own in every round, and a guarantee that rests on sampling, in a private sweep";
        return refuse(
            "privacy.mechanism",
            expected,
            "noise under a participation schema",
        );
    }
    if config.task.estimate.is_some() {
        return refuse("estimate", "a guarantee of the runs themselves", "an estimate");
    }
    if config.initial_model.is_some() {
        let expected =
            "runs from random parameters: a private sweep does not add the cost of an initial model";
        return refuse("initial_model", expected, "a file");
    }
    if matches!(
        config.data.vocabulary,
        Some(VocabularySpec::Private { .. } | VocabularySpec::TrainingData { .. })
    ) {
        let expected = "public words: a private sweep does not add the cost of words from people's text";
        return refuse("data.vocabulary", expected, "words from people's text");
    }
    // A statement of an earlier version has the path of its text.
    if score.public != score.public.without_path() && config.data.source == score.public {
        let expected = "a public text";
        return refuse(
            "private.score.public",
            expected,
            "the text that the runs train on",
        );
    }
    if matches!(score.public, SourceSpec::Synthetic(_)) {
        return refuse(
            "private.score.public",
            "a text in a file or a folder",
            "a synthetic population",
        );
    }
    if config.data != first.data {
        return refuse(
            "data",
            "the same data in all combinations",
            "other data in one of them",
        );
    }
    let sampled = |config: &RunConfig| {
        let update = &config.task.user_update;
        (update.algorithm, update.group_size, update.weight_cap)
    };
    if sampled(config) != sampled(first) {
        let keys = "user_update.algorithm, user_update.group_size, user_update.weight_cap";
        return refuse(
            keys,
            "the same values in all combinations",
            "others in one of them",
        );
    }
    Ok(())
}

/// The plan with the cost of the private sweep that the run is a candidate of, where its directory has the statement of one.
pub fn with_selection(
    folder: &Path,
    config: &RunConfig,
    plan: PrivacyPlan,
    words: usize,
) -> Result<PrivacyPlan> {
    let Some(statement) = SweepStatement::read(folder)? else {
        return Ok(plan);
    };
    let path = folder.join(SWEEP_FILE);
    if statement.version != 1 {
        return Err(DirectoryError::damaged(&path, "expected version 1"));
    }
    let whole = config_text(config)?;
    let text = public(&whole, &path)?;
    if !statement
        .combinations
        .iter()
        .any(|combination| combination.config == text || combination.config == whole)
    {
        let message = format!("none of its combinations has the settings of {CONFIG_FILE}");
        return Err(DirectoryError::damaged(&path, message));
    }
    let cost = statement.cost(&path, &plan, words)?;
    Ok(plan.with_selection(Some(cost)))
}
