//! The identity of files on this machine, by which one text under two names is recognised.
//!
//! PRIVACY: it names paths of the operator, so it is kept in private files alone.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::columns::path_of;
use crate::error::{Result, io};
use crate::source::files;
use undertone_settings::SourceSpec;

/// A file or a folder on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The path without links.
    path: String,
    /// Device and number of the file; systems without such numbers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inode: Option<(u64, u64)>,
    /// Time of creation in nanoseconds, where the file system keeps it. The number of a removed file is given to another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<u64>,
}

impl Place {
    fn of(path: &Path) -> Result<Self> {
        let failed = || io("look at", path);
        let canonical = path.canonicalize().map_err(failed())?;
        let metadata = fs::metadata(&canonical).map_err(failed())?;
        #[cfg(unix)]
        let inode = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let inode = None;
        let created = metadata.created().ok();
        let created = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            path: canonical.to_string_lossy().into_owned(),
            inode,
            created: created.and_then(|time| u64::try_from(time.as_nanos()).ok()),
        })
    }
}

/// `true` if two texts have a file in common: under one path, or as one file with several names.
#[must_use]
pub(crate) fn meet(one: &[Place], other: &[Place]) -> bool {
    let paths: HashSet<&str> = one.iter().map(|place| &*place.path).collect();
    let inodes: HashSet<_> = one.iter().filter_map(Place::number).collect();
    other.iter().any(|place| {
        paths.contains(&*place.path) || place.number().is_some_and(|number| inodes.contains(&number))
    })
}

impl Place {
    fn number(&self) -> Option<((u64, u64), Option<u64>)> {
        Some((self.inode?, self.created))
    }

    /// `true` if two texts have a file in common: under one path, or as one file with several names.
    #[must_use]
    pub fn meet(one: &[Self], other: &[Self]) -> bool {
        meet(one, other)
    }
}

fn with_files(path: &Path, extensions: &[&str]) -> Result<Vec<Place>> {
    let mut places = vec![Place::of(path)?];
    if path.is_dir() {
        for file in files::files(path, extensions)? {
            places.push(Place::of(&file)?);
        }
    }
    Ok(places)
}

/// The places of a public text.
pub(crate) fn of_texts(path: &Path) -> Result<Vec<Place>> {
    with_files(path, files::TEXTS)
}

/// The files and the folder of the text of a source on this machine, relative to `base`; none where nothing is read from files.
///
/// # Errors
/// [`DataError::Io`](crate::DataError::Io); a folder without files; a variable in the path that is not set.
pub fn places_of(source: &SourceSpec, base: &Path) -> Result<Vec<Place>> {
    let Some(path) = path_of(source, base)? else {
        return Ok(Vec::new());
    };
    let extensions = match source {
        SourceSpec::Arrow(_) => files::ARROW,
        SourceSpec::Jsonl(_) => files::JSONL,
        SourceSpec::Csv(_) => files::CSV,
        _ => files::PARQUET,
    };
    with_files(&path, extensions)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn source(path: &str) -> SourceSpec {
        serde_json::from_value(serde_json::json!({ "kind": "jsonl", "path": path })).expect("a source")
    }

    #[test]
    fn one_file_under_another_name_is_the_same_text_and_a_new_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs::create_dir(base.join("many")).unwrap();
        fs::write(base.join("people.jsonl"), "{}").unwrap();
        fs::write(base.join("many/other.jsonl"), "{}").unwrap();
        std::os::unix::fs::symlink(base.join("people.jsonl"), base.join("link.jsonl")).unwrap();
        fs::hard_link(base.join("people.jsonl"), base.join("hard.jsonl")).unwrap();
        let places = |path: &str| places_of(&source(path), base).unwrap();
        let absolute = base.join("people.jsonl").to_string_lossy().into_owned();
        let own = places("people.jsonl");
        for path in [
            "people.jsonl",
            "./people.jsonl",
            "many/../people.jsonl",
            &absolute,
            "link.jsonl",
            "hard.jsonl",
            ".",
        ] {
            assert!(Place::meet(&own, &places(path)), "{path}");
        }
        assert!(!Place::meet(&own, &places("many")));
        assert!(Place::meet(&places("many"), &places("many/other.jsonl")));
        // A copy is another file, and a replaced one is the text of its path.
        fs::copy(base.join("people.jsonl"), base.join("copy.jsonl")).unwrap();
        assert!(!Place::meet(&own, &places("copy.jsonl")));
        fs::rename(base.join("copy.jsonl"), base.join("people.jsonl")).unwrap();
        assert!(Place::meet(&own, &places("people.jsonl")));
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Place>>(&text).unwrap(), own);
    }
}
