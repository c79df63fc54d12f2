//! Device timers over a simulated population: MinS and MaxP as outcomes.
//!
//! In a deployed system the server does not know which devices exist. Each keeps a timer after a participation. The number of
//! rounds that pass meanwhile depends on the number of devices that are charging at that hour, on drop-outs, and on the report
//! goal. [`DeviceTimers`] simulates that, device by device, in events.
//!
//! # The process
//! Time is in whole seconds from midnight UTC. Nothing below depends on what a device would train on.
//!
//! *Devices.* Each has a time zone (drawn from `zones`), a class of availability (from `devices`), the local hour at which
//! it is usually put on its charger (normal, `charging.start_hour` and `start_spread_hours`), the length of its nights
//! (normal, `length_hours` and `length_spread_hours`) and a speed (log-normal around 1, `device_spread`).
//!
//! *Windows.* Each night a device is idle, charging and on an unmetered network with the probability of its class,
//! independently; both ends of the window vary around its habit (normal, `nightly_spread_hours`). With `daytime`, it has
//! besides, independently each day, one window at a uniform time between two local hours. A device is *available* inside
//! its windows, unless its timer runs.
//!
//! *Rounds* follow one another. The server selects `over_selection * report_goal` devices, uniformly among those available,
//! at once or as they become available, and replaces those that drop out. A selected device reports after a log-normal time
//! (median `report_minutes`, `report_spread`, times its speed); with probability `drop_out`, or where its window ends
//! earlier, it drops out instead, and is gone until its next window. The first `report_goal` reports are the round's
//! participants; later ones are turned away and available again. The next round starts then, but not before
//! `min_round_minutes` are over. A round without enough reports after `round_timeout_minutes` is abandoned: nothing is
//! released and its number is given to the next attempt.
//!
//! *Timers.* A device whose report was taken, in an abandoned round as well, is not available for `timer_hours`.
//!
//! Events of the same second are handled in the order of the devices' numbers, which mean nothing else.
//!
//! Source: \[Gboard\] section 2.2 (timers, diurnal participation); Bonawitz et al., "Towards Federated Learning at Scale:
//! System Design" (2019): selection, over-selection by 130 %, drop-outs of 6 % to 10 %, windows of idle, charging and
//! unmetered devices, time-outs.

mod calendar;
mod config;
mod devices;
mod server;

use undertone_accounting::participation::{Gap, Participation};

pub use config::{ChargingConfig, DaytimeConfig, DeviceClassConfig, TimersConfig, ZoneConfig};

use super::ParticipationKey;
use crate::error::{CoordinatorError, Result};
use server::Server;

/// A released round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedRound {
    /// The number of the round among the released ones, from 0.
    pub round: u64,
    /// Seconds of simulated time, from midnight UTC, when the server began to select.
    pub started: u64,
    /// Second at which the report goal was met.
    pub ended: u64,
    /// Number of attempts that timed out since the last released round.
    pub abandoned: u64,
    /// Number of devices that were selected.
    pub selected: u64,
    /// Number of selected devices that dropped out before the goal was met.
    pub dropped_out: u64,
    /// Devices whose reports count, ascending; exactly the report goal.
    pub participants: Vec<u32>,
}

/// A simulated population of devices with timers, and its server.
///
/// It is a pure function of population, configuration and key: a resumed run makes the same rounds again by
/// replay, at some millions of reports per second, and stores nothing.
///
/// # Example
/// ```
/// use undertone_coordinator::participation::{ParticipationKey, timers::{DeviceTimers, TimersConfig}};
///
/// let config = TimersConfig { report_goal: 20, timer_hours: 24.0, ..TimersConfig::default() };
/// let mut devices = DeviceTimers::new(1000, &config, &ParticipationKey::from_bytes([1; 32]))?;
/// let first = devices.next_round()?;
/// assert_eq!(first.participants.len(), 20);
/// let second = devices.next_round()?;
/// assert!(second.participants.iter().all(|device| !first.participants.contains(device)));
/// # Ok::<(), undertone_coordinator::CoordinatorError>(())
/// ```
#[derive(Debug)]
pub struct DeviceTimers {
    server: Server,
}

impl DeviceTimers {
    /// The population before its first round.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the key.
    pub fn new(population: u32, config: &TimersConfig, key: &ParticipationKey) -> Result<Self> {
        config.validate()?;
        if config.report_goal > population {
            return Err(CoordinatorError::value(
                "timers.report_goal",
                format!("at most the population of {population} devices"),
                config.report_goal,
            ));
        }
        Ok(Self {
            server: Server::new(population, config, key.generator(b"devices")),
        })
    }

    /// The next released round.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] where no attempt of a hundred days meets the report goal.
    pub fn next_round(&mut self) -> Result<SimulatedRound> {
        self.server.next_round()
    }

    /// Replays the first rounds, to go on from there.
    ///
    /// # Errors
    /// As [`DeviceTimers::next_round`].
    pub(crate) fn replay(&mut self, rounds: u64) -> Result<()> {
        (0..rounds).try_for_each(|_| self.next_round().map(drop))
    }
}

/// The schema that timers alone promise in a run in which no round is abandoned: a gap of `floor(timer / time-out)`.
///
/// From the start of a round in which a device reports to the end of the one in which it reports again, more than the timer
/// passes; released one after another, `g + 1` rounds take at most `g + 1` time-outs. So `g + 1 > timer / time-out`. Each
/// abandoned attempt in between takes one from the gap; a run that has to be certain enforces the schema with a
/// [`Policy`](super::policy::Policy).
///
/// # Errors
/// From the accountant, for no rounds; [`CoordinatorError::ConfigValue`] as [`TimersConfig::validate`].
///
/// # Example
/// ```
/// use undertone_coordinator::participation::timers::{TimersConfig, promised};
///
/// let config = TimersConfig { timer_hours: 72.0, round_timeout_minutes: 120.0, ..TimersConfig::default() };
/// assert_eq!(promised(&config, 100)?.gap().get(), 36);
/// assert_eq!(promised(&config, 100)?.max_participation(), 3);
/// # Ok::<(), undertone_coordinator::CoordinatorError>(())
/// ```
pub fn promised(config: &TimersConfig, rounds: u64) -> Result<Participation> {
    config.validate()?;
    let (timer, timeout) = (config.timer_seconds(), config.timeout_seconds());
    let gap = Gap::new(u64::from(timer / timeout))?;
    Ok(Participation::at_least(gap, gap.fitting(rounds))?)
}

#[cfg(test)]
mod tests;
