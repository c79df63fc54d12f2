//! The spool: bytes of uploads on their way, in memory up to a limit, and beyond it in an encrypted file without a name.
//!
//! An upload has its place for good from its first byte on: in memory, if its whole length fits under the limit, or in the file.
//! The file is unlinked, so that it ends with the process. Its records are sealed by AES-256-GCM under a key that is in memory
//! only. Nonce and tag of a record stay in memory, so a record that was changed, moved or put back is not read.
//!
//! Memory is the limit, and 64 KiB per upload in the file: the last record stays in memory until it is full.

mod file;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use undertone_aggregation::Wiped;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::keys::random;
use file::File;

/// Bytes of a record of the file.
pub(crate) const RECORD: usize = 64 << 10;

/// Memory for uploads on their way, in bytes, unless a host sets it: 2 GiB.
pub(crate) const DEFAULT_RAM: u64 = 2 << 30;

/// Memory of ended uploads that is kept for the next ones, in bytes: 32 MiB.
const IDLE: usize = 32 << 20;

/// Bytes that cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// The file cannot grow. Nothing was kept of the chunk.
    #[error("the spool cannot take the bytes: {0}")]
    Full(std::io::Error),
    /// The file does not hold what was written.
    #[error("the spool does not hold what was written to it")]
    Damaged,
}

/// The spool of a service.
///
/// # Guarantee
/// No byte of an upload stands on a disk in the clear, and none can be read after the process has ended. Bytes that are read are
/// those that were written, or there is an error.
pub struct Spool {
    limit: u64,
    /// Memory that uploads have reserved.
    reserved: AtomicU64,
    folder: PathBuf,
    file: Mutex<Option<File>>,
    cipher: Aes256Gcm,
    /// Empty buffers of ended uploads. The system takes longer to give memory than an upload takes to fill it.
    idle: Mutex<Vec<Wiped<u8>>>,
    /// Numbers uploads and nonces. A number is given once.
    next: AtomicU64,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool")
            .field("limit", &self.limit)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Spool {
    /// A spool that keeps `limit` bytes in memory, and the rest in a file of `folder`. The file is made when it is needed.
    ///
    /// # Errors
    /// No entropy.
    pub fn new(limit: u64, folder: &Path) -> Result<Self> {
        let key = Zeroizing::new(random::<32>()?);
        Ok(Self {
            limit,
            reserved: AtomicU64::new(0),
            folder: folder.to_owned(),
            file: Mutex::new(None),
            cipher: Aes256Gcm::new((&*key).into()),
            idle: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Memory that uploads have reserved, in bytes.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes of uploads in the file.
    #[cfg(test)]
    pub(crate) fn on_disk(&self) -> u64 {
        let file = self.file();
        file.as_ref().map_or(0, |file| file.used() * RECORD as u64)
    }

    /// Gives the memory of ended uploads back to the system.
    pub fn trim(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Wiped<u8>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer with room for `length` bytes.
    fn buffer(&self, length: usize) -> Wiped<u8> {
        let mut idle = self.idle();
        match idle.iter().position(|buffer| buffer.capacity() == length) {
            Some(place) => idle.remove(place),
            None => Wiped::with_capacity(length),
        }
    }

    /// Wipes a buffer and keeps it, if there is room for it.
    fn recycle(&self, mut buffer: Wiped<u8>) {
        buffer.wipe();
        if buffer.capacity() > IDLE {
            return;
        }
        let mut idle = self.idle();
        idle.push(buffer);
        // The oldest leave first, so those of a task that has ended make room.
        while idle.iter().map(|buffer| buffer.capacity()).sum::<usize>() > IDLE {
            drop(idle.remove(0));
        }
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves memory, if the limit allows it.
    fn reserve(&self, bytes: u64) -> bool {
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                reserved.checked_add(bytes).filter(|sum| *sum <= self.limit)
            })
            .is_ok()
    }

    fn write(&self, name: u64, place: u64, plain: &[u8]) -> std::result::Result<Record, SpoolError> {
        let number = self.number();
        // In place of the plain bytes stand sealed ones once this is written; it is wiped for the case that sealing fails.
        let mut bytes = Wiped::from(plain.to_vec());
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce(number), &bound(name, place), bytes.as_mut_slice().into())
            .map_err(|_| SpoolError::Damaged)?;
        let mut file = self.file();
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(File::create(&self.folder).map_err(SpoolError::Full)?),
        };
        let slot = file.write(&bytes).map_err(SpoolError::Full)?;
        Ok(Record {
            slot,
            number,
            tag: tag.into(),
        })
    }

    /// Reads a record of the file into `plain`, which has its length.
    fn read(
        &self,
        name: u64,
        place: u64,
        record: &Record,
        plain: &mut [u8],
    ) -> std::result::Result<(), SpoolError> {
        let mut file = self.file();
        let file = file.as_mut().ok_or(SpoolError::Damaged)?;
        if let Err(error) = file.read(record.slot, plain) {
            tracing::error!(%error, "the spool cannot be read");
            return Err(SpoolError::Damaged);
        }
        self.cipher
            .decrypt_inout_detached(
                &nonce(record.number),
                &bound(name, place),
                plain.into(),
                &Tag::from(record.tag),
            )
            .map_err(|_| SpoolError::Damaged)
    }

    fn free(&self, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        if let Some(file) = &mut *self.file() {
            for record in records {
                file.free(record.slot);
            }
        }
    }
}

/// The nonce of this number. A number is given once per key.
fn nonce(number: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

/// Binds a record to its upload and to its place within it.
fn bound(name: u64, place: u64) -> [u8; 16] {
    let mut bound = [0; 16];
    bound[..8].copy_from_slice(&name.to_le_bytes());
    bound[8..].copy_from_slice(&place.to_le_bytes());
    bound
}

/// A record of the file.
struct Record {
    slot: u64,
    number: u64,
    tag: [u8; 16],
}

/// The bytes of one upload, in their order.
pub(crate) struct Body {
    spool: Arc<Spool>,
    /// The number of bytes when it is whole.
    length: u64,
    kept: Kept,
}

enum Kept {
    /// Nothing is there, and no place is chosen.
    Nowhere,
    /// Everything is in memory, which is taken once, so that no copy of a part stays behind.
    Memory(Wiped<u8>),
    /// The records are in the file, and the rest in memory.
    File {
        name: u64,
        records: Vec<Record>,
        rest: Wiped<u8>,
    },
}

impl Body {
    /// The body of an upload of at most `length` bytes, none of which are there.
    pub(crate) fn new(spool: &Arc<Spool>, length: u64) -> Self {
        Self {
            spool: spool.clone(),
            length,
            kept: Kept::Nowhere,
        }
    }

    /// The number of bytes that are there.
    pub(crate) fn len(&self) -> u64 {
        match &self.kept {
            Kept::Nowhere => 0,
            Kept::Memory(bytes) => bytes.len() as u64,
            Kept::File { records, rest, .. } => (records.len() * RECORD + rest.len()) as u64,
        }
    }

    /// Appends bytes. The caller keeps to the length.
    ///
    /// # Errors
    /// [`SpoolError::Full`]: nothing was kept.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> std::result::Result<(), SpoolError> {
        if matches!(self.kept, Kept::Nowhere) {
            self.kept = match self.spool.reserve(self.length) {
                true => Kept::Memory(self.spool.buffer(self.length as usize)),
                false => Kept::File {
                    name: self.spool.number(),
                    records: Vec::new(),
                    rest: Wiped::with_capacity(RECORD),
                },
            };
        }
        match &mut self.kept {
            Kept::Nowhere => Ok(()),
            Kept::Memory(kept) => {
                kept.extend_from_slice(bytes);
                Ok(())
            }
            Kept::File { name, records, rest } => append_to_file(&self.spool, *name, records, rest, bytes),
        }
    }

    /// `true` if these bytes stand at this offset. The caller keeps to the bytes that are there.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`].
    pub(crate) fn has(&self, offset: u64, bytes: &[u8]) -> std::result::Result<bool, SpoolError> {
        let start = offset as usize;
        match &self.kept {
            Kept::Nowhere => Ok(bytes.is_empty()),
            Kept::Memory(kept) => Ok(kept.get(start..start + bytes.len()) == Some(bytes)),
            Kept::File { name, records, rest } => {
                let mut at = start;
                let mut left = bytes;
                let mut plain = Wiped::from(vec![0; RECORD]);
                while !left.is_empty() {
                    let (place, from) = (at / RECORD, at % RECORD);
                    let record: &[u8] = match records.get(place) {
                        Some(record) => {
                            self.spool.read(*name, place as u64, record, &mut plain)?;
                            &plain
                        }
                        None => rest,
                    };
                    let part = left.len().min(RECORD - from);
                    let (now, later) = left.split_at(part);
                    if record.get(from..from + part) != Some(now) {
                        return Ok(false);
                    }
                    at += part;
                    left = later;
                }
                Ok(true)
            }
        }
    }

    /// Hands the bytes to `work` in one piece. Bytes of the file are read for that, into memory that is wiped afterwards.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`]: `work` was not called.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&[u8]) -> T) -> std::result::Result<T, SpoolError> {
        match &self.kept {
            Kept::Nowhere => Ok(work(&[])),
            Kept::Memory(bytes) => Ok(work(bytes)),
            Kept::File { name, records, rest } => {
                let full = records.len() * RECORD;
                let mut all = Wiped::from(vec![0; full + rest.len()]);
                for ((place, record), plain) in records.iter().enumerate().zip(all.chunks_mut(RECORD)) {
                    self.spool.read(*name, place as u64, record, plain)?;
                }
                all[full..].copy_from_slice(rest);
                Ok(work(&all))
            }
        }
    }

    /// Wipes the bytes, and gives their place back.
    pub(crate) fn clear(&mut self) {
        match std::mem::replace(&mut self.kept, Kept::Nowhere) {
            Kept::Nowhere => {}
            Kept::Memory(bytes) => {
                self.spool.recycle(bytes);
                self.spool.reserved.fetch_sub(self.length, Ordering::Relaxed);
            }
            Kept::File { records, .. } => self.spool.free(&records),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes full records, and keeps the rest. Where one cannot be written, everything is as it was.
fn append_to_file(
    spool: &Spool,
    name: u64,
    records: &mut Vec<Record>,
    rest: &mut Wiped<u8>,
    mut bytes: &[u8],
) -> std::result::Result<(), SpoolError> {
    let mut written = Vec::new();
    let mut filling = Wiped::with_capacity(RECORD);
    filling.extend_from_slice(rest);
    loop {
        let (now, later) = bytes.split_at(bytes.len().min(RECORD - filling.len()));
        filling.extend_from_slice(now);
        bytes = later;
        if filling.len() < RECORD {
            break;
        }
        let place = records.len() + written.len();
        match spool.write(name, place as u64, &filling) {
            Ok(record) => written.push(record),
            Err(error) => {
                spool.free(&written);
                return Err(error);
            }
        }
        filling.clear();
    }
    records.append(&mut written);
    *rest = filling;
    Ok(())
}

#[cfg(test)]
mod tests;
