//! One key for all that participation draws at random.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::participant::Salt;
use crate::random::{Purpose, Randomness};

/// The key behind the order of epochs, simulated devices and the salt of pseudonyms.
///
/// It has to outlive the process. A resumed run that drew a different order would bring users back before their gap is over,
/// and a different salt would give them new names that hide it. A run keeps the key in its checkpoint until it is over.
///
/// PRIVACY: it is as secret as the noise. It tells which user has which pseudonym and, with the ledger, which users were
/// sampled in which round. Against an attacker who knows that, sampling adds nothing to a guarantee. So the checkpoint that
/// holds the key is readable by its owner alone and is removed when the run is over, and `Debug` does not print it. Noise does
/// not depend on it. The key of a seeded run follows from the seed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipationKey([u8; 32]);

impl std::fmt::Debug for ParticipationKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ParticipationKey(..)")
    }
}

impl ParticipationKey {
    /// The key from the run's randomness: its seed, or the operating system's entropy.
    #[must_use]
    pub fn new(randomness: &Randomness) -> Self {
        let mut key = [0; 32];
        randomness
            .generator(Purpose::Participation, 0, 0)
            .fill_bytes(&mut key);
        Self(key)
    }

    /// A key that was stored.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The salt of the run's pseudonyms.
    #[must_use]
    pub fn salt(&self) -> Salt {
        Salt::from_bytes(self.derive(b"pseudonyms"))
    }

    /// The choice among one user's examples that holds for the whole run.
    pub(crate) fn examples_of(&self, user: u64) -> ChaCha20Rng {
        let label: Vec<u8> = b"examples".iter().copied().chain(user.to_le_bytes()).collect();
        self.generator(&label)
    }

    /// `true` if a microbatch of example-level sampling begins at this example wherever it is sampled: one in `2 size` examples
    /// does.
    pub(crate) fn begins_microbatch(&self, user: u64, example: u64, size: usize) -> bool {
        let label: Vec<u8> = (b"microbatches".iter().copied())
            .chain(user.to_le_bytes())
            .chain(example.to_le_bytes())
            .collect();
        let [a, b, c, d, e, f, g, h, ..] = self.derive(&label);
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) < u64::MAX / (2 * size as u64).max(2)
    }

    /// A generator that no other label shares.
    pub(super) fn generator(&self, label: &[u8]) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(self.derive(label))
    }

    fn derive(&self, label: &[u8]) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.0)
            .chain_update(label)
            .finalize()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_key_and_no_print() {
        let key = |seed| ParticipationKey::new(&Randomness::seeded(seed));
        assert_eq!(key(3), key(3));
        assert_ne!(key(3), key(4));
        assert_eq!(format!("{:?}", key(3)), "ParticipationKey(..)");
        assert_ne!(key(3).derive(b"a"), key(3).derive(b"b"));
    }

    #[test]
    fn a_kept_key_is_the_same() {
        let key = ParticipationKey::from_bytes(std::array::from_fn(|i| i as u8));
        let kept = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<ParticipationKey>(&kept).unwrap(), key);
    }
}
