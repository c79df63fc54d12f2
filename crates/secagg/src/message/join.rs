//! Rounds 0 and 1, until a client knows its neighbours.

use super::Message;
use crate::bytes::{Reader, Writer};
use crate::context::{Digest32, PARAMS_BYTES, read_params, write_params};
use crate::error::Result;
use crate::roster::{Entry, path_len};
use crate::terms::Params;

/// Round 0, client to server: fresh keys under a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertiseKeys {
    /// Digest of the context that the client agrees to.
    pub context: Digest32,
    /// Its keys.
    pub entry: Entry,
}

impl Message for AdvertiseKeys {
    const KIND: u8 = 1;
    const NAME: &'static str = "keys";

    fn body_len(&self) -> usize {
        32 + Entry::BYTES
    }

    fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.context).bytes(&self.entry.to_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            context: reader.array()?,
            entry: Entry::from_bytes(&reader.array()?),
        })
    }
}

/// One neighbour's entry and its way to the roster's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Place in the roster.
    pub index: u32,
    /// Keys.
    pub entry: Entry,
    /// Siblings from the entry to the root.
    pub path: Vec<Digest32>,
}

/// Round 1, server to client: the part of the roster that the client needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster {
    /// Terms and graph.
    pub params: Params,
    /// The whole roster's root.
    pub root: Digest32,
    /// The receiver's place.
    pub index: u32,
    /// The receiver's own entry's siblings.
    pub path: Vec<Digest32>,
    /// Its neighbours, ascending.
    pub neighbours: Vec<Neighbour>,
}

fn read_path(reader: &mut Reader<'_>, len: usize) -> Result<Vec<Digest32>> {
    Ok(reader.slice(32 * len)?.as_chunks().0.to_vec())
}

impl Message for Roster {
    const KIND: u8 = 2;
    const NAME: &'static str = "roster";

    fn body_len(&self) -> usize {
        let path = 32 * self.path.len();
        PARAMS_BYTES + 32 + 4 + path + 4 + self.neighbours.len() * (4 + Entry::BYTES + path)
    }

    fn write(&self, writer: &mut Writer) {
        write_params(&self.params, writer);
        writer
            .bytes(&self.root)
            .u32(self.index)
            .bytes(self.path.as_flattened())
            .count(self.neighbours.len());
        for neighbour in &self.neighbours {
            writer
                .u32(neighbour.index)
                .bytes(&neighbour.entry.to_bytes())
                .bytes(neighbour.path.as_flattened());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let params = read_params(reader)?;
        let (root, index) = (reader.array()?, reader.u32()?);
        let len = path_len(params.topology().clients());
        let path = read_path(reader, len)?;
        let neighbour = |reader: &mut Reader<'_>| {
            Ok(Neighbour {
                index: reader.u32()?,
                entry: Entry::from_bytes(&reader.array()?),
                path: read_path(reader, len)?,
            })
        };
        let size = 4 + Entry::BYTES + 32 * len;
        let neighbours = reader.list(size, neighbour, |neighbour| neighbour.index)?;
        Ok(Self {
            params,
            root,
            index,
            path,
            neighbours,
        })
    }
}
