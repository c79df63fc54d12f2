//! The user index: one entry of 32 bytes per user, by hash of the name, memory-mapped.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use memmap2::Mmap;
use sha2::{Digest, Sha256};

use crate::error::{Result, bad_grouped, io};
use crate::hash::{Hash, head, hex};

use super::manifest::regular_file;

/// Place of a user's rows in the shards. Little-endian in the file, as are all machines that this is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Zeroable, Pod)]
#[repr(C)]
pub(super) struct UserEntry {
    /// [`hash_user`] of the name. Two names may share one.
    pub(super) hash: u64,
    /// First row, from the start of the shard.
    pub(super) first_row: u64,
    pub(super) rows: u64,
    pub(super) shard: u32,
    /// Row group of the first row.
    pub(super) row_group: u32,
}

#[cfg(target_endian = "big")]
compile_error!("the user index is little-endian");

const ENTRY: usize = size_of::<UserEntry>();

/// 64 bits of SHA-256: users are spread evenly whatever their names are.
pub(super) fn hash_user(name: &str) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(b"undertone grouped user\0");
    hasher.update(name.as_bytes());
    u64::from_be_bytes(head(&hasher.finalize().into()))
}

/// Writes entries in order.
pub(super) struct IndexWriter {
    path: PathBuf,
    output: BufWriter<File>,
    hasher: Sha256,
    pub(super) users: u64,
    pub(super) largest: u64,
}

impl IndexWriter {
    pub(super) fn create(path: &Path) -> Result<IndexWriter> {
        let file = File::create(path).map_err(io("write the user index", path))?;
        Ok(IndexWriter {
            path: path.to_owned(),
            output: BufWriter::with_capacity(1 << 18, file),
            hasher: Sha256::new(),
            users: 0,
            largest: 0,
        })
    }

    pub(super) fn push(&mut self, entries: &[UserEntry]) -> Result<()> {
        let bytes = bytemuck::cast_slice(entries);
        self.hasher.update(bytes);
        self.users += entries.len() as u64;
        self.largest = entries
            .iter()
            .map(|entry| entry.rows)
            .fold(self.largest, u64::max);
        self.output
            .write_all(bytes)
            .map_err(io("write the user index", &self.path))
    }

    /// Returns the SHA-256 of the file.
    pub(super) fn finish(self) -> Result<String> {
        let file = self
            .output
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(io("write the user index", &self.path))?;
        let hash: Hash = self.hasher.finalize().into();
        Ok(hex(&hash))
    }
}

/// The mapped index. Nobody may write or truncate the file while it is mapped: a read beyond a new end of the file would end the
/// process.
#[derive(Debug)]
pub(super) struct UserIndex(Mmap);

impl UserIndex {
    pub(super) fn open(path: &Path, sha256: &str, users: u64) -> Result<UserIndex> {
        let bad = |detail: String| bad_grouped(path, detail);
        regular_file(path)?;
        let file = File::open(path).map_err(io("read the user index", path))?;
        // SAFETY: this holds while no other process writes or truncates the file, which the documentation asks for; this
        // program moved the folder here whole and changes none of its files in place. The hash below is that of the mapping
        // itself, and what is read from it is plain numbers, checked before use: other contents give an error and never an
        // access out of bounds.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map the user index", path))?;
        if map.len() as u64 != users.saturating_mul(ENTRY as u64) {
            return Err(bad(format!(
                "the user index: expected {users} entries of {ENTRY} bytes, got {} bytes",
                map.len()
            )));
        }
        let hash: Hash = Sha256::digest(&map).into();
        if hex(&hash) != sha256 {
            return Err(bad(format!(
                "the user index: expected SHA-256 {sha256}, got {}",
                hex(&hash)
            )));
        }
        Ok(UserIndex(map))
    }

    pub(super) fn entries(&self) -> &[UserEntry] {
        // The length is a multiple of an entry's, and a map starts at a page.
        bytemuck::cast_slice(&self.0)
    }
}
