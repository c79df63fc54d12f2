//! Reading and writing canonical bytes: little-endian integers, counted entries, nothing left over.

use crate::error::{Result, SecAggError};

/// A cursor over a message that never reads past the end and never allocates.
#[expect(missing_debug_implementations, reason = "PRIVACY: messages carry shares")]
pub struct Reader<'a> {
    message: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            message,
            bytes,
            at: 0,
        }
    }

    pub(crate) fn refuse<T>(&self, reason: &'static str) -> Result<T> {
        Err(SecAggError::Encoding {
            message: self.message,
            reason,
            at: self.at,
        })
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns `true` if every byte has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.remaining() == 0
    }

    pub(crate) fn slice(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return self.refuse("ends too early");
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut taken = [0; N];
        taken.copy_from_slice(self.slice(N)?);
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of entries of `size` bytes each, refused unless that many bytes are there: what is allocated for the
    /// entries is then at most a quarter more than the message itself.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        match count.checked_mul(size) {
            Some(bytes) if bytes <= self.remaining() => Ok(count),
            _ => self.refuse("counts more entries than it holds"),
        }
    }

    /// A list with its count in front, whose entries have `size` bytes each and ascend by `index`. Others would be a second
    /// encoding, or name someone twice.
    pub(crate) fn list<T>(
        &mut self,
        size: usize,
        entry: impl Fn(&mut Self) -> Result<T>,
        index: impl Fn(&T) -> u32,
    ) -> Result<Vec<T>> {
        let count = self.count(size)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(entry(self)?);
        }
        match list.is_sorted_by(|one, next| index(one) < index(next)) {
            true => Ok(list),
            false => self.refuse("lists indices out of order or twice"),
        }
    }

    /// Every byte has been read.
    pub(crate) fn finish(self) -> Result<()> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            self.refuse("goes on after its end")
        }
    }
}

/// A buffer that a message is written to.
#[expect(missing_debug_implementations, reason = "PRIVACY: messages carry shares")]
pub struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A count of entries; lists are no longer than a session's clients, which fit.
    pub(crate) fn count(&mut self, entries: usize) -> &mut Self {
        self.u32(entries as u32)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::new(0);
        writer
            .u8(7)
            .u32(1 << 30)
            .u64(1 << 60)
            .count(2)
            .bytes(&[1, 2, 3, 4]);
        let bytes = writer.finish();
        let mut reader = Reader::new("test", &bytes);
        assert_eq!(
            (reader.u8(), reader.u32(), reader.u64()),
            (Ok(7), Ok(1 << 30), Ok(1 << 60))
        );
        assert_eq!(reader.count(2), Ok(2));
        assert_eq!(reader.array(), Ok([1, 2, 3, 4]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn counts_beyond_the_message_and_trailing_bytes_are_refused() {
        let bytes = u32::MAX.to_le_bytes();
        let error = Reader::new("test", &bytes).count(usize::MAX).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: counts more entries than it holds at byte 4"
        );
        assert!(Reader::new("test", &[2, 0, 0, 0, 9]).count(1).is_err());
        assert!(Reader::new("test", &[1]).u32().is_err());
        assert!(Reader::new("test", &[1]).finish().is_err());
    }
}
