//! The files of an export: one file, the files below a folder, or those of a zip archive.
//!
//! SECURITY: nothing is ever unpacked to a disk. Links below a folder are refused, so no file outside of the export is read. A member of an
//! archive is read under a bound on its size, and all members together under one on the whole.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::{DataError, Place, Result, bad_value, empty, io, quoted};
use crate::file::is_record;
use crate::source::expansion::max_expanded;

/// Maximum number of files below a folder or in an archive.
const MAX_FILES: usize = 2_000_000;
/// Maximum depth of folders.
const MAX_DEPTH: usize = 32;
/// The first bytes of a zip archive.
const ZIP: &[u8] = b"PK\x03\x04";

/// The files of an export, in the order of their names.
pub(super) struct Tree {
    root: PathBuf,
    /// Names below the root, with `/` between folders.
    names: Vec<String>,
    kind: Kind,
}

enum Kind {
    File,
    Folder,
    Zip {
        archive: ZipArchive<BufReader<File>>,
        members: HashMap<String, usize>,
        /// Bytes that may still be decoded.
        left: u64,
        allowed: u64,
    },
}

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Tree> {
        let entry = fs::metadata(path).map_err(io("read", path))?;
        if entry.is_dir() {
            return Tree::folder(path);
        }
        if !entry.is_file() {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(io("read", path)(source));
        }
        let mut file = File::open(path).map_err(io("read", path))?;
        let mut head = Vec::with_capacity(ZIP.len());
        let read = (&mut file).take(ZIP.len() as u64).read_to_end(&mut head);
        read.map_err(io("read", path))?;
        if head == ZIP {
            return Tree::zip(path, file, entry.len());
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Tree {
            root: path.to_owned(),
            names: vec![name],
            kind: Kind::File,
        })
    }

    fn folder(root: &Path) -> Result<Tree> {
        let mut names = Vec::new();
        let mut folders = vec![(root.to_owned(), String::new(), 0)];
        while let Some((folder, prefix, depth)) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(io("read", &folder))? {
                let entry = entry.map_err(io("read", &folder))?;
                let below = entry.path();
                let kind = entry.file_type().map_err(io("read", &below))?;
                let place = below.clone();
                let refused =
                    |expected: &str, got: &str| bad_value(place, Place::Row(1), "file", expected, got);
                if is_record(&entry.file_name()) {
                    continue;
                }
                let Ok(name) = entry.file_name().into_string() else {
                    return Err(refused("a name in UTF-8", "other bytes"));
                };
                let name = format!("{prefix}{name}");
                if kind.is_dir() {
                    if depth == MAX_DEPTH {
                        return Err(refused(
                            &format!("at most {MAX_DEPTH} folders inside one another"),
                            "more",
                        ));
                    }
                    folders.push((below, name + "/", depth + 1));
                } else if kind.is_file() {
                    names.push(name);
                } else {
                    let expected = "a file or a folder: an export has no links; copy what the link leads to";
                    return Err(refused(
                        expected,
                        if kind.is_symlink() {
                            "a link"
                        } else {
                            "a pipe or a device"
                        },
                    ));
                }
                if names.len() > MAX_FILES {
                    return Err(refused(&format!("at most {MAX_FILES} files"), "more"));
                }
            }
        }
        names.sort_unstable();
        Ok(Tree {
            root: root.to_owned(),
            names,
            kind: Kind::Folder,
        })
    }

    fn zip(path: &Path, file: File, size: u64) -> Result<Tree> {
        let failed = |error: ZipError| bad_zip(path, &error);
        let archive = ZipArchive::new(BufReader::new(file)).map_err(failed)?;
        if archive.len() > MAX_FILES {
            let got = archive.len().to_string();
            return Err(bad_value(
                path,
                Place::Row(1),
                "archive",
                format!("at most {MAX_FILES} files"),
                got,
            ));
        }
        let mut members = HashMap::new();
        for index in 0..archive.len() {
            let Some(name) = archive.name_for_index(index) else {
                continue;
            };
            let name = name.map_err(failed)?.into_owned();
            if !name.ends_with('/') && members.insert(name.clone(), index).is_some() {
                let got = format!("{} twice", quoted(&name));
                return Err(bad_value(path, Place::Row(1), "archive", "each name once", got));
            }
        }
        let mut names: Vec<String> = members.keys().cloned().collect();
        names.sort_unstable();
        let allowed = max_expanded(size);
        Ok(Tree {
            root: path.to_owned(),
            names,
            kind: Kind::Zip {
                archive,
                members,
                left: allowed,
                allowed,
            },
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The names of the files below the root. The one of a single file is its own.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The names with one of these endings, in lower case. A file that was named itself is always taken.
    pub(super) fn with_endings(&self, endings: &[&str]) -> Vec<String> {
        let fits = |name: &&String| {
            let lower = name.to_lowercase();
            // Programs of Apple put files of their own into archives.
            !lower.starts_with("__macosx/") && endings.iter().any(|ending| lower.ends_with(ending))
        };
        match self.kind {
            Kind::File => self.names.clone(),
            _ => self.names.iter().filter(fits).cloned().collect(),
        }
    }

    /// Files that are read as streams, each by its path. An archive is one of them, since the reader of streams opens it.
    pub(super) fn streams(&self, endings: &[&str], expected: &'static str) -> Result<Vec<PathBuf>> {
        if let Kind::Zip { .. } = self.kind {
            return Ok(vec![self.root.clone()]);
        }
        let names = self.with_endings(endings);
        match names.is_empty() {
            true => Err(empty(&self.root, expected)),
            false => Ok(names.iter().map(|name| self.path(name)).collect()),
        }
    }

    /// The path of a file, for errors. One in an archive stands behind the path of the archive.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self.kind {
            Kind::File => self.root.clone(),
            Kind::Folder | Kind::Zip { .. } => self.root.join(name),
        }
    }

    /// `true` if the export is a zip archive.
    pub(super) const fn is_archive(&self) -> bool {
        matches!(self.kind, Kind::Zip { .. })
    }

    /// `true` if the export is one file that is no archive.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File)
    }

    /// The content of a file of at most `limit` bytes. `advice` says what to do about a larger one.
    pub(super) fn bytes(&mut self, name: &str, limit: u64, advice: &str) -> Result<Vec<u8>> {
        let path = self.path(name);
        let too_large = |got: String| {
            let expected = format!("at most {limit} bytes in one document: {advice}");
            bad_value(&path, Place::Row(1), "file", expected, got)
        };
        let mut bytes = Vec::new();
        match &mut self.kind {
            Kind::File | Kind::Folder => {
                let file = File::open(&path).map_err(io("read", &path))?;
                let read = file.take(limit + 1).read_to_end(&mut bytes);
                read.map_err(io("read", &path))?;
            }
            Kind::Zip {
                archive,
                members,
                left,
                allowed,
            } => {
                let index = members.get(name).copied().unwrap_or(usize::MAX);
                let member = archive.by_index(index).map_err(|error| bad_zip(&path, &error))?;
                let read = member.take(limit.min(*left) + 1).read_to_end(&mut bytes);
                read.map_err(|error| bad_zip(&path, &ZipError::Io(error)))?;
                if bytes.len() as u64 > *left {
                    let expected = format!("an archive that holds at most {allowed} bytes");
                    return Err(bad_value(&path, Place::Row(1), "file", expected, "more"));
                }
                *left -= bytes.len() as u64;
            }
        }
        match bytes.len() as u64 > limit {
            true => Err(too_large("a larger one".to_owned())),
            false => Ok(bytes),
        }
    }
}

fn bad_zip(path: &Path, error: &ZipError) -> DataError {
    bad_value(
        path,
        Place::Row(1),
        "archive",
        "a readable zip archive without a password",
        error.to_string(),
    )
}
