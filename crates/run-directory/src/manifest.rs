//! `manifest.json`: the digests of a finished run's files when it ended.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{DirectoryError, Result};
use crate::files;
use undertone_present::numbers::hex;

pub use crate::files::names::MANIFEST_FILE;

/// Digests of the files of a finished run. The report is not among them: it is made from the others and can be made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the manifest's format.
    pub version: u32,
    /// Number of rounds of the run.
    pub rounds: u64,
    /// Digest of the ledger's last line.
    pub ledger_head: String,
    /// SHA-256 by file name.
    pub files: BTreeMap<String, String>,
}

impl Manifest {
    /// Reads and hashes the named files of a run directory; those that the run does not have are left out.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn of(run_dir: &Path, names: &[&str], rounds: u64, ledger_head: &str) -> Result<Self> {
        let mut digests = BTreeMap::new();
        for name in names {
            let path = run_dir.join(name);
            if files::exists(&path) {
                digests.insert((*name).to_owned(), sha256_of(&path)?);
            }
        }
        Ok(Self {
            version: 1,
            rounds,
            ledger_head: ledger_head.to_owned(),
            files: digests,
        })
    }

    /// Writes the manifest, last of all files.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn write(&self, run_dir: &Path) -> Result<()> {
        files::write_json(&run_dir.join(MANIFEST_FILE), self)
    }

    /// Reads the manifest of a run.
    ///
    /// # Errors
    /// [`DirectoryError::Io`], [`DirectoryError::Damaged`].
    pub fn read(run_dir: &Path) -> Result<Self> {
        files::read_json(&run_dir.join(MANIFEST_FILE))
    }
}

/// Hex SHA-256 of a file of a run directory.
///
/// # Errors
/// [`DirectoryError::Io`], [`DirectoryError::UnusableFile`].
pub fn sha256_of(path: &Path) -> Result<String> {
    let fail = |source| DirectoryError::io("read", path, source);
    let mut file = files::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer).map_err(fail)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    Ok(hex(&hasher.finalize()))
}
