//! The content of a file of text: as it lies there, or unpacked where it is gzip, zstd or zip.
//!
//! The first bytes decide, not the name. A file that holds something else than text is refused by what it is.

use std::cell::Cell;
use std::fs::File;
#[cfg(feature = "tables")]
use std::io::Seek;
use std::io::{Cursor, Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
#[cfg(feature = "tables")]
use zip::{ZipArchive, result::ZipError};
#[cfg(feature = "tables")]
use zstd::stream::read::Decoder as ZstdDecoder;

use super::expansion::{max_expanded, too_large};
use super::files;
use super::foreign::{self, Foreign};
#[cfg(not(feature = "tables"))]
use crate::error::DataError;
#[cfg(feature = "tables")]
use crate::error::no_files;
use crate::error::{Result, io, short};

/// Bytes at the start of a file that tell what it holds.
const HEAD_BYTES: u64 = 512;
/// Maximum window of zstd: 2 to this power bytes of memory, the most that `zstd` writes without `--long`.
const MAX_WINDOW_LOG: u32 = 27;
/// The mark with which some programs begin a text in UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file, or a file in a zip archive, whose content is text. Reading gives the content without its byte-order mark.
pub(crate) struct Coded<'a> {
    path: PathBuf,
    extension: String,
    markup: Option<Foreign>,
    content: Box<dyn Read + 'a>,
}

impl Coded<'_> {
    /// Content in memory.
    #[cfg(test)]
    pub(crate) fn of_bytes(name: &str, bytes: Vec<u8>) -> Result<Self> {
        opened(Path::new(name), None, Box::new(Cursor::new(bytes)))
    }

    /// The name of the content for errors: the path of the file, and below it the name of the entry of an archive.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The ending of a name that tells the format; an entry without one has that of its archive.
    pub(crate) fn extension(&self) -> &str {
        &self.extension
    }

    /// Refuses HTML and XML, for formats whose files never begin like those.
    pub(crate) fn refuse_markup(&self) -> Result<()> {
        match self.markup {
            Some(foreign) => Err(foreign.error(&self.path)),
            None => Ok(()),
        }
    }
}

impl Read for Coded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.content.read(buffer)
    }
}

/// Hands over the content of a file. Of a zip archive these are the files in it whose names have one of these endings, in the order
/// of their names, or all of them where no endings are given. An archive of one file hands over that one.
///
/// The unpacked content is bounded: [`max_expanded`] bytes for the whole file.
pub(crate) fn each(
    path: &Path,
    extensions: &[&str],
    read: &mut dyn FnMut(Coded<'_>) -> Result<()>,
) -> Result<()> {
    let mut file = File::open(path).map_err(io("read", path))?;
    let size = file.metadata().map_err(io("read", path))?.len();
    let head = head(&mut file).map_err(io("read", path))?;
    let bound = Bound {
        left: Rc::new(Cell::new(max_expanded(size))),
        size,
    };
    let coding = Coding::of(&head);
    let start = Cursor::new(head);
    let content: Box<dyn Read> = match coding {
        #[cfg(feature = "tables")]
        Coding::Zip => return each_entry(file, path, &bound, extensions, read),
        Coding::Plain => Box::new(start.chain(file)),
        Coding::Gzip => bound.unpacked("gzip", MultiGzDecoder::new(start.chain(file))),
        #[cfg(feature = "tables")]
        Coding::Zstd => {
            let mut decoder = ZstdDecoder::new(start.chain(file)).map_err(io("read", path))?;
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(io("read", path))?;
            bound.unpacked("zstd", decoder)
        }
        #[cfg(not(feature = "tables"))]
        Coding::Zip | Coding::Zstd => {
            let _ = extensions;
            return Err(DataError::NotInThisBuild {
                path: Some(path.to_owned()),
                what: "zip archives and files of zstd",
            });
        }
    };
    read(opened(path, None, content)?)
}

#[cfg(feature = "tables")]
fn each_entry(
    mut file: File,
    path: &Path,
    bound: &Bound,
    extensions: &[&str],
    read: &mut dyn FnMut(Coded<'_>) -> Result<()>,
) -> Result<()> {
    let failed = |error: ZipError| io("read", path)(damaged("zip", &Error::other(error)));
    file.rewind().map_err(io("read", path))?;
    let mut archive = ZipArchive::new(file).map_err(failed)?;
    let mut entries = Vec::new();
    for index in 0..archive.len() {
        let Some(name) = archive.name_for_index(index) else {
            continue;
        };
        let name = name.map_err(failed)?.into_owned();
        if let Some(foreign) = foreign::document_with(&name) {
            return Err(foreign.error(path));
        }
        let hidden = name.split(['/', '\\']).any(|part| part.starts_with(['.', '_']));
        if !name.ends_with(['/', '\\']) && !hidden {
            entries.push((name, index));
        }
    }
    entries.sort_unstable();
    let wanted = |name: &str| {
        let (_, extension) = name.rsplit_once('.').unwrap_or_default();
        extensions.is_empty() || extensions.contains(&extension)
    };
    if entries.len() > 1 {
        entries.retain(|(name, _)| wanted(name));
    }
    if entries.is_empty() {
        return Err(no_files(path, extensions));
    }
    for (name, index) in entries {
        let content = archive.by_index(index).map_err(failed)?;
        read(opened(path, Some(&name), bound.unpacked("zip", content))?)?;
    }
    Ok(())
}

/// Looks at the first bytes of unpacked content of a file, or of an entry of an archive.
fn opened<'a>(file: &Path, entry: Option<&str>, mut content: Box<dyn Read + 'a>) -> Result<Coded<'a>> {
    let path = match entry {
        Some(name) => PathBuf::from(format!("{}/{}", file.display(), short(name))),
        None => file.to_owned(),
    };
    let own = entry.map(|name| files::extension(Path::new(name)));
    let extension = own
        .filter(|own| !own.is_empty())
        .unwrap_or_else(|| files::extension(file));
    let mut head = head(&mut content).map_err(io("read", &path))?;
    if let Some(foreign) = foreign::of(&head) {
        return Err(foreign.error(&path));
    }
    let markup = foreign::markup(&head);
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(Coded {
        path,
        extension: extension.to_owned(),
        markup,
        content: Box::new(Cursor::new(head).chain(content)),
    })
}

fn head(content: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES as usize);
    content.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// The packing of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Plain,
    Gzip,
    Zstd,
    Zip,
}

impl Coding {
    fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or one that readers skip.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            // An archive with entries, or an empty one.
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Self::Zip,
            _ => Self::Plain,
        }
    }
}

/// About how many bytes of text a file unpacks to. Text packs to a fifth or less.
pub(crate) fn unpacked_bytes(path: &Path) -> Result<u64> {
    let mut file = File::open(path).map_err(io("read", path))?;
    let size = file.metadata().map_err(io("read", path))?.len();
    let head = head(&mut file).map_err(io("read", path))?;
    Ok(match Coding::of(&head) {
        Coding::Plain => size,
        Coding::Gzip | Coding::Zstd | Coding::Zip => size.saturating_mul(5),
    })
}

/// The bytes that a file may still unpack to.
struct Bound {
    left: Rc<Cell<u64>>,
    size: u64,
}

impl Bound {
    fn unpacked<'a>(&self, coding: &'static str, inner: impl Read + 'a) -> Box<dyn Read + 'a> {
        Box::new(Unpacked {
            inner,
            coding,
            left: self.left.clone(),
            size: self.size,
        })
    }
}

struct Unpacked<R> {
    inner: R,
    coding: &'static str,
    left: Rc<Cell<u64>>,
    size: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = match self.inner.read(buffer) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(damaged(self.coding, &error)),
            other => other?,
        };
        let left = self.left.get().checked_sub(read as u64);
        let left = left.ok_or_else(|| Error::other(format!("{} of {} bytes", too_large(), self.size)))?;
        self.left.set(left);
        Ok(read)
    }
}

fn damaged(coding: &str, error: &Error) -> Error {
    let detail = error.to_string();
    Error::other(match detail.contains("requires too much memory") {
        true => format!(
            "its zstd window is larger than {} MiB; `zstd -d --long=31` unpacks it",
            1_u64 << (MAX_WINDOW_LOG - 20)
        ),
        false => format!("its {coding} content is damaged or cut off ({detail})"),
    })
}

#[cfg(test)]
mod tests;
