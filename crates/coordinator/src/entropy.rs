//! The randomness of one attempt at a round.

use undertone_mechanisms::NoiseKey;

use crate::random::{NoiseOf, Randomness};

/// 32 bytes from which the noise of one release follows, and the noise of no other.
///
/// A program without a seed draws one value for every [`close`](crate::head::RunHead::close). So no key serves two rows of noise,
/// and a head that is loaded twice cannot repeat one. In a seeded run every value is the same, since the noise of such a run
/// follows from its seed; its guarantee is for study only.
///
/// The value cannot be copied aside, so that no two releases share it:
/// ```compile_fail,E0599
/// let entropy = undertone_coordinator::entropy::RoundEntropy::fresh([7; 32]);
/// let again = entropy.clone();
/// ```
/// It cannot be printed:
/// ```compile_fail,E0277
/// let entropy = undertone_coordinator::entropy::RoundEntropy::fresh([7; 32]);
/// println!("{entropy:?}");
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the noise of a release follows from it"
)]
pub struct RoundEntropy(Randomness);

impl RoundEntropy {
    /// The entropy of 32 bytes of the operating system that were drawn for this attempt alone.
    #[must_use]
    pub fn fresh(bytes: [u8; 32]) -> Self {
        Self(Randomness::from_entropy(bytes))
    }

    /// The entropy that follows from the seed of a run.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Randomness::seeded(seed))
    }

    /// `true` if the noise follows from a seed.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        self.0.is_seeded()
    }

    pub(crate) fn key(&self, of: NoiseOf, segment: u64) -> NoiseKey {
        self.0.noise_key(of, segment)
    }
}
