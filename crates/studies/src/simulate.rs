//! Participation without training: MinS, MaxP and the guarantee as outcomes of device timers.
//!
//! [`run()`] makes the rounds of a simulation file, names the participants of each round in a ledger by their pseudonyms, and
//! computes three guarantees of the file's mechanism: the one that the timer promises beforehand, the one that the ledger
//! shows, and the exact one of the sets of rounds in the ledger.
//!
//! ```
//! use undertone_studies::simulate::{self, SimulationFile};
//!
//! let text = r#"
//! name = "small"
//! seed = 1
//! rounds = 30
//! population = 2000
//! timers = { report_goal = 50, timer_hours = 48 }
//! mechanism = { strategy = { kind = "tree" }, noise_multiplier = 7.0, delta = 1e-6 }
//! "#;
//! let config = SimulationFile::parse(text, "small.toml".as_ref(), &[])?;
//! let simulation = simulate::run(&config, ".".as_ref(), None, &mut |_| ())?;
//! let privacy = simulation.privacy.ok_or("no mechanism")?;
//! assert!(privacy.exact.rho <= privacy.observed.rho);
//! assert!(privacy.observed.rho <= privacy.planned.rho || simulation.abandoned > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: \[Gboard\] sections 2.2 and 2.5 and Table 1.

mod config;
pub mod ledger;
mod privacy;
mod summary;

use std::path::Path;

pub use config::{SimulatedMechanismConfig, SimulationConfig, SimulationFile};
pub use privacy::{Figures, PrivacyComparison};
pub use summary::{RoundTime, Simulation};

use ledger::{LedgerWriter, SimulatedRoundLine};
use summary::Times;
use undertone_coordinator::participation::exact::ParticipationSets;
use undertone_coordinator::participation::observed::Observed;
use undertone_coordinator::participation::timers::{DeviceTimers, SimulatedRound};
use undertone_coordinator::participation::{ParticipantId, ParticipationKey};
use undertone_run::Result;
use undertone_run_directory::entropy::randomness;

/// Simulates the rounds of a configuration; relative paths in it start at `base`. With `ledger`, each round becomes a line of
/// that file, which is complete when all rounds are made.
///
/// Memory is proportional to the population and to the number of participations (some twelve bytes each).
///
/// # Errors
/// [`RunError`](undertone_run::RunError): values of the configuration, a mechanism that does not fit the run, a
/// population that does not reach the report goal, files.
pub fn run(
    config: &SimulationConfig,
    base: &Path,
    ledger: Option<&Path>,
    on_round: &mut dyn FnMut(&SimulatedRound),
) -> Result<Simulation> {
    config.validate()?;
    // Before anything long: a mechanism that cannot be accounted for ends the simulation here.
    let planned = config.planned(base)?;
    let key = ParticipationKey::new(&randomness(config.seed)?);
    let salt = key.salt();
    let names: Vec<ParticipantId> = (0..u64::from(config.population))
        .map(|user| salt.pseudonym(user))
        .collect();
    let mut devices = DeviceTimers::new(config.population, &config.timers, &key)?;
    let mut writer = ledger.map(LedgerWriter::create).transpose()?;
    let mut observed = Observed::new();
    let mut sets = ParticipationSets::new();
    let mut times = Times::default();
    for _ in 0..config.rounds {
        let round = devices.next_round()?;
        let mut cohort: Vec<ParticipantId> = round
            .participants
            .iter()
            .map(|&user| names[user as usize])
            .collect();
        // PRIVACY: in the order of the users, the list would say whose index is smaller.
        cohort.sort_unstable();
        observed.record(round.round, &cohort)?;
        // Nothing asks for the sets where there is no mechanism to account for.
        if planned.is_some() {
            sets.record(round.round, &cohort)?;
        }
        times.record(&round);
        on_round(&round);
        if let Some(writer) = &mut writer {
            writer.append(&SimulatedRoundLine::new(&round, cohort))?;
        }
    }
    drop((devices, names));
    let privacy = match planned {
        Some((mechanism, delta)) => Some(PrivacyComparison::new(
            &mechanism,
            delta,
            &observed,
            sets.by_user(),
        )?),
        None => None,
    };
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Simulation::new(config, &observed, &times, privacy)
}

#[cfg(test)]
mod tests;
