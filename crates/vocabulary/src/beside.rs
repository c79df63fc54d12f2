//! Records on disk, beside the files that they are about.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::{Result, VocabularyError, io};
use crate::private::PrivateVocabulary;
use crate::record::{FileRecord, MadeFromPeople, RECORD_SUFFIX, record_path};

/// Maximum size of a record, which is a few hundred bytes.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The record of a file or a folder, where there is one. It stands beside the path, or beside the file that a link leads to. A folder
/// also has the records of the files in it.
///
/// # Errors
/// [`VocabularyError::Io`]; [`VocabularyError::BadPrivacyRecord`].
pub fn record_of(path: &Path) -> Result<Option<FileRecord>> {
    if let Some(found) = read(&record_path(path))? {
        return Ok(Some(found));
    }
    // What does not exist is an error of opening it.
    let Ok(canonical) = path.canonicalize() else {
        return Ok(None);
    };
    if let Some(found) = read(&record_path(&canonical))? {
        return Ok(Some(found));
    }
    match canonical.is_dir() {
        true => within(&canonical),
        false => Ok(None),
    }
}

/// The record of a file or a folder, where it says that the file is not private.
///
/// # Errors
/// The errors of [`record_of`].
pub fn not_private(path: &Path) -> Result<Option<MadeFromPeople>> {
    Ok(match record_of(path)? {
        Some(FileRecord::NotPrivate(record)) => Some(record),
        Some(FileRecord::Chosen(_)) | None => None,
    })
}

/// The record that stands beside a file of private words, checked as [`PrivateVocabulary::parse`] does.
///
/// # Errors
/// [`VocabularyError::Io`]; [`VocabularyError::TooLarge`]; [`VocabularyError::BadPrivacyRecord`].
pub fn private_record_of(vocabulary: &Path) -> Result<PrivateVocabulary> {
    let path = record_path(vocabulary);
    PrivateVocabulary::parse(&path, &bytes(&path)?)
}

/// The first record in a folder that says that something is not private. Links to folders are not followed, as in reading texts.
fn within(folder: &Path) -> Result<Option<FileRecord>> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(io("read", &folder))? {
            let entry = entry.map_err(io("read", &folder))?;
            let path = entry.path();
            if entry.file_type().map_err(io("read", &path))?.is_dir() {
                folders.push(path);
            } else if entry
                .file_name()
                .as_encoded_bytes()
                .ends_with(RECORD_SUFFIX.as_bytes())
                && let Some(found @ FileRecord::NotPrivate(_)) = read(&path)?
            {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Option<FileRecord>> {
    match fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(io("read the privacy record", path)(error)),
        Ok(_) => Ok(Some(FileRecord::parse(path, &bytes(path)?)?)),
    }
}

/// The bytes of a regular file. A pipe or a device has no end to read to, and opening a pipe waits for its other end.
fn bytes(path: &Path) -> Result<Vec<u8>> {
    const ACTION: &str = "read the privacy record";
    let too_large = |got: String| VocabularyError::TooLarge {
        path: path.to_owned(),
        limit: MAX_RECORD_BYTES,
        got,
    };
    let entry = fs::metadata(path).map_err(io(ACTION, path))?;
    match (entry.is_file(), entry.is_dir()) {
        (true, _) => {}
        (false, true) => return Err(too_large("a folder".to_owned())),
        (false, false) => return Err(too_large("a pipe or a device".to_owned())),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io(ACTION, path))?;
    let read = file.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(io(ACTION, path))?;
    match bytes.len() as u64 <= MAX_RECORD_BYTES {
        true => Ok(bytes),
        false => Err(too_large(format!("{} bytes", entry.len()))),
    }
}
