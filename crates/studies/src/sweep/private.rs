//! A private sweep: a secret number of candidates, of which only the best one is kept.
//!
//! PRIVACY: the number of candidates and the combination of each are drawn before anything is trained, from entropy of the operating
//! system, and are durable in a folder that its owner alone can read. A sweep that was cut off goes on with the same draws. Nothing
//! of a candidate is shown, and a loser is removed before the next candidate begins.

use std::fs;
use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;
use undertone_run_directory::sweep_statement::{CANDIDATES, Score, SweepStatement};

use rand_core::Rng;
use serde::{Deserialize, Serialize};

use undertone_coordinator::plan::SecretNumber;
use undertone_coordinator::random::Purpose;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_mechanisms::draws;
use undertone_report::ReportError;
use undertone_run::sweep::measure;
use undertone_run::{Result, RunError};
use undertone_run::{RunOptions, Silent};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{PRIVACY_FILE, SWEEP_FILE};
use undertone_run_directory::manifest::MANIFEST_FILE;

use super::{Sweep, Trial};

/// `[private]` of a sweep file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateConfig {
    /// Expected number of candidates, above 1. The number that is drawn is geometric and secret.
    pub mean_runs: SecretNumber,
    /// The score of a candidate, on public text.
    pub score: Score,
}

/// The run that a private sweep chose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Selected {
    /// The run directory.
    pub run_dir: PathBuf,
    /// The combination of settings, by the name of its runs.
    pub combination: String,
    /// The guarantee of the sweep, all candidates together; `None` where none can be stated.
    pub selected: Option<GuaranteeRecord>,
}

/// The secret state of a private sweep, which is removed with the folder of the candidates.
#[derive(Serialize, Deserialize)]
struct State {
    statement: SweepStatement,
    /// The combination of each candidate.
    draws: Vec<usize>,
    /// Number of candidates that were trained and measured.
    done: usize,
    /// The score of the best one.
    best: Option<f64>,
    /// `true` if the last candidate is the best one, `false` if it is to be removed; `None` once that is done.
    keep: Option<bool>,
}

/// The secret folder of a private sweep.
struct Candidates {
    folder: PathBuf,
    /// Holding the file holds the lock.
    _lock: fs::File,
}

impl Sweep {
    /// Trains the candidates of a private sweep, or the rest of them, and keeps the best one.
    ///
    /// # Guarantee
    /// `selected` in the `privacy.json` of the run that is kept. It holds if this sweep is run once: a folder that is removed and
    /// swept again has spent its guarantee twice.
    ///
    /// # Errors
    /// Settings that a private sweep cannot account for, by key; a sweep of other settings in the same folder; from training.
    pub fn select(&self, options: &RunOptions) -> Result<Selected, ReportError> {
        let Some(private) = &self.config.private else {
            let expected = "the table [private] with mean_runs and score, for --private";
            return Err(RunError::missing("private", expected).into());
        };
        if !self.config.seeds.is_empty() {
            let expected = "this key absent in a private sweep, whose secrets come from the operating system";
            return Err(RunError::value("seeds", expected, format!("{:?}", self.config.seeds)).into());
        }
        let folder = self.folder(&options.out);
        let mut generator =
            undertone_run_directory::entropy::randomness(None)?.generator(Purpose::Selection, 0, 0);
        let mut id = [0; 16];
        generator.fill_bytes(&mut id);
        let configs: Vec<_> = self.trials.iter().map(|trial| &trial.file.config).collect();
        let statement = SweepStatement::new(&configs, private.mean_runs, &private.score, id)?;
        if let Some(run_dir) = finished(&folder)? {
            remove(&folder.join(CANDIDATES))?;
            return selected(run_dir, &statement);
        }
        let candidates = Candidates::take(&folder)?;
        let mut state = match candidates.read()? {
            Some(state) => state,
            None => {
                let number = private.mean_runs.draw(&mut generator);
                let draws =
                    (0..number).map(|_| draws::below(self.trials.len() as u64, &mut generator) as usize);
                State {
                    draws: draws.collect(),
                    statement: statement.clone(),
                    done: 0,
                    best: None,
                    keep: None,
                }
            }
        };
        same_sweep(&state.statement, &statement, &candidates.folder)?;
        candidates.write(&state)?;
        loop {
            self.settle(&candidates, &mut state)?;
            let Some(trial) = state
                .draws
                .get(state.done)
                .and_then(|&draw| self.trials.get(draw))
            else {
                break;
            };
            let score = self.candidate(trial, &candidates, &state.statement, &private.score, options)?;
            let is_best = state.best.is_none_or(|best| score > best);
            if is_best {
                state.best = Some(score);
            }
            state.keep = Some(is_best);
            state.done += 1;
            candidates.write(&state)?;
        }
        let best = candidates.best();
        let name = only_folder(&best)?;
        let run_dir = folder.join(&name);
        fs::rename(best.join(&name), &run_dir).map_err(|source| RunError::io("write", &run_dir, source))?;
        remove(&candidates.folder)?;
        undertone_report::write(&run_dir)?;
        selected(run_dir, &statement)
    }

    /// Trains one candidate, or the rest of it, and returns its score.
    fn candidate(
        &self,
        trial: &Trial,
        candidates: &Candidates,
        statement: &SweepStatement,
        score: &Score,
        options: &RunOptions,
    ) -> Result<f64> {
        let out = candidates.work();
        let run_dir = out.join(&trial.file.config.task.name);
        if let Some(resume) = trial.resume(&out)? {
            let options = RunOptions {
                out: out.clone(),
                resume,
                ..options.clone()
            };
            undertone_run::train_candidate(&trial.file, &options, statement, &Silent)?;
        }
        let metrics = measure(&run_dir, score, &self.base, &out, options.threads, &Silent)?;
        // A model without a finite loss is the worst one.
        let score = -metrics.perplexity.ln();
        Ok(if score.is_finite() { score } else { f64::MIN })
    }

    /// Keeps or removes the last candidate, as was decided. A process that is killed in between decides nothing anew.
    fn settle(&self, candidates: &Candidates, state: &mut State) -> Result<()> {
        let Some(keep) = state.keep else { return Ok(()) };
        let last = state.done.checked_sub(1).and_then(|last| state.draws.get(last));
        if let Some(trial) = last.and_then(|&draw| self.trials.get(draw)) {
            let name = &trial.file.config.task.name;
            let run_dir = candidates.work().join(name);
            match keep {
                true if files::exists(&run_dir) => {
                    let best = candidates.best();
                    remove(&best)?;
                    files::secret_folder(&best)?;
                    fs::rename(&run_dir, best.join(name))
                        .map_err(|source| RunError::io("write", &best, source))?;
                }
                true => {}
                false => remove(&run_dir)?,
            }
        }
        state.keep = None;
        candidates.write(state)
    }
}

impl Candidates {
    /// Takes the secret folder for this process.
    fn take(sweep: &Path) -> Result<Self> {
        fs::create_dir_all(sweep).map_err(|source| RunError::io("create", sweep, source))?;
        let folder = sweep.join(CANDIDATES);
        files::secret_folder(&folder)?;
        let lock = files::open_to_write(&folder.join(".lock"))?;
        if lock.try_lock().is_err() {
            return Err(RunError::RunLocked { path: folder });
        }
        Ok(Self { folder, _lock: lock })
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn best(&self) -> PathBuf {
        self.folder.join("best")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    fn read(&self) -> Result<Option<State>> {
        match files::exists(&self.state()) {
            true => {
                let bytes = files::read_at_most(&self.state(), 1 << 30)?;
                let state = serde_json::from_slice(&bytes);
                state
                    .map(Some)
                    .map_err(|error| RunError::damaged(&self.state(), error))
            }
            false => Ok(None),
        }
    }

    fn write(&self, state: &State) -> Result<()> {
        let path = self.state();
        Ok(files::write_secret_with(&path, |file| {
            serde_json::to_writer(file, state)
                .map_err(|error| DirectoryError::io("write", &path, error.into()))
        })?)
    }
}

/// The run of a sweep that has ended.
fn finished(folder: &Path) -> Result<Option<PathBuf>> {
    if !folder.exists() {
        return Ok(None);
    }
    let fail = |source| RunError::io("read", folder, source);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if files::exists(&path.join(SWEEP_FILE)) && files::exists(&path.join(MANIFEST_FILE)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn selected(run_dir: PathBuf, statement: &SweepStatement) -> Result<Selected, ReportError> {
    let made = SweepStatement::read(&run_dir)?;
    let made = made.ok_or_else(|| RunError::damaged(&run_dir.join(SWEEP_FILE), "missing"))?;
    same_sweep(&made, statement, &run_dir)?;
    let report: undertone_coordinator::record::PrivacyReport = files::read_json(&run_dir.join(PRIVACY_FILE))?;
    let name = run_dir.file_name().unwrap_or_default();
    Ok(Selected {
        combination: name.to_string_lossy().into_owned(),
        selected: report.selected,
        run_dir,
    })
}

/// Refuses to go on with the draws of another sweep. Two statements of one sweep differ in nothing but their names.
fn same_sweep(made: &SweepStatement, now: &SweepStatement, path: &Path) -> Result<()> {
    let renamed = SweepStatement {
        id: made.id.clone(),
        ..now.clone()
    };
    if *made == renamed {
        return Ok(());
    }
    Err(RunError::CheckpointMismatch {
        path: path.to_owned(),
        what: "private sweep",
        expected: format!("{} combinations of this sweep file", now.combinations.len()),
        found: format!("the sweep {}", made.id),
    })
}

fn only_folder(best: &Path) -> Result<std::ffi::OsString> {
    let fail = |source| RunError::io("read", best, source);
    let entry = fs::read_dir(best).map_err(fail)?.next();
    match entry {
        Some(entry) => Ok(entry.map_err(fail)?.file_name()),
        None => Err(RunError::damaged(best, "expected the run of the best candidate")),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RunError::io("remove", folder, error))
        }
        _ => Ok(()),
    }
}
