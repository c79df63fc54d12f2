//! `[timers]`: the simulated population and its server.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::error::check::{at_least_one, positive, require};

/// Seconds of an hour.
pub(super) const HOUR: f64 = 3600.0;

/// `[timers]`: the habits of devices, the report goal of the server, and the length of timers. See the
/// [module](crate::participation::timers) for the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TimersConfig {
    /// Number of reports that complete a round.
    pub report_goal: u32,
    /// Selected devices over the report goal, at least 1.
    pub over_selection: f64,
    /// Hours after a participation in which a device does not take part again (24 to 144 in \[Gboard\] Table 1).
    pub timer_hours: f64,
    /// Min minutes of a round.
    pub min_round_minutes: f64,
    /// Minutes after which a round below its goal is abandoned; at most the timer, so that no device is in a round twice.
    pub round_timeout_minutes: f64,
    /// Median minutes from a device's selection to its report.
    pub report_minutes: f64,
    /// Standard deviation of the logarithm of that time, from round to round.
    pub report_spread: f64,
    /// Standard deviation of the logarithm of a device's speed.
    pub device_spread: f64,
    /// Probability that a selected device drops out, in `[0, 1)`.
    pub drop_out: f64,
    /// Charging habits at night.
    pub charging: ChargingConfig,
    /// Windows by day; there are none without this table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daytime: Option<DaytimeConfig>,
    /// Time zones and their fractions of the population.
    pub zones: Vec<ZoneConfig>,
    /// Classes of availability and their fractions of the population.
    pub devices: Vec<DeviceClassConfig>,
}

impl Default for TimersConfig {
    fn default() -> Self {
        Self {
            report_goal: 100,
            over_selection: 1.3,
            timer_hours: 24.0,
            min_round_minutes: 2.0,
            round_timeout_minutes: 120.0,
            report_minutes: 4.0,
            report_spread: 0.5,
            device_spread: 0.4,
            drop_out: 0.08,
            charging: ChargingConfig::default(),
            daytime: Some(DaytimeConfig::default()),
            zones: vec![ZoneConfig {
                utc_offset_hours: 0.0,
                fraction: 1.0,
            }],
            devices: vec![
                DeviceClassConfig {
                    fraction: 0.8,
                    night_probability: 0.8,
                },
                DeviceClassConfig {
                    fraction: 0.2,
                    night_probability: 0.1,
                },
            ],
        }
    }
}

/// `timers.charging`: when devices are idle, charging and on an unmetered network at night.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ChargingConfig {
    /// Mean local hour at which a window opens, from 12 to 36 (36 is noon of the next day).
    pub start_hour: f64,
    /// Standard deviation of that hour between devices.
    pub start_spread_hours: f64,
    /// Mean length of a window in hours.
    pub length_hours: f64,
    /// Standard deviation of the length between devices.
    pub length_spread_hours: f64,
    /// Standard deviation of both ends of a device's window between its nights.
    pub nightly_spread_hours: f64,
}

impl Default for ChargingConfig {
    fn default() -> Self {
        Self {
            start_hour: 23.0,
            start_spread_hours: 1.5,
            length_hours: 7.0,
            length_spread_hours: 1.0,
            nightly_spread_hours: 0.75,
        }
    }
}

/// `timers.daytime`: one window per day besides the night.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DaytimeConfig {
    /// Probability of a window per day.
    pub probability: f64,
    /// Earliest local hour at which the window opens.
    pub from_hour: f64,
    /// Latest local hour at which the window opens.
    pub until_hour: f64,
    /// Length of the window in hours.
    pub length_hours: f64,
}

impl Default for DaytimeConfig {
    fn default() -> Self {
        Self {
            probability: 0.15,
            from_hour: 8.0,
            until_hour: 20.0,
            length_hours: 1.0,
        }
    }
}

/// One of `timers.zones`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ZoneConfig {
    /// Local time minus UTC, from -12 to 14.
    pub utc_offset_hours: f64,
    /// Fraction of the population, in relation to the other zones'.
    #[serde(rename = "share")]
    pub fraction: f64,
}

/// One of `timers.devices`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeviceClassConfig {
    /// Fraction of the population, in relation to the other classes'.
    #[serde(rename = "share")]
    pub fraction: f64,
    /// Probability of a window per night, in `(0, 1]`.
    pub night_probability: f64,
}

impl TimersConfig {
    /// Checks each value.
    ///
    /// # Errors
    /// [`ConfigValue`](crate::error::CoordinatorError::ConfigValue) naming the key, the expected and the actual value.
    pub fn validate(&self) -> Result<()> {
        at_least_one("timers.report_goal", self.report_goal as usize)?;
        within("over_selection", self.over_selection, 1.0, 10.0)?;
        within("timer_hours", self.timer_hours, 1.0, 8760.0)?;
        within("min_round_minutes", self.min_round_minutes, 0.0, 10_080.0)?;
        within("round_timeout_minutes", self.round_timeout_minutes, 1.0, 10_080.0)?;
        within("report_minutes", self.report_minutes, 0.05, 1440.0)?;
        within("report_spread", self.report_spread, 0.0, 3.0)?;
        within("device_spread", self.device_spread, 0.0, 3.0)?;
        within("drop_out", self.drop_out, 0.0, 0.99)?;
        let timer_minutes = 60.0 * self.timer_hours;
        for (key, minutes) in [
            ("round_timeout_minutes", self.round_timeout_minutes),
            ("min_round_minutes", self.min_round_minutes),
        ] {
            let expected = format!("at most the timer, {timer_minutes} minutes");
            let fits = minutes <= timer_minutes;
            require(fits, &format!("timers.{key}"), expected, minutes)?;
        }
        let (min, timeout) = (self.min_round_minutes, self.round_timeout_minutes);
        let expected = format!("at most timers.round_timeout_minutes = {timeout}");
        require(min <= timeout, "timers.min_round_minutes", expected, min)?;
        self.charging.validate()?;
        if let Some(daytime) = &self.daytime {
            daytime.validate()?;
        }
        let fractions = |key: &str, fractions: Vec<f64>| {
            let (key, count) = (format!("timers.{key}"), fractions.len());
            require((1..=256).contains(&count), &key, "from 1 to 256 entries", count)?;
            let mut places = fractions.into_iter().enumerate();
            places.try_for_each(|(place, fraction)| positive(&format!("{key}[{place}].share"), fraction))
        };
        fractions("zones", self.zones.iter().map(|zone| zone.fraction).collect())?;
        fractions(
            "devices",
            self.devices.iter().map(|class| class.fraction).collect(),
        )?;
        for (place, zone) in self.zones.iter().enumerate() {
            let key = format!("zones[{place}].utc_offset_hours");
            within(&key, zone.utc_offset_hours, -12.0, 14.0)?;
        }
        for (place, class) in self.devices.iter().enumerate() {
            // A millionth is a night in 2700 years: such a device is never seen, and looking for its night takes long.
            let key = format!("devices[{place}].night_probability");
            within(&key, class.night_probability, 1e-6, 1.0)?;
        }
        Ok(())
    }

    pub(super) fn timer_seconds(&self) -> u32 {
        seconds(HOUR * self.timer_hours)
    }

    pub(super) fn timeout_seconds(&self) -> u32 {
        seconds(60.0 * self.round_timeout_minutes)
    }

    pub(super) fn min_round_seconds(&self) -> u32 {
        seconds(60.0 * self.min_round_minutes)
    }

    /// Number of devices that a round keeps selected.
    pub(super) fn selection_target(&self) -> usize {
        (self.over_selection * f64::from(self.report_goal)).ceil() as usize
    }
}

impl ChargingConfig {
    fn validate(&self) -> Result<()> {
        within("charging.start_hour", self.start_hour, 12.0, 36.0)?;
        within("charging.start_spread_hours", self.start_spread_hours, 0.0, 4.0)?;
        within("charging.length_hours", self.length_hours, 0.5, 16.0)?;
        within("charging.length_spread_hours", self.length_spread_hours, 0.0, 4.0)?;
        within(
            "charging.nightly_spread_hours",
            self.nightly_spread_hours,
            0.0,
            4.0,
        )
    }
}

impl DaytimeConfig {
    fn validate(&self) -> Result<()> {
        within("daytime.probability", self.probability, 0.0, 1.0)?;
        within("daytime.from_hour", self.from_hour, 0.0, 24.0)?;
        within("daytime.until_hour", self.until_hour, self.from_hour, 24.0)?;
        within("daytime.length_hours", self.length_hours, 0.1, 12.0)
    }
}

fn seconds(value: f64) -> u32 {
    value.round() as u32
}

/// PRIVACY: written so that a NaN is refused.
fn within(key: &str, value: f64, min: f64, max: f64) -> Result<()> {
    let (key, expected) = (format!("timers.{key}"), format!("from {min} to {max}"));
    require((min..=max).contains(&value), &key, expected, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut TimersConfig), words: &str) {
        let mut config = TimersConfig::default();
        config.validate().unwrap();
        change(&mut config);
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(words), "{error} instead of {words}");
    }

    #[test]
    fn errors_name_the_key() {
        check(
            |c| c.report_goal = 0,
            "`timers.report_goal`: expected at least 1, got 0",
        );
        check(
            |c| c.over_selection = 0.9,
            "`timers.over_selection`: expected from 1 to 10, got 0.9",
        );
        check(|c| c.timer_hours = f64::NAN, "`timers.timer_hours`");
        check(
            |c| c.timer_hours = 1.5,
            "`timers.round_timeout_minutes`: expected at most the timer, 90 minutes",
        );
        check(
            |c| c.min_round_minutes = 121.0,
            "`timers.min_round_minutes`: expected at most timers.round_timeout",
        );
        check(|c| c.drop_out = 1.0, "`timers.drop_out`");
        check(|c| c.report_spread = -1.0, "`timers.report_spread`");
        check(
            |c| c.charging.start_hour = 7.0,
            "`timers.charging.start_hour`: expected from 12 to 36, got 7",
        );
        check(
            |c| c.daytime.as_mut().unwrap().until_hour = 3.0,
            "`timers.daytime.until_hour`: expected from 8 to 24",
        );
        check(
            |c| c.zones.clear(),
            "`timers.zones`: expected from 1 to 256 entries, got 0",
        );
        check(
            |c| c.zones[0].utc_offset_hours = 15.0,
            "`timers.zones[0].utc_offset_hours`",
        );
        check(
            |c| c.devices[1].fraction = 0.0,
            "`timers.devices[1].share`: expected a finite number above 0",
        );
        check(
            |c| c.devices[1].night_probability = 0.0,
            "`timers.devices[1].night_probability`",
        );
    }

    #[test]
    fn a_table_says_only_what_differs() {
        let config: TimersConfig = toml::from_str("report_goal = 7\ncharging = { start_hour = 22 }").unwrap();
        assert_eq!((config.report_goal, config.charging.start_hour), (7, 22.0));
        assert_eq!(config.devices, TimersConfig::default().devices);
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<TimersConfig>(&text).unwrap(), config);
        assert!(toml::from_str::<TimersConfig>("timer = 3").is_err());
    }
}
