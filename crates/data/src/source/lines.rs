//! Lines of a text file, of bounded length.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use crate::error::{Place, Result, bad_value, io};
use crate::limits::MAX_LINE_BYTES;
use crate::source::coded::Coded;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Reads a text line by line. A line of more than [`MAX_LINE_BYTES`] is an error, so a file without newlines costs no more memory
/// than that.
pub(crate) struct Lines<R> {
    path: PathBuf,
    reader: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<Coded<'a>> {
    pub(crate) fn of(content: Coded<'a>) -> Self {
        Self::after(content.path().to_owned(), content, 0)
    }
}

impl<R: Read> Lines<R> {
    /// The rest of a text, of which so many lines were read.
    pub(crate) fn after(path: PathBuf, content: R, number: u64) -> Self {
        Self {
            path,
            reader: BufReader::with_capacity(BUFFER_BYTES, content),
            line: Vec::new(),
            number,
        }
    }

    /// The next line with its number, counted from 1, and its newline if it has one.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let mut bounded = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        if read.map_err(io("read", &self.path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.len() > MAX_LINE_BYTES {
            return Err(bad_value(
                &self.path,
                Place::Line(self.number),
                "line",
                format!("at most {MAX_LINE_BYTES} bytes (max_line_bytes)"),
                "a longer one",
            ));
        }
        Ok(Some((self.number, &self.line)))
    }
}
