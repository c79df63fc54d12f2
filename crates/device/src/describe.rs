//! Sessions in words, for the person at the device and for other programs.

use std::fmt;

use undertone_protocol::{Code, Verdict};

use crate::conditions::Unmet;
use crate::eligibility::Ineligible;
use crate::machine::Ended;
use crate::memory::Progress;
use crate::wire::hex;

impl Ended {
    /// A name for logs and for other programs, in lower case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reported(_) => "reported",
            Self::NotEligible(_) => "not_eligible",
            Self::NotEnrolled => "not_enrolled",
            Self::Clock => "clock",
            Self::Rejected(..) => "rejected",
            Self::Refused(_) => "refused",
            Self::Lost(..) => "lost",
            Self::OutOfTime => "out_of_time",
            Self::NotTrained(_) => "not_trained",
            Self::HostNotReady(_) => "host_not_ready",
            Self::Stopped => "stopped",
            Self::TimedOut => "timed_out",
            Self::TooSlow => "too_slow",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(verdict) => f.write_str(match verdict.unwrap_or(Verdict::Unspecified) {
                Verdict::Included => {
                    "the update was sent, and the service says that it is in the released sum"
                }
                Verdict::Late => {
                    "the update was sent, and the service says that it came too late for the sum"
                }
                Verdict::Abandoned => {
                    "the update was sent, and the service says that the attempt was abandoned"
                }
                Verdict::Unspecified => "the update was sent, and the service has not said what became of it",
            }),
            Self::NotEligible(reasons) if reasons.is_empty() => {
                f.write_str("the board has no task for this device now")
            }
            Self::NotEligible(reasons) => {
                for (place, (task, why)) in reasons.iter().enumerate() {
                    let gap = if place > 0 { "; " } else { "" };
                    write!(f, "{gap}task {}: {why}", &hex(task)[..8])?;
                }
                Ok(())
            }
            Self::NotEnrolled => f.write_str(
                "the device has no certificate that is valid now; enrol it, or renew its certificate",
            ),
            Self::Clock => {
                f.write_str("the clock of this machine is wrong: it is far from that of the service")
            }
            Self::Rejected(code, why) => write!(f, "the service refused with {}: {why}", code_name(*code)),
            Self::Refused(why) => write!(f, "the device refused the offer of the service: {why}"),
            Self::Lost(code, why) => write!(
                f,
                "the session ended before the update was sent, with {}: {why}",
                code_name(*code)
            ),
            Self::OutOfTime => f.write_str(
                "local training used up its processor time; the device leaves this plan alone for a week",
            ),
            Self::NotTrained(why) => write!(f, "training gave no update: {why}"),
            Self::HostNotReady(unmet) => unmet.fmt(f),
            Self::Stopped => f.write_str("the session was stopped by its host or by a limit"),
            Self::TimedOut => f.write_str("a deadline of the session passed"),
            Self::TooSlow => f.write_str("the upload was slower than the plan allows"),
            Self::Unreachable => {
                f.write_str("the service cannot be reached; check its address and the network")
            }
        }
    }
}

/// The name of a code without its prefix.
fn code_name(code: Code) -> &'static str {
    let name = code.as_str_name();
    name.strip_prefix("CODE_").unwrap_or(name)
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "it takes no devices now",
            Self::Version => "it needs a newer app",
            Self::TooFewExamples => "the device has too few examples; add texts",
            Self::TooNew { .. } => "the device is too new, or was restored",
            Self::TooSoon { .. } => "the device took part a short while ago",
            Self::TooFewRounds => "too few rounds have passed since the device took part",
            Self::TooOften => "the device has taken part as often as the task allows",
            Self::OldRound => "the board shows a round that the device saw end",
            Self::TooLarge => "it moves more bytes than the device allows",
            Self::PlanBackoff { .. } => "its training used up its processor time on this device",
        })
    }
}

impl Unmet {
    /// A name for logs and for other programs, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Charging => "charging",
            Self::Idle => "idle",
            Self::Unmetered => "unmetered",
            Self::Storage => "storage",
            Self::Thermal => "thermal",
        }
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Charging => "the machine is not charging",
            Self::Idle => "the machine is in use",
            Self::Unmetered => "the network is metered",
            Self::Storage => "storage is short",
            Self::Thermal => "the machine is too warm",
        })
    }
}

impl Progress {
    /// A name for logs and for other programs: `begun`, `committed`, or the verdict of the service.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Committed => "committed",
            Self::Ended(verdict) => verdict_name(verdict),
        }
    }
}

/// A name of a verdict for logs and for other programs.
#[must_use]
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Included => "included",
        Verdict::Late => "late",
        Verdict::Abandoned => "abandoned",
        Verdict::Unspecified => "unknown",
    }
}
