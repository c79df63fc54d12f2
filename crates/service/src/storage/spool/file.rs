//! The file of the spool: slots of one size, without a name.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::RECORD;

/// A file of slots. A slot that was freed is used again, and a file without used slots is cut to nothing.
pub(super) struct File {
    file: std::fs::File,
    /// Free slots below the end.
    free: Vec<u64>,
    /// Slots up to the end.
    end: u64,
}

impl File {
    /// A file of this folder that has no name there.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        tempfile::tempfile_in(folder).map(Self::over)
    }

    /// Slots in this file, which is empty.
    pub(super) fn over(file: std::fs::File) -> Self {
        Self {
            file,
            free: Vec::new(),
            end: 0,
        }
    }

    /// Number of used slots.
    pub(super) fn used(&self) -> u64 {
        self.end - self.free.len() as u64
    }

    /// Writes a record to a free slot, which it returns.
    pub(super) fn write(&mut self, record: &[u8]) -> io::Result<u64> {
        let slot = self.free.last().copied().unwrap_or(self.end);
        self.file.seek(SeekFrom::Start(slot * RECORD as u64))?;
        self.file.write_all(record)?;
        // Only now is the slot taken: a record that was not written takes none.
        if self.free.pop().is_none() {
            self.end += 1;
        }
        Ok(slot)
    }

    /// Reads a slot.
    pub(super) fn read(&mut self, slot: u64, record: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(slot * RECORD as u64))?;
        self.file.read_exact(record)
    }

    /// Frees a slot.
    pub(super) fn free(&mut self, slot: u64) {
        self.free.push(slot);
        if self.used() == 0 {
            // A file that cannot be cut keeps its space until the process ends.
            if self.file.set_len(0).is_ok() {
                self.free.clear();
                self.end = 0;
            }
        }
    }

    /// Changes a byte.
    #[cfg(test)]
    pub(super) fn spoil(&mut self, at: u64) {
        let mut byte = [0];
        self.file.seek(SeekFrom::Start(at)).unwrap();
        self.file.read_exact(&mut byte).unwrap();
        self.file.seek(SeekFrom::Start(at)).unwrap();
        self.file.write_all(&[byte[0] ^ 1]).unwrap();
    }

    /// All bytes of the file.
    #[cfg(test)]
    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.file.rewind().unwrap();
        self.file.read_to_end(&mut bytes).unwrap();
        bytes
    }
}
