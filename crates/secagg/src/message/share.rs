//! Shares of a client's secrets, sealed for each of its neighbours.

use super::{HEAD_BYTES, Message, read_head, write_head};
use crate::bytes::{Reader, Writer};
use crate::context::{Digest32, SessionId};
use crate::error::Result;
use crate::seal::SEALED_BYTES;

/// Two shares for, or from, one neighbour, that only the receiver can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedShares {
    /// The neighbour.
    pub index: u32,
    /// Ciphertext and tag.
    pub sealed: [u8; SEALED_BYTES],
}

fn write_list(list: &[SealedShares], writer: &mut Writer) {
    writer.count(list.len());
    for shares in list {
        writer.u32(shares.index).bytes(&shares.sealed);
    }
}

fn read_list(reader: &mut Reader<'_>) -> Result<Vec<SealedShares>> {
    let shares = |reader: &mut Reader<'_>| {
        Ok(SealedShares {
            index: reader.u32()?,
            sealed: reader.array()?,
        })
    };
    reader.list(4 + SEALED_BYTES, shares, |shares| shares.index)
}

/// Round 1, client to server: shares for every neighbour, and the commitment to the client's own mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareKeys {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub index: u32,
    /// Commitment to the seed of its own mask.
    pub commitment: Digest32,
    /// Sealed shares by receiver, ascending.
    pub shares: Vec<SealedShares>,
}

impl Message for ShareKeys {
    const KIND: u8 = 3;
    const NAME: &'static str = "shares";

    fn body_len(&self) -> usize {
        HEAD_BYTES + 32 + 4 + self.shares.len() * (4 + SEALED_BYTES)
    }

    fn write(&self, writer: &mut Writer) {
        write_head(&self.session, self.index, writer);
        writer.bytes(&self.commitment);
        write_list(&self.shares, writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (session, index) = read_head(reader)?;
        Ok(Self {
            session,
            index,
            commitment: reader.array()?,
            shares: read_list(reader)?,
        })
    }
}

/// Round 2, server to client: the shares that the remaining neighbours sealed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedShares {
    /// The session.
    pub session: SessionId,
    /// The receiver.
    pub index: u32,
    /// Sealed shares by sender, ascending.
    pub shares: Vec<SealedShares>,
}

impl Message for RelayedShares {
    const KIND: u8 = 4;
    const NAME: &'static str = "relayed shares";

    fn body_len(&self) -> usize {
        HEAD_BYTES + 4 + self.shares.len() * (4 + SEALED_BYTES)
    }

    fn write(&self, writer: &mut Writer) {
        write_head(&self.session, self.index, writer);
        write_list(&self.shares, writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (session, index) = read_head(reader)?;
        Ok(Self {
            session,
            index,
            shares: read_list(reader)?,
        })
    }
}
