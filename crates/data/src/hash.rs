//! SHA-256 in the few shapes that the crate needs.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Result, io};
use crate::progress::{Progress, Stage, proceed};

pub(crate) type Hash = [u8; 32];

pub(crate) fn hash_bytes(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// The first eight bytes.
pub(crate) fn head(hash: &Hash) -> [u8; 8] {
    let mut head = [0; 8];
    head.copy_from_slice(&hash[..8]);
    head
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Size and SHA-256 of a file's contents.
pub(crate) fn hash_file(path: &Path, progress: &dyn Progress) -> Result<(u64, Hash)> {
    let mut file = File::open(path).map_err(io("read", path))?;
    let total = file.metadata().map_err(io("read", path))?.len();
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    let mut done = 0_u64;
    loop {
        let read = file.read(&mut buffer).map_err(io("read", path))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        done += read as u64;
        progress.update(Stage::Hashing, done, Some(total));
        proceed(progress)?;
    }
    Ok((done, hasher.finalize().into()))
}

/// A uniform number in `[0, 1)` that depends on the seed and the key alone.
pub(crate) fn keyed_fraction(seed: u64, key: &str) -> f64 {
    let mut hasher = Sha256::new();
    hasher.update(b"undertone split");
    hasher.update(seed.to_le_bytes());
    hasher.update(key.as_bytes());
    let head = u64::from_le_bytes(head(&hasher.finalize().into()));
    (head >> 11) as f64 / (1_u64 << 53) as f64
}

/// The place of a held-out user in the order of evaluations, which depends on the name alone.
///
/// Every run on a corpus then measures a prefix of one order of users, whatever its vocabulary, seed and limit are. The label differs
/// from that of [`keyed_fraction`], so the order says nothing of the partition.
pub(crate) fn evaluation_place(user: &str) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(b"undertone evaluation 1\0");
    hasher.update(user.as_bytes());
    hasher.finalize().into()
}

/// The pseudonym of a user: 16 hexadecimal digits (64 bits) of SHA-256 over salt and name.
///
/// # Guarantee
/// An adversary without the salt cannot test a guess of the name. This is pseudonymity, not differential privacy.
#[must_use]
pub(crate) fn pseudonym(salt: &[u8], name: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update((salt.len() as u64).to_le_bytes());
    hasher.update(salt);
    hasher.update(name.as_bytes());
    let hash: Hash = hasher.finalize().into();
    hex(&hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudonyms_depend_on_salt_and_name() {
        let reference = pseudonym(b"salt", "a@example.org");
        assert_eq!(reference.len(), 16);
        assert_eq!(reference, pseudonym(b"salt", "a@example.org"));
        assert_ne!(reference, pseudonym(b"pepper", "a@example.org"));
        assert_ne!(reference, pseudonym(b"salt", "b@example.org"));
        assert_ne!(pseudonym(b"ab", "c"), pseudonym(b"a", "bc"));
    }

    #[test]
    fn a_hash_is_that_of_the_example_of_fips_180() {
        // SHA-256 of "abc", FIPS 180-4 example.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&hash_bytes(b"abc")), expected);
    }
}
