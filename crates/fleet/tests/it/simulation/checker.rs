//! The claims that hold after every history, checked from the ledger, the released sums and the devices' own memories.

use std::collections::{BTreeMap, BTreeSet};

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::{LedgerLine, everyone_in};
use undertone_device::Progress;
use undertone_protocol::Verdict;
use undertone_store::Store as _;

use super::world::World;

/// A released round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoundFacts {
    pub(crate) round: u64,
    /// The subjects in the sum, as the ledger names them.
    pub(crate) included: Vec<usize>,
    /// All subjects that the line counts, each as often as it stands there: abandoned attempts, the sum, the lost.
    pub(crate) everyone: Vec<usize>,
    /// The number of updates of each subject in the released sum, as the model shows it; of nobody in the rest of the coordinates.
    pub(crate) sum: Vec<f64>,
}

/// The memory of one device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceFacts {
    pub(crate) subject: usize,
    pub(crate) rows: Vec<(u64, Progress)>,
}

/// Everything that is known after a history, from three sources that do not know of each other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) min_sep: u64,
    pub(crate) max_part: usize,
    pub(crate) rounds: Vec<RoundFacts>,
    /// The subjects of abandoned attempts after the last release.
    pub(crate) since: Vec<usize>,
    pub(crate) devices: Vec<DeviceFacts>,
    /// Draws of noise, counted by attempt: the staged models.
    pub(crate) models_per_release: Vec<usize>,
}

impl Facts {
    /// The facts of a world whose task is not in the middle of a release.
    pub(crate) fn of(world: &World<'_>) -> Self {
        let template = world.template;
        let subject = |user: &ParticipantId| template.pseudonyms[user];
        let subjects = |users: &[ParticipantId]| -> Vec<usize> { users.iter().map(subject).collect() };
        let (mut rounds, mut since) = (Vec::new(), Vec::new());
        let releases = world.durable.releases();
        let mut before = template.initial();
        let mut models_per_release = Vec::new();
        for line in world.durable.ledger(template.new_task.id, 0).unwrap() {
            match LedgerLine::read(&line).unwrap() {
                LedgerLine::Round(entry) => {
                    let release = releases
                        .iter()
                        .find(|release| release.round == entry.round)
                        .unwrap();
                    let models = world.durable.models(release.attempt);
                    models_per_release.push(models.len());
                    let after = template.parameters(&models[0]);
                    rounds.push(RoundFacts {
                        round: entry.round,
                        included: subjects(&entry.participants),
                        everyone: subjects(&entry.everyone()),
                        sum: template.sum(entry.round, &before, &after),
                    });
                    before = after;
                }
                LedgerLine::End(end) => since = subjects(&everyone_in(&end.attempts)),
            }
        }
        if since.is_empty() {
            let abandoned = world
                .durable
                .abandoned_since_release(template.new_task.id)
                .unwrap();
            let users = abandoned.iter().flat_map(|attempt| &attempt.participants);
            since = users.map(subject).collect();
        }
        let devices = world.devices.iter().map(|device| DeviceFacts {
            subject: device.subject,
            rows: {
                let rows = device.memory.participations.iter();
                rows.map(|row| (row.round, row.progress)).collect()
            },
        });
        Self {
            min_sep: template.rules.min_sep,
            max_part: template.rules.max_part as usize,
            rounds,
            since,
            devices: devices.collect(),
            models_per_release,
        }
    }

    /// Every claim that does not hold, as a sentence.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.check_ledger(&mut found);
        self.check_sums(&mut found);
        self.check_devices(&mut found);
        found
    }

    /// Rounds that are too near, or too many, in ascending order.
    fn breaks(&self, rounds: &[u64]) -> bool {
        let near = rounds.windows(2).any(|pair| pair[1] < pair[0] + self.min_sep);
        near || rounds.len() > self.max_part
    }

    fn check_ledger(&self, found: &mut Vec<String>) {
        let mut by_subject: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for round in &self.rounds {
            for subject in &round.everyone {
                by_subject.entry(*subject).or_default().push(round.round);
            }
        }
        for subject in &self.since {
            by_subject
                .entry(*subject)
                .or_default()
                .push(self.rounds.len() as u64);
        }
        for (subject, rounds) in by_subject {
            if self.breaks(&rounds) {
                found.push(format!(
                    "the ledger counts subject {subject} in rounds {rounds:?}"
                ));
            }
        }
        let order = (0u64..)
            .zip(&self.rounds)
            .all(|(place, round)| place == round.round);
        if !order {
            found.push("the rounds of the ledger are not in order".to_owned());
        }
        if self.models_per_release.iter().any(|models| *models != 1) {
            let models = &self.models_per_release;
            found.push(format!(
                "an attempt staged another number of models than one: {models:?}"
            ));
        }
    }

    fn check_sums(&self, found: &mut Vec<String>) {
        for round in &self.rounds {
            for (subject, sum) in round.sum.iter().enumerate() {
                let named = round.included.iter().filter(|named| **named == subject).count();
                // Roundings leave some millionths.
                if (sum - named as f64).abs() > 0.01 || named > 1 {
                    found.push(format!(
                        "the sum of round {} holds {sum:.3} updates of subject {subject}, and its line {named}",
                        round.round
                    ));
                }
            }
        }
    }

    fn check_devices(&self, found: &mut Vec<String>) {
        let included = Progress::Ended(Verdict::Included);
        let mut remembered: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut told: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (number, device) in self.devices.iter().enumerate() {
            let rounds: Vec<u64> = device.rows.iter().map(|(round, _)| *round).collect();
            if !rounds.is_sorted() || self.breaks(&rounds) {
                found.push(format!("device {number} remembers rounds {rounds:?}"));
            }
            for (round, progress) in &device.rows {
                remembered.insert((*round, device.subject));
                if *progress != included {
                    continue;
                }
                told.entry(device.subject).or_default().push(*round);
                let line = usize::try_from(*round)
                    .ok()
                    .and_then(|round| self.rounds.get(round));
                if !line.is_some_and(|line| line.included.contains(&device.subject)) {
                    found.push(format!(
                        "device {number} was told to be in round {round}, whose line does not name its subject"
                    ));
                }
            }
        }
        for (subject, mut rounds) in told {
            rounds.sort_unstable();
            if self.breaks(&rounds) {
                found.push(format!(
                    "the devices of subject {subject} were in rounds {rounds:?}"
                ));
            }
        }
        for round in &self.rounds {
            for subject in &round.included {
                if !remembered.contains(&(round.round, *subject)) {
                    found.push(format!(
                        "no device of subject {subject} remembers round {}, which its line names",
                        round.round
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        let included = Progress::Ended(Verdict::Included);
        let round = |round, included: &[usize], lost: &[usize], sum: [f64; 3]| RoundFacts {
            round,
            included: included.to_vec(),
            everyone: [included, lost].concat(),
            sum: sum.to_vec(),
        };
        let device = |subject, rows: &[(u64, Progress)]| DeviceFacts {
            subject,
            rows: rows.to_vec(),
        };
        Facts {
            min_sep: 2,
            max_part: 2,
            rounds: vec![
                round(0, &[0, 1], &[], [1.0, 0.9999, 0.0]),
                round(1, &[2], &[], [0.0, 0.0002, 1.0]),
                round(2, &[0], &[1], [1.0, -0.0001, 0.0]),
            ],
            since: vec![2],
            devices: vec![
                device(0, &[(0, included), (2, included)]),
                device(1, &[(0, Progress::Committed), (2, Progress::Begun)]),
                device(2, &[(1, included), (3, Progress::Begun)]),
                device(2, &[]),
            ],
            models_per_release: vec![1, 1, 1],
        }
    }

    #[test]
    fn facts_without_a_fault_have_no_violation() {
        assert_eq!(good().violations(), Vec::<String>::new());
    }

    /// Each fault is found by the sentence that names it.
    #[test]
    fn every_fault_that_is_planted_is_found() {
        type Plant = fn(&mut Facts);
        let plants: [(Plant, &str); 12] = [
            (
                |facts| facts.rounds[1].everyone.push(0),
                "the ledger counts subject 0",
            ),
            (|facts| facts.since.push(0), "the ledger counts subject 0"),
            (|facts| facts.max_part = 1, "the ledger counts subject 0"),
            (
                |facts| facts.rounds[2].everyone.push(0),
                "the ledger counts subject 0",
            ),
            (|facts| facts.rounds[1].round = 4, "not in order"),
            (
                |facts| facts.models_per_release[0] = 2,
                "another number of models",
            ),
            (
                |facts| facts.rounds[0].sum[1] = 2.0,
                "holds 2.000 updates of subject 1",
            ),
            (
                |facts| facts.rounds[0].sum[2] = 1.0,
                "holds 1.000 updates of subject 2",
            ),
            (
                |facts| facts.rounds[0].sum[1] = 0.0,
                "holds 0.000 updates of subject 1",
            ),
            (
                |facts| facts.devices[1].rows.insert(1, (1, Progress::Begun)),
                "device 1 remembers",
            ),
            (
                |facts| {
                    facts.devices[3]
                        .rows
                        .push((0, Progress::Ended(Verdict::Included)));
                },
                "was told to be in round 0",
            ),
            (
                |facts| facts.devices[1].rows.clear(),
                "no device of subject 1 remembers round 0",
            ),
        ];
        for (plant, sentence) in plants {
            let mut facts = good();
            plant(&mut facts);
            let found = facts.violations();
            assert!(
                found.iter().any(|found| found.contains(sentence)),
                "{sentence}: {found:?}"
            );
        }
    }
}
