//! The sentences of an audit, for readers.

use undertone_present::numbers::number;

use super::super::exposure::LIMITS;
use super::super::noise::NoiseTests;
use super::{Alarm, Audit, Control, FINAL, TEXT};
use undertone_run_directory::replays::TWIN;

impl Audit {
    pub(super) fn sentences(&self) -> Vec<String> {
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
        if self.canaries.iter().any(|bound| bound.level == TEXT) {
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
            "This run has a seed, from which its noise and the coins of its canaries follow. Anyone who has its config.toml knows them."
                .to_owned()
        });
        let seed = of_noise.and_then(|noise| noise.seed);
        let of_auditor = of_plan.and_then(|plan| plan.seed).or(seed).map(|seed| {
            format!(
                "Coins and noise of this audit follow from the seed {seed}, which the auditor chose. Such an audit is for study alone. \
                 An auditor who chooses the seed can choose the result."
            )
        });
        of_run.into_iter().chain(of_auditor).collect()
    }
}
