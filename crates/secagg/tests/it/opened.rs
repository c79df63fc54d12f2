//! The secrets that all clients of a session together have opened, and those that they must never open.

use std::collections::{BTreeMap, BTreeSet};

use undertone_secagg::message::{GivenShare, UnmaskShares};
use undertone_secagg::{Members, Topology};

/// Who gave which kind of share about a client.
#[derive(Default)]
struct Holders {
    seed: BTreeSet<u32>,
    masking_key: BTreeSet<u32>,
}

/// The shares that clients gave, and the sets for which they gave them.
pub(crate) struct Opened {
    topology: Topology,
    holders: BTreeMap<u32, Holders>,
    /// Sets of survivors, each with the clients that answered a request with it.
    answered: Vec<(Members, BTreeSet<u32>)>,
}

impl Opened {
    pub(crate) fn new(topology: Topology) -> Self {
        Self {
            topology,
            holders: BTreeMap::new(),
            answered: Vec::new(),
        }
    }

    /// An answer to a request with these survivors.
    pub(crate) fn note(&mut self, survivors: &Members, answer: &UnmaskShares) {
        for (about, share) in &answer.shares {
            let holders = self.holders.entry(*about).or_default();
            let new = match share {
                GivenShare::Seed(_) => holders.seed.insert(answer.index),
                GivenShare::MaskingKey(_) => holders.masking_key.insert(answer.index),
            };
            assert!(new, "client {} answered twice", answer.index);
        }
        match self.answered.iter_mut().find(|(set, _)| set == survivors) {
            Some((_, clients)) => drop(clients.insert(answer.index)),
            None => self
                .answered
                .push((survivors.clone(), BTreeSet::from([answer.index]))),
        }
    }

    /// A client that works with the server gives both kinds about all its neighbours.
    pub(crate) fn corrupt(&mut self, index: u32, neighbours: impl Iterator<Item = u32>) {
        for about in neighbours {
            let holders = self.holders.entry(about).or_default();
            holders.seed.insert(index);
            holders.masking_key.insert(index);
        }
    }

    pub(crate) fn shares(&self) -> u64 {
        let count = |holders: &Holders| (holders.seed.len() + holders.masking_key.len()) as u64;
        self.holders.values().map(count).sum()
    }

    /// The different sets for which some client gave shares.
    pub(crate) fn sets(&self) -> usize {
        self.answered.len()
    }

    /// Clients whose seeds and whose masking keys the shares of all clients together open.
    pub(crate) fn both(&self) -> Vec<u32> {
        let t = self.topology.threshold() as usize;
        let both = |holders: &Holders| holders.seed.len() >= t && holders.masking_key.len() >= t;
        self.holders
            .iter()
            .filter(|(_, holders)| both(holders))
            .map(|(about, _)| *about)
            .collect()
    }

    /// The sets whose sum can be unmasked: the seeds of all members are open, and the masking keys of all others.
    pub(crate) fn unmasked(&self) -> usize {
        let t = self.topology.threshold() as usize;
        let open = |set: &Members, about: u32| {
            self.holders
                .get(&about)
                .is_some_and(|holders| match set.contains(about) {
                    true => holders.seed.len() >= t,
                    false => holders.masking_key.len() >= t,
                })
        };
        let sets = self.answered.iter();
        sets.filter(|(set, _)| (0..set.clients()).all(|about| open(set, about)))
            .count()
    }

    /// PRIVACY: what must hold in an active session over everything that was ever given.
    pub(crate) fn check(&self) {
        assert!(
            self.both().is_empty(),
            "both secrets of {:?} are open",
            self.both()
        );
        assert!(self.unmasked() <= 1, "{} sums are open", self.unmasked());
        // On the full graph not even two requests with different sets are answered.
        if self.topology.neighbours() == self.topology.clients() - 1 {
            assert!(self.sets() <= 1, "{} sets were answered", self.sets());
        }
    }
}
