//! The comparison of a simulation with a service.

use std::collections::{BTreeMap, BTreeSet};

use undertone_coordinator::identity::digest_of;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::{LedgerEntry, LedgerMode};

use super::service::Served;
use super::simulation::{Case, GOAL, ROUNDS, Simulation};

/// A line without the values that may differ: scheme and mode, names that are users now, and the digest of the line before.
fn comparable(entry: &LedgerEntry, users: &BTreeMap<ParticipantId, usize>) -> LedgerEntry {
    let mut participants: Vec<ParticipantId> = entry
        .participants
        .iter()
        .map(|name| ParticipantId::new(users[name] as u64))
        .collect();
    participants.sort_unstable();
    LedgerEntry {
        sampling: String::new(),
        mode: None,
        participants,
        previous_sha256: String::new(),
        ..entry.clone()
    }
}

fn bytes(parameters: &[f32]) -> Vec<u8> {
    parameters.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Both sides of a case.
pub(crate) struct Both {
    simulation: Simulation,
    served: Served,
}

impl Both {
    /// Runs both.
    pub(crate) fn new(case: &Case) -> Self {
        let simulation = Simulation::new(case);
        let served = Served::new(case, &simulation);
        // Clipping is part of the comparison.
        let clipped = &simulation.clipped;
        assert!(clipped.iter().all(|&fraction| fraction > 0.2), "{clipped:?}");
        Self { simulation, served }
    }

    /// Compares noise matrix, cohorts and ledgers. `ignored` clears further values of a line.
    pub(crate) fn assert_ledgers(&self, ignored: fn(LedgerEntry) -> LedgerEntry) {
        let Self { simulation, served } = self;
        assert_eq!(served.mechanism, simulation.mechanism);
        assert_eq!(served.ledger.len() as u64, ROUNDS);
        assert_eq!(simulation.ledger.len() as u64, ROUNDS);
        for (of_service, of_simulation) in served.ledger.iter().zip(&simulation.ledger) {
            assert_eq!(of_simulation.cohort_size, GOAL as u64);
            assert_eq!(
                ignored(comparable(of_service, &served.users)),
                ignored(comparable(of_simulation, &simulation.users))
            );
            // The values that the comparison leaves out.
            let scheme = |entry: &LedgerEntry| (entry.sampling.clone(), entry.mode);
            assert_eq!(scheme(of_simulation), ("fixed_size".to_owned(), None));
            assert_eq!(
                scheme(of_service),
                ("check_in".to_owned(), Some(LedgerMode::ParityTest))
            );
        }
        let drawn = (0..ROUNDS).flat_map(|round| {
            let cohort = simulation.cohort(round).into_iter();
            cohort.map(move |user| (user, round))
        });
        assert_eq!(served.remembered, drawn.collect());
    }

    /// Parameters of service and simulation, before the first round and after each.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&[f32], &[f32])> {
        let Self { simulation, served } = self;
        assert_eq!(served.parameters.len() as u64, ROUNDS + 1);
        assert_eq!(simulation.parameters.len() as u64, ROUNDS + 1);
        let pairs = served.parameters.iter().zip(&simulation.parameters);
        pairs.map(|(served, simulated)| (&served[..], &simulated[..]))
    }

    /// Compares everything, the parameters by their bytes.
    pub(crate) fn assert_same(&self) {
        self.assert_ledgers(|entry| entry);
        let mut seen = BTreeSet::new();
        for (round, (served, simulated)) in self.parameters().enumerate() {
            assert_eq!(bytes(served), bytes(simulated), "after {round} rounds");
            // Each round moved the model, so equal models are no accident.
            assert!(seen.insert(digest_of(served)));
        }
        for (entry, (served, _)) in self.served.ledger.iter().zip(self.parameters().skip(1)) {
            assert_eq!(entry.parameters_sha256, Some(digest_of(served)));
        }
    }
}
