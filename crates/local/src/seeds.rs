//! The secrets of one user in one round.

use undertone_mechanisms::NoiseKey;

/// The randomness that one user's contribution to one round needs. Nothing of the run's other randomness follows from it.
///
/// A simulation derives both values from the run's root key. A device draws both anew for every session.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the order of examples and the noise of a user follow from it"
)]
pub struct UserSeeds {
    /// Decides the choice and the order of the user's examples.
    pub order: [u8; 32],
    /// Decides the rounding of the user's update and its part of the noise.
    pub encoding: NoiseKey,
}
