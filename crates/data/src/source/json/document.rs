//! One JSON document as a stream: an array of records, at the top or at a place below it. Memory holds one record at a time.

use std::io::{Cursor, Read};
use std::ops::Range;
use std::path::PathBuf;

use super::scan::{CUT_OFF, Scanner, plain_end};
use crate::error::{DataError, Place, Result, bad_value, invalid, io, quoted};
use crate::limits::MAX_LINE_BYTES;
use crate::source::lines::Lines;
use undertone_settings::Pointer;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 18;
/// Maximum length of the name of a field above the records.
const MAX_NAME_BYTES: usize = 1 << 20;
/// Maximum depth of brackets in a value above the records.
const MAX_DEPTH: usize = 1 << 20;
/// Fields that an error names.
const SHOWN_FIELDS: usize = 20;

/// A document that is read up to a place.
pub(super) struct Document<R> {
    path: PathBuf,
    input: R,
    buffer: Vec<u8>,
    /// The place in the buffer, and its line in the file from 1.
    at: usize,
    line: u64,
    ended: bool,
    /// The values around the records, from the top: the name of the member in an object, nothing in an array.
    levels: Vec<Option<String>>,
}

/// A record in the buffer of its document.
pub(super) struct Element {
    pub(super) range: Range<usize>,
    /// The line at which it begins.
    pub(super) line: u64,
}

impl<R: Read> Document<R> {
    pub(super) fn of(path: PathBuf, input: R) -> Self {
        Self {
            path,
            input,
            buffer: Vec::new(),
            at: 0,
            line: 1,
            ended: false,
            levels: Vec::new(),
        }
    }

    /// The rest of the document as lines.
    pub(super) fn into_lines(mut self) -> Lines<impl Read> {
        let rest = self.buffer.split_off(self.at);
        Lines::after(self.path, Cursor::new(rest).chain(self.input), self.line - 1)
    }

    pub(super) fn bytes(&self, element: &Element) -> &[u8] {
        &self.buffer[element.range.clone()]
    }

    /// Bytes that the buffer holds room for.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Passes white space, and shows the next byte.
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            while let Some(&byte) = self.buffer.get(self.at) {
                match byte {
                    b'\n' => self.line += 1,
                    b' ' | b'\t' | b'\r' => {}
                    other => return Ok(Some(other)),
                }
                self.at += 1;
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads on. What lies before the place is forgotten.
    fn more(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + filled.max(CHUNK_BYTES), 0);
        let read = self.input.read(&mut self.buffer[filled..]);
        let read = read.map_err(io("read", &self.path))?;
        self.buffer.truncate(filled + read);
        self.ended = read == 0;
        Ok(read > 0)
    }

    fn bad(&self, expected: &str, got: impl Into<String>) -> DataError {
        bad_value(&self.path, Place::Line(self.line), "JSON", expected, got)
    }

    /// The error where something else stands than `expected`.
    fn wrong(&mut self, expected: &str) -> DataError {
        match self.peek() {
            Err(error) => error,
            Ok(None) => self.bad(expected, "the end of the file: it is cut off"),
            Ok(Some(byte)) => self.bad(expected, quoted(&String::from_utf8_lossy(&[byte]))),
        }
    }

    /// Moves the place on by so many bytes.
    fn pass(&mut self, bytes: usize) {
        let passed = &self.buffer[self.at..self.at + bytes];
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.at += bytes;
    }

    /// Finds the end of the next value, which is `max` bytes long at most. With `keep` it stays in the buffer, and the place stands
    /// before it; otherwise it is passed.
    fn value(&mut self, keep: bool, max: usize) -> Result<usize> {
        if self.peek()?.is_none() {
            return Err(self.wrong("a value"));
        }
        let (mut extent, mut length) = (Extent::default(), 0);
        loop {
            let found = extent.scan(&self.buffer[self.at + length..]);
            let found = found.map_err(|what| self.bad("valid JSON", what))?;
            length = found.map_or(self.buffer.len() - self.at, |end| length + end);
            if keep && length > max {
                let expected = format!("at most {max} bytes (max_line_bytes)");
                return Err(self.bad(&expected, "a longer value"));
            }
            if !keep {
                self.pass(length);
                length = 0;
            }
            if found.is_some() {
                return Ok(length);
            }
            if !self.more()? {
                return match extent.scalar {
                    true => Ok(length),
                    false => Err(self.bad("the end of a value", "the end of the file: it is cut off")),
                };
            }
        }
    }

    /// Passes the name of a member and its colon.
    fn key(&mut self) -> Result<String> {
        if self.peek()? != Some(b'"') {
            return Err(self.wrong("the name of a field"));
        }
        let length = self.value(true, MAX_NAME_BYTES)?;
        let name = Scanner::of(&self.buffer[self.at..self.at + length]).string();
        let name = name
            .and_then(|name| name.text(&mut 0))
            .map(std::borrow::Cow::into_owned);
        let name = name.map_err(|fault| self.bad("the name of a field", fault.what))?;
        self.pass(length);
        if self.peek()? != Some(b':') {
            return Err(self.wrong("a colon after the name of a field"));
        }
        self.at += 1;
        Ok(name)
    }

    /// Passes a comma (`true`) or the end of a container (`false`).
    fn comma(&mut self, end: u8) -> Result<bool> {
        match self.peek()? {
            Some(b',') => self.at += 1,
            Some(byte) if byte == end => {
                self.at += 1;
                return Ok(false);
            }
            _ => {
                return Err(self.wrong(if end == b'}' {
                    "a comma or }"
                } else {
                    "a comma or ]"
                }));
            }
        }
        Ok(true)
    }

    /// Moves to the first element of the array at a place; without a place, of the document.
    pub(super) fn enter(&mut self, records: Option<&Pointer>) -> Result<()> {
        for part in records.map(Pointer::parts).unwrap_or_default() {
            let level = match self.peek()? {
                Some(b'{') => self.member(part)?,
                Some(b'[') => self.item(part)?,
                _ => return Err(self.no_records(part, &[])),
            };
            self.levels.push(level);
        }
        match self.peek()? {
            Some(b'[') => self.at += 1,
            _ => return Err(self.wrong("an array of records ([)")),
        }
        Ok(())
    }

    fn no_records(&self, part: &str, found: &[String]) -> DataError {
        let mut above: Vec<&str> = self
            .levels
            .iter()
            .map(|level| level.as_deref().unwrap_or("*"))
            .collect();
        above.insert(0, "");
        let shown: Vec<String> = found.iter().take(SHOWN_FIELDS).map(|name| quoted(name)).collect();
        let got = match shown.as_slice() {
            [] => "no object or array there".to_owned(),
            names => format!("the fields {}", names.join(", ")),
        };
        let expected = format!(
            "the place of an array: {} below \"{}\"",
            quoted(part),
            above.join("/")
        );
        invalid("data.source.records (--records)", expected, got)
    }

    fn member(&mut self, part: &str) -> Result<Option<String>> {
        self.at += 1;
        let mut names = Vec::new();
        if self.peek()? != Some(b'}') {
            loop {
                let name = self.key()?;
                if name == part {
                    return Ok(Some(name));
                }
                if names.len() < SHOWN_FIELDS {
                    names.push(name);
                }
                self.value(false, 0)?;
                if !self.comma(b'}')? {
                    break;
                }
            }
        }
        Err(self.no_records(part, &names))
    }

    fn item(&mut self, part: &str) -> Result<Option<String>> {
        self.at += 1;
        let Ok(index) = part.parse::<u64>() else {
            return Err(self.no_records(part, &[]));
        };
        if self.peek()? == Some(b']') {
            return Err(self.no_records(part, &[]));
        }
        for _ in 0..index {
            self.value(false, 0)?;
            if !self.comma(b']')? {
                return Err(self.no_records(part, &[]));
            }
        }
        Ok(None)
    }

    /// The next record. `first` is true for the first one.
    pub(super) fn next(&mut self, first: bool) -> Result<Option<Element>> {
        if first && self.peek()? == Some(b']') {
            self.at += 1;
            return self.finish();
        }
        if !first && !self.comma(b']')? {
            return self.finish();
        }
        let length = self.value(true, MAX_LINE_BYTES)?;
        let element = Element {
            range: self.at..self.at + length,
            line: self.line,
        };
        self.pass(length);
        Ok(Some(element))
    }

    /// Passes the rest of the document: one that is cut off is an error, and so are two places of the records.
    fn finish(&mut self) -> Result<Option<Element>> {
        while let Some(level) = self.levels.pop() {
            let end = if level.is_some() { b'}' } else { b']' };
            while self.comma(end)? {
                if let Some(name) = &level {
                    let other = self.key()?;
                    if other == *name {
                        return Err(self.bad("one field of each name", format!("{} twice", quoted(name))));
                    }
                }
                self.value(false, 0)?;
            }
        }
        match self.peek()? {
            None => Ok(None),
            Some(_) => Err(self.wrong("the end of the document")),
        }
    }
}

/// The end of a value, found without reading it as a whole.
#[derive(Default)]
struct Extent {
    /// Brackets that are open.
    open: Vec<u8>,
    string: bool,
    escaped: bool,
    /// A number or a literal, which ends before the next mark.
    scalar: bool,
}

impl Extent {
    /// Looks at the next bytes of the value. Returns the end of the value in them, if it lies there.
    fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.string {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                at = plain_end(bytes, at);
                match bytes.get(at) {
                    None => break,
                    Some(b'"') => {
                        self.string = false;
                        if self.open.is_empty() {
                            return Ok(Some(at + 1));
                        }
                    }
                    Some(b'\\') => self.escaped = true,
                    Some(_) => return Err("a control character in a string"),
                }
                at += 1;
                continue;
            }
            match byte {
                b'{' | b'[' | b'"' if self.scalar => return Ok(Some(at)),
                b'"' => self.string = true,
                b'{' | b'[' if self.open.len() == MAX_DEPTH => {
                    return Err("more than a million open brackets");
                }
                b'{' | b'[' => self.open.push(byte),
                b'}' | b']' => match self.open.pop() {
                    None => return Ok(Some(at)),
                    // The closing bracket stands two behind the opening one in ASCII.
                    Some(open) if open + 2 != byte => return Err("brackets that do not match"),
                    Some(_) if self.open.is_empty() => return Ok(Some(at + 1)),
                    Some(_) => {}
                },
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if self.open.is_empty() => return Ok(Some(at)),
                _ => self.scalar = self.open.is_empty(),
            }
            at += 1;
        }
        Ok(None)
    }
}

/// The fault of a document that is cut off, for messages.
pub(super) fn is_cut_off(what: &str) -> bool {
    what == CUT_OFF
}
