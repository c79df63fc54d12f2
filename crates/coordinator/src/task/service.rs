//! `[service]`: the settings of a task that devices of a population take part in.

use serde::{Deserialize, Serialize};

use super::duration::Span;
use crate::error::Result;
use crate::error::check::{positive, require};

/// Max sessions of an attempt over its report goal.
pub(crate) const MAX_OVER_SELECTION: f64 = 4.0;

/// `[service]`: the settings of a task that devices of a population take part in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Sessions that may be open or reported at one time, over the report goal; from 1 to 4.
    #[serde(default = "default_over_selection")]
    pub over_selection: f64,
    /// The groups of a secure sum, and the floor of any sum that the server sees.
    pub group: GroupConfig,
    /// The time limits of an attempt.
    #[serde(default)]
    pub deadlines: DeadlinesConfig,
    /// The devices that may take part.
    #[serde(default)]
    pub eligibility: EligibilityConfig,
    /// The party that vouches for subjects.
    #[serde(default)]
    pub identity: IdentityLevel,
    /// The party that counts participations.
    #[serde(default)]
    pub ledger: LedgerPlace,
    /// `true` if the key of the pseudonyms is destroyed when the task ends. Nobody can then link a subject and the ledger, and no
    /// subject can get a receipt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forget_pseudonyms: bool,
    /// The max clip norm that a device accepts, with adaptive clipping alone. By default it is 100 times `clip.initial_norm`, room for
    /// the estimate to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clip_norm: Option<f64>,
    /// The limits of what a round may take from a device.
    #[serde(default)]
    pub budget: BudgetConfig,
    /// The pace of check-ins.
    #[serde(default)]
    pub pace: PaceConfig,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

fn default_over_selection() -> f64 {
    1.3
}

/// `service.group`: the groups of a secure sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Number of devices of a full group.
    pub target: u64,
    /// Min number of devices in a sum that the server sees. Earlier task files call it `least`, and the canonical form still does: the
    /// identifiers of tasks are made from that.
    #[serde(rename(serialize = "least"), alias = "least")]
    pub min: u64,
}

/// `service.deadlines`: the time limits of an attempt and of the phases of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DeadlinesConfig {
    /// Time from the opening of an attempt in which devices are assigned.
    pub select: Span,
    /// Time of a device from its assignment to its report.
    pub report: Span,
    /// Time that a group waits for more devices once it has enough.
    pub lobby: Span,
    /// Time of the devices of a group for their keys.
    pub keys: Span,
    /// Time for their shares.
    pub shares: Span,
    /// Time for their masked updates.
    pub upload: Span,
    /// Time for their answers to the request to unmask.
    pub unmask: Span,
    /// Max time of a whole attempt.
    pub attempt: Span,
}

impl Default for DeadlinesConfig {
    fn default() -> Self {
        Self {
            select: Span::seconds(600),
            report: Span::seconds(1200),
            lobby: Span::seconds(60),
            keys: Span::seconds(20),
            shares: Span::seconds(20),
            upload: Span::seconds(120),
            unmask: Span::seconds(20),
            attempt: Span::seconds(3600),
        }
    }
}

/// `service.eligibility`: the devices that may take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EligibilityConfig {
    /// Min number of examples of a device.
    pub min_examples: u32,
    /// Max number of its examples that a round reads.
    pub max_examples: u32,
    /// Min time between two participations of one device, and from its installation to its first one.
    pub timer: Span,
    /// Min version of the client.
    pub min_client_version: u32,
}

impl Default for EligibilityConfig {
    fn default() -> Self {
        Self {
            min_examples: 8,
            max_examples: 256,
            timer: Span::seconds(86_400),
            min_client_version: 1,
        }
    }
}

/// The party that vouches for the subjects behind the pseudonyms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IdentityLevel {
    /// The devices themselves: for development.
    Dev,
    /// An issuer of certificates.
    #[default]
    Certificate,
    /// An issuer of certificates, and the platform of each device.
    Attested,
}

impl IdentityLevel {
    /// The name in task files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Certificate => "certificate",
            Self::Attested => "attested",
        }
    }

    /// A sentence that says who vouches for the pseudonyms, and what the guarantee of one user rests on.
    #[must_use]
    pub fn statement(self) -> &'static str {
        match self {
            Self::Dev => {
                "Identity: pseudonyms are claims of the devices (`dev`). Nobody vouches that one person is one user."
            }
            Self::Certificate => {
                "Identity: one user is one subject of the issuer of certificates (`certificate`). A person with several accounts is \
                 protected as a group: rho grows by the square of their number."
            }
            Self::Attested => {
                "Identity: one user is one subject of the issuer of certificates, and each device passed the attestation of its \
                 platform (`attested`). A person with several accounts is protected as a group: rho grows by the square of their \
                 number."
            }
        }
    }
}

/// The party that counts participations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LedgerPlace {
    /// The server, by pseudonyms.
    #[default]
    Server,
    /// Each device by its own memory. The server names nobody.
    Device,
}

/// `service.budget`: the limits of what a round may take from a device, which refuses or stops beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// Max CPU time.
    pub cpu: Span,
    /// Min rate of the upload in kbit/s; a slower device gives up.
    pub upload_kbps_min: u32,
    /// Max part of the battery, in per cent.
    pub battery_percent: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            cpu: Span::seconds(120),
            upload_kbps_min: 128,
            battery_percent: 2,
        }
    }
}

/// `service.pace`: the pace of check-ins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PaceConfig {
    /// Check-ins that are invited, over those that are needed.
    pub checkins_per_needed: f64,
    /// Min time between two check-ins of one device.
    pub min_interval: Span,
}

impl Default for PaceConfig {
    fn default() -> Self {
        Self {
            checkins_per_needed: 3.0,
            min_interval: Span::seconds(900),
        }
    }
}

impl ServiceConfig {
    /// Checks each value that its type alone does not.
    pub(super) fn validate(&self) -> Result<()> {
        let over = self.over_selection;
        let holds = (1.0..=MAX_OVER_SELECTION).contains(&over);
        let expected = format!("a number from 1 to {MAX_OVER_SELECTION}");
        require(holds, "service.over_selection", expected, over)?;
        let GroupConfig { target, min } = self.group;
        // PRIVACY: the sum of one device is its update.
        require(min >= 2, "service.group.min", "at least 2", min)?;
        let holds = target >= min;
        let expected = format!("at least service.group.min = {min}");
        require(holds, "service.group.target", expected, target)?;
        let DeadlinesConfig {
            select,
            report,
            attempt,
            ..
        } = self.deadlines;
        let holds = attempt >= select && attempt >= report;
        let expected = format!(
            "at least service.deadlines.select = \"{select}\" and service.deadlines.report = \"{report}\""
        );
        require(holds, "service.deadlines.attempt", expected, attempt)?;
        let EligibilityConfig {
            min_examples,
            max_examples,
            ..
        } = self.eligibility;
        let holds = min_examples >= 1 && max_examples >= min_examples;
        let expected = "`min_examples` of at least 1 and `max_examples` of at least `min_examples`";
        let got = format!("{min_examples} and {max_examples}");
        require(holds, "service.eligibility", expected, got)?;
        let percent = self.budget.battery_percent;
        let holds = percent <= 100;
        let expected = "at most 100";
        require(holds, "service.budget.battery_percent", expected, percent)?;
        positive("service.pace.checkins_per_needed", self.pace.checkins_per_needed)
    }
}
