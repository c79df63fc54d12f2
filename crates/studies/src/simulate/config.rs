//! The simulation file: a population with timers, and the mechanism to account for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_accounting::{Delta, NoiseMultiplier};
use undertone_mechanisms::{Described, Mechanism, Strategy};

use undertone_coordinator::participation::timers::{self, TimersConfig};
use undertone_run::{Result, RunError};
use undertone_run_directory::config::{Override, RunConfig, parse_as};
use undertone_run_directory::files;

/// A whole simulation; TOML, unknown keys are errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulationConfig {
    /// Name of the simulation.
    pub name: String,
    /// The seed of devices and pseudonyms; without it they follow from the operating system's entropy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Number of released rounds, `n`.
    pub rounds: u64,
    /// Number of devices.
    pub population: u32,
    /// The devices and the server.
    #[serde(default)]
    pub timers: TimersConfig,
    /// The mechanism to account for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<SimulatedMechanismConfig>,
}

/// `[mechanism]` of a simulation: `strategy` or `description`, and its noise. A strategy stands in the form of `mechanism.json`; the kinds
/// of a run file are not read here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedMechanismConfig {
    /// The strategy itself, such as `{ kind = "tree", restarts = { first = 128, period = 1024 } }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// A file of a mechanism or a strategy, as `undertone mechanism optimize --out` writes it, instead of a strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<PathBuf>,
    /// Noise standard deviation over clip norm; by default that of the described mechanism.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// The delta of all guarantees.
    pub delta: f64,
}

/// A simulation file that was read.
#[derive(Debug, Clone)]
pub struct SimulationFile {
    /// The checked configuration, overrides applied.
    pub config: SimulationConfig,
    /// Folder of the file, where relative paths start.
    pub base: PathBuf,
}

impl SimulationFile {
    /// Reads and checks a simulation file.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io), [`DirectoryError::ConfigSyntax`](undertone_run_directory::error::DirectoryError::ConfigSyntax), [`RunError::Coordinator`].
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self> {
        let text = undertone_run_directory::files::read_given_text(path)?;
        Ok(Self {
            config: Self::parse(&text, path, overrides)?,
            base: RunConfig::base_of(path).to_owned(),
        })
    }

    /// Parses and checks the text of a simulation file; `path` only names it in errors.
    ///
    /// # Errors
    /// As [`SimulationFile::read`].
    pub fn parse(text: &str, path: &Path, overrides: &[Override]) -> Result<SimulationConfig> {
        let config: SimulationConfig = parse_as(text, path, overrides)?;
        config.validate()?;
        Ok(config)
    }
}

impl SimulationConfig {
    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// [`RunError::Coordinator`] naming the key.
    pub fn validate(&self) -> Result<()> {
        if self.rounds == 0 || self.rounds > 1 << 24 {
            return Err(RunError::value("rounds", "from 1 to 2^24", self.rounds));
        }
        if self.population == 0 || self.population > 1 << 28 {
            return Err(RunError::value(
                "population",
                "from 1 to 2^28 devices",
                self.population,
            ));
        }
        self.timers.validate()?;
        let Some(mechanism) = &self.mechanism else {
            return Ok(());
        };
        let given = (&mechanism.strategy, &mechanism.description);
        match given {
            (None, None) => {
                return Err(RunError::missing(
                    "mechanism.strategy",
                    "`strategy` or `description` in the table [mechanism]",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(RunError::value(
                    "mechanism",
                    "`strategy` or `description`",
                    "both",
                ));
            }
            _ => {}
        }
        if mechanism.strategy.is_some() && mechanism.noise_multiplier.is_none() {
            return Err(RunError::missing(
                "mechanism.noise_multiplier",
                "a number, because `strategy` has no noise of its own",
            ));
        }
        if let Some(noise) = mechanism.noise_multiplier {
            NoiseMultiplier::new(noise).map_err(|_| {
                RunError::value("mechanism.noise_multiplier", "a finite number above 0", noise)
            })?;
        }
        Delta::new(mechanism.delta)
            .map(drop)
            .map_err(|_| RunError::value("mechanism.delta", "a number in (0, 1)", mechanism.delta))
    }

    /// The mechanism for what the timers promise, and its delta; `None` where the file names none.
    ///
    /// # Errors
    /// A description that cannot be read, or a mechanism that does not fit the run.
    pub fn planned(&self, base: &Path) -> Result<Option<(Mechanism, Delta)>> {
        let Some(config) = &self.mechanism else {
            return Ok(None);
        };
        let (strategy, described) = match (&config.strategy, &config.description) {
            (Some(strategy), _) => (strategy.clone(), None),
            (None, Some(file)) => described(&base.join(file))?,
            (None, None) => return Ok(None),
        };
        let noise_multiplier = match (config.noise_multiplier, described) {
            (Some(noise), _) => NoiseMultiplier::new(noise)?,
            (None, Some(noise)) => noise,
            (None, None) => {
                let expected = "a number, because the description is of a strategy without noise";
                return Err(RunError::missing("mechanism.noise_multiplier", expected));
            }
        };
        let schema = timers::promised(&self.timers, self.rounds)?;
        let mechanism = Mechanism::new(strategy, self.rounds as usize, schema, noise_multiplier)?;
        Ok(Some((mechanism, Delta::new(config.delta)?)))
    }
}

/// The strategy of a description file, and the noise multiplier of a whole mechanism.
fn described(file: &Path) -> Result<(Strategy, Option<NoiseMultiplier>)> {
    let bytes = files::read_given(file, files::MAX_GIVEN)?;
    let read = Described::read(&bytes).map_err(|error| RunError::damaged(file, error))?;
    let noise = match &read {
        Described::Mechanism(mechanism) => Some(mechanism.noise_multiplier()),
        Described::Strategy(_) => None,
    };
    Ok((read.strategy().clone(), noise))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
name = "test"
rounds = 10
population = 100
timers = { report_goal = 5 }
mechanism = { strategy = { kind = "tree" }, noise_multiplier = 2.0, delta = 1e-5 }
"#;

    fn check(change: &str, words: &str) {
        let overrides = [change.parse().unwrap()];
        let error = SimulationFile::parse(TEXT, "test.toml".as_ref(), &overrides).unwrap_err();
        assert!(error.to_string().contains(words), "{error} instead of {words}");
    }

    #[test]
    fn errors_name_the_key() {
        SimulationFile::parse(TEXT, "test.toml".as_ref(), &[]).unwrap();
        check("rounds=0", "`rounds`: expected from 1 to 2^24, got 0");
        check("population=0", "`population`");
        check("timers.drop_out=2", "`timers.drop_out`");
        check(
            "mechanism.delta=1",
            "`mechanism.delta`: expected a number in (0, 1), got 1",
        );
        check("mechanism.noise_multiplier=-1", "`mechanism.noise_multiplier`");
        check(
            "mechanism.description='x.json'",
            "`mechanism`: expected `strategy` or `description`, got both",
        );
        check("mechanism={delta=1e-5}", "`mechanism.strategy` is missing");
        check(
            "mechanism={strategy={kind='tree'},delta=1e-5}",
            "`mechanism.noise_multiplier`",
        );
        check("mechanism.strategy={kind='oak'}", "oak");
        check("round=3", "unknown field `round`");
    }

    #[test]
    fn a_described_mechanism_is_read_with_its_noise_or_refused_by_file() {
        let folder = tempfile::tempdir().unwrap();
        let planned = |file: &str, noise: &str| {
            let text = TEXT.replace(
                r#"strategy = { kind = "tree" }, noise_multiplier = 2.0"#,
                &format!(r#"description = "{file}"{noise}"#),
            );
            SimulationFile::parse(&text, "test.toml".as_ref(), &[])?.planned(folder.path())
        };
        std::fs::write(folder.path().join("s.json"), r#"{"kind":"independent"}"#).unwrap();
        let error = planned("s.json", "").unwrap_err().to_string();
        assert!(error.contains("without noise"), "{error}");
        let (mechanism, _) = planned("s.json", ", noise_multiplier = 3.0").unwrap().unwrap();
        std::fs::write(
            folder.path().join("m.json"),
            serde_json::to_vec(&mechanism).unwrap(),
        )
        .unwrap();
        assert_eq!(planned("m.json", "").unwrap().unwrap().0, mechanism);
        let noise = planned("m.json", ", noise_multiplier = 4.0").unwrap().unwrap().0;
        assert_eq!(noise.noise_multiplier().get(), 4.0);
        std::fs::write(folder.path().join("x.json"), "{}").unwrap();
        for (file, words) in [
            ("x.json", "expected JSON with `kind` or `strategy`"),
            ("absent.json", "cannot read"),
        ] {
            let error = planned(file, "").unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(file), "{error}");
        }
    }
}
