//! Agreement on who survived, and the shares that take the masks off their sum.

use super::{HEAD_BYTES, Message, read_head, write_head};
use crate::bytes::{Reader, Writer};
use crate::context::SessionId;
use crate::error::Result;
use crate::members::Members;
use crate::shamir::{SHARE_BYTES, Share};

/// Round 2.5, client to server: the sender's signature of the set of survivors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consistency {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub index: u32,
    /// Ed25519 signature of session and survivors.
    pub signature: [u8; 64],
}

impl Message for Consistency {
    const KIND: u8 = 7;
    const NAME: &'static str = "signature of survivors";

    fn body_len(&self) -> usize {
        HEAD_BYTES + 64
    }

    fn write(&self, writer: &mut Writer) {
        write_head(&self.session, self.index, writer);
        writer.bytes(&self.signature);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (session, index) = read_head(reader)?;
        Ok(Self {
            session,
            index,
            signature: reader.array()?,
        })
    }
}

/// Round 3, server to client: the set of survivors, and in an active session the neighbours' signatures of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmask {
    /// The session.
    pub session: SessionId,
    /// The clients whose vectors are in the sum.
    pub survivors: Members,
    /// Signatures by neighbour, ascending; none in an honest-but-curious session.
    pub signatures: Vec<(u32, [u8; 64])>,
}

impl Message for Unmask {
    const KIND: u8 = 8;
    const NAME: &'static str = "request to unmask";

    fn body_len(&self) -> usize {
        32 + self.survivors.written_len() + 4 + self.signatures.len() * (4 + 64)
    }

    fn write(&self, writer: &mut Writer) {
        writer.bytes(self.session.as_bytes());
        self.survivors.write(writer);
        writer.count(self.signatures.len());
        for (index, signature) in &self.signatures {
            writer.u32(*index).bytes(signature);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let session = SessionId(reader.array()?);
        let survivors = Members::read(reader)?;
        let signature = |reader: &mut Reader<'_>| Ok((reader.u32()?, reader.array()?));
        let signatures = reader.list(4 + 64, signature, |(index, _)| *index)?;
        Ok(Self {
            session,
            survivors,
            signatures,
        })
    }
}

/// One share that a client gives away: of a survivor's own mask, or of a lost neighbour's masking key.
///
/// PRIVACY: it is one value about one neighbour, so an answer cannot hold both kinds.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "PRIVACY: a share of a secret")]
pub enum GivenShare {
    /// A share of the seed of a survivor's own mask.
    Seed(GivenBytes),
    /// A share of the secret masking key of a client that is not in the sum.
    MaskingKey(GivenBytes),
}

/// A share's bytes, which only this crate reads.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "PRIVACY: a share of a secret")]
pub struct GivenBytes(pub(crate) Share);

impl GivenShare {
    pub(crate) fn share(&self) -> &Share {
        match self {
            Self::Seed(share) | Self::MaskingKey(share) => &share.0,
        }
    }
}

/// Round 3, client to server: one share about every neighbour whose shares the client could open.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "PRIVACY: shares of secrets")]
pub struct UnmaskShares {
    /// The session.
    pub session: SessionId,
    /// The sender.
    pub index: u32,
    /// Given shares by neighbour, ascending.
    pub shares: Vec<(u32, GivenShare)>,
}

impl Message for UnmaskShares {
    const KIND: u8 = 9;
    const NAME: &'static str = "shares to unmask";

    fn body_len(&self) -> usize {
        HEAD_BYTES + 4 + self.shares.len() * (4 + 1 + SHARE_BYTES)
    }

    fn write(&self, writer: &mut Writer) {
        write_head(&self.session, self.index, writer);
        writer.count(self.shares.len());
        for (index, share) in &self.shares {
            let kind = match share {
                GivenShare::Seed(_) => 0,
                GivenShare::MaskingKey(_) => 1,
            };
            writer
                .u32(*index)
                .u8(kind)
                .bytes(share.share().to_bytes().as_ref());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (session, index) = read_head(reader)?;
        let given = |reader: &mut Reader<'_>| {
            let (about, kind) = (reader.u32()?, reader.u8()?);
            let share = GivenBytes(Share::from_bytes(&reader.array()?)?);
            match kind {
                0 => Ok((about, GivenShare::Seed(share))),
                1 => Ok((about, GivenShare::MaskingKey(share))),
                _ => reader.refuse("gives a share of no known kind"),
            }
        };
        let shares = reader.list(4 + 1 + SHARE_BYTES, given, |(about, _)| *about)?;
        Ok(Self {
            session,
            index,
            shares,
        })
    }
}
