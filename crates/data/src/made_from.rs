//! The record of a file that was made from people's text: `FILE.privacy.json`.
//!
//! Words that were chosen with a guarantee have a [`PrivateVocabulary`] there. All other files that a command makes from people's text
//! have a [`MadeFromPeople`], which says that they are not private. Readers believe the record rather than the settings.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_text::Vocab;

use crate::columns::path_of;
use crate::error::{DataError, Result, io};
use crate::file::{self, RECORD_SUFFIX, is_record};
use crate::private_vocab::PrivateVocabulary;
use undertone_settings::SourceSpec;

/// Maximum size of a record, which is a few hundred bytes.
pub(crate) const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Maximum number of sources that a record names.
const MAX_SOURCES: usize = 1000;

const VERSION: u32 = 1;
const MECHANISM: &str = "none";
const GUARANTEE: &str = "not private";

/// The content of a file with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MadeKind {
    /// A list of words.
    Words,
    /// A tokenizer.
    Tokenizer,
    /// A table or a folder of texts.
    Text,
}

/// The record of a file that was made from people's text without a guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeFromPeople {
    version: u32,
    /// `"none"`, where the record of private words names the mechanism.
    mechanism: String,
    kind: MadeKind,
    /// `"not private"`.
    guarantee: String,
    /// The public names of the texts.
    sources: Vec<String>,
    /// SHA-256 of the words or the tokenizer; a text has none, since it may be large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl MadeFromPeople {
    fn new(kind: MadeKind, mut sources: Vec<String>, sha256: Option<String>) -> Self {
        sources.sort_unstable();
        sources.dedup();
        sources.truncate(MAX_SOURCES);
        Self {
            version: VERSION,
            mechanism: MECHANISM.to_owned(),
            kind,
            guarantee: GUARANTEE.to_owned(),
            sources,
            sha256,
        }
    }

    /// The record of words or of a tokenizer that were made from these sources.
    #[must_use]
    pub fn words(vocab: &Vocab, sources: Vec<String>) -> Self {
        let kind = match vocab.file_name().ends_with(".json") {
            true => MadeKind::Tokenizer,
            false => MadeKind::Words,
        };
        Self::new(kind, sources, Some(vocab.digest()))
    }

    /// The record of a text that was made from these sources.
    #[must_use]
    pub(crate) fn text(sources: Vec<String>) -> Self {
        Self::new(MadeKind::Text, sources, None)
    }

    /// The public names of the texts that the file was made from.
    #[must_use]
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// `true` if the record is that of these words, in this order.
    #[must_use]
    pub fn matches(&self, vocab: &Vocab) -> bool {
        self.sha256.as_ref() == Some(&vocab.digest())
    }

    /// The content of the file of the record.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain data with string keys serialises.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Writes the record of the file `path`, in place of that of an earlier file.
    ///
    /// PRIVACY: callers write the record before the file, so that the file never lies there as if it were public.
    pub(crate) fn write_beside(&self, path: &Path) -> Result<()> {
        file::write(&record_of(path), self.to_json().as_bytes(), true).map(drop)
    }

    fn check(&self) -> Result<(), String> {
        let wrong =
            |key: &str, expected: &str, got: &str| Err(format!("{key}: expected {expected}, got {got:?}"));
        let is_digest = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if self.version != VERSION {
            return wrong("version", "1", &self.version.to_string());
        }
        if self.guarantee != GUARANTEE {
            return wrong("guarantee", "\"not private\"", &self.guarantee);
        }
        if self.sources.len() > MAX_SOURCES {
            return wrong("sources", "at most 1000 names", &self.sources.len().to_string());
        }
        match self
            .sources
            .iter()
            .chain(&self.sha256)
            .find(|text| !is_digest(text))
        {
            Some(text) => wrong("sources and sha256", "64 hexadecimal digits each", text),
            None => Ok(()),
        }
    }
}

/// The record of a file: the cost of words that were chosen with a guarantee, or that the file is not private.
#[derive(Debug, Clone, PartialEq)]
pub enum FileRecord {
    /// Words that were chosen with a guarantee.
    Chosen(PrivateVocabulary),
    /// A file that was made from people's text without a guarantee.
    NotPrivate(MadeFromPeople),
}

impl FileRecord {
    /// Checks the bytes of a record; `path` only names them in errors.
    ///
    /// # Errors
    /// [`DataError::BadPrivacyRecord`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Mechanism {
            mechanism: String,
        }
        let bad = |detail: String| bad_record(path, detail);
        let Mechanism { mechanism } =
            serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if mechanism != MECHANISM {
            return PrivateVocabulary::parse(path, bytes).map(Self::Chosen);
        }
        let record: MadeFromPeople = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        record.check().map_err(bad)?;
        Ok(Self::NotPrivate(record))
    }

    /// The record of a file or a folder, where there is one. It stands beside the path, or beside the file that a link leads to. A folder
    /// also has the records of the files in it.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::BadPrivacyRecord`].
    pub fn of(path: &Path) -> Result<Option<Self>> {
        if let Some(found) = Self::read(&record_of(path))? {
            return Ok(Some(found));
        }
        // What does not exist is an error of opening it.
        let Ok(canonical) = path.canonicalize() else {
            return Ok(None);
        };
        if let Some(found) = Self::read(&record_of(&canonical))? {
            return Ok(Some(found));
        }
        match canonical.is_dir() {
            true => Self::within(&canonical),
            false => Ok(None),
        }
    }

    /// The record of a file or a folder, where it says that the file is not private.
    ///
    /// # Errors
    /// The errors of [`of`](Self::of).
    pub fn not_private(path: &Path) -> Result<Option<MadeFromPeople>> {
        Ok(match Self::of(path)? {
            Some(Self::NotPrivate(record)) => Some(record),
            Some(Self::Chosen(_)) | None => None,
        })
    }

    /// The first record in a folder that says that something is not private. Links to folders are not followed, as in reading texts.
    fn within(folder: &Path) -> Result<Option<Self>> {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(io("read", &folder))? {
                let entry = entry.map_err(io("read", &folder))?;
                let path = entry.path();
                if entry.file_type().map_err(io("read", &path))?.is_dir() {
                    folders.push(path);
                } else if is_record(&entry.file_name())
                    && let Some(found @ Self::NotPrivate(_)) = Self::read(&path)?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn read(path: &Path) -> Result<Option<Self>> {
        match fs::metadata(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(io("read the privacy record", path)(error)),
            Ok(_) => {
                let bytes = file::read_bounded(path, MAX_RECORD_BYTES, "read the privacy record")?;
                Self::parse(path, &bytes).map(Some)
            }
        }
    }
}

/// Path of the record of a file or folder: beside it, with `.privacy.json` appended to its name.
#[must_use]
pub(crate) fn record_of(path: &Path) -> PathBuf {
    // A path that ends in a slash has the record inside its folder otherwise.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(RECORD_SUFFIX);
    name.into()
}

pub(crate) fn bad_record(path: &Path, detail: String) -> DataError {
    DataError::BadPrivacyRecord {
        path: path.to_owned(),
        detail,
    }
}

/// Removes the record of a file that was replaced by one without people's text.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let record = record_of(path);
    match fs::remove_file(&record) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", &record)(error)),
        _ => Ok(()),
    }
}

/// The record of the text of a source, where it says that it was made from people's text; relative paths start at `base`.
///
/// # Errors
/// The errors of [`FileRecord::of`]; a variable in the path that is not set.
pub fn record_of_source(source: &SourceSpec, base: &Path) -> Result<Option<MadeFromPeople>> {
    match path_of(source, base)? {
        Some(path) => FileRecord::not_private(&path),
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

    fn name(digit: &str) -> String {
        digit.repeat(64)
    }

    #[test]
    fn a_record_is_found_beside_its_file_through_links_and_in_folders() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("a.jsonl"), "{}").unwrap();
        assert_eq!(FileRecord::of(&place("a.jsonl")).unwrap(), None);
        assert_eq!(FileRecord::of(&place("missing")).unwrap(), None);
        let record = MadeFromPeople::text(vec![name("a"), name("a")]);
        record.write_beside(&place("a.jsonl")).unwrap();
        let found = || FileRecord::not_private(&place("a.jsonl")).unwrap();
        assert_eq!(found().unwrap().sources(), [name("a")]);
        // The folder of the file, with and without a slash.
        for path in [folder.path().to_owned(), folder.path().join("")] {
            assert_eq!(
                FileRecord::not_private(&path).unwrap(),
                found(),
                "{}",
                path.display()
            );
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(place("a.jsonl"), place("link")).unwrap();
            assert_eq!(FileRecord::not_private(&place("link")).unwrap(), found());
        }
        remove(&place("a.jsonl")).unwrap();
        assert_eq!(FileRecord::of(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_and_never_no_record() {
        let path = Path::new("words.txt.privacy.json");
        let honest = MadeFromPeople::text(vec![name("b")]).to_json();
        assert!(FileRecord::parse(path, honest.as_bytes()).is_ok());
        for (old, new, expected) in [
            ("\"version\": 1", "\"version\": 2", "version: expected 1"),
            ("not private", "public", "guarantee: expected \"not private\""),
            (&name("b"), "short", "64 hexadecimal digits"),
            ("\"kind\"", "\"kinds\"", "unknown field `kinds`"),
            ("\"none\"", "\"other\"", "unknown field"),
            ("\"none\"", "7", "invalid type"),
        ] {
            let text = honest.replace(old, new);
            let error = FileRecord::parse(path, text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} lacks {expected}");
            assert!(error.contains("words.txt.privacy.json"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a.txt.privacy.json")).unwrap();
        FileRecord::of(&folder.path().join("a.txt")).unwrap_err();
    }
}
