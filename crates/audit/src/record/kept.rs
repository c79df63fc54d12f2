//! Several audits in one file: a section replaces that of its kind and level, and its alarm stays.

use serde::{Deserialize, Serialize};

use super::super::noise::Source;
use super::{Audit, MECHANISM, Verdict};
use super::{LANE, TEXT};

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
    pub(super) fn words(self) -> &'static str {
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
    /// The verdict of the section.
    pub verdict: Verdict,
}

impl Alarm {
    pub(super) fn sentence(&self) -> String {
        format!(
            "An earlier audit raised an alarm, {} of the level '{}': {}. A later one replaced its figures and does not take the alarm back.",
            self.kind.words(),
            self.level,
            self.verdict.sentence()
        )
    }
}

impl Audit {
    /// This audit and the others that stand beside it.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// The kind and the level of an audit of one section; `None` for one without figures.
    #[must_use]
    pub fn section(&self) -> Option<(Kind, &str)> {
        self.sections().next()
    }

    /// The kind and the level of each section.
    pub fn sections(&self) -> impl Iterator<Item = (Kind, &str)> {
        let canaries = self.canaries.first();
        let canaries = canaries.map(|bound| (Kind::Canaries, bound.level.as_str()));
        let noise = self.noise.as_ref().map(|noise| {
            let level = match noise.source {
                Source::ThisRun => LANE,
                Source::Rehearsal => MECHANISM,
            };
            (Kind::Noise, level)
        });
        let replay = self.replay.as_ref();
        let replay = replay.map(|replay| (Kind::Replay, replay.tested.as_str()));
        let exposure = self.exposure.as_ref().map(|_| (Kind::Exposure, TEXT));
        [canaries, noise, replay, exposure].into_iter().flatten()
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
