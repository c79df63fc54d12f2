//! The key that seals the keys in a backup: random bytes in a file, or a passphrase.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use undertone_service::{Result, ServiceError};
use zeroize::Zeroizing;

use super::refused;

/// Min bytes of the file that holds a backup's key.
const MIN_KEY: usize = 32;

/// Max bytes of the file that holds a backup's key.
const MAX_KEY: u64 = 4 << 10;

/// Min characters of a passphrase.
const MIN_PASSPHRASE: usize = 16;

/// Max memory for a passphrase, in KiB: a manifest of a stranger takes no more.
const MAX_MEMORY: u32 = 1 << 20;

/// Max passes over that memory.
const MAX_PASSES: u32 = 64;

/// The source of a backup's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupKey {
    /// A file with random bytes, which [`write_key`](super::write_key) made.
    File(PathBuf),
    /// A file whose first line is a passphrase.
    Passphrase(PathBuf),
}

/// The cost of trying one passphrase: Argon2id with one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretching {
    /// The memory in KiB.
    pub memory_kib: u32,
    /// The passes over it.
    pub passes: u32,
}

impl Default for Stretching {
    /// The second recommendation of RFC 9106 for one lane: 64 MiB and three passes.
    fn default() -> Self {
        Self {
            memory_kib: 64 << 10,
            passes: 3,
        }
    }
}

impl BackupKey {
    /// The cost that a new backup under this key states.
    pub(super) fn stretching(&self) -> Option<Stretching> {
        match self {
            Self::File(_) => None,
            Self::Passphrase(_) => Some(Stretching::default()),
        }
    }

    /// The key of a backup with this salt.
    ///
    /// # Errors
    /// [`ServiceError::KeyFile`] for a file that others can read or that holds too little; [`ServiceError::Value`] for a backup under the
    /// other kind of key, or with a cost beyond the limits.
    pub(super) fn sealing(
        &self,
        salt: &[u8; 32],
        stretching: Option<Stretching>,
    ) -> Result<Zeroizing<[u8; 32]>> {
        let mut key = Zeroizing::new([0; 32]);
        match (self, stretching) {
            (Self::File(path), None) => {
                let bytes = secret_file(path)?;
                if bytes.len() < MIN_KEY || bytes.len() as u64 > MAX_KEY {
                    return Err(ServiceError::KeyFile {
                        path: path.clone(),
                        reason: format!(
                            "expected {MIN_KEY} to {MAX_KEY} random bytes, got {}; make them with `undertone backup key`",
                            bytes.len()
                        ),
                    });
                }
                Hkdf::<Sha256>::new(Some(salt), &bytes)
                    .expand(b"undertone/1/backup", &mut *key)
                    .unwrap_or_else(|_| unreachable!("32 bytes are within the length of HKDF"));
            }
            (Self::Passphrase(path), Some(cost)) => {
                let bytes = secret_file(path)?;
                let text = std::str::from_utf8(&bytes).ok();
                let line = text.and_then(|text| text.lines().next()).unwrap_or_default();
                if line.chars().count() < MIN_PASSPHRASE {
                    return Err(ServiceError::KeyFile {
                        path: path.clone(),
                        reason: format!(
                            "expected a first line of at least {MIN_PASSPHRASE} characters in UTF-8"
                        ),
                    });
                }
                if !(8..=MAX_MEMORY).contains(&cost.memory_kib) || !(1..=MAX_PASSES).contains(&cost.passes) {
                    return Err(refused(
                        "the cost of the passphrase in the manifest",
                        &format!("8 to {MAX_MEMORY} KiB and 1 to {MAX_PASSES} passes"),
                        format!("{} KiB and {} passes", cost.memory_kib, cost.passes),
                    ));
                }
                let failed = |error: argon2::Error| {
                    refused("the passphrase", "one that can be stretched", error.to_string())
                };
                let params = Params::new(cost.memory_kib, cost.passes, 1, Some(32)).map_err(failed)?;
                Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
                    .hash_password_into(line.as_bytes(), salt, &mut *key)
                    .map_err(failed)?;
            }
            (Self::File(_), Some(_)) => {
                return Err(refused(
                    "the key of the backup",
                    "a passphrase, under which it was made",
                    "a key file",
                ));
            }
            (Self::Passphrase(_), None) => {
                return Err(refused(
                    "the key of the backup",
                    "the key file, under which it was made",
                    "a passphrase",
                ));
            }
        }
        Ok(key)
    }
}

/// The bytes of a file that its owner alone can read.
fn secret_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let io = |error| ServiceError::io("read", path, error);
    let file = fs::File::open(path).map_err(io)?;
    if !undertone_store::is_private(path, &file.metadata().map_err(io)?) {
        return Err(ServiceError::KeyFile {
            path: path.to_owned(),
            reason: "others than its owner can read it; set its mode to 0600".to_owned(),
        });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY as usize + 1));
    file.take(MAX_KEY + 1).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}
