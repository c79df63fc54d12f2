//! The plan of the canaries and their bounds. Where the coins are not there, the numbers of canaries that were in and of correct guesses, and the
//! limits of scores, are taken as they stand. All else follows from them and from the configuration.

use super::super::{Check, Run};
use super::{Place, short};
use undertone_accounting::audit::Significance;
use undertone_audit::canaries::{self, CONFIRMATION};
use undertone_audit::record;
use undertone_audit::record::{ANY, Audit, Bound, CanaryPlan, FDP, FINAL, ITERATES, MECHANISM};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_run_directory::config::MAX_CANARIES;
use undertone_run_directory::error::{DirectoryError, Result};

/// Max number of bounds of an audit. There are three for the attacker who sees all rounds, three for the one who sees the final model, and a
/// confirmation.
const MAX_BOUNDS: usize = 8;

/// The level of canaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// A rehearsal of the mechanism.
    Mechanism,
    /// The run itself.
    Lane,
    /// A copy of the run with invented users.
    Text,
}

impl Level {
    const ALL: [Self; 3] = [Self::Mechanism, Self::Lane, Self::Text];

    /// The level with a name, which stands under this key.
    ///
    /// # Errors
    /// [`DirectoryError`] for another name.
    pub(super) fn of(key: &str, name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| DirectoryError::value(key, "`mechanism`, `lane` or `text`", short(name)))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mechanism => MECHANISM,
            Self::Lane => record::LANE,
            Self::Text => record::TEXT,
        }
    }
}

/// The plan of a rehearsal, or of a copy with invented users, that follows from the claim and from the written numbers of canaries and probes.
///
/// # Errors
/// [`DirectoryError`] for an audit without a plan, and for more canaries than there can be; from the estimators.
pub(super) fn plan(
    level: Level,
    config_sha256: &str,
    written: &Audit,
    place: Place,
    claim: &GuaranteeRecord,
) -> Result<CanaryPlan> {
    let missing = || DirectoryError::missing(&place.key("plan"), "the plan of the canaries");
    let plan = written.plan.as_ref().ok_or_else(missing)?;
    if !(10..=MAX_CANARIES).contains(&plan.canaries) {
        let expected = format!("at least 10 and at most {MAX_CANARIES}");
        return Err(DirectoryError::value(
            &place.key("plan.canaries"),
            expected,
            plan.canaries,
        ));
    }
    let (probes, directions) = match level {
        Level::Text => (0, None),
        Level::Mechanism | Level::Lane => (plan.probes, plan.directions),
    };
    Ok(CanaryPlan {
        directions,
        seed: plan.seed,
        ..canaries::plan(config_sha256, plan.canaries, probes, claim)?
    })
}

/// The words of a bound beside its figures. They stand here once more, apart from the code that writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    adversary: &'static str,
    estimator: &'static str,
    assumption: &'static str,
}

/// The kinds of the bounds of an audit, in their order. Where canaries have directions in shared coordinates, all bounds are from guesses.
fn kinds(level: Level, sampled: bool, server_adds: bool, directions: bool) -> Vec<Kind> {
    let (of_text, gaussian) = (level == Level::Text, !directions);
    let of_scores = if sampled {
        "gaussian.sampled"
    } else {
        "gaussian.shift"
    };
    let mut kinds = Vec::new();
    let mut add = |adversary, with_scores: bool| {
        let scores = with_scores.then_some((of_scores, "Gaussian noise of any scale"));
        let guessed = [(ANY, "none"), (FDP, "Gaussian trade-off")];
        kinds.extend(
            guessed
                .into_iter()
                .chain(scores)
                .map(|(estimator, assumption)| Kind {
                    adversary,
                    estimator,
                    assumption,
                }),
        );
    };
    if !of_text {
        add(ITERATES, gaussian);
    }
    if of_text || server_adds {
        add(FINAL, !of_text && gaussian && !sampled);
    }
    kinds
}

/// The plan and the claim that written counts belong to.
pub(super) struct Counted<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) level: Level,
    pub(super) plan: &'a CanaryPlan,
    pub(super) claim: &'a GuaranteeRecord,
}

impl Counted<'_> {
    /// The bounds that follow from the written counts.
    ///
    /// # Errors
    /// [`DirectoryError`] for more bounds than there can be, and for counts that do not fit each other; from the estimators.
    pub(super) fn made_again(
        &self,
        written: &[Bound],
        place: Place,
        check: &mut Check,
    ) -> Result<Vec<Bound>> {
        if written.len() > MAX_BOUNDS {
            let expected = format!("at most {MAX_BOUNDS} bounds");
            return Err(DirectoryError::value(
                &place.key("canaries"),
                expected,
                written.len(),
            ));
        }
        let (plan, level) = (self.plan, self.level);
        let within = |key: &str, got: u64| match got > plan.canaries {
            true => {
                let expected = format!("at most {} canaries", plan.canaries);
                Err(DirectoryError::value(&place.key(key), expected, got))
            }
            false => Ok(()),
        };
        let server_adds = self.run.task().server.factors(1, 1).is_some();
        let kinds = kinds(level, self.is_sampled(), server_adds, plan.directions.is_some());
        let members = written.first().map_or(0, |first| first.members);
        within("canaries[0].in", members)?;
        let mut made = Vec::new();
        for (kind, written) in kinds.iter().zip(written) {
            made.push(self.bound(*kind, written, Significance::REPORTED, members)?);
        }
        let mut expected = kinds.len();
        let exceeds = |bound: &Bound| bound.headline && bound.epsilon_lower > self.claim.epsilon;
        if made.iter().any(exceeds) {
            if let (Some(headline), Some(confirmation)) = (kinds.first(), written.get(expected)) {
                // A rehearsal and a copy have fresh coins the second time.
                let members = match level {
                    Level::Lane => members,
                    Level::Mechanism | Level::Text => confirmation.members,
                };
                within(&format!("canaries[{expected}].in"), members)?;
                let significance = Significance::new(CONFIRMATION)?;
                made.push(self.bound(*headline, confirmation, significance, members)?);
            }
            expected += 1;
        }
        if written.len() != expected {
            let expected = format!("{expected} bounds");
            check.wrong(place.key("canaries"), expected, written.len());
        }
        Ok(made)
    }

    /// `true` where the rounds of a canary are secret.
    fn is_sampled(&self) -> bool {
        // Cohorts of a copy with invented users are always a Poisson sample.
        self.level == Level::Text || self.run.plan.bounded().is_none()
    }

    /// A bound with the figures that follow from its counts.
    fn bound(&self, kind: Kind, written: &Bound, significance: Significance, members: u64) -> Result<Bound> {
        let guesses = match kind.estimator {
            ANY => Some(self.plan.guesses),
            FDP => Some(self.plan.guesses_fdp),
            _ => None,
        };
        let mut made = Bound {
            level: self.level.name().to_owned(),
            adversary: kind.adversary.to_owned(),
            unknown_to_attacker: unknown(self.is_sampled(), kind.adversary),
            canaries: self.plan.canaries,
            members,
            guesses,
            correct: guesses.map(|_| written.correct.unwrap_or(0)),
            confidence: 1.0 - significance.get(),
            headline: false,
            estimator: kind.estimator.to_owned(),
            assumption: kind.assumption.to_owned(),
            epsilon_lower: written.epsilon_lower.max(0.0),
            // The reach of scores of the final model follows from the rounds of the canaries.
            most_that_could_show: match (kind.adversary, guesses) {
                (FINAL, None) => Some(written.most_that_could_show.unwrap_or(0.0).max(0.0)),
                _ => None,
            },
            p_at_claim: None,
        };
        // PRIVACY: without a headline no bound could contradict the claim.
        made.headline = made.decides();
        made.of_counts(self.claim)
    }
}

/// The secrets that an attacker does not use.
fn unknown(sampled: bool, adversary: &str) -> Vec<String> {
    let all = [
        ("coins", true),
        ("Poisson coins", sampled),
        ("noise key", true),
        ("all models but the last", adversary == FINAL),
    ];
    let names = all.into_iter().filter(|(_, applies)| *applies);
    names.map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_audit_has_its_bounds_and_its_secrets() {
        fn all<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
            parts.concat()
        }
        let names = |level, sampled, adds| -> Vec<String> {
            let kinds = kinds(level, sampled, adds, false);
            let name = |kind: &Kind| format!("{} {}", kind.adversary, kind.estimator);
            kinds.iter().map(name).collect()
        };
        let iterates = ["all_iterates one_run.any", "all_iterates one_run_fdp.gaussian"];
        let last = ["final_model one_run.any", "final_model one_run_fdp.gaussian"];
        assert_eq!(
            names(Level::Mechanism, true, true),
            all(&[&iterates, &["all_iterates gaussian.sampled"], &last])
        );
        assert_eq!(
            names(Level::Lane, false, true),
            all(&[
                &iterates,
                &["all_iterates gaussian.shift"],
                &last,
                &["final_model gaussian.shift"]
            ])
        );
        assert_eq!(
            names(Level::Lane, false, false),
            all(&[&iterates, &["all_iterates gaussian.shift"]])
        );
        assert_eq!(names(Level::Text, true, false), last);
        let shared = kinds(Level::Mechanism, false, true, true);
        assert!(shared.iter().all(|kind| kind.estimator.starts_with("one_run")) && shared.len() == 4);
        assert_eq!(unknown(false, ITERATES), ["coins", "noise key"]);
        assert_eq!(
            unknown(true, FINAL),
            ["coins", "Poisson coins", "noise key", "all models but the last"]
        );
        assert!(Level::of("level", "other").is_err());
    }
}
