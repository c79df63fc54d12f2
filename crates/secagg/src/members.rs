//! A set of clients of a session, as one bit each.

use crate::bytes::{Reader, Writer};
use crate::error::Result;
use crate::terms::MAX_CLIENTS;

/// A subset of the clients `0 .. len`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    len: u32,
    bits: Vec<u8>,
}

impl Members {
    /// The empty subset of `len` clients.
    #[must_use]
    pub(crate) fn none(len: u32) -> Self {
        Self {
            len,
            bits: vec![0; len.div_ceil(8) as usize],
        }
    }

    /// The subset of the clients `0 .. len` for which `holds` returns `true`.
    pub fn of(len: u32, mut holds: impl FnMut(u32) -> bool) -> Self {
        let mut members = Self::none(len);
        for index in (0..len).filter(|index| holds(*index)) {
            members.bits[index as usize / 8] |= 1 << (index % 8);
        }
        members
    }

    /// Number of clients that could be members.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.len
    }

    /// Returns `true` if `index` is a member.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        index < self.len && self.bits[index as usize / 8] >> (index % 8) & 1 == 1
    }

    /// Number of members.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len).filter(|index| self.contains(*index))
    }

    /// Client `i` is bit `i % 8` of byte `i / 8`.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u32(self.len).bytes(&self.bits);
    }

    /// Bytes that [`write`](Self::write) appends.
    pub(crate) fn written_len(&self) -> usize {
        4 + self.bits.len()
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let len = reader.u32()?;
        if len > MAX_CLIENTS {
            return reader.refuse("names more clients than a session has");
        }
        let bits = reader.slice(len.div_ceil(8) as usize)?.to_vec();
        match bits.last() {
            Some(last) if len % 8 != 0 && last >> (len % 8) != 0 => {
                reader.refuse("has members after the last client")
            }
            _ => Ok(Self { len, bits }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_one_way() {
        for len in [0, 1, 7, 8, 9, 300] {
            let members = Members::of(len, |index| index % 3 == 0);
            assert!(members.iter().eq((0..len).step_by(3)));
            assert_eq!(members.count(), len.div_ceil(3));
            assert!(!members.contains(len) && !members.contains(u32::MAX));
            let mut writer = Writer::new(0);
            members.write(&mut writer);
            let bytes = writer.finish();
            assert_eq!(bytes.len(), members.written_len());
            assert_eq!(Members::read(&mut Reader::new("test", &bytes)), Ok(members));
        }
        let mut padded = 3u32.to_le_bytes().to_vec();
        padded.push(0b1000);
        assert!(Members::read(&mut Reader::new("test", &padded)).is_err());
        assert!(Members::read(&mut Reader::new("test", &[255; 9])).is_err());
    }
}
