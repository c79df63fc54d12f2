//! Shares under way from one client to another, through the server that must not read them.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use zeroize::Zeroizing;

use crate::context::SessionId;
use crate::error::{Result, SecAggError};
use crate::keys::{Secret, derive};
use crate::shamir::{SHARE_BYTES, Share};

const PLAIN_BYTES: usize = 2 * SHARE_BYTES;
const TAG_BYTES: usize = 16;
/// Bytes of a sealed pair of shares.
pub(crate) const SEALED_BYTES: usize = PLAIN_BYTES + TAG_BYTES;

/// One client's shares of another client's two secrets. PRIVACY: it may give one of the two away, never both.
pub(crate) struct HeldShares {
    /// The share of the seed of its own mask.
    pub(crate) seed: Share,
    /// The share of the secret key of its pairwise masks.
    pub(crate) masking_key: Share,
}

/// The key from one client to another; the way back has its own.
pub(crate) fn sealing_key(agreed: &Secret, session: &SessionId, from: u32, to: u32) -> Secret {
    derive(agreed, session, "sealed shares", from, to)
}

fn cipher(key: &Secret) -> Aes256Gcm {
    Aes256Gcm::new(&Key::<Aes256Gcm>::from(**key))
}

/// Session and both ends: the key depends on them already, and the tag then says so by itself.
fn associated(session: &SessionId, from: u32, to: u32) -> [u8; 40] {
    let mut data = [0; 40];
    data[..32].copy_from_slice(session.as_bytes());
    data[32..36].copy_from_slice(&from.to_le_bytes());
    data[36..].copy_from_slice(&to.to_le_bytes());
    data
}

/// A key seals one message in its life, so the nonce is zero.
fn nonce() -> Nonce<aes_gcm::aead::consts::U12> {
    Nonce::default()
}

pub(crate) fn seal(
    key: &Secret,
    session: &SessionId,
    from: u32,
    to: u32,
    seed: &Share,
    masking_key: &Share,
) -> [u8; SEALED_BYTES] {
    let mut plain = Zeroizing::new([0; PLAIN_BYTES]);
    plain[..SHARE_BYTES].copy_from_slice(seed.to_bytes().as_ref());
    plain[SHARE_BYTES..].copy_from_slice(masking_key.to_bytes().as_ref());
    let data = associated(session, from, to);
    let Ok(tag) = cipher(key).encrypt_inout_detached(&nonce(), &data, plain.as_mut_slice().into()) else {
        unreachable!("80 bytes are within AES-GCM's limit");
    };
    let mut sealed = [0; SEALED_BYTES];
    sealed[..PLAIN_BYTES].copy_from_slice(plain.as_ref());
    sealed[PLAIN_BYTES..].copy_from_slice(&tag);
    sealed
}

/// The shares in `sealed`.
///
/// # Errors
/// [`SecAggError::Signature`] where it was not sealed for this session by `from` for `to`; [`SecAggError::ShareRange`].
pub(crate) fn open(
    key: &Secret,
    session: &SessionId,
    from: u32,
    to: u32,
    sealed: &[u8; SEALED_BYTES],
) -> Result<HeldShares> {
    let mut plain = Zeroizing::new([0; PLAIN_BYTES]);
    plain.copy_from_slice(&sealed[..PLAIN_BYTES]);
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&sealed[PLAIN_BYTES..]);
    let data = associated(session, from, to);
    cipher(key)
        .decrypt_inout_detached(&nonce(), &data, plain.as_mut_slice().into(), &tag.into())
        .map_err(|_| SecAggError::signature(from, "its sealed shares"))?;
    let share = |half: &[u8]| {
        let mut bytes = Zeroizing::new([0; SHARE_BYTES]);
        bytes.copy_from_slice(half);
        Share::from_bytes(&bytes)
    };
    Ok(HeldShares {
        seed: share(&plain[..SHARE_BYTES])?,
        masking_key: share(&plain[SHARE_BYTES..])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shamir::split;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    /// The GCM specification's test case 14: zero key, nonce and block.
    #[test]
    fn sealing_matches_the_gcm_specification() {
        let mut block = [0u8; 16];
        let tag = cipher(&Secret::default())
            .encrypt_inout_detached(&nonce(), &[], block.as_mut_slice().into())
            .unwrap();
        assert_eq!(block[..4], [0xce, 0xa7, 0x40, 0x3d]);
        assert_eq!(tag[..4], [0xd0, 0xd1, 0xc8, 0xa7]);
        assert_eq!((block[15], tag[15]), (0x18, 0x19));
    }

    #[test]
    fn only_the_right_receiver_of_the_right_session_opens() {
        let mut rng = ChaCha20Rng::from_seed([0; 32]);
        let share = |rng: &mut ChaCha20Rng| split(&[5; 32], 2, &[3], rng).remove(0);
        let held = HeldShares {
            seed: share(&mut rng),
            masking_key: share(&mut rng),
        };
        let (one, two) = (SessionId([1; 32]), SessionId([2; 32]));
        let key = sealing_key(&Secret::new([7; 32]), &one, 2, 3);
        let sealed = seal(&key, &one, 2, 3, &held.seed, &held.masking_key);
        let opened = open(&key, &one, 2, 3, &sealed).unwrap();
        assert!(opened.seed == held.seed && opened.masking_key == held.masking_key);
        assert!(open(&key, &two, 2, 3, &sealed).is_err());
        assert!(open(&key, &one, 3, 2, &sealed).is_err());
        assert!(open(&Secret::new([8; 32]), &one, 2, 3, &sealed).is_err());
        for place in 0..SEALED_BYTES {
            let mut other = sealed;
            other[place] ^= 1;
            assert!(open(&key, &one, 2, 3, &other).is_err());
        }
    }
}
