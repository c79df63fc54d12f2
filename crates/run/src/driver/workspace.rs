//! The run directory: the files of a run, their opening, and their state at a checkpoint.

use crate::run_file::split_of;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;

use serde::{Deserialize, Serialize};
use undertone_coordinator::chain::Chain;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::{LedgerEntry, PrivacyReport};
use undertone_coordinator::trainings::Training;
use undertone_data::{Corpus, DataError, EosTargets, Partition, Progress, Stage, Vocab};
use undertone_models::{ModelSpec, SequenceModel};
use undertone_settings::{CorpusSpec, MemorySource, SourceSpec, VocabularySpec};
use undertone_vocabulary::FileRecord;

use super::{Observer, RunOptions};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::store::FileStore;
use crate::error::{Result, RunError};
use crate::evaluate::unigram_standard_error;
use undertone_run_directory::config::{AuditConfig, EvaluationConfig, RunConfig, parse_as, refuse_session};
use undertone_run_directory::files::names::{
    COINS_FILE, CONFIG_FILE, CORPORA_FOLDER, INITIAL_MODEL_FILE, LANE_FILE, LANE_VALUES_FILE, LEDGER_FILE,
    LOCAL_SOURCES_FILE, MECHANISM_FILE, METRICS_FILE, MODEL_FILE, PRIVACY_FILE, PRIVACY_PAGE, REPLAYS_FILE,
    SOURCE_FILE, SWEEP_FILE, TABLE_FILE, TOKENIZER_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_FILE,
    VOCAB_PRIVACY_FILE,
};
use undertone_run_directory::files::{self, JsonLines};
use undertone_run_directory::initial_model::{self, Description, SourceName};
use undertone_run_directory::ledger::genesis_of;
use undertone_run_directory::manifest::MANIFEST_FILE;
use undertone_run_directory::metrics::{Histogram, StartRecord};
use undertone_run_directory::plan_inputs::{config_digest, config_text, record_name, words_record};
use undertone_run_directory::privacy_page;
use undertone_run_directory::sweep_statement::SweepStatement;

/// A run's folder, held by this process.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    cache: PathBuf,
    /// Holding the file holds the lock.
    lock: Option<File>,
}

/// The files of a run that grow, and what they hold.
pub(crate) struct RunFiles {
    pub(crate) store: FileStore,
    pub(crate) metrics: JsonLines,
    /// The digest that the first line of the ledger follows.
    pub(crate) genesis: String,
    pub(crate) entries: Vec<LedgerEntry>,
    pub(crate) chain: Chain,
}

impl RunDirectory {
    /// Takes the run directory of this name: a new one, or with `resume` the one that is there.
    pub(crate) fn prepare(out: &Path, name: &str, resume: bool) -> Result<Self> {
        let path = out.join(name);
        if resume {
            let expected = crate::checkpoint::path(&path);
            if !files::exists(&expected) && !is_finished(&path) {
                return Err(RunError::NothingToResume { path, expected });
            }
        } else {
            fs::create_dir_all(out).map_err(|source| RunError::io("create", out, source))?;
            match fs::create_dir(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    // A run of ours that never got as far as its first checkpoint left nothing worth keeping. Without
                    // our lock file the folder is somebody else's, unless it is empty: a run that was killed right after it
                    // made its folder leaves it so.
                    let is_ours = files::exists(&path.join(LOCK_FILE)) || is_empty(&path);
                    if !is_ours || !is_unstarted(&path) {
                        return Err(DirectoryError::RunExists { path }.into());
                    }
                }
                other => other.map_err(|source| RunError::io("create", &path, source))?,
            }
        }
        let lock_path = path.join(LOCK_FILE);
        let lock = files::open_to_write(&lock_path)?;
        if lock.try_lock().is_err() {
            return Err(RunError::RunLocked { path });
        }
        if resume && is_finished(&path) {
            // One that was killed between its last two steps has left its checkpoint.
            crate::checkpoint::remove(&path)?;
            return Err(RunError::RunFinished { path });
        }
        // The lock is ours: nobody is writing these any more.
        for folder in [path.clone(), path.join("checkpoint"), path.join("plots")] {
            files::remove_partial(&folder);
        }
        Ok(Self {
            cache: out.join(CORPORA_FOLDER),
            path,
            lock: Some(lock),
        })
    }

    /// Takes the run directory and works in it. Where that fails before the first checkpoint, there is no run: the name is
    /// free again.
    pub(crate) fn within<T>(
        options: &RunOptions,
        name: &str,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let directory = Self::prepare(&options.out, name, options.resume)?;
        let result = work(&directory);
        if result.is_err() {
            directory.discard_unstarted();
        }
        result
    }

    /// A finished run's directory, for reading.
    pub(crate) fn existing(path: &Path) -> Result<Self> {
        // Made absolute, so that the folder above `.` is known too.
        let path = path
            .canonicalize()
            .map_err(|source| RunError::io("read", path, source))?;
        let cache = path.parent().unwrap_or(&path).join(CORPORA_FOLDER);
        Ok(Self {
            path,
            cache,
            lock: None,
        })
    }

    /// The folder where relative paths of the configuration start: `given`, or that of the time when the run was made here.
    ///
    /// A run directory of a third party could name any file of the user's as its data. So without `given` the paths of a run are
    /// opened only where its directory is the very one in which the run was made, and not a copy.
    pub(crate) fn base(&self, given: Option<&Path>, data: &CorpusSpec) -> Result<PathBuf> {
        if let Some(base) = self.known_base(given)? {
            return Ok(base);
        }
        // Neither of them is a file.
        let drawn = matches!(data.source, SourceSpec::Synthetic(_) | SourceSpec::Memory(_));
        let counted = matches!(data.vocabulary, None | Some(VocabularySpec::TrainingData { .. }));
        if drawn && counted {
            return Ok(PathBuf::from("."));
        }
        Err(RunError::CopiedRun {
            path: self.path.clone(),
        })
    }

    /// The folder where relative paths start; `None` for a copy without a `given` one.
    pub(crate) fn known_base(&self, given: Option<&Path>) -> Result<Option<PathBuf>> {
        if given.is_some() {
            return Ok(given.map(Path::to_owned));
        }
        if let Some(bytes) = files::read_if_there(&self.file(BASE_FILE))?
            && let Ok(base) = serde_json::from_slice::<Base>(&bytes)
            && base.inode == inode_of(&self.path)?
        {
            return Ok(Some(base.path));
        }
        Ok(None)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The public name of the text of a new run here.
    pub(crate) fn source_name(&self, data: &CorpusSpec) -> Result<SourceName> {
        Ok(SourceName::new(data, &self.cache)?)
    }

    /// Refuses to go on with another table in memory than the one that the run was made from. Without the private file of the table, the
    /// checkpoint knows the corpus by its digest.
    pub(crate) fn check_table(&self, corpus: Option<&Corpus>, data: &CorpusSpec) -> Result<()> {
        let (SourceSpec::Memory(given), path) = (&data.source, self.file(TABLE_FILE)) else {
            return Ok(());
        };
        if !files::exists(&path) {
            return Ok(());
        }
        let Table { rows, sha256 } = files::read_json(&path)?;
        let expected = MemorySource {
            rows,
            sha256,
            ..given.clone()
        };
        match corpus.map(|corpus| &corpus.spec().source) {
            Some(SourceSpec::Memory(got)) if got.rows == rows && got.sha256 == expected.sha256 => Ok(()),
            Some(SourceSpec::Memory(got)) => Err(other_table(&expected, got.in_words())),
            _ => Err(other_table(
                &expected,
                "no table: give it to the function `train` of the Python package as `data`".to_owned(),
            )),
        }
    }

    pub(crate) fn open_corpus(
        &self,
        data: &CorpusSpec,
        base: &Path,
        observer: &dyn Observer,
    ) -> Result<Corpus> {
        Ok(Corpus::open(data, base, &self.cache, &CorpusProgress(observer))?)
    }

    /// The corpus with what is known of its words beside the settings: what the model that the run starts from says, or the directory of a
    /// run that goes on.
    pub(crate) fn believed(
        &self,
        corpus: Corpus,
        base: &Path,
        model: Option<&Path>,
        adapters: Option<&Path>,
        resume: bool,
    ) -> Result<Corpus> {
        let of_people = match resume {
            true => matches!(
                words_record(&self.path, corpus.vocab())?,
                Some(FileRecord::NotPrivate(_))
            ),
            false => initial_model::start_says_words_of_people(base, model, adapters, corpus.vocab())?,
        };
        Ok(match of_people {
            true => corpus.with_words_of_people(),
            false => corpus,
        })
    }

    /// The files of a new run.
    pub(crate) fn create_files(
        &self,
        config: &RunConfig,
        plan: &PrivacyPlan,
        corpus: &Corpus,
        base: &Path,
        trainings: &[Training],
        source: &SourceName,
    ) -> Result<RunFiles> {
        self.write_setting(config, corpus, base, trainings, source)?;
        self.write_mechanism(plan)?;
        self.open_files(0, 0)
    }

    /// Writes the mechanism of correlated noise, if the plan has one.
    pub(crate) fn write_mechanism(&self, plan: &PrivacyPlan) -> Result<()> {
        if let Some(bounded) = plan.bounded() {
            let path = self.file(MECHANISM_FILE);
            files::write_atomic_with(&path, |file| {
                serde_json::to_writer(file, bounded.mechanism())
                    .map_err(|error| DirectoryError::io("write", &path, error.into()))
            })?;
        }
        Ok(())
    }

    /// Writes the settings of a run: configuration, vocabulary, the trainings of its initial model, and the folder where relative
    /// paths start.
    pub(crate) fn write_setting<T: Serialize>(
        &self,
        config: &T,
        corpus: &Corpus,
        base: &Path,
        trainings: &[Training],
        source: &SourceName,
    ) -> Result<()> {
        // A path that JSON cannot hold is left out: then it is asked for.
        if let Ok(path) = base.canonicalize()
            && let inode = inode_of(&self.path)?
            && let Ok(bytes) = serde_json::to_vec(&Base { path, inode })
        {
            files::write_atomic(&self.file(BASE_FILE), &bytes)?;
        }
        files::write_atomic(&self.file(CONFIG_FILE), config_text(config)?.as_bytes())?;
        if let SourceSpec::Memory(table) = &corpus.spec().source {
            let table = Table {
                rows: table.rows,
                sha256: table.sha256.clone(),
            };
            files::write_secret_json(&self.file(TABLE_FILE), &table)?;
        }
        if let Some(record) = source.record() {
            files::write_json(&self.file(SOURCE_FILE), &record)?;
        }
        files::write_atomic(
            &self.file(corpus.vocab().file_name()),
            corpus.vocab().to_file_contents().as_bytes(),
        )?;
        if !trainings.is_empty() {
            files::write_json(&self.file(INITIAL_MODEL_FILE), trainings)?;
        }
        if let Some(record) = corpus.words_record() {
            let path = self.file(record_name(corpus.vocab()));
            files::write_atomic(&path, record.to_json().as_bytes())?;
        }
        if let Some(record) = corpus.vocabulary_privacy() {
            let path = self.file(VOCAB_PRIVACY_FILE);
            files::write_atomic_with(&path, |file| {
                serde_json::to_writer_pretty(file, record)
                    .map_err(|error| DirectoryError::io("write", &path, error.into()))
            })?;
        }
        Ok(())
    }

    /// Writes the statement of the private sweep that the run is a candidate of. A run that was killed before it began may have left
    /// one.
    pub(crate) fn write_sweep(&self, sweep: Option<&SweepStatement>) -> Result<()> {
        let path = self.file(SWEEP_FILE);
        match sweep {
            Some(sweep) => Ok(files::write_json(&path, sweep)?),
            None if files::exists(&path) => {
                fs::remove_file(&path).map_err(|source| RunError::io("remove", &path, source))
            }
            None => Ok(()),
        }
    }

    /// Writes the privacy report of the run of this name, for programs and for readers.
    pub(crate) fn write_privacy(&self, run: &str, report: &PrivacyReport) -> Result<()> {
        files::write_json(&self.file(PRIVACY_FILE), report)?;
        Ok(files::write_atomic(
            &self.file(PRIVACY_PAGE),
            privacy_page::document(run, report).as_bytes(),
        )?)
    }

    /// Lets go of the folder, for another process to take it.
    pub(crate) fn unlock(&mut self) {
        self.lock = None;
    }

    /// Removes the folder of a run that never got as far as its first checkpoint.
    pub(crate) fn discard_unstarted(&self) {
        if is_unstarted(&self.path) {
            // What is left behind otherwise is an empty run that the next attempt takes over; no reason to fail twice.
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    /// Opens ledger and metrics, cut back to the bytes that a checkpoint knows: rounds after it were never released.
    pub(crate) fn open_files(&self, ledger: u64, metrics: u64) -> Result<RunFiles> {
        let genesis = genesis_of(&self.path)?;
        let (store, entries, chain) = FileStore::open(&self.path, &genesis, ledger)?;
        Ok(RunFiles {
            store,
            metrics: JsonLines::open(&self.file(METRICS_FILE), metrics)?,
            genesis,
            entries,
            chain,
        })
    }

    /// Writes the model of a run that is over, with the obstacles in front of its release.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the description")]
    pub(crate) fn write_model(
        &self,
        spec: &ModelSpec,
        rounds: u64,
        words: &Vocab,
        model: &dyn SequenceModel,
        parameters: &[f32],
        trained_on: Vec<Training>,
        obstacles: Vec<String>,
    ) -> Result<()> {
        let description = Description {
            obstacles,
            ..Description::new(spec, rounds, words, trained_on)
        };
        let bytes = model.write_params(parameters, &description.to_json()?)?;
        Ok(files::write_atomic(&self.file(MODEL_FILE), &bytes)?)
    }

    pub(crate) fn read_checkpoint<T: Serialize>(
        &self,
        config: &T,
        corpus: &Corpus,
        model: &str,
        parameters: usize,
    ) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::read(&self.path, parameters)?;
        checkpoint.check_belongs(&self.path, model, &config_digest(config)?, corpus.digest())?;
        Ok(checkpoint)
    }
}

/// `table.json`: the table in memory that a run was made from.
///
/// PRIVACY: number and digest are exact functions of people's text. The file is its owner's alone, and no release has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rows: u64,
    sha256: String,
}

fn other_table(expected: &MemorySource, got: String) -> RunError {
    let expected = expected.in_words();
    DataError::Memory { expected, got }.into()
}

/// `true` if a run is over: its manifest is written last.
fn is_finished(path: &Path) -> bool {
    files::exists(&path.join(MANIFEST_FILE))
}

/// The model, its start and the data of a finished run: the part of its configuration that evaluating needs, equal in private runs and
/// in pre-training.
#[derive(Debug, Deserialize)]
pub(crate) struct Trained {
    pub(crate) data: CorpusSpec,
    pub(crate) model: ModelSpec,
    #[serde(default)]
    pub(crate) initial_model: Option<PathBuf>,
    #[serde(default)]
    pub(crate) initial_adapters: Option<PathBuf>,
    #[serde(default)]
    pub(crate) audit: Option<AuditConfig>,
    #[serde(default)]
    pub(crate) evaluation: EvaluationConfig,
}

impl Trained {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = files::read_text(path)?;
        refuse_session(&text, path)?;
        Ok(parse_as(&text, path, &[])?)
    }
}

/// Lock file that is held while a run is being made.
const LOCK_FILE: &str = ".lock";

/// File with the folder where relative paths of the configuration start.
const BASE_FILE: &str = ".base";

/// The content of that file.
#[derive(Debug, Serialize, Deserialize)]
struct Base {
    path: PathBuf,
    /// Number of the run directory in its file system: a copy, also by an archive or over a network, has a different one. Systems
    /// without such numbers have none.
    inode: Option<u64>,
}

fn inode_of(folder: &Path) -> Result<Option<u64>> {
    let metadata = fs::metadata(folder).map_err(|source| RunError::io("read", folder, source))?;
    #[cfg(unix)]
    let inode = Some(std::os::unix::fs::MetadataExt::ino(&metadata));
    #[cfg(not(unix))]
    let inode = metadata.is_dir().then_some(0);
    Ok(inode)
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn is_unstarted(path: &Path) -> bool {
    !files::exists(&crate::checkpoint::path(path))
        && fs::read_dir(path).is_ok_and(|entries| {
            entries.flatten().all(|entry| {
                let name = entry.file_name();
                [
                    LOCK_FILE,
                    BASE_FILE,
                    "checkpoint",
                    PRIVACY_FILE,
                    PRIVACY_PAGE,
                    CONFIG_FILE,
                    VOCAB_FILE,
                    TOKENIZER_FILE,
                    VOCAB_PRIVACY_FILE,
                    TOKENIZER_PRIVACY_FILE,
                    LOCAL_SOURCES_FILE,
                    METRICS_FILE,
                    LEDGER_FILE,
                    MECHANISM_FILE,
                    INITIAL_MODEL_FILE,
                    SOURCE_FILE,
                    SWEEP_FILE,
                    TABLE_FILE,
                    LANE_FILE,
                    LANE_VALUES_FILE,
                    COINS_FILE,
                    REPLAYS_FILE,
                ]
                .iter()
                .any(|known| name == *known)
                    || files::is_partial(&name)
            })
        })
}

/// Equal bins from 0 to the largest value.
pub(crate) fn histogram(values: &[f64], bins: usize) -> Histogram {
    let top = values.iter().copied().fold(0.0, f64::max);
    if top <= 0.0 || !top.is_finite() {
        return Histogram::default();
    }
    let edges = (0..=bins).map(|edge| top * edge as f64 / bins as f64).collect();
    let mut counts = vec![0; bins];
    for value in values {
        counts[((value / top * bins as f64) as usize).min(bins - 1)] += 1;
    }
    Histogram { edges, counts }
}

/// Tokens per user in bins that double: 1, 2-3, 4-7, ...
fn user_sizes(users: &Partition<'_>) -> Histogram {
    let mut counts = Vec::new();
    for index in 0..users.num_users() {
        let bin = (users.user(index).num_tokens().max(1) as u64).ilog2() as usize;
        counts.resize(counts.len().max(bin + 1), 0);
        counts[bin] += 1;
    }
    Histogram {
        edges: (0..=counts.len()).map(|edge| f64::exp2(edge as f64)).collect(),
        counts,
    }
}

/// The first line of the metrics of a training of `rounds` rounds or steps on these users.
pub(crate) fn start_record(
    run: &str,
    model: &ModelSpec,
    rounds: u64,
    evaluation: &EvaluationConfig,
    (corpus, users): (&Corpus, &Partition<'_>),
    identity: &ModelIdentity,
) -> StartRecord {
    let counts = identity.counts();
    StartRecord {
        run: run.to_owned(),
        model: model.family().to_owned(),
        parameters: counts.trained,
        frozen_parameters: counts.frozen,
        train_users: users.num_users(),
        train_tokens: Some(users.total_tokens()),
        rounds,
        user_sizes: Some(user_sizes(users)),
        best_accuracy: corpus.best_accuracy().map(|best| match evaluation.eos {
            EosTargets::Included => best.with_eos,
            EosTargets::Excluded => best.without_eos,
        }),
        unigram_accuracy: corpus.unigram_accuracy(split_of(evaluation.split), evaluation.eos),
        unigram_standard_error: unigram_standard_error(corpus, evaluation.split, evaluation.eos),
        warning: None,
    }
}

/// Hands a corpus's progress to the run's observer.
#[expect(missing_debug_implementations, reason = "an observer cannot be shown")]
pub struct CorpusProgress<'a>(pub &'a dyn Observer);

impl Progress for CorpusProgress<'_> {
    fn update(&self, stage: Stage, done: u64, total: Option<u64>) {
        self.0.on_corpus(&stage.to_string(), done, total);
    }

    fn stop(&self) -> bool {
        self.0.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_count_every_value_once() {
        let histogram = histogram(&[0.0, 0.5, 1.0, 2.0], 4);
        assert_eq!(histogram.edges, [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(histogram.counts, [1, 1, 1, 1]);
        assert_eq!(super::histogram(&[], 4), Histogram::default());
        assert_eq!(super::histogram(&[0.0], 4), Histogram::default());
    }
}
