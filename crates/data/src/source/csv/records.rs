//! Records of separated values, cut by strict rules.
//!
//! A quote opens a field only as its first letter; elsewhere it is a letter. After the closing quote stands a separator or the end of
//! the record. Anything else is an error that names the line at which the quote was opened, because a stray quote would give the rows
//! of other users to one user.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{DataError, Place, Result, bad_value, io};
use undertone_settings::Dialect;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// A field in the buffer.
#[derive(Debug, Clone)]
struct Field {
    range: Range<usize>,
    /// The letters are coded: doubled quotes or escapes.
    coded: bool,
}

/// The end of a record in a piece of text.
enum Cut {
    /// A record that ends before this offset.
    Record(usize),
    /// A line without content that ends before this offset.
    Blank(usize),
    /// The mark that ends the rows of a dump.
    End(usize),
    /// The text must go on.
    More,
}

/// Something that no record has, and the offset at which it begins.
struct Fault {
    begins: usize,
    expected: &'static str,
    got: String,
    /// A quote that nothing closes.
    unclosed: bool,
}

/// Reads records from a text.
pub(crate) struct Records<R> {
    path: PathBuf,
    input: R,
    delimiter: u8,
    dialect: Dialect,
    buffer: Vec<u8>,
    /// The record in the buffer, with its line end.
    record: Range<usize>,
    fields: Vec<Field>,
    /// The line at which the record begins, and the next one.
    line: u64,
    next_line: u64,
    ended: bool,
}

impl<R: Read> Records<R> {
    pub(crate) fn of(path: &Path, input: R, delimiter: u8, dialect: Dialect) -> Self {
        Self {
            path: path.to_owned(),
            input,
            delimiter,
            dialect,
            buffer: Vec::new(),
            record: 0..0,
            fields: Vec::new(),
            line: 1,
            next_line: 1,
            ended: false,
        }
    }

    /// Moves to the next record, of at most `max` bytes. Lines without content are passed over.
    pub(crate) fn next(&mut self, max: usize) -> Result<bool> {
        self.record.start = self.record.end;
        self.line = self.next_line;
        loop {
            self.fields.clear();
            let rest = &self.buffer[self.record.start..];
            if rest.is_empty() && self.ended {
                return Ok(false);
            }
            let cut = match self.dialect {
                Dialect::Quoted => quoted(rest, self.delimiter, self.ended, &mut self.fields),
                Dialect::Dump => dumped(rest, self.delimiter, self.ended, &mut self.fields),
                Dialect::Plain => plain(rest, self.delimiter, self.ended, &mut self.fields),
            };
            match cut {
                Ok(Cut::Record(end)) => {
                    let record = self.record.start..self.record.start + end;
                    self.next_line = self.line + lines(&self.buffer[record.clone()]);
                    self.record = record;
                    return match end > max {
                        true => Err(self.too_long(max)),
                        false => Ok(true),
                    };
                }
                Ok(Cut::Blank(end)) => {
                    self.record.start += end;
                    self.line += 1;
                }
                Ok(Cut::End(end)) => return self.end_mark(end).map(|()| false),
                Ok(Cut::More) => {
                    if rest.len() > max {
                        return Err(self.too_long(max));
                    }
                    self.more()?;
                }
                Err(fault) if fault.unclosed && rest.len() > max => return Err(self.too_long(max)),
                Err(fault) => {
                    let line = self.line + lines(&rest[..fault.begins]);
                    return Err(bad_value(
                        &self.path,
                        Place::Line(line),
                        "record",
                        fault.expected,
                        fault.got,
                    ));
                }
            }
        }
    }

    /// Fills the buffer. It doubles where a record does not fit, so long records are not looked at too often.
    fn more(&mut self) -> Result<()> {
        self.buffer.drain(..self.record.start);
        self.record = 0..0;
        let mut filled = self.buffer.len();
        self.buffer.resize((2 * filled).max(BUFFER_BYTES), 0);
        while filled < self.buffer.len() && !self.ended {
            let read = match self.input.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(io("read", &self.path))?,
            };
            filled += read;
            self.ended = read == 0;
        }
        self.buffer.truncate(filled);
        Ok(())
    }

    /// Demands that nothing follows the end of the rows of a dump.
    fn end_mark(&mut self, end: usize) -> Result<()> {
        self.record.start += end;
        loop {
            let rest = &self.buffer[self.record.start..];
            if !rest.trim_ascii().is_empty() {
                let expected = "nothing after the mark \\. that ends the rows of a dump";
                return Err(bad_value(
                    &self.path,
                    Place::Line(self.line + 1),
                    "record",
                    expected,
                    "more text",
                ));
            }
            self.record.start = self.buffer.len();
            if self.ended {
                self.record.end = self.record.start;
                return Ok(());
            }
            self.more()?;
        }
    }

    fn too_long(&self, max: usize) -> DataError {
        let expected = format!("at most {max} bytes (max_line_bytes)");
        let got = "a longer one (is a quote not closed?)";
        bad_value(&self.path, Place::Line(self.line), "record", expected, got)
    }

    /// The line at which the record begins, from 1, as an editor counts.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The bytes of the record, with the end of its line.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.record.clone()]
    }

    /// Number of fields.
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// A field as it is meant; `None` for a value that a dump marks as absent, and for a field that the record lacks.
    pub(crate) fn field<'s>(&'s self, index: usize, scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        let field = self.fields.get(index)?;
        let start = self.record.start;
        let raw = &self.buffer[start + field.range.start..start + field.range.end];
        if !field.coded {
            return Some(raw);
        }
        scratch.clear();
        match self.dialect {
            Dialect::Quoted => {
                let mut rest = raw;
                while let Some(quote) = memchr::memchr(b'"', rest) {
                    let (before, after) = rest.split_at(quote + 1);
                    scratch.extend_from_slice(before);
                    // The second of two quotes.
                    rest = after.get(1..).unwrap_or_default();
                }
                scratch.extend_from_slice(rest);
            }
            Dialect::Dump if raw == b"\\N" => return None,
            Dialect::Dump => unescape(raw, scratch),
            Dialect::Plain => scratch.extend_from_slice(raw),
        }
        Some(scratch)
    }
}

/// The ends of lines in a text. A carriage return alone ends a line, too.
fn lines(text: &[u8]) -> u64 {
    let mut ends = 0;
    for at in memchr::memchr2_iter(b'\n', b'\r', text) {
        ends += u64::from(text[at] == b'\n' || text.get(at + 1) != Some(&b'\n'));
    }
    ends
}

/// Cuts a record in which fields may be quoted.
fn quoted(text: &[u8], delimiter: u8, ended: bool, fields: &mut Vec<Field>) -> Result<Cut, Fault> {
    let mut at = 0;
    loop {
        if at == text.len() && !ended {
            return Ok(Cut::More);
        }
        let field = if text.get(at) == Some(&b'"') {
            let Some(field) = quoted_field(text, at, delimiter, ended)? else {
                return Ok(Cut::More);
            };
            at = field.range.end + 1;
            field
        } else {
            let start = at;
            match memchr::memchr3(delimiter, b'\n', b'\r', &text[at..]) {
                Some(length) => at += length,
                None if ended => at = text.len(),
                None => return Ok(Cut::More),
            }
            Field {
                range: start..at,
                coded: false,
            }
        };
        let blank = at == 0;
        fields.push(field);
        let end = match (text.get(at), text.get(at + 1)) {
            (Some(&byte), _) if byte == delimiter => {
                at += 1;
                continue;
            }
            (Some(b'\r'), None) if !ended => return Ok(Cut::More),
            (Some(b'\r'), Some(b'\n')) => at + 2,
            (Some(_), _) => at + 1,
            (None, _) => at,
        };
        return Ok(if blank { Cut::Blank(end) } else { Cut::Record(end) });
    }
}

/// The field whose opening quote stands at `open`; `None` where the text must go on.
fn quoted_field(text: &[u8], open: usize, delimiter: u8, ended: bool) -> Result<Option<Field>, Fault> {
    let (mut from, mut coded) = (open + 1, false);
    loop {
        let Some(length) = memchr::memchr(b'"', &text[from..]) else {
            return if ended { Err(unclosed(open)) } else { Ok(None) };
        };
        let close = from + length;
        match text.get(close + 1) {
            None if !ended => return Ok(None),
            Some(b'"') => {
                coded = true;
                from = close + 2;
            }
            Some(&byte) if byte != delimiter && byte != b'\n' && byte != b'\r' => {
                return Err(stray(open, byte));
            }
            _ => {
                let range = open + 1..close;
                return Ok(Some(Field { range, coded }));
            }
        }
    }
}

fn unclosed(open: usize) -> Fault {
    Fault {
        begins: open,
        expected: "a closing quote for the quote that begins a field here",
        got: "the end of the file; if quotes are letters in this file, --dialect plain (dialect = \"plain\") reads it".to_owned(),
        unclosed: true,
    }
}

fn stray(open: usize, byte: u8) -> Fault {
    let separator = match byte {
        b';' => Some("';'"),
        b'\t' => Some("'\\t'"),
        b'|' => Some("'|'"),
        b',' => Some("','"),
        _ => None,
    };
    Fault {
        begins: open,
        expected: "a separator or the end of the record after the closing quote of a field that begins here",
        got: match separator {
            Some(shown) => format!("{shown}; --delimiter {shown} (data.source.delimiter) separates fields by it"),
            None => "more text; a quote inside a quoted field is doubled, and --dialect plain (dialect = \"plain\") takes quotes for \
                     letters"
                .to_owned(),
        },
        unclosed: false,
    }
}

/// Cuts a record of a database dump: quotes are letters, and a backslash takes its meaning from the next letter.
fn dumped(text: &[u8], delimiter: u8, ended: bool, fields: &mut Vec<Field>) -> Result<Cut, Fault> {
    let (mut at, mut start, mut coded) = (0, 0, false);
    loop {
        let Some(length) = memchr::memchr3(delimiter, b'\n', b'\\', &text[at..]) else {
            return Ok(last_field(text, start, coded, ended, fields));
        };
        at += length;
        match text[at] {
            b'\\' if at + 1 == text.len() && ended => {
                return Err(Fault {
                    begins: at,
                    expected: "a letter after a backslash",
                    got: "the end of the file".to_owned(),
                    unclosed: false,
                });
            }
            b'\\' => {
                coded = true;
                // The next letter is no separator.
                at = (at + 2).min(text.len());
            }
            byte => {
                push_field(text, start..at, coded, byte == b'\n', fields);
                at += 1;
                (start, coded) = (at, false);
                if byte == b'\n' {
                    return Ok(line_cut(text, at, fields));
                }
            }
        }
    }
}

/// Cuts a record in which every byte but separators and ends of lines is a letter.
fn plain(text: &[u8], delimiter: u8, ended: bool, fields: &mut Vec<Field>) -> Result<Cut, Fault> {
    let mut start = 0;
    for at in memchr::memchr2_iter(delimiter, b'\n', text) {
        let ends = text[at] == b'\n';
        push_field(text, start..at, false, ends, fields);
        start = at + 1;
        if ends {
            return Ok(line_cut(text, start, fields));
        }
    }
    Ok(last_field(text, start, false, ended, fields))
}

/// Appends a field. A carriage return before the end of a line belongs to that end.
fn push_field(text: &[u8], range: Range<usize>, coded: bool, ends: bool, fields: &mut Vec<Field>) {
    let returns = ends && !range.is_empty() && text[range.end - 1] == b'\r';
    let range = range.start..range.end - usize::from(returns);
    fields.push(Field { range, coded });
}

fn last_field(text: &[u8], start: usize, coded: bool, ended: bool, fields: &mut Vec<Field>) -> Cut {
    if !ended {
        return Cut::More;
    }
    push_field(text, start..text.len(), coded, true, fields);
    line_cut(text, text.len(), fields)
}

fn line_cut(text: &[u8], end: usize, fields: &[Field]) -> Cut {
    match fields {
        [only] if only.range.is_empty() => Cut::Blank(end),
        [only] if only.coded && text[only.range.clone()] == *b"\\." => Cut::End(end),
        _ => Cut::Record(end),
    }
}

/// Appends the letters that the escapes of a dump stand for, as Postgres reads them.
fn unescape(raw: &[u8], letters: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(backslash) = memchr::memchr(b'\\', rest) {
        letters.extend_from_slice(&rest[..backslash]);
        let escape = rest.get(backslash + 1..).unwrap_or_default();
        let number = |digits: &[u8], radix| {
            let text = std::str::from_utf8(digits).unwrap_or_default();
            // Three octal digits may stand for more than a byte holds; Postgres keeps the low bits.
            u32::from_str_radix(text, radix).unwrap_or_default() as u8
        };
        let digits = |from: usize, most: usize, is: fn(&u8) -> bool| {
            let digits = escape.get(from..).unwrap_or_default();
            digits.iter().take(most).take_while(|byte| is(byte)).count()
        };
        let (letter, taken) = match escape {
            [b'b', ..] => (8, 1),
            [b'f', ..] => (12, 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'v', ..] => (11, 1),
            [b'0'..=b'7', ..] => {
                let length = digits(0, 3, |byte| (b'0'..=b'7').contains(byte));
                (number(&escape[..length], 8), length)
            }
            [b'x', digit, ..] if digit.is_ascii_hexdigit() => {
                let length = digits(1, 2, u8::is_ascii_hexdigit);
                (number(&escape[1..=length], 16), 1 + length)
            }
            [letter, ..] => (*letter, 1),
            [] => (b'\\', 0),
        };
        letters.push(letter);
        rest = &escape[taken..];
    }
    letters.extend_from_slice(rest);
}
