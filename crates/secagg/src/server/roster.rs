//! The cohort on its places.

use std::collections::BTreeMap;

use rand_core::CryptoRng;

use crate::context::{Context, Digest32, SessionId};
use crate::error::{Result, SecAggError};
use crate::graph;
use crate::message::{AdvertiseKeys, Neighbour, Roster};
use crate::params::Params;
use crate::roster::{Entry, Tree};

/// Those who joined before the roster was closed, and the graph over them.
pub(super) struct Cohort {
    pub(super) params: Params,
    pub(super) session: SessionId,
    entries: Vec<Entry>,
    places: BTreeMap<Digest32, u32>,
    neighbours: Vec<Vec<u32>>,
    tree: Tree,
}

/// Whether another client can join, or the same one once more with the same message.
pub(super) fn admit(joined: &[AdvertiseKeys], keys: &AdvertiseKeys, most: u32) -> Result<()> {
    let new = &keys.entry;
    for (first, AdvertiseKeys { entry, .. }) in (0..).zip(joined) {
        if entry.identity == new.identity {
            let committed = SecAggError::Committed {
                message: "keys",
                index: first,
            };
            return if entry == new { Ok(()) } else { Err(committed) };
        }
        for (which, same) in [
            ("sealing", entry.sealing_key == new.sealing_key),
            ("masking", entry.masking_key == new.masking_key),
        ] {
            if same {
                return Err(SecAggError::DuplicateKey {
                    first,
                    second: joined.len() as u32,
                    which,
                });
            }
        }
    }
    if joined.len() as u32 >= most {
        Err(SecAggError::TooMany { most })
    } else {
        Ok(())
    }
}

impl Cohort {
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

    /// The entry of a client of this cohort.
    pub(super) fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    /// The neighbours of a client of this cohort, ascending.
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

    /// Whether `listed` are exactly the neighbours of `index`.
    pub(super) fn check_neighbours(
        &self,
        message: &'static str,
        index: u32,
        listed: impl Iterator<Item = u32>,
    ) -> Result<()> {
        let end = self.entries.len() as u32;
        let mut expected = self.neighbours(index).iter().copied();
        let mut listed = listed;
        loop {
            match (expected.next(), listed.next()) {
                (None, None) => return Ok(()),
                (expected, got) if expected == got => {}
                (expected, got) => {
                    let (expected, got) = (expected.unwrap_or(end), got.unwrap_or(end));
                    return Err(SecAggError::Neighbours {
                        message,
                        expected,
                        got,
                    });
                }
            }
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
