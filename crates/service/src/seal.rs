//! Secrets at rest: bytes sealed in records, under a key of their own.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use zeroize::Zeroizing;

use crate::error::{Result, ServiceError};

/// Bytes of a record before it is sealed.
const RECORD: usize = 1 << 20;
const TAG: usize = 16;
const SALT: usize = 32;

/// Seals bytes: the salt, then records of AES-256-GCM under a key that `key` makes from the salt. The nonce of a record counts from
/// 0, and the last record is marked, so records cannot be left out, repeated or put elsewhere. The key must serve this call alone,
/// which a fresh salt ensures.
///
/// # Errors
/// [`ServiceError::Sealed`] for more records than the counter has numbers.
pub fn seal(
    salt: [u8; SALT],
    key: &dyn Fn(&[u8; SALT]) -> Zeroizing<[u8; 32]>,
    plain: &[u8],
) -> Result<Vec<u8>> {
    let cipher = Aes256Gcm::new((&*key(&salt)).into());
    let records = plain.len().div_ceil(RECORD).max(1);
    let mut sealed = Vec::with_capacity(SALT + plain.len() + records * TAG);
    sealed.extend_from_slice(&salt);
    for record in 0..records {
        let part = &plain[record * RECORD..plain.len().min((record + 1) * RECORD)];
        let start = sealed.len();
        sealed.extend_from_slice(part);
        let nonce = nonce(record, record + 1 == records)?;
        let tag = cipher
            .encrypt_inout_detached(&nonce, &[], (&mut sealed[start..]).into())
            .map_err(|_| ServiceError::Sealed)?;
        sealed.extend_from_slice(&tag);
    }
    Ok(sealed)
}

/// Opens sealed bytes.
///
/// # Errors
/// [`ServiceError::Sealed`] for bytes that were changed, cut or sealed under another key.
pub fn open(sealed: &[u8], key: &dyn Fn(&[u8; SALT]) -> Zeroizing<[u8; 32]>) -> Result<Zeroizing<Vec<u8>>> {
    let (salt, rest) = sealed.split_first_chunk::<SALT>().ok_or(ServiceError::Sealed)?;
    let cipher = Aes256Gcm::new((&*key(salt)).into());
    let mut records = rest.chunks(RECORD + TAG).enumerate().peekable();
    if records.peek().is_none() {
        return Err(ServiceError::Sealed);
    }
    let mut plain = Zeroizing::new(Vec::with_capacity(rest.len()));
    while let Some((record, bytes)) = records.next() {
        let (part, tag) = bytes.split_last_chunk::<TAG>().ok_or(ServiceError::Sealed)?;
        let start = plain.len();
        plain.extend_from_slice(part);
        let nonce = nonce(record, records.peek().is_none())?;
        cipher
            .decrypt_inout_detached(&nonce, &[], (&mut plain[start..]).into(), &Tag::from(*tag))
            .map_err(|_| ServiceError::Sealed)?;
    }
    Ok(plain)
}

fn nonce(record: usize, last: bool) -> Result<Nonce<aes_gcm::aead::consts::U12>> {
    let record = u32::try_from(record).map_err(|_| ServiceError::Sealed)?;
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&record.to_le_bytes());
    nonce[11] = u8::from(last);
    Ok(nonce.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(salt: &[u8; SALT]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(salt.map(|byte| byte ^ 0x5a))
    }

    #[test]
    fn sealed_bytes_open_unchanged_and_hide_what_they_hold() {
        for length in [0, 1, RECORD - 1, RECORD, RECORD + 1, 2 * RECORD + 5] {
            let plain: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let sealed = seal([3; SALT], &key, &plain).unwrap();
            assert_eq!(*open(&sealed, &key).unwrap(), plain, "{length} bytes");
            if length >= 32 {
                assert!(!sealed.windows(16).any(|window| window == &plain[..16]));
            }
        }
    }

    #[test]
    fn changed_cut_swapped_and_foreign_bytes_are_refused() {
        let plain = vec![7; 2 * RECORD + 100];
        let sealed = seal([3; SALT], &key, &plain).unwrap();
        for place in [0, SALT, SALT + RECORD, SALT + RECORD + TAG, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(open(&changed, &key).is_err(), "byte {place}");
        }
        let record = RECORD + TAG;
        // Whole records left out at the end or the start, and two records swapped.
        assert!(open(&sealed[..SALT + 2 * record], &key).is_err());
        assert!(open(&sealed[..SALT + record], &key).is_err());
        assert!(open(&[&sealed[..SALT], &sealed[SALT + record..]].concat(), &key).is_err());
        let (first, second) = (
            &sealed[SALT..SALT + record],
            &sealed[SALT + record..SALT + 2 * record],
        );
        let swapped = [&sealed[..SALT], second, first, &sealed[SALT + 2 * record..]].concat();
        assert!(open(&swapped, &key).is_err());
        for length in [0, SALT - 1, SALT, SALT + TAG - 1, sealed.len() - 1] {
            assert!(open(&sealed[..length], &key).is_err(), "{length} bytes");
        }
        assert!(open(&sealed, &|_| Zeroizing::new([9; 32])).is_err());
    }
}
