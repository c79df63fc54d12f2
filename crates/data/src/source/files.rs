//! The files of a table: the one that is named, or all of its kind in a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Result, io, no_files};
use crate::file::is_record;
use crate::hash::{hash_bytes, hash_file, hex};
use crate::progress::{Progress, Stage};
use crate::source::Identity;

/// Extensions by which a folder's files are found.
pub(crate) const PARQUET: &[&str] = &["parquet"];
pub(crate) const ARROW: &[&str] = &["arrow", "feather", "ipc"];
pub(crate) const JSONL: &[&str] = &["jsonl", "ndjson", "json"];
pub(crate) const CSV: &[&str] = &["csv", "tsv"];
pub(crate) const TEXTS: &[&str] = &["parquet", "jsonl", "ndjson", "json", "csv", "tsv", "txt"];

/// `path` itself, or where it is a folder the files below it with one of these extensions, in the order of their paths.
///
/// Names that start with `.` or `_` are passed over, as writers of such folders mean them to be (`_SUCCESS`, `_temporary`), and so are
/// privacy records.
/// Links to files are followed, links to folders are not: they could lead back.
pub(crate) fn files(path: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        // What does not exist is an error of opening it. A pipe or a device has no end to read to.
        if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
            let source = std::io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
            return Err(io("read", path)(source));
        }
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(io("read", &folder))? {
            let entry = entry.map_err(io("read", &folder))?;
            let (name, below) = (entry.file_name(), entry.path());
            if name.as_encoded_bytes().starts_with(b".") || name.as_encoded_bytes().starts_with(b"_") {
                continue;
            }
            let kind = entry.file_type().map_err(io("read", &below))?;
            if is_record(&name) {
                continue;
            }
            if kind.is_dir() {
                folders.push(below);
            } else if extensions.contains(&extension(&below)) {
                // A link to nothing is an error: the part would be missing.
                let file = fs::metadata(&below).map_err(io("read", &below))?;
                if file.is_file() {
                    found.push(below);
                }
            }
        }
    }
    if found.is_empty() {
        return Err(no_files(path, extensions));
    }
    found.sort_unstable();
    Ok(found)
}

/// The ending of a file's name that tells its format: of `posts.jsonl.gz` it is `jsonl`. Parquet packs its own pages.
pub(crate) fn extension(path: &Path) -> &str {
    let ending = |path| Path::extension(path).and_then(|ending| ending.to_str());
    match ending(path) {
        Some("gz" | "zst" | "zip") => (path.file_stem().map(Path::new).and_then(ending))
            .filter(|&inner| inner != "parquet")
            .unwrap_or_default(),
        other => other.unwrap_or_default(),
    }
}

/// A digest of the contents of these files, in their order: renaming that keeps the order changes nothing.
pub(crate) fn identity(files: &[PathBuf], progress: &dyn Progress) -> Result<Identity> {
    let total = files.iter().map(|file| size(file)).sum::<Result<u64>>()?;
    let (mut contents, mut done) = (Vec::with_capacity(files.len()), 0);
    for file in files {
        let behind = Behind {
            progress,
            done,
            total,
        };
        let (size, hash) = hash_file(file, &behind)?;
        contents.push(format!("file {size} {}", hex(&hash)));
        done += size;
    }
    Ok(match contents.as_slice() {
        [single] => single.clone(),
        several => format!(
            "files {} {}",
            several.len(),
            hex(&hash_bytes(several.join("\n").as_bytes()))
        ),
    })
}

/// Bytes of a file.
pub(crate) fn size(path: &Path) -> Result<u64> {
    let file = fs::metadata(path).map_err(io("read", path))?;
    Ok(file.len())
}

/// Progress of one file behind others.
struct Behind<'a> {
    progress: &'a dyn Progress,
    done: u64,
    total: u64,
}

impl Progress for Behind<'_> {
    fn update(&self, stage: Stage, done: u64, _: Option<u64>) {
        self.progress.update(stage, self.done + done, Some(self.total));
    }

    fn stop(&self) -> bool {
        self.progress.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    #[test]
    fn a_folder_is_its_files_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in [
            "b=2/part-0.jsonl",
            "b=10/part-0.jsonl",
            "_temporary/part-1.jsonl",
            "b=2/.part-0.jsonl.crc",
        ] {
            fs::create_dir_all(at(name).parent().expect("a parent")).expect("a folder");
            fs::write(at(name), name).expect("a file");
        }
        fs::write(at("_SUCCESS"), "").expect("a file");
        fs::write(at("a.ndjson"), "first").expect("a file");
        fs::write(at("readme.txt"), "").expect("a file");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.path(), at("b=2/loop")).expect("a link");
            std::os::unix::fs::symlink(at("a.ndjson"), at("c.jsonl")).expect("a link");
        }
        let found = files(folder.path(), JSONL).expect("files");
        let mut expected = vec![at("a.ndjson"), at("b=10/part-0.jsonl"), at("b=2/part-0.jsonl")];
        if cfg!(unix) {
            expected.push(at("c.jsonl"));
        }
        assert_eq!(found, expected);
        assert_eq!(files(&at("a.ndjson"), PARQUET).expect("itself"), [at("a.ndjson")]);
        let error = files(folder.path(), PARQUET).expect_err("none").to_string();
        assert!(
            error.ends_with("holds no file with the ending .parquet"),
            "{error}"
        );
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("nowhere"), at("d.jsonl")).expect("a link");
            let error = files(folder.path(), JSONL)
                .expect_err("a part is missing")
                .to_string();
            assert!(
                error.starts_with("cannot read") && error.contains("d.jsonl"),
                "{error}"
            );
        }
    }

    #[test]
    fn contents_and_their_order_are_identified() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [("1", "one"), ("2", "two"), ("3", "one")] {
            fs::write(at(name), text).expect("a file");
        }
        let of = |names: &[&str]| {
            let files: Vec<_> = names.iter().map(|name| at(name)).collect();
            identity(&files, &NoProgress).expect("an identity")
        };
        assert_eq!(of(&["1"]), of(&["3"]));
        assert_eq!(of(&["1", "2"]), of(&["3", "2"]));
        assert_ne!(of(&["1", "2"]), of(&["2", "1"]));
        assert_ne!(of(&["1"]), of(&["1", "3"]));
    }
}
