//! Random bytes of the operating system.

use crate::error::{DirectoryError, Result};
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::random::Randomness;

/// The randomness of a run: it follows from the seed, or without one from 32 fresh bytes of the operating system.
///
/// # Errors
/// [`DirectoryError::Entropy`] if the operating system gives none.
pub fn randomness(seed: Option<u64>) -> Result<Randomness> {
    match seed {
        Some(seed) => Ok(Randomness::seeded(seed)),
        // PRIVACY: without a seed, cohorts and noise come from the operating system's entropy alone.
        None => Ok(Randomness::from_entropy(fresh_bytes()?)),
    }
}

/// The randomness of one attempt at a round: that of the seed, or 32 fresh bytes.
///
/// # Errors
/// [`DirectoryError::Entropy`] if the operating system gives none.
pub fn round_entropy(seed: Option<u64>) -> Result<RoundEntropy> {
    match seed {
        Some(seed) => Ok(RoundEntropy::seeded(seed)),
        None => Ok(RoundEntropy::fresh(fresh_bytes()?)),
    }
}

/// 32 bytes that nothing else uses.
///
/// # Errors
/// [`DirectoryError::Entropy`] if the operating system gives none.
pub fn fresh_bytes() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| DirectoryError::Entropy(error.to_string()))?;
    Ok(bytes)
}

/// A number from the operating system that nothing else uses.
///
/// # Errors
/// [`DirectoryError::Entropy`] if the operating system gives none.
pub fn fresh_number() -> Result<u64> {
    let bytes = fresh_bytes()?;
    Ok(bytes
        .iter()
        .take(8)
        .fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_seed_no_two_runs_share_their_noise() {
        let keys = || {
            let randomness = randomness(None).unwrap();
            assert!(!randomness.is_seeded());
            randomness
                .noise_key(undertone_coordinator::random::NoiseOf::Rounds, 0)
                .id()
                .unwrap()
        };
        assert_ne!(keys(), keys());
    }
}
