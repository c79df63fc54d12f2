//! A sweep: one run file, changed along named axes and repeated over seeds.
//!
//! Each combination is an ordinary run in its own directory, so that a sweep is continued by running it again, and its result
//! is read from the runs' files alone.
//!
//! ```
//! use undertone_studies::sweep::SweepConfig;
//!
//! let sweep: SweepConfig = toml::from_str(
//!     r#"
//!     name = "noise"
//!     run = "quickstart.toml"
//!     seeds = [1, 2, 3]
//!
//!     [[axis]]
//!     name = "noise"
//!     values = [
//!         { name = "little", set = ["privacy.noise_multiplier=0.5"] },
//!         { name = "much", set = ["privacy.noise_multiplier=4"] },
//!     ]
//!     "#,
//! )?;
//! assert_eq!(sweep.axes[0].values[1].name, "much");
//! # Ok::<(), toml::de::Error>(())
//! ```

mod comparison;
mod private;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use undertone_coordinator::task::folder_name;
use undertone_report::ReportError;
use undertone_run::{Observer, Result, RunError, RunFile, RunOptions, checkpoint};
use undertone_run_directory::config::{Override, RunConfig, parse_as};
use undertone_run_directory::files;
use undertone_run_directory::files::names::CONFIG_FILE;
use undertone_run_directory::manifest::{MANIFEST_FILE, Manifest};

pub use comparison::{Comparison, Difference, Row, Spread};
pub use private::{PrivateConfig, Selected};

/// A sweep file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// Name of the sweep and of the folder of its runs.
    pub name: String,
    /// The run file, relative to the sweep file.
    pub run: PathBuf,
    /// Changes to every run, `key=value` as for `--set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Seeds; every combination is run with each of them. Without seeds it is run once, as the run file says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    /// The law of the number of candidates and their score, for a private sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateConfig>,
    /// The axes. The runs are all combinations; the values of the last axis are compared with its first.
    #[serde(rename = "axis")]
    pub axes: Vec<Axis>,
}

/// One axis of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name in tables.
    pub name: String,
    /// Values of the axis.
    pub values: Vec<AxisValue>,
}

/// One value of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisValue {
    /// Name in tables and in the names of runs.
    pub name: String,
    /// Changes of the value, `key=value` as for `--set`; later axes come after earlier ones.
    #[serde(default)]
    pub set: Vec<String>,
}

/// A sweep with all its runs, every run file checked.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The sweep file.
    pub config: SweepConfig,
    /// The folder of the sweep file, where the relative paths of its score start.
    pub base: PathBuf,
    /// The runs: the first seed of every combination before the second of any.
    pub trials: Vec<Trial>,
}

/// One run of a sweep.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The index of the value on each axis.
    pub place: Vec<usize>,
    /// The seed of the run.
    pub seed: Option<u64>,
    /// The run file with the changes of the combination.
    pub file: RunFile,
}

/// The state of a run of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialState {
    /// There is no run directory.
    New,
    /// There is a run directory, whose run has not ended.
    Begun,
    /// The run has ended.
    Finished,
}

impl Sweep {
    /// Reads a sweep file and the run file of each combination; `overrides` change them all.
    ///
    /// # Errors
    /// Syntax and keys of either file by name, line and key; no axis, an axis without values, names that are no folder
    /// names, and names or seeds that come twice.
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self> {
        let text = files::read_given_text(path)?;
        let config: SweepConfig = parse_as(&text, path, &[])?;
        config.validate()?;
        let run = RunConfig::base_of(path).join(&config.run);
        let shared = parsed(&config.set)?;
        let seeds: Vec<Option<u64>> = match config.seeds.is_empty() {
            true => vec![None],
            false => config.seeds.iter().copied().map(Some).collect(),
        };
        let mut trials = Vec::new();
        for seed in seeds {
            for place in places(&config.axes) {
                let mut changes = shared.clone();
                let mut name = Vec::new();
                for (axis, &value) in config.axes.iter().zip(&place) {
                    changes.extend(parsed(&axis.values[value].set)?);
                    name.push(axis.values[value].name.clone());
                }
                changes.extend_from_slice(overrides);
                if let Some(seed) = seed {
                    name.push(format!("seed-{seed}"));
                    changes.push(Override::new("seed", i64::try_from(seed).unwrap_or(i64::MAX)));
                }
                changes.push(Override::new("name", name.join("-")));
                let file = RunFile::read(&run, &changes)?;
                trials.push(Trial { place, seed, file });
            }
        }
        let base = RunConfig::base_of(path).to_owned();
        Ok(Self { config, base, trials })
    }

    /// Folder of the sweep's runs and results in the folder of run directories.
    #[must_use]
    pub fn folder(&self, out: &Path) -> PathBuf {
        out.join(&self.config.name)
    }

    /// Makes a run of the sweep, or the rest of it.
    ///
    /// # Errors
    /// As [`undertone_run::train`], and where the directory holds a run of another configuration.
    pub fn train(
        &self,
        trial: &Trial,
        options: &RunOptions,
        observer: &dyn Observer,
    ) -> Result<(), ReportError> {
        let out = self.folder(&options.out);
        let Some(resume) = trial.resume(&out)? else {
            return Ok(());
        };
        let options = RunOptions {
            out,
            resume,
            ..options.clone()
        };
        let summary = undertone_run::train(&trial.file, &options, observer)?;
        undertone_report::write(&summary.run_dir)
    }

    /// The comparison of the finished runs. Their models are measured again on their held-out users, to pair these.
    ///
    /// # Errors
    /// Run directories that cannot be read. Data that cannot be read is no error: [`Comparison::without_users`] says so.
    pub fn compare(&self, out: &Path, threads: usize) -> Result<Comparison> {
        Comparison::of(self, &self.folder(out), threads)
    }
}

impl Trial {
    /// The state of the run; `folder` is the sweep's.
    ///
    /// # Errors
    /// A finished run of another configuration, and files that cannot be read.
    pub fn state(&self, folder: &Path) -> Result<TrialState> {
        let directory = folder.join(&self.file.config.task.name);
        if !directory.exists() {
            return Ok(TrialState::New);
        }
        if !directory.join(MANIFEST_FILE).exists() {
            return Ok(TrialState::Begun);
        }
        let manifest = Manifest::read(&directory)?;
        let found = manifest.files.get(CONFIG_FILE).cloned().unwrap_or_default();
        let expected = undertone_run_directory::plan_inputs::config_digest(&self.file.config)?;
        if found != expected {
            return Err(RunError::CheckpointMismatch {
                path: directory.join(MANIFEST_FILE),
                what: "configuration",
                expected,
                found,
            });
        }
        Ok(TrialState::Finished)
    }

    /// `true` if the run goes on from its checkpoint, `false` if it starts, and `None` if it has ended.
    fn resume(&self, folder: &Path) -> Result<Option<bool>> {
        let run_dir = folder.join(&self.file.config.task.name);
        Ok(match self.state(folder)? {
            TrialState::Finished => {
                // One that was killed between its last two steps has left its checkpoint.
                checkpoint::remove(&run_dir)?;
                None
            }
            // One that was killed before its first checkpoint starts again.
            TrialState::Begun => Some(files::exists(&checkpoint::path(&run_dir))),
            TrialState::New => Some(false),
        })
    }
}

impl SweepConfig {
    fn validate(&self) -> Result<()> {
        folder_name(&self.name)?;
        if self.axes.is_empty() {
            return Err(RunError::value("axis", "at least one", 0));
        }
        unique("seeds", self.seeds.iter())?;
        // TOML knows no larger integers.
        if let Some(seed) = self.seeds.iter().find(|&&seed| i64::try_from(seed).is_err()) {
            return Err(RunError::value("seeds", "at most 2^63 - 1", seed));
        }
        unique("axis.name", self.axes.iter().map(|axis| &axis.name))?;
        for axis in &self.axes {
            if axis.values.is_empty() {
                let expected = format!("at least one value of axis {:?}", axis.name);
                return Err(RunError::value("axis.values", expected, 0));
            }
            unique("axis.values.name", axis.values.iter().map(|value| &value.name))?;
            for value in &axis.values {
                folder_name(&value.name)?;
            }
        }
        Ok(())
    }
}

fn unique<T: std::hash::Hash + Eq + std::fmt::Debug>(
    key: &str,
    values: impl Iterator<Item = T>,
) -> Result<()> {
    let mut seen = HashSet::new();
    for value in values {
        let shown = format!("{value:?} twice");
        if !seen.insert(value) {
            return Err(RunError::value(key, "every one once", shown));
        }
    }
    Ok(())
}

fn parsed(changes: &[String]) -> Result<Vec<Override>> {
    changes.iter().map(|change| Ok(change.parse()?)).collect()
}

/// All combinations of indices, the last axis moving fastest.
fn places(axes: &[Axis]) -> Vec<Vec<usize>> {
    axes.iter().fold(vec![Vec::new()], |places, axis| {
        let longer = |place: &Vec<usize>| {
            let place = place.clone();
            (0..axis.values.len()).map(move |value| [&place[..], &[value]].concat())
        };
        places.iter().flat_map(longer).collect()
    })
}

#[cfg(test)]
mod tests {
    use undertone_coordinator::task::ClipConfig;

    use super::*;

    const RUN: &str = "name = 'r'\nrounds = 2\n[data]\nsource = { kind = 'synthetic', users = 50, words = 20 }\n\
        [model]\nfamily = 'dplm'\n[cohort]\nsampling = 'poisson'\nusers_per_round = 5\n\
        [user_update]\nalgorithm = 'fedavg'\nbatch_size = 2\nlearning_rate = 1.0\n[clip]\nkind = 'flat'\nnorm = 1.0\n";

    const SWEEP: &str = "name = 's'\nrun = 'run.toml'\nseeds = [1, 2]\n\
        [[axis]]\nname = 'rounds'\nvalues = [{ name = 'few', set = ['rounds=1'] }, { name = 'many', set = ['rounds=9'] }]\n\
        [[axis]]\nname = 'clip'\nvalues = [{ name = 'tight', set = ['clip.norm=0.1'] }, { name = 'as-is' }]\n";

    fn read(sweep: &str) -> Result<Sweep> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run.toml"), RUN).unwrap();
        let path = folder.path().join("sweep.toml");
        std::fs::write(&path, sweep).unwrap();
        Sweep::read(
            &path,
            &["clip.norm=7".parse().unwrap()][..usize::from(sweep.contains("# all"))],
        )
    }

    fn clip(norm: f64) -> ClipConfig {
        ClipConfig::Flat {
            norm,
            normalised: false,
        }
    }

    #[test]
    fn runs_are_all_combinations_with_the_first_seed_first() {
        let sweep = read(SWEEP).unwrap();
        let names: Vec<_> = sweep
            .trials
            .iter()
            .map(|trial| trial.file.config.task.name.as_str())
            .collect();
        assert_eq!(
            names[..4],
            [
                "few-tight-seed-1",
                "few-as-is-seed-1",
                "many-tight-seed-1",
                "many-as-is-seed-1"
            ]
        );
        assert_eq!((names.len(), names[4]), (8, "few-tight-seed-2"));
        let last = &sweep.trials[7].file.config;
        assert_eq!((last.task.rounds, last.seed), (9, Some(2)));
        assert_eq!(last.task.clip, clip(1.0));
        assert_eq!(sweep.trials[0].file.config.task.clip, clip(0.1));
    }

    #[test]
    fn changes_for_all_runs_come_last() {
        let sweep = read(&format!("# all\n{SWEEP}")).unwrap();
        for trial in &sweep.trials {
            assert_eq!(trial.file.config.task.clip, clip(7.0));
        }
    }

    fn refused(from: &str, to: &str, expected: &str) {
        assert!(SWEEP.contains(from), "{from}");
        let message = read(&SWEEP.replacen(from, to, 1))
            .err()
            .map_or_else(|| "ok".into(), |e| e.to_string());
        assert!(
            message.contains(expected),
            "{message:?} does not contain {expected:?}"
        );
    }

    #[test]
    fn bad_sweeps_are_refused_by_name() {
        refused(
            "seeds = [1, 2]",
            "seeds = [1, 1]",
            "`seeds`: expected every one once, got 1 twice",
        );
        refused("'many', set", "'few', set", "`axis.values.name`");
        refused("name = 'clip'", "name = 'rounds'", "`axis.name`");
        refused("'tight'", "'a/b'", "a folder name");
        refused("rounds=9", "rounds", "expected KEY=VALUE");
        refused(
            "rounds=9",
            "cohort.size=9",
            "did you mean `cohort.users_per_round`?",
        );
        refused("clip.norm=0.1", "clip.norm=-1", "`clip.norm`");
        refused("run = 'run.toml'", "run = 'none.toml'", "none.toml");
        refused("seeds", "seed", "unknown field `seed`");
        refused(
            "[{ name = 'tight', set = ['clip.norm=0.1'] }, { name = 'as-is' }]",
            "[]",
            "at least one value of axis \"clip\"",
        );
    }
}
