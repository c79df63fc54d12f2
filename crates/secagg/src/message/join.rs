//! Rounds 0 and 1, until a client knows its neighbours.

use super::Message;
use crate::bytes::{Reader, Writer};
use crate::certificate::{Certificate, MAX_CERTIFICATE_BYTES};
use crate::context::{Digest32, PARAMS_BYTES, read_params, write_params};
use crate::error::Result;
use crate::roster::{Entry, path_len};
use crate::terms::Params;

/// Round 0, client to server: fresh keys under a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertiseKeys {
    /// Digest of the context that the client agrees to.
    pub context: Digest32,
    /// Keys of the client.
    pub entry: Entry,
}

impl Message for AdvertiseKeys {
    const KIND: u8 = 1;
    const NAME: &'static str = "keys";

    fn body_len(&self) -> usize {
        32 + Entry::BYTES + certificates_len([&self.entry])
    }

    fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.context).bytes(&self.entry.to_bytes());
        write_certificates([&self.entry], writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let context = reader.array()?;
        let mut entry = Entry::from_bytes(&reader.array()?);
        read_certificates([&mut entry], reader)?;
        Ok(Self { context, entry })
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
    /// The receiver's neighbours, ascending.
    pub neighbours: Vec<Neighbour>,
}

impl Roster {
    fn entries(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.neighbours.iter().map(|neighbour| &neighbour.entry)
    }
}

/// Bytes of the certificates of `entries`: none where no entry has one, so that messages without certificates stay as they
/// were before there were any.
fn certificates_len<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> usize {
    let lengths = entries.into_iter().map(certificate_len);
    let (count, bytes) = lengths.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
    if bytes == 0 { 0 } else { 2 * count + bytes }
}

fn certificate_len(entry: &Entry) -> usize {
    let certificate = entry.certificate.as_ref();
    certificate.map_or(0, |certificate| certificate.as_bytes().len())
}

/// Writes each certificate behind its length in two bytes, which is 0 for an entry without one; nothing if no entry has one.
fn write_certificates<'a>(entries: impl IntoIterator<Item = &'a Entry> + Clone, writer: &mut Writer) {
    if certificates_len(entries.clone()) == 0 {
        return;
    }
    for entry in entries {
        // A certificate is at most 512 bytes long.
        writer.u16(certificate_len(entry) as u16);
        writer.bytes(entry.certificate.as_ref().map_or(&[], Certificate::as_bytes));
    }
}

/// Reads certificates into their entries, where bytes are left.
fn read_certificates<'a>(
    entries: impl IntoIterator<Item = &'a mut Entry>,
    reader: &mut Reader<'_>,
) -> Result<()> {
    if reader.is_at_end() {
        return Ok(());
    }
    let mut found = false;
    for entry in entries {
        let len = usize::from(reader.u16()?);
        if len > MAX_CERTIFICATE_BYTES {
            return reader.refuse("has a certificate above 512 bytes");
        }
        let bytes = reader.slice(len)?;
        if !bytes.is_empty() {
            entry.certificate = Some(Certificate::new(bytes)?);
            found = true;
        }
    }
    if found {
        Ok(())
    } else {
        reader.refuse("has empty certificates only, which must be left out")
    }
}

fn read_path(reader: &mut Reader<'_>, len: usize) -> Result<Vec<Digest32>> {
    Ok(reader.slice(32 * len)?.as_chunks().0.to_vec())
}

impl Message for Roster {
    const KIND: u8 = 2;
    const NAME: &'static str = "roster";

    fn body_len(&self) -> usize {
        let path = 32 * self.path.len();
        let neighbours = self.neighbours.len() * (4 + Entry::BYTES + path);
        PARAMS_BYTES + 32 + 4 + path + 4 + neighbours + certificates_len(self.entries())
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
        write_certificates(self.entries(), writer);
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
        let mut neighbours = reader.list(size, neighbour, |neighbour| neighbour.index)?;
        read_certificates(
            neighbours.iter_mut().map(|neighbour| &mut neighbour.entry),
            reader,
        )?;
        Ok(Self {
            params,
            root,
            index,
            path,
            neighbours,
        })
    }
}
