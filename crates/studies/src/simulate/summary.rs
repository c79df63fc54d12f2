//! The result of a simulation.

use serde::Serialize;
use undertone_accounting::participation::RoundsBetween;
use undertone_accounting::participation::largest_gap;

use super::config::SimulationConfig;
use super::privacy::PrivacyComparison;
use undertone_coordinator::participation::observed::Observed;
use undertone_coordinator::participation::timers::SimulatedRound;
use undertone_run::Result;

const DAY: u64 = 86_400;
const HOUR: u64 = 3600;

/// A simulated run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulation {
    /// Name of the simulation.
    pub name: String,
    /// Number of devices.
    pub population: u32,
    /// Number of reports that complete a round.
    pub report_goal: u32,
    /// Hours of the device timer.
    pub timer_hours: f64,
    /// Number of released rounds.
    pub rounds: u64,
    /// Number of attempts that timed out.
    pub abandoned: u64,
    /// Max number of attempts that timed out between two released rounds.
    pub abandoned_in_a_row: u64,
    /// Days from the first midnight to the last release.
    pub simulated_days: f64,
    /// Number of selected devices, over all released rounds.
    pub selected: u64,
    /// Number of selected devices that dropped out.
    pub dropped_out: u64,
    /// MinS: min number of rounds strictly between two participations of a device; `None` where none took part twice.
    pub min_sep: Option<u64>,
    /// MinS could not be larger than this: population over report goal, less one.
    pub largest_min_sep: u64,
    /// MaxP: max number of participations of a device.
    pub max_participation: u64,
    /// The numbers of devices that took part never, once, twice, ...
    pub participations: Vec<u64>,
    /// Released rounds per hour, in each hour of the day (UTC).
    pub rounds_per_hour: [f64; 24],
    /// Minutes that a round lasted: the shortest, the median, the longest.
    pub round_minutes: [f64; 3],
    /// Guarantees, where the file names a mechanism.
    pub privacy: Option<PrivacyComparison>,
    /// The time of each round; it is not serialised, since the ledger has it.
    #[serde(skip)]
    pub round_times: Vec<RoundTime>,
}

/// The time of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTime {
    /// Days from the first midnight to the release of the round.
    pub day: f64,
    /// Minutes from the begin to the release of the round.
    pub minutes: f64,
}

/// The counts that are gathered while rounds are made.
#[derive(Debug, Default)]
pub(super) struct Times {
    rounds: Vec<(u64, u64)>,
    abandoned: u64,
    abandoned_in_a_row: u64,
    selected: u64,
    dropped_out: u64,
}

impl Times {
    pub(super) fn record(&mut self, round: &SimulatedRound) {
        self.rounds.push((round.started, round.ended));
        self.abandoned += round.abandoned;
        self.abandoned_in_a_row = self.abandoned_in_a_row.max(round.abandoned);
        self.selected += round.selected;
        self.dropped_out += round.dropped_out;
    }

    /// Released rounds over the time that fell into each hour of the day.
    fn rounds_per_hour(&self) -> [f64; 24] {
        let end = self.rounds.last().map_or(0, |round| round.1);
        let mut counts = [0.0; 24];
        for (_, ended) in &self.rounds {
            counts[(ended % DAY / HOUR) as usize] += 1.0;
        }
        let (days, rest) = (end / DAY, end % DAY);
        for (hour, count) in (0u64..).zip(&mut counts) {
            let of_last_day = rest.saturating_sub(hour * HOUR).min(HOUR);
            let seconds = days * HOUR + of_last_day;
            *count /= (seconds as f64 / HOUR as f64).max(f64::MIN_POSITIVE);
            // The hours that a run of less than a day never saw.
            if seconds == 0 {
                *count = 0.0;
            }
        }
        counts
    }
}

impl Simulation {
    pub(super) fn new(
        config: &SimulationConfig,
        observed: &Observed,
        times: &Times,
        privacy: Option<PrivacyComparison>,
    ) -> Result<Self> {
        let round_times: Vec<RoundTime> = times
            .rounds
            .iter()
            .map(|(started, ended)| RoundTime {
                day: *ended as f64 / DAY as f64,
                minutes: (ended - started) as f64 / 60.0,
            })
            .collect();
        let mut minutes: Vec<f64> = round_times.iter().map(|round| round.minutes).collect();
        minutes.sort_unstable_by(f64::total_cmp);
        let quantile = |fraction: usize| minutes.get(fraction * (minutes.len().max(1) - 1) / 2).copied();
        let round_minutes = [0, 1, 2].map(|half| quantile(half).unwrap_or(0.0));
        let never = u64::from(config.population) - observed.users();
        let largest = largest_gap(u64::from(config.population), u64::from(config.timers.report_goal))?;
        Ok(Self {
            name: config.name.clone(),
            population: config.population,
            report_goal: config.timers.report_goal,
            timer_hours: config.timers.timer_hours,
            rounds: observed.rounds(),
            abandoned: times.abandoned,
            abandoned_in_a_row: times.abandoned_in_a_row,
            simulated_days: round_times.last().map_or(0.0, |round| round.day),
            selected: times.selected,
            dropped_out: times.dropped_out,
            min_sep: observed.min_sep().map(RoundsBetween::get),
            largest_min_sep: largest.rounds_between().get(),
            max_participation: observed.max_participation(),
            participations: [vec![never], observed.participations()].concat(),
            rounds_per_hour: times.rounds_per_hour(),
            round_minutes,
            privacy,
            round_times,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_per_hour_count_the_time_that_passed() {
        // A day and a half: three rounds in hour 0, one in hour 13, one in the first half of the second day's hour 12.
        let times = Times {
            rounds: vec![
                (0, 60),
                (60, 120),
                (13 * HOUR, 13 * HOUR + 5),
                (DAY, DAY + 9),
                (DAY, DAY + 12 * HOUR + 1800),
            ],
            ..Times::default()
        };
        let hours = times.rounds_per_hour();
        assert_eq!((hours[0], hours[1], hours[13]), (1.5, 0.0, 1.0));
        assert!((hours[12] - 1.0 / 1.5).abs() < 1e-12);
        assert_eq!(Times::default().rounds_per_hour(), [0.0; 24]);
    }
}
