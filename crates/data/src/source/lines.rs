//! Lines of a text file, of bounded length.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::{Place, Result, bad_value, io};
use crate::limits::MAX_LINE_BYTES;

/// Reads a file line by line. A line of more than [`MAX_LINE_BYTES`] is an error, so a file without newlines costs no more
/// memory than that.
pub(crate) struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Lines<'a>> {
        let file = File::open(path).map_err(io("read", path))?;
        Ok(Lines {
            path,
            reader: BufReader::with_capacity(1 << 18, file),
            line: Vec::new(),
            number: 0,
        })
    }

    /// The next line with its number, counted from 1, and its newline if it has one.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let mut bounded = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        if read.map_err(io("read", self.path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.len() > MAX_LINE_BYTES {
            return Err(bad_value(
                self.path,
                Place::Line(self.number),
                "line",
                format!("at most {MAX_LINE_BYTES} bytes (max_line_bytes)"),
                "a longer one",
            ));
        }
        Ok(Some((self.number, &self.line)))
    }
}
