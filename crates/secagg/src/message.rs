//! The messages between clients and the server, and their bytes.
//!
//! Every message is a version byte, a kind byte and fields of fixed order: integers little-endian, lists with a count in
//! front and their entries in ascending order of index. A value has one encoding, and decoding accepts nothing else: no
//! byte may be left over, and no list is allocated before the bytes for it are known to be there.

mod join;
mod share;
mod unmask;
mod upload;

pub use join::{AdvertiseKeys, Neighbour, Roster};
pub use share::{RelayedShares, SealedShares, ShareKeys};
pub use unmask::{Consistency, GivenBytes, GivenShare, Unmask, UnmaskShares};
pub use upload::{MaskedInput, MaskedInputRef, Survivors};

use crate::bytes::{Reader, Writer};
use crate::context::{PROTOCOL_VERSION, SessionId};
use crate::error::{Result, SecAggError};
use crate::roster::Entry;
use crate::seal::SEALED_BYTES;
use crate::shamir::SHARE_BYTES;

/// A message with its canonical bytes.
///
/// ```
/// use undertone_secagg::message::{Consistency, Message};
/// let bytes = [[1, 7].as_slice(), &[0; 32], &[5, 0, 0, 0], &[9; 64]].concat();
/// let message = Consistency::decode(&bytes)?;
/// assert_eq!((message.index, message.encode()), (5, bytes.clone()));
/// assert!(Consistency::decode(&bytes[1..]).is_err());
/// # Ok::<(), undertone_secagg::SecAggError>(())
/// ```
pub trait Message: Sized {
    /// The kind byte.
    const KIND: u8;
    /// The name in errors.
    const NAME: &'static str;

    /// The canonical bytes.
    #[must_use]
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.body_len() + 2);
        writer.u8(PROTOCOL_VERSION).u8(Self::KIND);
        self.write(&mut writer);
        writer.finish()
    }

    /// The message behind `bytes`.
    ///
    /// # Errors
    /// [`SecAggError::Header`] for another version or kind, [`SecAggError::Encoding`] for anything but the canonical bytes,
    /// and what the fields themselves refuse.
    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = read_header::<Self>(bytes)?;
        let message = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(message)
    }

    #[doc(hidden)]
    fn body_len(&self) -> usize;
    #[doc(hidden)]
    fn write(&self, writer: &mut Writer);
    #[doc(hidden)]
    fn read(reader: &mut Reader<'_>) -> Result<Self>;
}

/// A reader behind the version and kind of a message.
fn read_header<M: Message>(bytes: &[u8]) -> Result<Reader<'_>> {
    let mut reader = Reader::new(M::NAME, bytes);
    let (version, kind) = (reader.u8()?, reader.u8()?);
    if (version, kind) == (PROTOCOL_VERSION, M::KIND) {
        return Ok(reader);
    }
    Err(SecAggError::Header {
        expected: M::NAME,
        version,
        kind,
    })
}

/// The largest memory of a decoded list entry is a quarter above its bytes on the wire.
const _: () = {
    assert!(4 * size_of::<(u32, GivenShare)>() <= 5 * (4 + 1 + SHARE_BYTES));
    assert!(4 * size_of::<SealedShares>() <= 5 * (4 + SEALED_BYTES));
    assert!(4 * size_of::<(u32, [u8; 64])>() <= 5 * (4 + 64));
    // A neighbour has a path of one hash at least, whose bytes lie apart.
    assert!(4 * (size_of::<Neighbour>() + 32) <= 5 * (4 + Entry::BYTES + 32));
};

/// Session and sender or receiver, which stand first in all messages but the first two.
const HEAD_BYTES: usize = 32 + 4;

fn write_head(session: &SessionId, index: u32, writer: &mut Writer) {
    writer.bytes(session.as_bytes()).u32(index);
}

fn read_head(reader: &mut Reader<'_>) -> Result<(SessionId, u32)> {
    Ok((SessionId(reader.array()?), reader.u32()?))
}
