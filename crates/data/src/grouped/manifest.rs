//! `manifest.json` of a grouped folder: written last, so a folder that has one is whole.

use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Result, bad_grouped, io, quoted, short};
use crate::file;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const INDEX: &str = "users.index";
pub(super) const FORMAT: &str = "undertone grouped text";
pub(super) const VERSION: u32 = 1;

/// Maximum size of a manifest.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// Size of a file of a grouped folder, which is no link and no pipe.
pub(super) fn regular_file(path: &Path) -> Result<u64> {
    let entry = path
        .symlink_metadata()
        .map_err(io("read a file of grouped text", path))?;
    match entry.is_file() {
        true => Ok(entry.len()),
        false => Err(bad_grouped(path, "expected a regular file")),
    }
}

/// The contents and the origin of a grouped folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupedManifest {
    /// `"undertone grouped text"`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Number of rows, which is that of the source.
    pub rows: u64,
    /// Number of users, which is that of the source.
    pub users: u64,
    /// Maximum number of rows per user.
    pub largest_user: u64,
    /// `true` if rows have a time, which then orders the rows of a user. Otherwise they are in the order of the source.
    pub has_time: bool,
    /// `true` if rows have a split.
    pub has_split: bool,
    /// The source's contents: its size and SHA-256, or its commit.
    pub source: String,
    /// SHA-256 of the user index.
    pub index_sha256: String,
    /// The shards, in the order of their users' hashes.
    pub shards: Vec<Shard>,
}

/// A Parquet file of a grouped folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Name of the shard in the folder.
    pub file: String,
    /// Number of rows in the shard.
    pub rows: u64,
    /// Size of the shard in bytes.
    pub bytes: u64,
    /// SHA-256 of the shard's contents.
    pub sha256: String,
}

impl GroupedManifest {
    /// Reads the manifest of a folder and checks what it says of itself.
    pub(super) fn read(folder: &Path) -> Result<(GroupedManifest, Vec<u8>)> {
        let path = folder.join(MANIFEST);
        let bytes = file::read_bounded(&path, MAX_MANIFEST_BYTES, "read the manifest of grouped text")?;
        let bad = |detail: String| bad_grouped(&path, detail);
        let manifest: GroupedManifest =
            serde_json::from_slice(&bytes).map_err(|error| bad(format!("its manifest: {error}")))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            return Err(bad(format!(
                "expected \"{FORMAT}\" version {VERSION}, got {} version {}",
                quoted(&manifest.format),
                manifest.version
            )));
        }
        let mut rows = manifest.shards.iter().map(|shard| shard.rows);
        let rows = rows.try_fold(0, |sum: u64, rows| sum.checked_add(rows));
        if rows != Some(manifest.rows) {
            let rows = rows.map_or_else(|| "more than 2^64".to_owned(), |rows| rows.to_string());
            return Err(bad(format!(
                "it counts {} rows, and its shards {rows}",
                manifest.rows
            )));
        }
        for shard in &manifest.shards {
            // A name that leaves the folder, or a link out of it, would have other files read.
            let inside = Path::new(&shard.file).file_name() == Some(OsStr::new(&shard.file));
            if !inside {
                let name = quoted(&shard.file);
                return Err(bad(format!("expected names of files in the folder, got {name}")));
            }
            let bytes = regular_file(&folder.join(&shard.file))?;
            if bytes != shard.bytes {
                return Err(bad(format!(
                    "{}: expected {} bytes, got {bytes}",
                    short(&shard.file),
                    shard.bytes
                )));
            }
        }
        Ok((manifest, bytes))
    }
}
