//! One simulation per value of a key, which shows how MinS depends on the timer.

use std::str::FromStr;

use anyhow::{Context, ensure};
use serde::Serialize;
use undertone_present::numbers::{number, upper_bound};
use undertone_run_directory::config::Override;
use undertone_run_directory::files::{write_atomic, write_json};
use undertone_studies::simulate::{Simulation, SimulationFile};

use super::{SimulateArgs, pictures, simulated, text};
use crate::output::Output;
use undertone_present::table::grid;

/// A key of the simulation file and the numbers it takes.
#[derive(Debug, Clone)]
pub(super) struct Sweep {
    key: String,
    values: Vec<f64>,
}

impl FromStr for Sweep {
    type Err = anyhow::Error;

    fn from_str(given: &str) -> anyhow::Result<Self> {
        let expected = "expected KEY=VALUE,..., for example timer_hours=24,48,72";
        let (key, values) = given
            .split_once('=')
            .with_context(|| format!("{expected}, got {given:?}"))?;
        let key = key.trim();
        ensure!(!key.is_empty(), "{expected}, got {given:?}");
        let number = |value: &str| -> anyhow::Result<f64> {
            let value = value.trim();
            let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
            number.with_context(|| format!("{expected}, got the value {value:?}"))
        };
        let values = values
            .split(',')
            .map(number)
            .collect::<anyhow::Result<Vec<f64>>>()?;
        Ok(Self {
            key: if key.contains('.') || matches!(key, "population" | "rounds" | "seed") {
                key.to_owned()
            } else {
                format!("timers.{key}")
            },
            values,
        })
    }
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    key: &'a str,
    points: Vec<Point<'a>>,
}

#[derive(Serialize)]
struct Point<'a> {
    value: f64,
    simulation: &'a Simulation,
}

impl Sweep {
    /// Simulates every value and shows them side by side.
    pub(super) fn run(&self, args: &SimulateArgs, output: &Output) -> anyhow::Result<()> {
        // All files are checked before the first simulation.
        let mut files = Vec::new();
        for value in &self.values {
            // Whole numbers without a point: some keys are counts.
            let change: Override = format!("{}={value}", self.key).parse()?;
            let changes: Vec<Override> = args.set.iter().cloned().chain([change]).collect();
            let file = SimulationFile::read(&args.config, &changes).context("--sweep")?;
            files.push((*value, file));
        }
        let mut made = Vec::new();
        for (value, file) in &files {
            let what = format!("{} = {value}", self.key);
            let simulation = simulated(file, None, &what, output).with_context(|| what.clone())?;
            made.push((*value, simulation));
        }
        let points: Vec<(f64, &Simulation)> = made.iter().map(|(value, made)| (*value, made)).collect();
        let report = Report {
            key: &self.key,
            points: points
                .iter()
                .map(|(value, simulation)| Point {
                    value: *value,
                    simulation,
                })
                .collect(),
        };
        if let Some(folder) = &args.out {
            let svg = pictures::sweep(&self.key, &points)?;
            write_atomic(&folder.join("sweep.svg"), svg.as_bytes())?;
            write_json(&folder.join("summary.json"), &report)?;
        }
        output.show(&report, || self.table(&points))
    }

    fn table(&self, points: &[(f64, &Simulation)]) -> String {
        let row = |(value, simulation): &(f64, &Simulation)| {
            let mut row = vec![
                number(*value),
                number(simulation.simulated_days),
                number(simulation.round_minutes[1]),
                text::min_sep(simulation),
                simulation.largest_min_sep.to_string(),
                simulation.max_participation.to_string(),
            ];
            if let Some(privacy) = &simulation.privacy {
                row.extend(
                    [&privacy.planned, &privacy.observed, &privacy.exact]
                        .map(|figures| upper_bound(figures.rho)),
                );
                row.push(upper_bound(privacy.observed.epsilon));
            }
            row
        };
        let mut header = vec![
            self.key.as_str(),
            "days",
            "minutes per round",
            "MinS",
            "max MinS",
            "MaxP",
        ];
        let privacy = points.first().and_then(|point| point.1.privacy.as_ref());
        if privacy.is_some() {
            header.extend(["rho promised", "rho observed", "rho exact", "epsilon observed"]);
        }
        let table = grid(header, points.iter().map(row), 0);
        let table = format!("{table}\n\n{}", text::LEGEND);
        match privacy {
            None => table,
            Some(privacy) => format!(
                "{}, noise multiplier {}, delta {}, zero-out\n{table}",
                privacy.mechanism,
                number(privacy.noise_multiplier),
                upper_bound(privacy.delta)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_one_key_and_finite_values() {
        let sweep: Sweep = "timer_hours=24, 48.5".parse().unwrap();
        assert_eq!(
            (sweep.key.as_str(), sweep.values.as_slice()),
            ("timers.timer_hours", &[24.0, 48.5][..])
        );
        assert_eq!("population=5".parse::<Sweep>().unwrap().key, "population");
        assert_eq!(
            "timers.drop_out=0".parse::<Sweep>().unwrap().key,
            "timers.drop_out"
        );
        for bad in [
            "timer_hours",
            "=3",
            "timer_hours=",
            "timer_hours=24,x",
            "timer_hours=inf",
        ] {
            let error = bad.parse::<Sweep>().unwrap_err().to_string();
            assert!(error.contains("expected KEY=VALUE,..."), "{error}");
        }
    }
}
