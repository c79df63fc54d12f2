//! Files of one JSON value per line: written by appending, read one line at a time.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::names::METRICS_FILE;
use super::{MIB, open, open_secret_to_write, open_to_write, unusable};
use crate::error::{DirectoryError, Result};

/// Maximum length in bytes of a line of a ledger: three million participants in one round.
const MAX_LINE: u64 = 64 * MIB;

/// Maximum length of a line of the metrics, which hold no list longer than a histogram.
const MAX_METRICS_LINE: u64 = MIB;

/// One line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The number of the line, from 1.
    pub number: usize,
    /// The bytes of the line, without the line feed.
    pub bytes: &'a [u8],
    /// `true` if a line feed ends the line. Only the last line of a file can lack one, after a crash.
    pub whole: bool,
}

/// Reads a file line by line, so that neither a long file nor a long line fills the memory.
#[derive(Debug)]
pub struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    number: usize,
    buffer: Vec<u8>,
    limit: u64,
}

impl Lines {
    /// Opens a file of a run directory.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a larger one.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self::of(open(path)?, path))
    }

    /// Opens a file that the user named: links are followed.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn open_given(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| DirectoryError::io("read", path, source))?;
        Ok(Self::of(file, path))
    }

    fn of(file: File, path: &Path) -> Self {
        let metrics = path.file_name().is_some_and(|name| name == METRICS_FILE);
        Self {
            reader: BufReader::with_capacity(1 << 16, file),
            path: path.to_owned(),
            number: 0,
            buffer: Vec::new(),
            limit: if metrics { MAX_METRICS_LINE } else { MAX_LINE },
        }
    }

    /// The next line that is not empty.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a line that is longer than any honest one.
    #[allow(clippy::should_implement_trait)] // the line borrows the buffer
    pub fn next(&mut self) -> Result<Option<Line<'_>>> {
        loop {
            self.buffer.clear();
            self.number += 1;
            (&mut self.reader)
                .take(self.limit + 1)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| DirectoryError::io("read", &self.path, source))?;
            let whole = self.buffer.last() == Some(&b'\n');
            if whole {
                self.buffer.pop();
            } else if self.buffer.is_empty() {
                return Ok(None);
            }
            if self.buffer.len() as u64 > self.limit {
                let expected = format!("at most {} bytes in line {}", self.limit, self.number);
                return Err(unusable(&self.path, expected, "more"));
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(Some(Line {
                    number: self.number,
                    bytes: &self.buffer,
                    whole,
                }));
            }
        }
    }
}

/// Number of bytes of a file up to the end of its last whole line.
///
/// # Errors
/// The errors of [`open`].
pub fn whole_lines(path: &Path) -> Result<u64> {
    let fail = |source| DirectoryError::io("read", path, source);
    let mut file = open(path)?;
    let (mut whole, mut read) = (0, 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer).map_err(fail)?;
        if count == 0 {
            return Ok(whole);
        }
        if let Some(last) = buffer[..count].iter().rposition(|&byte| byte == b'\n') {
            whole = read + last as u64 + 1;
        }
        read += count as u64;
    }
}

/// A file of JSON lines that only grows, and can be cut back to a known length when a run resumes.
#[derive(Debug)]
pub struct JsonLines {
    file: File,
    path: PathBuf,
    length: u64,
}

impl JsonLines {
    /// Opens or creates `path` and cuts it to `length` bytes: lines after the checkpoint were never released.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link or anything but a regular file, which stays as it
    /// is; [`DirectoryError::Damaged`] when the file is shorter than `length`.
    pub fn open(path: &Path, length: u64) -> Result<Self> {
        Self::of(open_to_write(path)?, path, length)
    }

    /// Opens or creates a file that its owner alone can read, and keeps its content.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_secret(path: &Path) -> Result<Self> {
        let file = open_secret_to_write(path)?;
        let metadata = file.metadata();
        let length = metadata
            .map_err(|source| DirectoryError::io("read", path, source))?
            .len();
        Self::of(file, path, length)
    }

    /// Removes all lines.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn cut(&mut self) -> Result<()> {
        let emptied = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|source| DirectoryError::io("write", &self.path, source))?;
        self.length = 0;
        Ok(())
    }

    fn of(mut file: File, path: &Path, length: u64) -> Result<Self> {
        let present = file
            .metadata()
            .map_err(|source| DirectoryError::io("read", path, source))?
            .len();
        if present < length {
            let message = format!("the checkpoint expects {length} bytes, the file has {present}");
            return Err(DirectoryError::damaged(path, message));
        }
        file.set_len(length)
            .and_then(|()| file.seek(SeekFrom::Start(length)))
            .map_err(|source| DirectoryError::io("write", path, source))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            length,
        })
    }

    /// Appends one value as a line.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; the file is cut back to its last whole line then.
    pub fn append<T: serde::Serialize>(&mut self, line: &T) -> Result<()> {
        let bytes = serde_json::to_vec(line)
            .map_err(|source| DirectoryError::io("write", &self.path, source.into()))?;
        self.append_bytes(&bytes)
    }

    /// Appends one line of these bytes, which hold no line feed.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub fn append_bytes(&mut self, line: &[u8]) -> Result<()> {
        let bytes = [line, b"\n"].concat();
        if let Err(source) = self.file.write_all(&bytes) {
            let _ = self.file.set_len(self.length);
            let _ = self.file.seek(SeekFrom::Start(self.length));
            return Err(DirectoryError::io("write", &self.path, source));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes all lines durable.
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|source| DirectoryError::io("write", &self.path, source))
    }

    /// Number of bytes of whole lines.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}
