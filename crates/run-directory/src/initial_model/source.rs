//! The public name of a run's text.
//!
//! PRIVACY: released models bear the name, and a digest of a path can be guessed: paths name users, folders and text. So the name of
//! text in files is made under a key of the folder of runs, which is never released. Runs in one folder give one text one name, and
//! nobody else can tell which text that is.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_present::numbers::hex;
use undertone_settings::{CorpusSpec, SourceSpec};

use super::Training;
use crate::error::{DirectoryError, Result};
use crate::files;
use crate::files::names::{CORPORA_FOLDER, SOURCE_FILE};

/// The file with the key, in the folder of tokenised corpora.
const KEY_FILE: &str = "source.key";

/// The name of a run's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    /// The name that released models bear.
    pub public: String,
    /// The SHA-256 of the source's table in the run file, which was the name in earlier versions.
    digest: String,
}

/// The content of `source.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    /// The public name of the text: 64 hexadecimal digits.
    pub name: String,
}

impl SourceName {
    /// The name of the text of a new run, under the key in the folder of tokenised corpora.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; [`DirectoryError::Damaged`] for a key that is none.
    pub fn new(data: &CorpusSpec, cache: &Path) -> Result<Self> {
        let digest = data.source.name_sha256();
        let public = match has_path(data) {
            false => digest.clone(),
            true => {
                let mut hash = Sha256::new_with_prefix(b"undertone name of a source\0");
                hash.update(key(cache)?);
                hash.update(&digest);
                hex(&hash.finalize())
            }
        };
        Ok(Self { public, digest })
    }

    /// The name that the text of a finished run has today, under the key beside its folder.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn beside(run_dir: &Path, data: &CorpusSpec) -> Result<Self> {
        // Made absolute, so that the folder above `.` is known too.
        let folder = run_dir
            .canonicalize()
            .map_err(|source| DirectoryError::io("read", run_dir, source))?;
        Self::new(data, &folder.parent().unwrap_or(&folder).join(CORPORA_FOLDER))
    }

    /// The name of the text of a run that was made, from its folder. Earlier versions wrote none.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; [`DirectoryError::Damaged`] for a record that is none.
    pub fn of(folder: &Path, data: &CorpusSpec) -> Result<Self> {
        let digest = data.source.name_sha256();
        let path = folder.join(SOURCE_FILE);
        if !files::exists(&path) {
            return Ok(Self {
                public: digest.clone(),
                digest,
            });
        }
        let record: SourceRecord = files::read_json(&path)?;
        let is_name = record.name.len() == 64
            && record
                .name
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match is_name && has_path(data) {
            true => Ok(Self {
                public: record.name,
                digest,
            }),
            false => Err(DirectoryError::damaged(
                &path,
                "expected a name of 64 lower-case hexadecimal digits, and a source with a path",
            )),
        }
    }

    /// The record of the name, where the settings alone do not give it.
    #[must_use]
    pub fn record(&self) -> Option<SourceRecord> {
        (self.public != self.digest).then(|| SourceRecord {
            name: self.public.clone(),
        })
    }

    /// `true` for text whose name follows from a path, so that a record states it.
    #[must_use]
    pub fn is_recorded(data: &CorpusSpec) -> bool {
        has_path(data)
    }

    /// Gives the trainings on this text, which earlier versions named by a digest of its path, the name of today.
    pub fn rename(&self, trainings: &mut [Training]) {
        for training in trainings {
            if let Training::NotPrivate { source_sha256, .. } | Training::Private { source_sha256, .. } =
                training
                && *source_sha256 == self.digest
            {
                self.public.clone_into(source_sha256);
            }
        }
    }
}

/// `true` if the text stands in files.
fn has_path(data: &CorpusSpec) -> bool {
    match data.source {
        SourceSpec::Parquet(_)
        | SourceSpec::Arrow(_)
        | SourceSpec::Jsonl(_)
        | SourceSpec::Csv(_)
        | SourceSpec::Grouped(_) => true,
        SourceSpec::Synthetic(_) | SourceSpec::Memory(_) => false,
    }
}

/// The key of the names, drawn where there is none.
fn key(cache: &Path) -> Result<[u8; 32]> {
    let path = cache.join(KEY_FILE);
    let fail = |source| DirectoryError::io("write", &path, source);
    if !files::exists(&path) {
        std::fs::create_dir_all(cache).map_err(fail)?;
        // Readable by its owner alone.
        let mut temporary = tempfile::NamedTempFile::new_in(cache).map_err(fail)?;
        temporary
            .write_all(&crate::entropy::fresh_bytes()?)
            .map_err(fail)?;
        temporary.as_file().sync_all().map_err(fail)?;
        match temporary.persist_noclobber(&path) {
            // Another run has drawn one meanwhile.
            Err(error) if files::exists(&path) => drop(error),
            other => drop(other.map_err(|error| fail(error.error))?),
        }
    }
    let bytes = files::read_at_most(&path, 32)?;
    let got = bytes.len();
    <[u8; 32]>::try_from(bytes)
        .map_err(|_| DirectoryError::damaged(&path, format!("expected a key of 32 bytes, got {got}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(source: &str) -> CorpusSpec {
        let vocabulary = match source.contains("synthetic") {
            true => "",
            false => "vocabulary = { kind = \"training_data\", size = 9 }\n",
        };
        toml::from_str(&format!("source = {source}\n{vocabulary}")).unwrap()
    }

    const CSV: &str = "{ kind = \"csv\", path = \"/home/ann/patients.csv\" }";

    #[test]
    fn a_stranger_cannot_guess_a_path_from_the_name_of_a_text_and_its_owner_knows_the_text_again() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of_path = data(CSV);
        let name = SourceName::new(&of_path, here.path()).unwrap();
        assert_ne!(name.public, name.digest);
        assert_eq!(SourceName::new(&of_path, here.path()).unwrap(), name);
        assert_ne!(
            SourceName::new(&of_path, there.path()).unwrap().public,
            name.public
        );
        let other = data(&CSV.replace("patients", "visits"));
        assert_ne!(SourceName::new(&other, here.path()).unwrap().public, name.public);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(here.path().join(KEY_FILE))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // Settings that a person wrote for everybody, and tables, have the name that everybody can compute.
        for open in [
            "{ kind = \"synthetic\", users = 9 }",
            "{ kind = \"memory\", rows = 3, sha256 = \"ab\" }",
        ] {
            let name = SourceName::new(&data(open), here.path()).unwrap();
            assert_eq!(name.public, name.digest);
            assert!(name.record().is_none());
        }
    }

    #[test]
    fn a_training_that_an_earlier_version_named_by_a_path_is_one_on_the_same_text() {
        let folder = tempfile::tempdir().unwrap();
        let of_path = data(CSV);
        let name = SourceName::new(&of_path, folder.path()).unwrap();
        let training = |source: &str| -> Training {
            serde_json::from_str(&format!(
                "{{\"kind\":\"not_private\",\"source_sha256\":\"{source}\"}}"
            ))
            .unwrap()
        };
        let mut trainings = [training(&name.digest), training("ab"), training(&name.public)];
        name.rename(&mut trainings);
        assert_eq!(
            trainings,
            [training(&name.public), training("ab"), training(&name.public)]
        );
        // The folder of an earlier version has no record.
        assert_eq!(
            SourceName::of(folder.path(), &of_path).unwrap().public,
            name.digest
        );
        files::write_json(&folder.path().join(SOURCE_FILE), &name.record().unwrap()).unwrap();
        assert_eq!(SourceName::of(folder.path(), &of_path).unwrap(), name);
        files::write_json(
            &folder.path().join(SOURCE_FILE),
            &SourceRecord { name: "AB".into() },
        )
        .unwrap();
        SourceName::of(folder.path(), &of_path).unwrap_err();
    }

    /// The name of all tables, which released models bear.
    #[test]
    fn tables_keep_the_name_that_earlier_versions_gave_them() {
        let digest = data("{ kind = \"memory\", rows = 3, sha256 = \"ab\" }")
            .source
            .name_sha256();
        let mut hash = Sha256::new_with_prefix(b"undertone source\0");
        hash.update(
            "{\"kind\":\"memory\",\"rows\":0,\"sha256\":\"\",\"user\":\"user_id\",\"text\":\"text\"}",
        );
        assert_eq!(digest, hex(&hash.finalize()));
    }
}
