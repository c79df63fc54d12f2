//! Secrets at rest: bytes sealed in records, under a key of their own.

use std::io::{self, Write};

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use undertone_aggregation::Wiped;
use zeroize::Zeroizing;

use crate::error::{Result, ServiceError};

/// Bytes of a record before it is sealed.
const RECORD: usize = 1 << 20;
const TAG: usize = 16;
const SALT: usize = 32;

/// Seals what is written to it, record by record: the salt, then records of AES-256-GCM under a key that follows from the salt. The
/// nonce of a record counts from 0, and the last record is marked, so records cannot be left out, repeated or put elsewhere.
///
/// Without [`finish`](Self::finish) the sealed bytes have no end, and do not open.
// PRIVACY: no `Debug`: it holds a key and plain bytes, which must not be printable.
pub(crate) struct Sealer<'w> {
    cipher: Aes256Gcm,
    writer: &'w mut dyn Write,
    /// The record that is being filled. A full one waits, since it may be the last.
    record: Wiped<u8>,
    /// The number of records that were written.
    written: usize,
}

impl<'w> Sealer<'w> {
    /// Begins sealed bytes by their salt. The key that `key` makes must serve this value alone, which a fresh salt ensures.
    ///
    /// # Errors
    /// From the writer.
    pub(crate) fn new(
        salt: [u8; SALT],
        key: &dyn Fn(&[u8; SALT]) -> Zeroizing<[u8; 32]>,
        writer: &'w mut dyn Write,
    ) -> io::Result<Self> {
        writer.write_all(&salt)?;
        Ok(Self {
            cipher: Aes256Gcm::new((&*key(&salt)).into()),
            writer,
            record: Wiped::with_capacity(RECORD),
            written: 0,
        })
    }

    fn write_record(&mut self, last: bool) -> io::Result<()> {
        let sealed = nonce(self.written, last).and_then(|nonce| {
            // Sealed bytes stand in place of the plain ones once this is done.
            self.cipher
                .encrypt_inout_detached(&nonce, &[], self.record.as_mut_slice().into())
                .map_err(|_| ServiceError::Sealed)
        });
        let tag = sealed.map_err(io::Error::other)?;
        self.writer.write_all(&self.record)?;
        self.writer.write_all(&tag)?;
        self.record.clear();
        self.written += 1;
        Ok(())
    }

    /// Writes the last record.
    ///
    /// # Errors
    /// From the writer; more records than the counter has numbers.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.write_record(true)?;
        self.writer.flush()
    }
}

impl Write for Sealer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.record.len() == RECORD && !bytes.is_empty() {
            self.write_record(false)?;
        }
        let part = &bytes[..bytes.len().min(RECORD - self.record.len())];
        self.record.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // A record is written when the next one begins.
        Ok(())
    }
}

/// Seals bytes, record by record: the salt, then records of AES-256-GCM under a key that follows from the salt.
///
/// # Errors
/// [`ServiceError::Sealed`] for more records than the counter has numbers.
pub fn seal(
    salt: [u8; SALT],
    key: &dyn Fn(&[u8; SALT]) -> Zeroizing<[u8; 32]>,
    plain: &[u8],
) -> Result<Vec<u8>> {
    let records = plain.len().div_ceil(RECORD).max(1);
    let mut sealed = Vec::with_capacity(SALT + plain.len() + records * TAG);
    let written = Sealer::new(salt, key, &mut sealed).and_then(|mut sealer| {
        sealer.write_all(plain)?;
        sealer.finish()
    });
    // A vector takes all bytes, so only the counter can fail.
    written.map_err(|_| ServiceError::Sealed)?;
    Ok(sealed)
}

/// Opens sealed bytes.
///
/// # Errors
/// [`ServiceError::Sealed`] for bytes that were changed, cut or sealed under another key.
pub fn open(sealed: &[u8], key: &dyn Fn(&[u8; SALT]) -> Zeroizing<[u8; 32]>) -> Result<Wiped<u8>> {
    let (salt, rest) = sealed.split_first_chunk::<SALT>().ok_or(ServiceError::Sealed)?;
    let cipher = Aes256Gcm::new((&*key(salt)).into());
    let mut records = rest.chunks(RECORD + TAG).enumerate().peekable();
    if records.peek().is_none() {
        return Err(ServiceError::Sealed);
    }
    let mut plain = Wiped::with_capacity(rest.len());
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
    fn the_sizes_of_writes_do_not_show_and_without_an_end_nothing_opens() {
        let plain: Vec<u8> = (0..2 * RECORD + 9).map(|place| (place % 249) as u8).collect();
        let whole = seal([3; SALT], &key, &plain).unwrap();
        for size in [1000, RECORD - 1, RECORD, 2 * RECORD] {
            let mut sealed = Vec::new();
            let mut sealer = Sealer::new([3; SALT], &key, &mut sealed).unwrap();
            plain
                .chunks(size)
                .for_each(|part| sealer.write_all(part).unwrap());
            sealer.finish().unwrap();
            assert_eq!(sealed, whole, "{size}");
        }
        let mut sealed = Vec::new();
        let mut sealer = Sealer::new([3; SALT], &key, &mut sealed).unwrap();
        sealer.write_all(&plain).unwrap();
        drop(sealer);
        assert!(open(&sealed, &key).is_err());
    }

    #[test]
    fn sealed_bytes_are_a_salt_then_records_with_their_tags() {
        let plain = vec![5; RECORD + 3];
        let sealed = seal([3; SALT], &key, &plain).unwrap();
        let cipher = Aes256Gcm::new((&*key(&[3; SALT])).into());
        let mut expected = vec![3; SALT];
        for (number, part) in plain.chunks(RECORD).enumerate() {
            let mut record = part.to_vec();
            let mut nonce = [0; 12];
            nonce[0] = number as u8;
            nonce[11] = number as u8;
            let tag = cipher.encrypt_inout_detached(&nonce.into(), &[], record.as_mut_slice().into());
            expected.extend_from_slice(&record);
            expected.extend_from_slice(&tag.unwrap());
        }
        assert_eq!(sealed, expected);
    }

    #[test]
    fn sealed_bytes_open_unchanged_and_hide_what_they_hold() {
        for length in [0, 1, RECORD - 1, RECORD, RECORD + 1, 2 * RECORD + 5] {
            let plain: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let sealed = seal([3; SALT], &key, &plain).unwrap();
            assert_eq!(**open(&sealed, &key).unwrap(), plain, "{length} bytes");
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
