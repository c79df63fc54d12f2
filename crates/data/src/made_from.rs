//! Records of files that were made from people's text, on disk.
//!
//! A record stands beside its file, under the name of [`record_path`]. Readers believe the record rather than the settings.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use undertone_vocabulary::{FileRecord, MadeFromPeople, PrivateVocabulary, VocabularyError, record_path};

use crate::error::{DataError, Result, io};
use crate::file::{self, is_record};
use crate::spec::SourceSpec;

/// Maximum size of a record, which is a few hundred bytes.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The record of a file or a folder, where there is one. It stands beside the path, or beside the file that a link leads to. A folder
/// also has the records of the files in it.
///
/// # Errors
/// [`DataError::Io`]; [`VocabularyError::BadPrivacyRecord`].
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
/// [`DataError::Io`]; [`DataError::TooLarge`]; [`VocabularyError::BadPrivacyRecord`].
pub fn private_record_of(vocabulary: &Path) -> Result<PrivateVocabulary> {
    let path = record_path(vocabulary);
    Ok(PrivateVocabulary::parse(&path, &bytes(&path)?)?)
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
            } else if is_record(&entry.file_name())
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

fn bytes(path: &Path) -> Result<Vec<u8>> {
    file::read_bounded(path, MAX_RECORD_BYTES, "read the privacy record")
}

pub(crate) fn bad_record(path: &Path, detail: String) -> DataError {
    let path = record_path(path);
    VocabularyError::BadPrivacyRecord { path, detail }.into()
}

/// Writes the record of the file `path`, in place of that of an earlier file.
///
/// PRIVACY: callers write the record before the file, so that the file never lies there as if it were public.
pub(crate) fn write_beside(path: &Path, record: &MadeFromPeople) -> Result<()> {
    file::write(&record_path(path), record.to_json().as_bytes(), true).map(drop)
}

/// Removes the record of a file that was replaced by one without people's text.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let record = record_path(path);
    match fs::remove_file(&record) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", &record)(error)),
        _ => Ok(()),
    }
}

impl SourceSpec {
    /// `false` if no person wrote the text: the population is made up. The text of all other sources belongs to its users.
    #[must_use]
    pub fn is_of_people(&self) -> bool {
        !matches!(self, Self::Synthetic(_))
    }

    /// The record of the text, where it says that it was made from people's text; relative paths start at `base`.
    ///
    /// # Errors
    /// The errors of [`record_of`]; a variable in the path that is not set.
    pub fn record(&self, base: &Path) -> Result<Option<MadeFromPeople>> {
        match self.place(base)? {
            Some(path) => not_private(&path),
            None => Ok(None),
        }
    }

    /// The names of the texts of people that something made from this source was made from. `None` for a text that is declared public
    /// and has no record, and for text of nobody.
    pub(crate) fn people(&self, base: &Path, declared_public: bool) -> Result<Option<Vec<String>>> {
        if matches!(self, SourceSpec::Synthetic(_)) {
            return Ok(None);
        }
        let recorded = self.record(base)?;
        Ok(people_of(recorded, declared_public, || self.name_sha256()))
    }
}

/// The names of the texts behind a record, and of the text itself where nobody declares it public. A record is believed rather than the
/// declaration.
pub(crate) fn people_of(
    recorded: Option<MadeFromPeople>,
    declared_public: bool,
    own: impl FnOnce() -> String,
) -> Option<Vec<String>> {
    let sources = recorded.map(|record| record.sources().to_vec());
    match declared_public {
        true => sources,
        false => Some(sources.into_iter().flatten().chain([own()]).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(digit: &str) -> String {
        digit.repeat(64)
    }

    #[test]
    fn a_record_is_found_beside_its_file_through_links_and_in_folders() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("a.jsonl"), "{}").unwrap();
        assert_eq!(record_of(&place("a.jsonl")).unwrap(), None);
        assert_eq!(record_of(&place("missing")).unwrap(), None);
        let record = MadeFromPeople::text(vec![name("a"), name("a")]);
        write_beside(&place("a.jsonl"), &record).unwrap();
        let found = || not_private(&place("a.jsonl")).unwrap();
        assert_eq!(found().unwrap().sources(), [name("a")]);
        // The folder of the file, with and without a slash.
        for path in [folder.path().to_owned(), folder.path().join("")] {
            assert_eq!(not_private(&path).unwrap(), found(), "{}", path.display());
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(place("a.jsonl"), place("link")).unwrap();
            assert_eq!(not_private(&place("link")).unwrap(), found());
        }
        remove(&place("a.jsonl")).unwrap();
        assert_eq!(record_of(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_and_never_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a.txt.privacy.json")).unwrap();
        record_of(&folder.path().join("a.txt")).unwrap_err();
    }
}
