//! `audit.json`: the figures of an audit with the sentences that belong to them.
//!
//! Verdict and sentences follow from the figures by [`Audit::finish`], and the bounds follow from counts by [`Bound::of_counts`]. The
//! writer and the verifier of the file call the same functions.
//!
//! An audit has up to four sections: a replay, tests of noise, bounds from canaries, and exposures. Each section speaks of one level, which is
//! what was tested. A later audit replaces the section of the same kind and level. One of another level goes to [`Audit::others`]. An alarm never leaves the file: that of a replaced section stays in [`Audit::alarms`].

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_accounting::audit::{Guesses, Significance, one_run, one_run_fdp};
use undertone_accounting::{Delta, Epsilon};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::{hex, number};

use super::exposure::Exposed;
use super::noise::{NoiseTests, Source};
use super::{lane, text};
use crate::error::{Result, RunError};
use crate::replay::{Replay, TWIN};

/// The version of the file.
pub const SCHEMA: &str = "undertone.audit/1";

/// The sentence that stands beside every bound.
pub const LIMITS: &str =
    "It does not show that no better attack exists. The promise is the claim, which rests on proof.";

/// An audit as `audit.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run that was tested, and which part of it.
    pub run: Tested,
    /// Number of audits that were recorded in this file, this one included.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub audits: u64,
    /// The plan of the canaries, which is fixed before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<CanaryPlan>,
    /// SHA-256 of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<String>,
    /// The claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<GuaranteeRecord>,
    /// The replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The bounds from canaries; one of them is the headline, and one may confirm it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<Bound>,
    /// The tests of the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTests>,
    /// The exposure of secrets of invented users in a copy of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposure: Option<Exposed>,
    /// The error that was planted, in a positive control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// Earlier audits of one section each, whose kind stands above at another level. They have no others and no alarms of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Audit>,
    /// Alarms of sections that later ones replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<Alarm>,
    /// One of [`Verdict`]'s sentences.
    pub verdict: String,
    /// Sentences for readers.
    pub statements: Vec<String>,
}

fn one() -> u64 {
    1
}

fn is_one(audits: &u64) -> bool {
    *audits == 1
}

/// The tested run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tested {
    /// The name of the run.
    pub name: String,
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// The last digest of the ledger, where the audit was of a run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_head: Option<String>,
}

/// The kind of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A replay.
    Replay,
    /// Tests of noise.
    Noise,
    /// Bounds from canaries.
    Canaries,
    /// Exposures of secrets.
    Exposure,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::Replay => "a replay",
            Self::Noise => "a test of noise",
            Self::Canaries => "an audit with canaries",
            Self::Exposure => "an attack by exposure",
        }
    }
}

/// The alarm of a section that a later one of the same kind and level replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alarm {
    /// The kind of the section.
    pub kind: Kind,
    /// The level of its canaries, or the run of its replay.
    pub level: String,
    /// Its verdict.
    pub verdict: Verdict,
}

impl Alarm {
    fn sentence(&self) -> String {
        format!(
            "An earlier audit raised an alarm, {} of the level '{}': {}. A later one replaced its figures and does not take the alarm back.",
            self.kind.words(),
            self.level,
            self.verdict.sentence()
        )
    }
}

/// The plan of an audit with canaries, which is fixed before the first round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryPlan {
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// Number of canaries.
    pub canaries: u64,
    /// Number of coordinates without contributions.
    pub probes: usize,
    /// Number of coordinates in which each canary has a random direction; `None` where each has a coordinate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<u64>,
    /// The seed that the coins follow from, where the auditor chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Significance of the bounds.
    pub significance: f64,
    /// The estimator of the headline.
    pub headline: String,
    /// Number of guesses of the headline.
    pub guesses: u64,
    /// Number of guesses of the bound that assumes a Gaussian trade-off.
    pub guesses_fdp: u64,
}

impl CanaryPlan {
    /// SHA-256 of the plan as JSON.
    ///
    /// # Errors
    /// Numbers that JSON cannot hold.
    pub fn sha256(&self) -> Result<String> {
        let text = serde_json::to_vec(self)
            .map_err(|error| RunError::value("audit plan", "values that JSON can hold", error))?;
        Ok(hex(&Sha256::digest(text)))
    }
}

/// An error that is planted on purpose, so that the instrument can be seen to work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// This factor of the stated noise is added.
    Noise(f64),
    /// The attacker is told the coins of Poisson cohorts, which the claim takes to be secret.
    PoissonCoins,
    /// The copy of the run with invented users is trained without clipping and noise.
    WithoutPrivacy,
}

impl Control {
    fn sentence(self) -> String {
        let planted = match self {
            Self::Noise(factor) => format!("{} of the stated noise was added", number(factor)),
            Self::PoissonCoins => {
                "the attacker was told the rounds of each canary, which the claim takes to be secret"
                    .to_owned()
            }
            Self::WithoutPrivacy => "the copy was trained without clipping and noise".to_owned(),
        };
        format!("This is a positive control: {planted}, so that the instrument can be seen to work.")
    }
}

/// The level of a rehearsal of the mechanism.
pub const MECHANISM: &str = "mechanism";

/// The attacker who sees the release of each round.
pub const ITERATES: &str = "all_iterates";

/// The attacker who sees the final model alone.
pub const FINAL: &str = "final_model";

/// The estimator of the headline, which assumes nothing about the mechanism.
pub const ANY: &str = "one_run.any";

/// The estimator that assumes a Gaussian trade-off.
pub const FDP: &str = "one_run_fdp.gaussian";

/// One bound from canaries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// `mechanism` for a rehearsal, `lane` for canaries in the run itself, `text` for invented users in a copy of it.
    pub level: String,
    /// [`ITERATES`] or [`FINAL`].
    pub adversary: String,
    /// Secrets that the attacker is assumed not to know.
    pub unknown_to_attacker: Vec<String>,
    /// Number of canaries, `m`.
    pub canaries: u64,
    /// Number of canaries whose coin put them in.
    #[serde(rename = "in")]
    pub members: u64,
    /// Number of guesses that was fixed beforehand, `r`; `None` for an estimator without guesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guesses: Option<u64>,
    /// Number of correct guesses, `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct: Option<u64>,
    /// Confidence of the bound.
    pub confidence: f64,
    /// `true` for a bound that decides about the verdict.
    pub headline: bool,
    /// The estimator.
    pub estimator: String,
    /// Its assumption.
    pub assumption: String,
    /// The lower bound on epsilon at the claim's delta.
    pub epsilon_lower: f64,
    /// The bound if every guess had been right; for the final model without guesses, the bound of canaries without number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_that_could_show: Option<f64>,
    /// The probability of as many correct guesses, at most, if the claim holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_at_claim: Option<f64>,
}

impl Bound {
    /// `true` for a bound that decides about the verdict. It assumes nothing about the mechanism, and is that of the strongest attacker of
    /// its level.
    #[must_use]
    pub(crate) fn decides(&self) -> bool {
        let strongest = match self.level == text::LEVEL {
            true => FINAL,
            false => ITERATES,
        };
        self.estimator == ANY && self.adversary == strongest
    }

    /// The thing that was attacked, in words.
    fn attacked(&self) -> &'static str {
        match self.level.as_str() {
            lane::LEVEL => "the lane of this run",
            text::LEVEL => "a copy of this run with invented users",
            _ => "a rehearsal of the mechanism",
        }
    }

    /// The releases that the attacker sees, in words.
    #[must_use]
    pub fn seen(&self) -> &'static str {
        match self.adversary == FINAL {
            true => "the final model alone",
            false => "all rounds",
        }
    }

    /// The bound with the figures that follow from its counts under a claim; unchanged for an estimator without guesses.
    ///
    /// # Errors
    /// Counts that do not fit each other, a confidence outside `[0.5, 1)`, an unknown estimator with guesses; from the estimators.
    pub fn of_counts(self, claim: &GuaranteeRecord) -> Result<Self> {
        let (Some(guesses), Some(correct)) = (self.guesses, self.correct) else {
            return Ok(self);
        };
        let significance = Significance::new(1.0 - self.confidence)?;
        let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
        let guessed = Guesses::new(self.canaries, guesses, correct)?;
        let all = Guesses::new(self.canaries, guesses, guesses)?;
        let of = |outcome: &Guesses| -> Result<f64> {
            Ok(match self.estimator.as_str() {
                ANY => one_run::epsilon(outcome, significance, delta.get())?.get(),
                FDP => one_run_fdp::epsilon_if_gaussian(outcome, significance, delta)?.get(),
                other => {
                    return Err(RunError::value(
                        "estimator",
                        "`one_run.any` or `one_run_fdp.gaussian`",
                        other,
                    ));
                }
            })
        };
        let (lower, most) = (of(&guessed)?, of(&all)?);
        let p_at_claim = match self.estimator.as_str() {
            ANY => Some(one_run::p_value(&guessed, epsilon.get(), delta.get())?),
            _ => None,
        };
        Ok(Self {
            epsilon_lower: lower,
            most_that_could_show: Some(most),
            p_at_claim,
            ..self
        })
    }
}

/// The result of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No test contradicts the claim. It confirms nothing.
    Nothing,
    /// A headline bound at 95 % exceeds the claim, and its confirmation at 99.9 % does not.
    OneInTwenty,
    /// A replayed sensitivity or the noise is not as stated, a confirmed bound exceeds the claim, or an exposure exceeds its limit.
    Contradicted,
}

impl Verdict {
    /// The sentence of `audit.json`.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Nothing => "nothing contradicts the claim",
            Self::OneInTwenty => {
                "a bound exceeds the claim once and was not confirmed: at most one audit in twenty does that under a true claim"
            }
            Self::Contradicted => "the claim is contradicted",
        }
    }

    /// `true` where the exit status must be 3.
    #[must_use]
    pub fn is_alarm(self) -> bool {
        self != Self::Nothing
    }
}

impl Audit {
    /// An audit without figures, of a run with this name and configuration.
    #[must_use]
    pub fn new(name: &str, config_sha256: &str) -> Self {
        Self::of_run(Tested {
            name: name.to_owned(),
            config_sha256: config_sha256.to_owned(),
            ledger_head: None,
        })
    }

    fn of_run(run: Tested) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            run,
            audits: 1,
            plan: None,
            plan_sha256: None,
            claim: None,
            replay: None,
            canaries: Vec::new(),
            noise: None,
            exposure: None,
            control: None,
            others: Vec::new(),
            alarms: Vec::new(),
            verdict: String::new(),
            statements: Vec::new(),
        }
    }

    /// The audit with the seed that its coins and its noise followed from, which the auditor chose.
    ///
    /// # Errors
    /// Numbers that JSON cannot hold.
    pub fn seeded(mut self, seed: u64) -> Result<Self> {
        if let Some(noise) = &mut self.noise {
            noise.seed = Some(seed);
        }
        if let Some(plan) = &mut self.plan {
            plan.seed = Some(seed);
            self.plan_sha256 = Some(plan.sha256()?);
        }
        Ok(self.finish())
    }

    /// The verdict that follows from the figures, those of [`others`](Self::others) and the alarms of replaced sections.
    #[must_use]
    pub fn judged(&self) -> Verdict {
        let others = self.others.iter().map(Self::judged);
        let alarms = self.alarms.iter().map(|alarm| alarm.verdict);
        others.chain(alarms).fold(self.judged_alone(), Verdict::max)
    }

    /// The verdict of the sections of this audit alone.
    fn judged_alone(&self) -> Verdict {
        let contradicted = self.replay.as_ref().is_some_and(Replay::contradicts)
            || self.noise.as_ref().is_some_and(NoiseTests::contradicts)
            || self.exposure.as_ref().is_some_and(Exposed::contradicts);
        let claim = self.claim.as_ref().map_or(f64::INFINITY, |claim| claim.epsilon);
        let headlines = || self.canaries.iter().filter(|bound| bound.headline);
        // A bound or claim that is no number counts as an alarm.
        let exceeds =
            |bound: &&Bound| bound.epsilon_lower > claim || bound.epsilon_lower.is_nan() || claim.is_nan();
        let exceeding = headlines().filter(exceeds).count();
        match (contradicted, exceeding, headlines().count()) {
            (true, _, _) => Verdict::Contradicted,
            (false, 0, _) => Verdict::Nothing,
            (false, 1, 2) => Verdict::OneInTwenty,
            _ => Verdict::Contradicted,
        }
    }

    /// Sets the verdict and the sentences, which follow from the figures.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.verdict = self.judged().sentence().to_owned();
        self.statements = self.sentences();
        self
    }

    fn sentences(&self) -> Vec<String> {
        let mut statements = self.of_canaries();
        statements.extend(self.noise.iter().flat_map(NoiseTests::sentences));
        statements.extend(self.of_seeds());
        statements.extend(self.control.map(Control::sentence));
        if let Some(replay) = &self.replay {
            statements.push(format!(
                "{} (user, round) pairs of {} were replayed with and without the user. A replay proves the sensitivity of these sums for \
                 these users, and of no others.",
                replay.pairs, replay.tested
            ));
            if replay.tested == TWIN {
                statements
                    .push("A twin of this run was replayed under a fresh seed, never this run.".to_owned());
            }
            statements.push("A replay does not check the accountant: reference cases do.".to_owned());
        }
        if let Some(exposure) = &self.exposure {
            statements.extend(exposure.sentences());
        }
        statements.extend(self.others.iter().flat_map(|other| {
            let section = other.section();
            section.map(|(kind, level)| {
                format!(
                    "An earlier audit stands beside these figures, {} of the level '{level}': {}.",
                    kind.words(),
                    other.verdict
                )
            })
        }));
        statements.extend(self.alarms.iter().map(Alarm::sentence));
        if self.audits > 1 {
            statements.push(format!(
                "{} audits of this configuration were recorded. Each bound holds with its confidence for one audit alone.",
                self.audits
            ));
        }
        statements.push(
            "The verdict follows from the replays, tests of noise, headline bounds and exposures that stand here. Attacks on the texts of \
             people have no part in it."
                .to_owned(),
        );
        statements
    }

    /// The sentences about canaries: one per headline, with its level.
    fn of_canaries(&self) -> Vec<String> {
        let mut statements = Vec::new();
        let (claim, delta) = self
            .claim
            .as_ref()
            .map_or((f64::NAN, f64::NAN), |claim| (claim.epsilon, claim.delta));
        for bound in self.canaries.iter().filter(|bound| bound.headline) {
            statements.push(format!(
                "An attack of this kind and size on {}, by somebody who sees {}, shows an epsilon of at least {} at a delta of {} with {} % \
                 confidence, of a claim of {}. {LIMITS}",
                bound.attacked(),
                bound.seen(),
                number(bound.epsilon_lower),
                number(delta),
                number(100.0 * bound.confidence),
                number(claim),
            ));
        }
        if self.canaries.iter().any(|bound| !bound.headline) {
            statements.push(
                "Only the headline decides about the verdict. The other bounds are exploratory: nothing corrects for their number."
                    .to_owned(),
            );
        }
        if let Some(directions) = self.plan.as_ref().and_then(|plan| plan.directions) {
            statements.push(format!(
                "Each canary had a random direction in {directions} coordinates, in which the other canaries were expected to add at most 10 % \
                 to the variance of its score over all rounds. The bounds are those from guesses, which hold whatever the others add."
            ));
        }
        if self.canaries.iter().any(|bound| bound.level == text::LEVEL) {
            statements.push(
                "The final model of a copy of this run was attacked, which was trained with invented users beside all others. This run \
                 itself was not tested."
                    .to_owned(),
            );
        }
        let last = self
            .canaries
            .iter()
            .find(|bound| bound.adversary == FINAL && bound.guesses.is_none());
        if let Some(most) = last.and_then(|bound| bound.most_that_could_show) {
            statements.push(format!(
                "An attacker who sees the final model alone could show an epsilon of at most {} by such canaries, however many there are, of a \
                 claim of {}.",
                number(most),
                number(claim),
            ));
        }
        statements
    }

    /// The sentences about the seeds that coins and noise followed from.
    fn of_seeds(&self) -> Vec<String> {
        let (of_noise, of_plan) = (self.noise.as_ref(), self.plan.as_ref());
        let of_run = of_noise.is_some_and(|noise| noise.seeded_run).then(|| {
            "This run has a seed, from which its noise and the coins of its canaries follow. Whoever has its config.toml knows them."
                .to_owned()
        });
        let seed = of_noise.and_then(|noise| noise.seed);
        let of_auditor = of_plan.and_then(|plan| plan.seed).or(seed).map(|seed| {
            format!(
                "Coins and noise of this audit follow from the seed {seed}, which the auditor chose. That is for study: whoever chooses a seed \
                 can choose the result."
            )
        });
        of_run.into_iter().chain(of_auditor).collect()
    }

    /// This audit and the others that stand beside it.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// The kind and the level of an audit of one section; `None` for one without figures.
    #[must_use]
    pub fn section(&self) -> Option<(Kind, &str)> {
        if let Some(bound) = self.canaries.first() {
            return Some((Kind::Canaries, &bound.level));
        }
        if let Some(noise) = &self.noise {
            let level = match noise.source {
                Source::ThisRun => lane::LEVEL,
                Source::Rehearsal => MECHANISM,
            };
            return Some((Kind::Noise, level));
        }
        if let Some(replay) = &self.replay {
            return Some((Kind::Replay, &replay.tested));
        }
        self.exposure.as_ref().map(|_| (Kind::Exposure, text::LEVEL))
    }

    /// The sections, each as an audit of its own.
    fn split(self) -> Vec<Self> {
        let run = self.run;
        let alone = || Self::of_run(run.clone());
        let canaries = (!self.canaries.is_empty()).then(|| Self {
            canaries: self.canaries,
            plan: self.plan,
            plan_sha256: self.plan_sha256,
            claim: self.claim.clone(),
            ..alone()
        });
        let noise = self.noise.map(|noise| Self {
            noise: Some(noise),
            claim: self.claim,
            ..alone()
        });
        let replay = self.replay.map(|replay| Self {
            replay: Some(replay),
            ..alone()
        });
        let exposure = self.exposure.map(|exposure| Self {
            exposure: Some(exposure),
            ..alone()
        });
        let all = [canaries, noise, replay, exposure];
        all.into_iter().flatten().map(Self::finish).collect()
    }

    /// Takes the section of an audit of one section, which becomes one of the others where a section of its kind is there. Bounds and tests of
    /// noise stand beside one another at one level alone, because they share a claim.
    fn take(&mut self, part: Self) {
        let Some((kind, level)) = part.section() else {
            return;
        };
        let beside = |own: Option<(Kind, &str)>| match own {
            Some((Kind::Canaries | Kind::Noise, own)) => own == level,
            _ => true,
        };
        let fits = match kind {
            Kind::Canaries => self.canaries.is_empty() && beside(self.section()),
            Kind::Noise => self.noise.is_none() && beside(self.section()),
            Kind::Replay => self.replay.is_none(),
            Kind::Exposure => self.exposure.is_none(),
        };
        match kind {
            _ if !fits => self.others.push(part),
            Kind::Canaries => {
                // The bounds are computed from this claim; tests of noise need none.
                (self.canaries, self.claim) = (part.canaries, part.claim);
                (self.plan, self.plan_sha256) = (part.plan, part.plan_sha256);
            }
            Kind::Noise => {
                self.noise = part.noise;
                self.claim = self.claim.take().or(part.claim);
            }
            Kind::Replay => self.replay = part.replay,
            Kind::Exposure => self.exposure = part.exposure,
        }
    }

    /// The audits of an earlier file and of this one together. A section of this one replaces that of the same kind and level, whose alarm
    /// stays.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        let mut together = Self::of_run(self.run.clone());
        together.audits = earlier.audits.saturating_add(1);
        let mut earlier = earlier;
        together.alarms = std::mem::take(&mut earlier.alarms);
        let beside = std::mem::take(&mut earlier.others);
        let mut before: Vec<Self> = earlier.split();
        before.extend(beside.into_iter().flat_map(Self::split));
        let new = self.split();
        for part in &new {
            before.retain(|old| {
                if old.section() != part.section() {
                    return true;
                }
                let alarm = old.alarm().filter(|alarm| !together.alarms.contains(alarm));
                if old.judged_alone() > part.judged_alone() {
                    together.alarms.extend(alarm);
                }
                false
            });
        }
        for part in new.into_iter().chain(before) {
            together.take(part);
        }
        together.finish()
    }

    /// The alarm that an audit of one section leaves behind.
    fn alarm(&self) -> Option<Alarm> {
        self.section().map(|(kind, level)| Alarm {
            kind,
            level: level.to_owned(),
            verdict: self.judged_alone(),
        })
    }
}

/// The audit of an attack by exposure.
#[must_use]
pub fn of_exposure(name: &str, config_sha256: &str, exposure: Exposed) -> Audit {
    Audit {
        exposure: Some(exposure),
        ..Audit::new(name, config_sha256)
    }
    .finish()
}

/// The audit of a replay.
#[must_use]
pub fn of_replay(name: &str, config_sha256: &str, replay: Replay) -> Audit {
    Audit {
        replay: Some(replay),
        ..Audit::new(name, config_sha256)
    }
    .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(source: Source, values: usize, smallest_p_holm: f64) -> Audit {
        Audit {
            noise: Some(NoiseTests {
                source,
                values,
                seed: None,
                seeded_run: false,
                left_out: Vec::new(),
                tests: Vec::new(),
                smallest_p_holm,
            }),
            claim: Some(claim()),
            ..Audit::new("run", "00")
        }
        .finish()
    }

    fn claim() -> GuaranteeRecord {
        serde_json::from_value(serde_json::json!({
            "epsilon": 4.0,
            "delta": 1e-5,
            "adjacency": "",
            "sampling": "",
            "recipe": "",
            "rounds": 2,
            "population": 10,
            "users_per_round": 5.0,
            "noise_multiplier": 1.0,
        }))
        .unwrap()
    }

    fn bound(level: &str, adversary: &str, confidence: f64, epsilon_lower: f64) -> Bound {
        Bound {
            level: level.to_owned(),
            adversary: adversary.to_owned(),
            unknown_to_attacker: Vec::new(),
            canaries: 100,
            members: 50,
            guesses: Some(10),
            correct: Some(9),
            confidence,
            headline: true,
            estimator: ANY.to_owned(),
            assumption: "none".to_owned(),
            epsilon_lower,
            most_that_could_show: None,
            p_at_claim: None,
        }
    }

    fn canaries(level: &str, epsilon_lower: f64, confirmed: Option<f64>) -> Audit {
        let adversary = if level == text::LEVEL { FINAL } else { ITERATES };
        let confirmation = confirmed.map(|epsilon| bound(level, adversary, 0.999, epsilon));
        let canaries = [bound(level, adversary, 0.95, epsilon_lower)];
        Audit {
            canaries: canaries.into_iter().chain(confirmation).collect(),
            claim: Some(claim()),
            ..Audit::new("run", "00")
        }
        .finish()
    }

    fn said(audit: &Audit, text: &str) -> bool {
        audit.statements.iter().any(|statement| statement.contains(text))
    }

    #[test]
    fn an_alarm_stays_where_a_later_audit_of_its_level_is_clean() {
        let alarm = noise(Source::ThisRun, 1, 1e-9);
        assert_eq!(alarm.judged(), Verdict::Contradicted);
        let clean = noise(Source::ThisRun, 2, 0.5).after(alarm.clone());
        assert_eq!((clean.audits, clean.judged()), (2, Verdict::Contradicted));
        assert_eq!(clean.noise.as_ref().unwrap().values, 2);
        assert!(clean.others.is_empty() && clean.alarms.len() == 1);
        assert!(said(
            &clean,
            "An earlier audit raised an alarm, a test of noise of the level 'lane'"
        ));
        // It stays through all further audits, once, and through the file.
        let again = noise(Source::ThisRun, 3, 0.5).after(alarm.after(clean));
        assert_eq!((again.audits, again.alarms.len()), (4, 1));
        assert_eq!(again.verdict, Verdict::Contradicted.sentence());
        let text = serde_json::to_string(&again).unwrap();
        assert_eq!(serde_json::from_str::<Audit>(&text).unwrap(), again);
        assert_eq!(again.clone().finish(), again);
    }

    #[test]
    fn an_audit_of_another_level_stands_beside_the_one_before() {
        let lane = noise(Source::ThisRun, 1, 1e-9);
        let both = noise(Source::Rehearsal, 2, 0.5).after(lane);
        assert_eq!(both.noise.as_ref().unwrap().values, 2);
        assert_eq!(both.others[0].noise.as_ref().unwrap().values, 1);
        assert!(both.alarms.is_empty());
        assert_eq!(both.judged(), Verdict::Contradicted);
        assert!(said(
            &both,
            "stands beside these figures, a test of noise of the level 'lane': the claim is contradicted"
        ));
        // Canaries share their claim with tests of noise of the same level alone.
        let copy = canaries(text::LEVEL, 1.0, None).after(both);
        assert!(copy.noise.is_none() && copy.canaries.len() == 1);
        let kept: Vec<_> = copy.others.iter().map(|other| other.section().unwrap()).collect();
        assert_eq!(kept, [(Kind::Noise, MECHANISM), (Kind::Noise, lane::LEVEL)]);
        let rehearsed = canaries(MECHANISM, 1.0, None).after(copy);
        let kept: Vec<_> = rehearsed
            .others
            .iter()
            .map(|other| other.section().unwrap())
            .collect();
        assert_eq!(kept, [(Kind::Canaries, text::LEVEL), (Kind::Noise, lane::LEVEL)]);
        assert_eq!(rehearsed.noise.as_ref().unwrap().source, Source::Rehearsal);
        assert_eq!((rehearsed.audits, rehearsed.all().count()), (4, 3));
    }

    #[test]
    fn the_worst_verdict_is_that_of_all_audits_together() {
        let once = canaries(lane::LEVEL, 5.0, Some(3.0));
        assert_eq!(once.judged(), Verdict::OneInTwenty);
        assert!(once.verdict.contains("at most one audit in twenty"));
        let replaced = canaries(lane::LEVEL, 1.0, None).after(once);
        assert_eq!(replaced.judged(), Verdict::OneInTwenty);
        let confirmed = canaries(MECHANISM, 5.0, Some(4.5)).after(replaced);
        assert_eq!(confirmed.judged(), Verdict::Contradicted);
        assert_eq!(canaries(MECHANISM, 5.0, None).judged(), Verdict::Contradicted);
        assert_eq!(
            canaries(MECHANISM, f64::NAN, None).judged(),
            Verdict::Contradicted
        );
    }

    #[test]
    fn each_headline_names_its_level_its_attacker_and_its_delta() {
        for (level, place, seen) in [
            (MECHANISM, "a rehearsal of the mechanism", "all rounds"),
            (lane::LEVEL, "the lane of this run", "all rounds"),
            (
                text::LEVEL,
                "a copy of this run with invented users",
                "the final model alone",
            ),
        ] {
            let audit = canaries(level, 1.25, None);
            let expected = format!(
                "An attack of this kind and size on {place}, by somebody who sees {seen}, shows an epsilon of at least 1.25 at a delta of"
            );
            assert!(said(&audit, &expected), "{:?}", audit.statements);
        }
        let mut seeded = noise(Source::Rehearsal, 5, 0.5);
        assert!(!said(&seeded, "seed"));
        seeded = seeded.seeded(17).unwrap();
        assert!(said(&seeded, "follow from the seed 17"));
    }
}
