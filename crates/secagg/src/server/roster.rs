//! The clients of a session: those that are joining, and their places once the roster is closed.

use std::collections::BTreeMap;

use rand_core::CryptoRng;

use crate::context::{Context, Digest32, SessionId};
use crate::error::{Result, SecAggError};
use crate::graph;
use crate::message::{AdvertiseKeys, Neighbour, Roster};
use crate::roster::{Entry, Tree};
use crate::terms::Params;

/// The clients that joined before the roster was closed, and the graph over them.
pub(super) struct JoinedClients {
    pub(super) params: Params,
    pub(super) session: SessionId,
    entries: Vec<Entry>,
    places: BTreeMap<Digest32, u32>,
    neighbours: Vec<Vec<u32>>,
    tree: Tree,
}

/// The clients that have joined so far.
#[derive(Default)]
pub(super) struct Joining {
    entries: Vec<Entry>,
    /// The client that presented an identity or a key, by kind and bytes. A message costs one look-up for every number of clients.
    presented: BTreeMap<(&'static str, Digest32), u32>,
}

impl Joining {
    pub(super) fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// Returns `true` if these keys are those of a further client, and `false` if a client repeats its message.
    pub(super) fn is_new(&self, keys: &AdvertiseKeys, max_clients: u32) -> Result<bool> {
        let entry = &keys.entry;
        if let Some(index) = self.presented.get(&("identity", entry.identity)) {
            return if self.entries[*index as usize] == *entry {
                Ok(false)
            } else {
                Err(SecAggError::Committed {
                    message: "keys",
                    index: *index,
                })
            };
        }
        for (which, key) in [("sealing", entry.sealing_key), ("masking", entry.masking_key)] {
            if let Some(first) = self.presented.get(&(which, key)) {
                return Err(SecAggError::DuplicateKey {
                    first: *first,
                    second: self.count(),
                    which,
                });
            }
        }
        if self.count() >= max_clients {
            return Err(SecAggError::TooMany { max: max_clients });
        }
        Ok(true)
    }

    /// Adds a client that [`is_new`](Self::is_new).
    pub(super) fn push(&mut self, entry: Entry) {
        let index = self.count();
        for (which, key) in [
            ("identity", entry.identity),
            ("sealing", entry.sealing_key),
            ("masking", entry.masking_key),
        ] {
            self.presented.insert((which, key), index);
        }
        self.entries.push(entry);
    }
}

impl JoinedClients {
    pub(super) fn new<R: CryptoRng + ?Sized>(
        context: &Context,
        params: Params,
        mut entries: Vec<Entry>,
        rng: &mut R,
    ) -> Self {
        shuffle(&mut entries, rng);
        let tree = Tree::new(&entries);
        let topology = params.topology();
        Self {
            params,
            session: context.session(topology, tree.root()),
            places: entries
                .iter()
                .zip(0..)
                .map(|(entry, index)| (entry.identity, index))
                .collect(),
            neighbours: (0..topology.clients())
                .map(|index| graph::neighbours(topology, index))
                .collect(),
            entries,
            tree,
        }
    }

    pub(super) fn index_of(&self, identity: &Digest32) -> Option<u32> {
        self.places.get(identity).copied()
    }

    /// The entry of a client of this session.
    pub(super) fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    /// The neighbours of a client of this session, ascending.
    pub(super) fn neighbours(&self, index: u32) -> &[u32] {
        &self.neighbours[index as usize]
    }

    pub(super) fn check_index(&self, message: &'static str, index: u32) -> Result<()> {
        if (index as usize) < self.entries.len() {
            Ok(())
        } else {
            Err(SecAggError::Stranger { message, index })
        }
    }

    pub(super) fn roster(&self, index: u32) -> Roster {
        let neighbour = |place: &u32| Neighbour {
            index: *place,
            entry: self.entry(*place).clone(),
            path: self.tree.path(*place),
        };
        Roster {
            params: self.params,
            root: *self.tree.root(),
            index,
            path: self.tree.path(index),
            neighbours: self.neighbours(index).iter().map(neighbour).collect(),
        }
    }
}

/// Fisher and Yates' shuffle. Each place is uniform by rejection of the last, incomplete range of words.
fn shuffle<R: CryptoRng + ?Sized>(entries: &mut [Entry], rng: &mut R) {
    for last in (1..entries.len()).rev() {
        let range = last as u64 + 1;
        let place = loop {
            let word = rng.next_u64();
            if word < u64::MAX - u64::MAX % range {
                break word % range;
            }
        };
        entries.swap(last, place as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    /// All 24 orders of 4 entries over 24,000 shuffles: chi-square with 23 degrees of freedom exceeds 75 with probability
    /// 2e-7, and the seed is fixed.
    #[test]
    fn orders_are_uniform() {
        let entry = |seed| Entry {
            identity: [seed; 32],
            sealing_key: [0; 32],
            masking_key: [0; 32],
            signature: [0; 64],
            certificate: None,
        };
        let mut rng = ChaCha20Rng::from_seed([4; 32]);
        let mut counts = BTreeMap::new();
        for _ in 0..24_000 {
            let mut entries = [entry(0), entry(1), entry(2), entry(3)];
            shuffle(&mut entries, &mut rng);
            *counts
                .entry(entries.map(|entry| entry.identity[0]))
                .or_insert(0u32) += 1;
        }
        let chi_square: f64 = counts
            .values()
            .map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0)
            .sum();
        assert!(counts.len() == 24 && chi_square < 75.0, "{chi_square}");
    }
}
