//! The schemes by which the users of a round are chosen.

use serde::{Deserialize, Serialize};

/// The scheme by which the users of a round are chosen.
///
/// # Guarantee
/// The accountant reads this value: Poisson sampling is amplified under add-or-remove adjacency, fixed-size sampling under
/// replace-one adjacency. Neither figure holds for the other scheme. The other schemes amplify nothing: with them the
/// guarantee rests on the participation schema, under zero-out adjacency.
///
/// # Source
/// \[DPLM\] Algorithm 1 (Poisson), section 3 (fixed-size samples as the baseline); \[BLT\] section 5 (epochs); \[Gboard\]
/// section 2.2 (timers).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Each user independently with probability `q`.
    #[default]
    Poisson,
    /// Exactly `users_per_round` users, uniformly without replacement; with `[participation]` out of those who may take
    /// part again.
    FixedSize,
    /// One random order of the users, cut into cohorts of `users_per_round`, the same in every epoch.
    ShuffledEpochs,
    /// Devices of a simulated population that check in when they can and their timer allows.
    DeviceTimers,
    /// Devices of a service that check in when they choose to; `undertone serve` admits those whom the schema allows.
    CheckIn,
}

impl Sampling {
    /// The name used in run files, ledgers and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::FixedSize => "fixed_size",
            Self::ShuffledEpochs => "shuffled_epochs",
            Self::DeviceTimers => "device_timers",
            Self::CheckIn => "check_in",
        }
    }
}
