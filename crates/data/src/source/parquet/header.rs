//! Page headers of a Parquet file, in Thrift's compact encoding: the few fields that say how much a page costs to read.

use std::io::Read;

/// The fields of a page header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: i64,
    /// Bytes of the header itself.
    pub(super) header: u64,
    pub(super) compressed: i64,
    pub(super) uncompressed: i64,
    pub(super) values: i64,
    pub(super) encoding: i64,
    /// Bytes of levels before the values of a page of version 2, which are never compressed.
    pub(super) levels: i64,
    /// The values are stored as they are, whatever the codec of the column.
    pub(super) stored: bool,
}

pub(super) const DATA_PAGE: i64 = 0;
pub(super) const DICTIONARY_PAGE: i64 = 2;
pub(super) const DATA_PAGE_V2: i64 = 3;

/// Nested structures deeper than this are no page header.
const MAX_DEPTH: u8 = 16;

/// Reads a header; `None` for bytes that are none.
pub(super) fn read(reader: impl Read) -> Option<Header> {
    let mut thrift = Compact { reader, read: 0 };
    let mut header = Header::default();
    let mut last = 0;
    while let Some((field, kind)) = thrift.field(&mut last)? {
        match (field, kind) {
            (1, I32) => header.kind = thrift.zigzag()?,
            (2, I32) => header.uncompressed = thrift.zigzag()?,
            (3, I32) => header.compressed = thrift.zigzag()?,
            // Data page, dictionary page, data page of version 2.
            (5 | 7 | 8, STRUCT) => {
                let mut last = 0;
                while let Some((inner, kind)) = thrift.field(&mut last)? {
                    match (field, inner, kind) {
                        (_, 1, I32) => header.values = thrift.zigzag()?,
                        (5 | 7, 2, I32) | (8, 4, I32) => header.encoding = thrift.zigzag()?,
                        (8, 5 | 6, I32) => {
                            let levels = thrift.zigzag()?;
                            header.levels = header.levels.checked_add(levels).filter(|_| levels >= 0)?;
                        }
                        (8, 7, FALSE) => header.stored = true,
                        _ => thrift.skip(kind, MAX_DEPTH)?,
                    }
                }
            }
            _ => thrift.skip(kind, MAX_DEPTH)?,
        }
    }
    header.header = thrift.read;
    Some(header)
}

/// `true` for the description of a file that names how its columns are encrypted.
pub(super) fn is_encrypted(description: impl Read) -> bool {
    let mut thrift = Compact {
        reader: description,
        read: 0,
    };
    let mut last = 0;
    while let Some(Some((field, kind))) = thrift.field(&mut last) {
        if field == 8 && kind == STRUCT {
            return true;
        }
        if thrift.skip(kind, MAX_DEPTH).is_none() {
            return false;
        }
    }
    false
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I32: u8 = 5;
const STRUCT: u8 = 12;

struct Compact<R> {
    reader: R,
    read: u64,
}

impl<R: Read> Compact<R> {
    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte).ok()?;
        self.read += 1;
        Some(byte[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        let copied = std::io::copy(&mut self.reader.by_ref().take(count), &mut std::io::sink()).ok()?;
        self.read += copied;
        (copied == count).then_some(())
    }

    /// The next field of a structure: its number and type. The inner `None` is the end of the structure.
    fn field(&mut self, last: &mut i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let number = match byte >> 4 {
            0 => self.zigzag()?,
            delta => last.checked_add(i64::from(delta))?,
        };
        // Fields come in order, so none comes twice.
        if number <= *last {
            return None;
        }
        *last = number;
        Some(Some((number, byte & 15)))
    }

    /// Passes over the value of a field.
    fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            3 => self.bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.bytes(8),
            8 => {
                let length = self.varint()?;
                self.bytes(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    self.item(head & 15, depth)?;
                }
                Some(())
            }
            11 => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.item(kinds >> 4, depth)?;
                    self.item(kinds & 15, depth)?;
                }
                Some(())
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Passes over an item of a collection, where a boolean takes a byte.
    fn item(&mut self, kind: u8, depth: u8) -> Option<()> {
        match kind {
            TRUE | FALSE => self.bytes(1),
            _ => self.skip(kind, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_whole_or_not_at_all() {
        // Type 0, 300 bytes, 20 bytes, a checksum, then a page of 7 values in encoding 8.
        let bytes = [
            0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x15, 0x02, 0x1c, 0x15, 0x0e, 0x15, 0x10, 0, 0,
        ];
        let header = read(&bytes[..]).expect("a header");
        let expected = Header {
            kind: DATA_PAGE,
            header: bytes.len() as u64,
            compressed: 20,
            uncompressed: 300,
            values: 7,
            encoding: 8,
            ..Header::default()
        };
        assert_eq!(header, expected);
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length}");
        }
        // The same field twice, and a list that claims more than there is.
        assert_eq!(read(&[0x15, 0, 0x05, 0x02, 0, 0][..]), None);
        assert_eq!(read(&[0x19, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0][..]), None);
    }
}
