//! The settings of an attempt.

use undertone_store::Millis;

/// The time limits of the phases of a group, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhaseLimits {
    /// The wait for more devices, from the moment when the lobby has the minimum.
    pub lobby: Millis,
    /// The roll-call after the lobby.
    pub keys: Millis,
    /// The exchange of sealed shares.
    pub shares: Millis,
    /// The uploads.
    pub upload: Millis,
    /// The shares that open the sum. Signatures of the survivors have the same time.
    pub unmask: Millis,
}

/// The way from reports to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The server adds single updates.
    Plain {
        /// Number of reports that ends the attempt.
        goal: u32,
    },
    /// Groups make secure sums.
    Groups {
        /// Number of groups.
        groups: u32,
        /// Min number of devices in the sum of a group.
        group_min: u32,
        /// The time limits of the phases.
        limits: PhaseLimits,
    },
}

/// The settings of an attempt. Times are absolute, by the clock that its events are stamped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    target: u32,
    floor: u32,
    mode: Mode,
    select_until: Millis,
    report_until: Millis,
    attempt_until: Millis,
}

/// Settings that allow no release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} must be {expected}, got {got}")]
pub(crate) struct SettingsError {
    /// The setting.
    pub name: &'static str,
    /// The range of the setting.
    pub expected: String,
    /// The value of the setting.
    pub got: u64,
}

fn check(
    name: &'static str,
    holds: bool,
    expected: impl Into<String>,
    got: u64,
) -> Result<(), SettingsError> {
    match holds {
        true => Ok(()),
        false => Err(SettingsError {
            name,
            expected: expected.into(),
            got,
        }),
    }
}

/// The number of sessions that may be open or reported at one time, for a goal of `goal` reports: `ceil(factor goal)`.
///
/// # Errors
/// A factor outside `[1, 10]`, and a product that is no `u32`.
pub(crate) fn over_selected(goal: u32, factor: f64) -> Result<u32, SettingsError> {
    if !(1.0..=10.0).contains(&factor) {
        return Err(SettingsError {
            name: "the over-selection",
            expected: format!("from 1 to 10, and not {factor}"),
            got: u64::from(goal),
        });
    }
    let target = (f64::from(goal) * factor).ceil();
    check(
        "the over-selected goal",
        target <= f64::from(u32::MAX),
        "below 2^32",
        target as u64,
    )?;
    Ok(target as u32)
}

impl Settings {
    /// A plain attempt: `target` sessions at one time, `goal` reports that end it, `floor` reports that it needs.
    ///
    /// # Errors
    /// [`SettingsError`] where not `1 <= floor <= goal <= target`.
    pub(crate) fn plain(target: u32, goal: u32, floor: u32, until: Deadlines) -> Result<Self, SettingsError> {
        check(
            "the goal",
            goal <= target,
            format!("at most {target}"),
            goal.into(),
        )?;
        let range = format!("from 1 to {goal}");
        check("the floor", (1..=goal).contains(&floor), range, floor.into())?;
        Ok(Self::new(target, floor, Mode::Plain { goal }, until))
    }

    /// An attempt of groups: `target` sessions at one time, in as few groups of at most `group` sessions as hold them. A group needs
    /// `group_min` devices in its sum, and all sums together need `floor`.
    ///
    /// # Errors
    /// [`SettingsError`] where not `2 <= group_min <= group`, `1 <= floor <= target`, or where the target does not fill the groups.
    pub(crate) fn groups(
        target: u32,
        group: u32,
        group_min: u32,
        floor: u32,
        limits: PhaseLimits,
        until: Deadlines,
    ) -> Result<Self, SettingsError> {
        let range = format!("from 2 to {group}");
        check(
            "the floor of a group",
            (2..=group).contains(&group_min),
            range,
            group_min.into(),
        )?;
        let range = format!("from 1 to {target}");
        check("the floor", (1..=target).contains(&floor), range, floor.into())?;
        let groups = target.div_ceil(group);
        let smallest = target / groups;
        let range = format!("at least {group_min} in each of {groups} groups");
        check(
            "the number of sessions",
            smallest >= group_min,
            range,
            target.into(),
        )?;
        Ok(Self::new(
            target,
            floor,
            Mode::Groups {
                groups,
                group_min,
                limits,
            },
            until,
        ))
    }

    fn new(target: u32, floor: u32, mode: Mode, until: Deadlines) -> Self {
        Self {
            target,
            floor,
            mode,
            select_until: until.select,
            report_until: until.report,
            attempt_until: until.attempt,
        }
    }

    /// Max number of sessions that are open or reported at one time.
    #[must_use]
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Min number of reports in a release.
    #[must_use]
    pub(crate) fn floor(&self) -> u32 {
        self.floor
    }

    /// The way from reports to a sum.
    #[must_use]
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Number of sessions for which group `shard` has room; 0 for a group that does not exist, and in a plain attempt.
    #[must_use]
    pub(crate) fn places(&self, shard: u32) -> u32 {
        match self.mode {
            Mode::Groups { groups, .. } if shard < groups => {
                self.target / groups + u32::from(shard < self.target % groups)
            }
            _ => 0,
        }
    }

    /// The end of the selection.
    #[must_use]
    pub(crate) fn select_until(&self) -> Millis {
        self.select_until
    }

    /// The end of the reports. In groups: the time from which no lobby waits for devices.
    #[must_use]
    pub(crate) fn report_until(&self) -> Millis {
        self.report_until
    }

    /// The time from which the attempt is releasing or has ended.
    #[must_use]
    pub(crate) fn attempt_until(&self) -> Millis {
        self.attempt_until
    }
}

/// The deadlines of an attempt, absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// The end of the selection.
    pub select: Millis,
    /// The end of the reports.
    pub report: Millis,
    /// The end of the attempt.
    pub attempt: Millis,
}
