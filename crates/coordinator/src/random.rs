//! The randomness of a run: one root key, and from it a generator for each purpose, round and user.
//!
//! A generator is named by its purpose, so no draw depends on the number of draws before it: equal seeds give equal runs at
//! any number of threads and after any number of resumes.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sha2::{Digest, Sha256};
use undertone_aggregation::UserSeeds;
use undertone_mechanisms::{KeyOrigin, NoiseKey};

/// The purpose of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Initial parameters.
    Initialisation,
    /// The sampling of the users of a round.
    Cohort,
    /// The order of one user's examples in one round.
    LocalOrder,
    /// The sampling of the training users that an attack on a finished model reads.
    Attack,
    /// The order of all examples in an epoch of pre-training.
    ExampleOrder,
    /// The key of a run's participation: orders, simulated devices, the salt of pseudonyms.
    Participation,
    /// The simulated failures of users during a round.
    DropOut,
    /// Keys and masks of a round's secure sum.
    SecureSum,
    /// The sampling of the users whose gradients are measured for advice.
    Advice,
    /// The draws of generated text.
    Generation,
    /// The coins of an audit: the canaries that are in, and the noise of its rounds.
    Audit,
    /// The number of candidates of a private sweep, and the combination of each.
    Selection,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Initialisation => b"initialisation",
            Self::Cohort => b"cohort",
            Self::LocalOrder => b"local-order",
            Self::Attack => b"attack",
            Self::ExampleOrder => b"example-order",
            Self::Participation => b"participation",
            Self::DropOut => b"drop-out",
            Self::SecureSum => b"secure-sum",
            Self::Advice => b"advice",
            Self::Generation => b"generation",
            Self::Audit => b"audit",
            Self::Selection => b"selection",
        }
    }
}

/// The target that noise is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseOf {
    /// The averages of the rounds.
    Rounds,
    /// The number of users below the norm that adaptive clipping estimates.
    Bits,
    /// The updates of clients that add the noise themselves; a name for the ledger, from which no noise is drawn.
    ClientNoise,
    /// The median of the users' sizes.
    GroupSize,
}

impl NoiseOf {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Rounds => b"noise",
            Self::Bits => b"noise-of-bits",
            Self::ClientNoise => b"noise-in-shares",
            Self::GroupSize => b"noise-of-group-size",
        }
    }
}

/// The root of a run's randomness. It is never written to disk unless the run is seeded.
pub struct Randomness {
    root: [u8; 32],
    seeded: bool,
}

impl std::fmt::Debug for Randomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Randomness")
            .field("seeded", &self.seeded)
            .finish_non_exhaustive()
    }
}

impl Randomness {
    /// The root that follows from a seed. Everything follows from the seed, so the guarantee of such a run is for study only.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let root = Sha256::new()
            .chain_update(b"undertone seed")
            .chain_update(seed.to_le_bytes())
            .finalize()
            .into();
        Self { root, seeded: true }
    }

    /// The root made of 32 bytes of the operating system that were drawn for this alone.
    ///
    /// A resumed run without a seed draws a new root: nothing of the rounds after its checkpoint was released, so they are made
    /// again with different users and different noise.
    #[must_use]
    pub fn from_entropy(root: [u8; 32]) -> Self {
        Self { root, seeded: false }
    }

    /// `true` if a seed in the configuration fixed the root, so that anyone who knows the seed can recompute the noise.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// The generator of one purpose, round and user.
    #[must_use]
    pub fn generator(&self, purpose: Purpose, round: u64, user: u64) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(self.derive(purpose.label(), round, user))
    }

    /// The key of a segment's noise; the mechanism derives one stream per round from it.
    #[must_use]
    pub fn noise_key(&self, of: NoiseOf, segment: u64) -> NoiseKey {
        NoiseKey::from_bytes(self.derive(of.label(), segment, 0)).with_origin(self.origin())
    }

    /// The secret of one user: the rounding of its updates and its part of the noise come from it and the round.
    #[must_use]
    pub(crate) fn user_key(&self, user: u64) -> NoiseKey {
        NoiseKey::from_bytes(self.derive(b"user", 0, user)).with_origin(self.origin())
    }

    /// The secrets of one user in one round. In a seeded run they follow from the seed, as every other draw does.
    #[must_use]
    pub fn user_seeds(&self, round: u64, user: u64) -> UserSeeds {
        UserSeeds {
            order: self.derive(Purpose::LocalOrder.label(), round, user),
            encoding: self.user_key(user),
        }
    }

    fn origin(&self) -> KeyOrigin {
        match self.seeded {
            true => KeyOrigin::InsecureSeed,
            false => KeyOrigin::Entropy,
        }
    }

    fn derive(&self, label: &[u8], round: u64, user: u64) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.root)
            .chain_update((label.len() as u64).to_le_bytes())
            .chain_update(label)
            .chain_update(round.to_le_bytes())
            .chain_update(user.to_le_bytes())
            .finalize()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::Rng;

    #[test]
    fn a_draw_depends_on_seed_purpose_round_and_user_alone() {
        let draw = |seed, purpose, round, user| {
            Randomness::seeded(seed)
                .generator(purpose, round, user)
                .next_u64()
        };
        let reference = draw(1, Purpose::Cohort, 2, 3);
        assert_eq!(reference, draw(1, Purpose::Cohort, 2, 3));
        for other in [
            draw(2, Purpose::Cohort, 2, 3),
            draw(1, Purpose::LocalOrder, 2, 3),
            draw(1, Purpose::Cohort, 3, 3),
            draw(1, Purpose::Cohort, 2, 4),
        ] {
            assert_ne!(reference, other);
        }
    }

    #[test]
    fn nothing_prints_the_root() {
        let a = Randomness::from_entropy([7; 32]);
        assert_eq!(format!("{a:?}"), "Randomness { seeded: false, .. }");
    }
}
