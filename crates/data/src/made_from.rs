//! Records of files that were made from people's text, on disk.
//!
//! A record stands beside its file, under the name of [`record_path`]. Readers believe the record rather than the settings.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use undertone_vocabulary::{MadeFromPeople, VocabularyError, not_private, record_path};

use crate::columns::path_of;
use crate::error::{DataError, Result, io};
use crate::file;
use undertone_settings::SourceSpec;

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

/// The record of the text of a source, where it says that it was made from people's text; relative paths start at `base`.
///
/// # Errors
/// The errors of [`record_of`](undertone_vocabulary::record_of); a variable in the path that is not set.
pub fn record_of_source(source: &SourceSpec, base: &Path) -> Result<Option<MadeFromPeople>> {
    match path_of(source, base)? {
        Some(path) => Ok(not_private(&path)?),
        None => Ok(None),
    }
}

/// The names of the texts of people that something made from a source was made from. `None` for a text that is declared public
/// and has no record, and for text of nobody.
pub(crate) fn people_of_source(
    source: &SourceSpec,
    base: &Path,
    declared_public: bool,
) -> Result<Option<Vec<String>>> {
    if !source.is_of_people() {
        return Ok(None);
    }
    let recorded = record_of_source(source, base)?;
    Ok(people_of(recorded, declared_public, || source.name_sha256()))
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
    use undertone_vocabulary::record_of;

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
