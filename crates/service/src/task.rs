//! A task as the service runs it: its file, its plan, its model, and the signed plan that devices read.

mod evaluations;
pub mod parity;
mod signed_plan;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use undertone_coordinator::head::Trained;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::PrivacyReport;
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::task::{IdentityLevel, SumName, TaskFile, TaskPurpose, TaskVocabulary};
use undertone_coordinator::trainings::Training;
use undertone_mechanisms::NoiseKey;
use undertone_models::{SequenceModel, weights};
use undertone_protocol::{Digest32, Label, TaskKind, digest_of, write};
use undertone_run_directory::initial_model;
use undertone_run_directory::metrics::{EvaluationRecord, MetricsLine};
use undertone_run_directory::task::{
    TaskExport, genesis, mechanism_json, mechanism_of, new_plan, plan_with, start_record,
};
use undertone_secagg::{GraphChoice, Terms};
use undertone_store::{Blobs, NewTask, Store, TaskId, TaskRow};
use undertone_text::{Vocab, VocabProvenance};

use crate::error::{Result, ServiceError};
use crate::identity::{digest_from, hex};
use crate::keys::Keys;
use crate::keys::pseudonyms::Pseudonyms;
use signed_plan::{check_signed, plan_body, rotation_seed, terms};

/// Percentage of a device's neighbours that open its masks, where a task names no graph: more than half.
const CURIOUS_PERCENT: u32 = 51;

/// The percentage where the server may lie: with a quarter of the neighbours corrupt, it takes more than five eighths to open the
/// masks of two different sets.
const ACTIVE_PERCENT: u32 = 67;

/// Everything that the plan of a task was made from; the store keeps it beside the rows of the task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The canonical form of the task file.
    task: String,
    /// The digest of the vocabulary.
    vocabulary: String,
    /// The digest of the mechanism of correlated noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mechanism: Option<String>,
    /// The trainings of the initial model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trainings: Vec<Training>,
    /// The task whose model an evaluation measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    /// The seed of the rotations of the simulation, in a parity test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotations: Option<String>,
    /// The digest of the key of the pseudonyms; none where they follow from the key file alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pseudonyms: Option<String>,
    /// The public key that signed the plan; none where it is the first one of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan_key: Option<String>,
    /// The keys of the issuer that the plan names; none for the first one of the service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    issuers: Vec<String>,
}

/// A task with everything that follows from its file.
pub struct Task {
    /// The identifier of the task.
    pub id: TaskId,
    /// The population of the task.
    pub population: String,
    /// The file of the task.
    pub file: TaskFile,
    /// The words of the model.
    pub vocab: Arc<Vocab>,
    /// The digest of the vocabulary, as devices read it.
    pub vocabulary: Digest32,
    /// The content of `mechanism.json`, where the noise is correlated.
    pub mechanism: Option<Vec<u8>>,
    /// The trainings of the initial model.
    pub trainings: Vec<Training>,
    /// The model.
    pub model: Arc<dyn SequenceModel>,
    /// The guarantee, the noise and the encoding.
    pub privacy: PrivacyPlan,
    /// The digest that the first line of the ledger follows.
    pub genesis: String,
    /// The signed plan, as it travels.
    pub plan: Vec<u8>,
    /// The key of the rotations of the encoding.
    pub rotations: NoiseKey,
    /// The task whose model an evaluation measures.
    pub of: Option<TaskId>,
    /// The digest of the key of the pseudonyms; `None` where they follow from the key file alone.
    pub pseudonyms: Option<Digest32>,
    /// The public key that signed the plan.
    pub plan_key: Digest32,
    /// The keys of the issuer that a plan with secure sums names.
    pub issuers: Vec<Digest32>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.file.task.name)
            .finish_non_exhaustive()
    }
}

/// Creates a task as a draft: optimises its noise, signs its plan, makes its initial model, and stores all of it. `base` is the
/// folder of the task file.
///
/// # Errors
/// [`ServiceError::Value`] for a file that is not valid, or a vocabulary that cannot be read; from the plan, the store and the blobs.
pub fn create(
    file: &TaskFile,
    base: &Path,
    population: &str,
    keys: &Keys,
    store: &dyn Store,
    blobs: &dyn Blobs,
) -> Result<TaskId> {
    create_with(file, base, population, keys, store, blobs, None)
}

/// [`create`], with a key of its own for the pseudonyms of the task. Its destruction ends every link of subjects and ledger.
///
/// # Errors
/// The errors of [`create`].
pub fn create_with_pseudonyms(
    file: &TaskFile,
    base: &Path,
    population: &str,
    keys: &Keys,
    store: &dyn Store,
    blobs: &dyn Blobs,
) -> Result<TaskId> {
    make(file, base, population, keys, store, blobs, None, true)
}

/// [`create`], with the rotations of a simulation in a parity test.
pub(crate) fn create_with(
    file: &TaskFile,
    base: &Path,
    population: &str,
    keys: &Keys,
    store: &dyn Store,
    blobs: &dyn Blobs,
    rotations: Option<Digest32>,
) -> Result<TaskId> {
    make(file, base, population, keys, store, blobs, rotations, false)
}

#[expect(clippy::too_many_arguments, reason = "each is one input of a task")]
fn make(
    file: &TaskFile,
    base: &Path,
    population: &str,
    keys: &Keys,
    store: &dyn Store,
    blobs: &dyn Blobs,
    rotations: Option<Digest32>,
    own_pseudonyms: bool,
) -> Result<TaskId> {
    let Planned {
        words,
        vocab,
        trainings,
        privacy,
    } = plan(file, base, population)?;
    let id = TaskId(file.id(population)?);
    let of = match &file.purpose {
        TaskPurpose::Train { .. } => None,
        TaskPurpose::Evaluate { of, .. } => Some(measured(of, population, file, store)?),
    };
    let mechanism = mechanism_json(&privacy)?;
    let settings = Settings {
        task: file.canonical()?,
        vocabulary: hex(&digest_of(&words)),
        mechanism: mechanism.as_ref().map(|json| hex(&digest_of(json))),
        trainings: trainings.clone(),
        of: of.map(|of| hex(&of.0)),
        rotations: rotations.map(|seed| hex(&seed)),
        pseudonyms: match own_pseudonyms {
            true => Some(hex(&Pseudonyms::draw(store, keys, id)?)),
            false => None,
        },
        plan_key: Some(hex(&keys.plans().public()))
            .filter(|_| keys.plans().public() != keys.first_plan_key()),
        issuers: match keys.issuer_keys() {
            first if first == [keys.issuer_name()] => Vec::new(),
            several => several.iter().map(|key| hex(key)).collect(),
        },
    };
    let rotations = rotations.unwrap_or_else(|| rotation_seed(id));
    let model: Arc<dyn SequenceModel> = build(file, &vocab)?;
    let first = match (&file.purpose, of) {
        (TaskPurpose::Train { initial_model: path }, _) => {
            let randomness = undertone_run_directory::entropy::randomness(file.seed)?;
            let parameters = initial_model::starting_parameters(
                &file.task.model,
                path.as_deref(),
                base,
                model.as_ref(),
                &vocab,
                &randomness,
            )?;
            let bytes = weights::tensors_alone(model.layout(), &parameters);
            bytes.map_err(|error| damaged("the initial model", error))?
        }
        // An evaluation serves the models of its training.
        (TaskPurpose::Evaluate { .. }, _) => Vec::new(),
    };
    let body = plan_body(
        file,
        id,
        population,
        &privacy,
        &vocab,
        &words,
        of,
        rotations,
        keys,
        &keys.issuer_keys(),
    )?;
    let plan = write(&keys.plans().sign(Label::Plan, body));
    for bytes in [Some(&words), Some(&plan), Some(&first), mechanism.as_ref()]
        .into_iter()
        .flatten()
    {
        blobs.put(&mut bytes.as_slice())?;
    }
    let declared = privacy.policy(&file.task)?.ok_or_else(|| ServiceError::Value {
        key: "participation".to_owned(),
        expected: "a table with `min_sep` and `max_part`".to_owned(),
        got: "none".to_owned(),
    })?;
    let participation = declared.declared();
    store.create_task(&NewTask {
        id,
        population: population.to_owned(),
        name: file.task.name.clone(),
        kind: match file.purpose {
            TaskPurpose::Train { .. } => TaskKind::Train,
            TaskPurpose::Evaluate { .. } => TaskKind::Evaluate,
        },
        config: serde_json::to_string(&settings).map_err(|error| damaged("the settings", error))?,
        plan: digest_of(&plan),
        genesis: genesis(&id.0, mechanism.as_deref(), &words, &trainings)?,
        participation,
        rounds: file.task.rounds,
        min_included: file.floor(),
        model: digest_of(&first),
    })?;
    Ok(id)
}

/// A task file with its plan, before anything is stored.
#[derive(Debug)]
pub struct Planned {
    /// The vocabulary, as its file holds it.
    words: Vec<u8>,
    /// The words of the model.
    pub vocab: Vocab,
    /// The trainings of the initial model.
    trainings: Vec<Training>,
    /// The plan.
    pub privacy: PrivacyPlan,
}

/// Plans a task file: reads its vocabulary, and optimises its noise.
///
/// # Errors
/// [`ServiceError::Io`] for a file that cannot be read; the errors of the vocabulary, of the initial model and of the plan.
pub fn plan(file: &TaskFile, base: &Path, population: &str) -> Result<Planned> {
    let TaskVocabulary::File { path } = &file.vocabulary;
    let path = base.join(path);
    let words = std::fs::read(&path).map_err(|error| ServiceError::io("read", &path, error))?;
    let vocab = vocabulary(&words)?.with_rule(file.text.words);
    let trainings = match &file.purpose {
        TaskPurpose::Train {
            initial_model: Some(path),
        } => initial_model::trained_on(&base.join(path))?,
        _ => Vec::new(),
    };
    let initial = match &file.purpose {
        TaskPurpose::Train { initial_model } => initial_model.as_ref().map(|path| base.join(path)),
        TaskPurpose::Evaluate { .. } => None,
    };
    undertone_run_directory::task::check_words(&path, &vocab, initial.as_deref())?;
    let strategy = undertone_run_directory::task::named_strategy(file, base)?;
    let privacy = new_plan(file, strategy.as_ref(), vocab.len(), &trainings, population)?;
    Ok(Planned {
        words,
        vocab,
        trainings,
        privacy,
    })
}

/// Bytes of an update as it travels.
pub fn upload_bytes(privacy: &PrivacyPlan) -> u64 {
    match privacy.encoding() {
        None => 4 * privacy.layout().len() as u64,
        Some(encoding) => {
            let bits = encoding.padded_dim() as u64 * u64::from(encoding.bits_per_coordinate());
            bits.div_ceil(8)
        }
    }
}

/// The graph of the groups of a task file.
///
/// # Errors
/// [`ServiceError::Coordinator`] for assumptions that no graph allows.
pub fn graph_of(file: &TaskFile) -> Result<GraphChoice> {
    let graph = file
        .task
        .aggregation
        .as_ref()
        .and_then(|aggregation| aggregation.graph);
    Ok(match graph {
        None => GraphChoice::Full {
            threshold_percent: match file.service.identity {
                IdentityLevel::Dev => CURIOUS_PERCENT,
                IdentityLevel::Certificate | IdentityLevel::Attested => ACTIVE_PERCENT,
            },
        },
        Some(graph) => GraphChoice::Assumed(graph.assumptions()?),
    })
}

/// The training task that an evaluation measures.
fn measured(of: &str, population: &str, file: &TaskFile, store: &dyn Store) -> Result<TaskId> {
    let tasks = store.tasks()?;
    let found = tasks
        .iter()
        .find(|row| row.task.population == population && row.task.name == of && !row.deleted);
    let row = found.ok_or_else(|| ServiceError::Value {
        key: "of".to_owned(),
        expected: format!("the name of a training task of the population {population:?}"),
        got: format!("{of:?}"),
    })?;
    let settings: Settings =
        serde_json::from_str(&row.task.config).map_err(|error| damaged("the settings", error))?;
    file.check_evaluates(&TaskFile::from_canonical(&settings.task)?)?;
    Ok(row.task.id)
}

fn vocabulary(words: &[u8]) -> Result<Vocab> {
    let vocab = Vocab::from_words(words).map_err(|error| damaged("the vocabulary", error))?;
    Ok(vocab.with_provenance(VocabProvenance::File))
}

/// The model of a task over this vocabulary.
///
/// # Errors
/// The error of a model that the settings do not allow.
pub fn build(file: &TaskFile, vocab: &Vocab) -> Result<Arc<dyn SequenceModel>> {
    let built = file
        .task
        .model
        .build(vocab.len())
        .map_err(|error| damaged("the model of the task", error))?;
    Ok(Arc::from(built))
}

fn damaged(what: &str, error: impl std::fmt::Display) -> ServiceError {
    ServiceError::Value {
        key: what.to_owned(),
        expected: "one that this service can read".to_owned(),
        got: error.to_string(),
    }
}

/// `true` if the key of the pseudonyms of a task is to be destroyed when the task has ended.
///
/// # Errors
/// [`ServiceError::Value`] for settings that this service did not write.
pub(crate) fn forgets_pseudonyms(row: &TaskRow) -> Result<bool> {
    let settings: Settings =
        serde_json::from_str(&row.task.config).map_err(|error| damaged("the settings of the task", error))?;
    Ok(TaskFile::from_canonical(&settings.task)?
        .service
        .forget_pseudonyms)
}

/// The task that an evaluation measures; `None` for a task that trains.
///
/// # Errors
/// [`ServiceError::Value`] for settings that this service did not write.
pub fn measures(row: &TaskRow) -> Result<Option<TaskId>> {
    let settings: Settings =
        serde_json::from_str(&row.task.config).map_err(|error| damaged("the settings of the task", error))?;
    let of = settings.of.map(|of| digest_from("the measured task", &of));
    Ok(of.transpose()?.map(TaskId))
}

/// `true` if a task that has ended was forgotten, or is to be: its own key of pseudonyms is gone, or its file asks for that.
///
/// # Errors
/// [`ServiceError::Value`] for settings that this service did not write; from the store.
pub(crate) fn is_forgotten(row: &TaskRow, store: &dyn Store) -> Result<bool> {
    let settings: Settings =
        serde_json::from_str(&row.task.config).map_err(|error| damaged("the settings of the task", error))?;
    let gone = settings.pseudonyms.is_some() && store.pseudonym_key(row.task.id)?.is_none();
    Ok(gone || forgets_pseudonyms(row)?)
}

impl Task {
    /// Loads a task of the store.
    ///
    /// # Errors
    /// [`ServiceError::Value`] for a row, a plan or a vocabulary that this service did not write.
    pub fn load(row: &TaskRow, blobs: &dyn Blobs, keys: &Keys) -> Result<Self> {
        let settings: Settings = serde_json::from_str(&row.task.config)
            .map_err(|error| damaged("the settings of the task", error))?;
        let file = TaskFile::from_canonical(&settings.task)?;
        let vocabulary_digest = digest_from("the vocabulary of the task", &settings.vocabulary)?;
        let words = crate::storage::blobs::read(blobs, &vocabulary_digest)?;
        let vocab = vocabulary(&words)?;
        let mechanism = match &settings.mechanism {
            None => None,
            Some(digest) => Some(crate::storage::blobs::read(
                blobs,
                &digest_from("the mechanism of the task", digest)?,
            )?),
        };
        let made = genesis(&row.task.id.0, mechanism.as_deref(), &words, &settings.trainings)?;
        if made != row.task.genesis || file.id(&row.task.population)? != row.task.id.0 {
            return Err(damaged(
                "the settings of the task",
                "others than those that it was created with",
            ));
        }
        let begun = mechanism.as_deref().map(mechanism_of).transpose()?;
        let trainings = settings.trainings;
        let privacy = plan_with(
            &file,
            begun.as_ref(),
            vocab.len(),
            &trainings,
            &row.task.population,
        )?;
        let of = match &settings.of {
            None => None,
            Some(of) => Some(TaskId(digest_from("the measured task", of)?)),
        };
        let pseudonyms = match &settings.pseudonyms {
            None => None,
            Some(digest) => Some(digest_from("the key of the pseudonyms", digest)?),
        };
        let rotations = match &settings.rotations {
            None => rotation_seed(row.task.id),
            Some(seed) => digest_from("the rotations of a simulation", seed)?,
        };
        let plan_key = match &settings.plan_key {
            None => keys.first_plan_key(),
            Some(digits) => digest_from("the key of the plan", digits)?,
        };
        let issuers: Vec<Digest32> = match settings.issuers.is_empty() {
            true => vec![keys.issuer_name()],
            false => {
                let keys = settings.issuers.iter();
                keys.map(|digits| digest_from("a key of the issuer", digits))
                    .collect::<Result<_>>()?
            }
        };
        let plan = crate::storage::blobs::read(blobs, &row.task.plan)?;
        let body = plan_body(
            &file,
            row.task.id,
            &row.task.population,
            &privacy,
            &vocab,
            &words,
            of,
            rotations,
            keys,
            &issuers,
        )?;
        check_signed(&plan, &body, &plan_key, keys)?;
        Ok(Self {
            id: row.task.id,
            population: row.task.population.clone(),
            plan_key,
            issuers,
            model: build(&file, &vocab)?,
            rotations: NoiseKey::from_bytes(rotations),
            vocabulary: vocabulary_digest,
            mechanism,
            trainings,
            vocab: Arc::new(vocab),
            genesis: row.task.genesis.clone(),
            file,
            privacy,
            plan,
            of,
            pseudonyms,
        })
    }

    /// The model before the first round, with this optimizer at its start.
    ///
    /// # Errors
    /// [`ServiceError::Value`] for bytes that are no such model.
    pub fn trained(&self, model: &[u8]) -> Result<Trained> {
        let layout = self.model.layout();
        let parameters =
            weights::from_safetensors(layout, model).map_err(|error| damaged("the model", error))?;
        Ok(Trained {
            model: self.model.clone(),
            parameters,
            optimizer: ServerOptimizer::new(self.file.task.server, layout, self.file.task.rounds),
            identity: ModelIdentity::new(self.model.as_ref()),
        })
    }

    /// Writes the directory of the ended task, which `undertone verify` reads. Returns the privacy report.
    ///
    /// The metrics get the measures of `evaluations`. PRIVACY: they are exact, so their text must not come from people of the population.
    ///
    /// # Errors
    /// A task that has not ended; a folder that exists; from the store and the blobs.
    pub fn export(
        &self,
        store: &dyn Store,
        blobs: &dyn Blobs,
        keys: &Keys,
        folder: &Path,
        evaluations: &[EvaluationRecord],
    ) -> Result<PrivacyReport> {
        let row = store.task(self.id)?;
        let vocabulary = crate::storage::blobs::read(blobs, &self.vocabulary)?;
        let issuers = match self.file.service.identity {
            IdentityLevel::Dev => Vec::new(),
            IdentityLevel::Certificate | IdentityLevel::Attested => vec![keys.issuer_name()],
        };
        let parameters = match self.file.purpose {
            TaskPurpose::Evaluate { .. } => None,
            TaskPurpose::Train { .. } => Some(
                self.trained(&crate::storage::blobs::read(blobs, &row.head_model)?)?
                    .parameters,
            ),
        };
        let mut metrics = store.metrics(self.id)?;
        let start = start_record(&self.file, &self.privacy, self.vocab.len())?;
        let start =
            serde_json::to_vec(&MetricsLine::Start(start)).map_err(|error| damaged("the metrics", error))?;
        metrics.insert(0, start);
        let metrics = evaluations::entered(metrics, evaluations)?;
        let export = TaskExport {
            file: &self.file,
            population: &self.population,
            issuers: &issuers,
            vocabulary: &vocabulary,
            plan: &self.privacy,
            mechanism: self.mechanism.as_deref(),
            trainings: &self.trainings,
            ledger: &store.ledger(self.id, 0)?,
            metrics: &metrics,
            model: parameters
                .as_deref()
                .map(|parameters| (self.model.as_ref(), parameters)),
        };
        Ok(export.write(folder)?)
    }

    /// The warning that the noise leaves nothing of what the task learns, with the changes that would help. `undertone train` has the same.
    ///
    /// # Errors
    /// From the noise of the plan.
    pub fn warning(&self) -> Result<Option<String>> {
        Ok(start_record(&self.file, &self.privacy, self.vocab.len())?.warning)
    }

    /// The parameters of the newest released model.
    ///
    /// # Errors
    /// From the blobs; [`ServiceError::Value`] for bytes that are no such model.
    pub fn released(&self, row: &TaskRow, blobs: &dyn Blobs) -> Result<Vec<f32>> {
        Ok(self
            .trained(&crate::storage::blobs::read(blobs, &row.head_model)?)?
            .parameters)
    }

    /// Bytes that a device sends in one round.
    pub fn upload_bytes(&self) -> u64 {
        match self.privacy.encoding() {
            None => 4 * self.privacy.layout().len() as u64,
            Some(encoding) => {
                let bits = encoding.padded_dim() as u64 * u64::from(encoding.bits_per_coordinate());
                bits.div_ceil(8)
            }
        }
    }

    /// `true` if secure sums hide single updates from the server.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        let aggregation = self.file.task.aggregation.as_ref();
        aggregation.is_some_and(|aggregation| aggregation.sum == SumName::SecAgg)
    }

    /// The terms of one group of a secure sum.
    ///
    /// # Errors
    /// From the protocol.
    pub fn terms(&self) -> Result<Option<Terms>> {
        terms(&self.file, &self.privacy)
    }

    /// The graph of the groups.
    ///
    /// # Errors
    /// From the task's assumptions.
    pub fn graph(&self) -> Result<GraphChoice> {
        graph_of(&self.file)
    }
}
