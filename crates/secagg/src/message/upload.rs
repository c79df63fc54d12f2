//! The masked vector, and who is in the sum.

use super::{HEAD_BYTES, Message, read_head, read_header, write_head};
use crate::bytes::{Reader, Writer};
use crate::context::SessionId;
use crate::error::Result;
use crate::members::Members;

/// Round 2, client to server: its vector under all its masks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedInput {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub index: u32,
    /// Residues, densely packed ([`undertone_aggregation::pack`]).
    pub packed: Vec<u8>,
}

impl Message for MaskedInput {
    const KIND: u8 = 5;
    const NAME: &'static str = "masked input";

    fn body_len(&self) -> usize {
        HEAD_BYTES + 8 + self.packed.len()
    }

    fn write(&self, writer: &mut Writer) {
        write_head(&self.session, self.index, writer);
        writer.u64(self.packed.len() as u64).bytes(&self.packed);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let MaskedInputRef {
            session,
            index,
            packed,
        } = MaskedInputRef::read(reader)?;
        Ok(Self {
            session,
            index,
            packed: packed.to_vec(),
        })
    }
}

/// A [`MaskedInput`] whose residues stay in the bytes that were received. A server that adds them copies none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedInputRef<'a> {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub index: u32,
    /// Residues, densely packed ([`undertone_aggregation::pack`]).
    pub packed: &'a [u8],
}

impl<'a> MaskedInputRef<'a> {
    /// The message behind `bytes`, without a copy of them.
    ///
    /// # Errors
    /// The errors of [`MaskedInput::decode`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = read_header::<MaskedInput>(bytes)?;
        let input = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(input)
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self> {
        let (session, index) = read_head(reader)?;
        let Ok(len) = usize::try_from(reader.u64()?) else {
            return reader.refuse("is longer than memory");
        };
        Ok(Self {
            session,
            index,
            packed: reader.slice(len)?,
        })
    }
}

/// Round 2.5, server to client in an active session: the clients whose vectors are in the sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivors {
    /// The session.
    pub session: SessionId,
    /// The clients whose vectors arrived.
    pub survivors: Members,
}

impl Message for Survivors {
    const KIND: u8 = 6;
    const NAME: &'static str = "survivors";

    fn body_len(&self) -> usize {
        32 + self.survivors.written_len()
    }

    fn write(&self, writer: &mut Writer) {
        writer.bytes(self.session.as_bytes());
        self.survivors.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            session: SessionId(reader.array()?),
            survivors: Members::read(reader)?,
        })
    }
}
