//! Parts of the protocol as benchmarks time them; nothing here is needed to use it.

use rand_core::CryptoRng;
use undertone_aggregation::ModularVec;

use crate::error::{Result, SecAggError};
use crate::keys::Secret;
use crate::mask::{self, Sign};
use crate::shamir::{Share, recover_first, split};

/// Splits a secret among `holders` and puts it together again from the first `threshold` shares.
///
/// # Errors
/// [`SecAggError::Unrecoverable`] where it does not come back.
pub fn share_and_recover<R: CryptoRng + ?Sized>(
    secret: &[u8; 32],
    threshold: u32,
    holders: &[u32],
    rng: &mut R,
) -> Result<()> {
    let shares = split(secret, threshold, holders, rng);
    let some: Vec<(u32, &Share)> = holders
        .iter()
        .copied()
        .zip(&shares)
        .take(threshold as usize)
        .collect();
    match recover_first(&some, threshold, &|found| found == secret) {
        Some(_) => Ok(()),
        None => Err(SecAggError::Unrecoverable { exclude: vec![0] }),
    }
}

/// Adds `masks` masks to `vector`.
///
/// # Errors
/// None for any vector.
pub fn mask(vector: &mut ModularVec, masks: u8) -> Result<()> {
    let keys: Vec<Secret> = (0..masks).map(|seed| Secret::new([seed; 32])).collect();
    mask::apply(vector, keys.iter().map(|key| (Sign::Plus, key)))
}
