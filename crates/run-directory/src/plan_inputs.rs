//! The inputs that a plan, a model and their verification read from the files of a run: strategy, words and their cost, trainings, model.

use std::path::Path;

use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone_accounting::Delta;
use undertone_coordinator::kept_examples;
use undertone_coordinator::outlet::declared_examples;
use undertone_coordinator::plan::{Begun, Population, PrivacyPlan, VocabularyCost};
use undertone_coordinator::task::TaskConfig;
use undertone_coordinator::trainings::{Training, check};
use undertone_mechanisms::{Described, Mechanism, Strategy};
use undertone_models::{Loaded, ModelSpec, SequenceModel};
use undertone_present::numbers::hex;
use undertone_settings::{Algorithm, CorpusSpec, UserSettings, VocabularySpec};
use undertone_text::Vocab;
use undertone_vocabulary::{FileRecord, PrivateVocabulary};

use crate::config::RunConfig;
use crate::error::{DirectoryError, Result};
use crate::files;
use crate::files::names::{
    INITIAL_MODEL_FILE, MECHANISM_FILE, MODEL_FILE, TOKENIZER_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_FILE,
    VOCAB_PRIVACY_FILE,
};

/// The strategy of the file that `privacy.mechanism.file` names; relative paths start at `base`.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::Damaged`] for a file that holds no strategy.
pub fn named_strategy(task: &TaskConfig, base: &Path) -> Result<Option<Strategy>> {
    let mechanism = task
        .privacy
        .as_ref()
        .and_then(|privacy| privacy.mechanism.as_ref());
    let file = mechanism.and_then(|mechanism| mechanism.file.as_ref());
    file.map(|file| read_strategy(&base.join(file))).transpose()
}

/// The cost of the private choice of the words, under the relation of the plan; `None` without a record or without privacy.
///
/// # Errors
/// From the accountant, where the cost is not known under this relation.
pub fn vocabulary_cost(
    plan: &PrivacyPlan,
    record: Option<&PrivateVocabulary>,
) -> Result<Option<VocabularyCost>> {
    let (Some(record), Some(delta)) = (record, plan.delta()) else {
        return Ok(None);
    };
    // The threshold has a delta of its own, which may be more than the run's.
    let delta = delta.max(2.0 * record.threshold_delta().get());
    let chosen = record.guarantee(plan.adjacency(), Delta::new(delta)?)?;
    Ok(Some(VocabularyCost::new(&chosen, record.key())))
}

/// Reads a strategy as `undertone mechanism optimize --out` or a person writes it.
fn read_strategy(file: &Path) -> Result<Strategy> {
    let bytes = files::read_given(file, files::MAX_GIVEN)?;
    let read = Described::read(&bytes).map_err(|error| DirectoryError::damaged(file, error))?;
    Ok(read.strategy().clone())
}

/// The words or tokens of a run, from its folder.
pub fn vocabulary_of(folder: &Path, data: &CorpusSpec) -> Result<Vocab> {
    let vocab = match &data.vocabulary {
        Some(VocabularySpec::Tokenizer { bos, eos, .. }) => {
            let path = folder.join(TOKENIZER_FILE);
            undertone_vocabulary::parse_tokens(&path, files::read(&path)?, bos.as_deref(), eos.as_deref())?
        }
        _ => {
            let path = folder.join(VOCAB_FILE);
            undertone_vocabulary::parse_words(&path, &files::read(&path)?)?
        }
    };
    Ok(vocab.with_rule(data.words))
}

/// The name of the record of a vocabulary.
#[must_use]
pub fn record_name(vocab: &Vocab) -> &'static str {
    match vocab.file_name() == TOKENIZER_FILE {
        true => TOKENIZER_PRIVACY_FILE,
        false => VOCAB_PRIVACY_FILE,
    }
}

/// The record of these words in the directory of a run. Words that the run file declares public have none. In directories of earlier
/// versions, words of the training data have none either.
///
/// # Errors
/// [`DirectoryError::Damaged`] for the record of other words.
pub fn words_record(folder: &Path, vocab: &Vocab) -> Result<Option<FileRecord>> {
    let path = folder.join(record_name(vocab));
    let Some(bytes) = files::read_if_there(&path)? else {
        return Ok(None);
    };
    let record = FileRecord::parse(&path, &bytes)?;
    let matches = match &record {
        FileRecord::Chosen(record) => record.matches(vocab) && record.words() == vocab.words().len() as u64,
        FileRecord::NotPrivate(record) => record.matches(vocab),
    };
    match matches {
        true => Ok(Some(record)),
        false => {
            let message = format!("it is that of other words than those in {}", vocab.file_name());
            Err(DirectoryError::damaged(&path, message))
        }
    }
}

/// Names and shapes of 12,000 tensors, and a description.
const MAX_MODEL_HEADER: u64 = 4 << 20;

/// The model of a finished run, and the parameters that it trained.
pub fn trained_model(
    folder: &Path,
    spec: &ModelSpec,
    vocab: &Vocab,
) -> Result<(Box<dyn SequenceModel>, Vec<f32>)> {
    let path = folder.join(MODEL_FILE);
    // Adapters stand beside what they are added to.
    let mut max = 4 * spec.layout(vocab.len())?.len() as u64 + MAX_MODEL_HEADER;
    if spec.lora().is_some() {
        max += 4 * spec.without_lora().layout(vocab.len())?.len() as u64;
    }
    let bytes = files::read_at_most(&path, max)?;
    let Loaded { model, parameters } = spec.load(vocab.len(), &bytes)?;
    let lacking = "it lacks the adapters that the run has trained";
    Ok((
        model,
        parameters.ok_or_else(|| DirectoryError::damaged(&path, lacking))?,
    ))
}

/// The trainings that the initial model of a run describes; empty where the run started from random parameters.
pub fn trainings_of(folder: &Path) -> Result<Vec<Training>> {
    let path = folder.join(INITIAL_MODEL_FILE);
    if !files::exists(&path) {
        return Ok(Vec::new());
    }
    let trainings: Vec<Training> = files::read_json(&path)?;
    let checked = match trainings.is_empty() {
        true => Err("expected at least one training".to_owned()),
        false => check(&trainings),
    };
    checked.map_err(|message| DirectoryError::damaged(&path, message))?;
    Ok(trainings)
}

/// The mechanism that a run was started with, where it has one.
pub fn mechanism_of(folder: &Path) -> Result<Option<Mechanism>> {
    let path = folder.join(MECHANISM_FILE);
    match files::exists(&path) {
        true => Ok(Some(files::read_json(&path)?)),
        false => Ok(None),
    }
}

/// The strategy that a run was started with, where it has one.
pub fn strategy_of(folder: &Path) -> Result<Option<Strategy>> {
    Ok(mechanism_of(folder)?.map(|mechanism| mechanism.strategy().clone()))
}

/// The noise that a run was begun with. `first` is the noise multiplier of its first round.
pub fn begun(folder: &Path, first: Option<f64>) -> Result<Begun> {
    let mechanism = mechanism_of(folder)?;
    Ok(mechanism.map_or(
        Begun {
            strategy: None,
            noise_multiplier: first,
        },
        |mechanism| Begun::with(&mechanism),
    ))
}

/// The text of a configuration, as `config.toml` holds it.
pub fn config_text<T: Serialize>(config: &T) -> Result<String> {
    toml::to_string(config)
        .map_err(|error| DirectoryError::value("configuration", "values that TOML can hold", error))
}

/// Digest of the whole configuration.
///
/// # Errors
/// Values that TOML cannot hold.
pub fn config_digest<T: Serialize>(config: &T) -> Result<String> {
    Ok(hex(&Sha256::digest(config_text(config)?.as_bytes())))
}

/// `true` if a run evaluates its model after this number of rounds, before the last.
#[must_use]
pub fn evaluates(config: &RunConfig, rounds: u64) -> bool {
    let every = config.evaluation.every;
    rounds > 0 && every > 0 && rounds.is_multiple_of(every) && rounds < config.task.rounds
}

/// Number of evenly spaced rounds after which a run states its epsilon, beside those that it evaluates.
const EPSILON_POINTS: u64 = 100;

/// `true` if the metrics of a round state the guarantee of this number of rounds. Under a participation schema the guarantee
/// is a search over the rounds' matrix, made when the model is evaluated. Otherwise it composes loss distributions.
pub fn shows_epsilon(config: &RunConfig, plan: &PrivacyPlan, rounds: u64) -> bool {
    let point =
        plan.participation().is_none() && rounds.is_multiple_of(config.task.rounds.div_ceil(EPSILON_POINTS));
    point || rounds == config.task.rounds || evaluates(config, rounds)
}

/// Estimates the signal's norm over the noise's from the release alone: the signal's energy is that of the release beyond the
/// noise's. A round's part of correlated noise is not known here.
pub fn signal_to_noise(
    plan: &PrivacyPlan,
    noise_std: f64,
    parameters: usize,
    release_norm: f64,
) -> Option<f64> {
    let noise_norm = noise_std * (parameters as f64).sqrt();
    let independent = plan.bounded().is_none() && noise_norm > 0.0;
    independent.then(|| (release_norm.powi(2) - noise_norm.powi(2)).max(0.0).sqrt() / noise_norm)
}

/// Number of training users with these numbers of examples and their total weight, for a private run no more than its bound. With
/// example-level sampling each kept example weighs 1, and the file may give their number.
#[must_use]
pub fn population(config: &RunConfig, examples: &[u32]) -> Population {
    let UserSettings {
        algorithm,
        group_size,
        weight_cap,
        ..
    } = config.task.user_update;
    let users = examples.len();
    let total_weight = match weight_cap {
        None if algorithm == Algorithm::Els => {
            let counted = || kept_examples::count(examples, group_size.unwrap_or(0)) as f64;
            // PRIVACY: a number that the file gives is not counted on people's text.
            let declared = declared_examples(&config.task).filter(|_| config.task.privacy.is_some());
            declared.unwrap_or_else(counted)
        }
        None => users as f64,
        // PRIVACY: weights follow from what people wrote. The plan of a private run has its denominator from the run file.
        Some(_) if config.task.privacy.is_some() => users as f64,
        Some(cap) => (examples.iter())
            .map(|&count| undertone_aggregation::user_weight(u64::from(count), cap))
            .sum(),
    };
    Population {
        users: users as u64,
        total_weight,
    }
}
