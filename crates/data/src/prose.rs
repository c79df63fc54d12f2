//! The prose of documents and of Rust source code, as a public text.

mod paragraphs;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{DataError, Result, empty, io};
use crate::file::{persist, read_bounded, refuse_existing, temporary_beside};
use crate::hash::hash_bytes;
use crate::progress::{Progress, Stage, proceed};
use crate::source::files;
use paragraphs::{Kind, paragraphs};
use undertone_text::WordRule;

/// Extensions of the files that are read.
const DOCUMENTS: &[&str] = &["md", "rst", "txt", "rs"];

/// Max size of a file that is read. Larger ones are generated or hold data.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

/// The prose that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProseSummary {
    /// Files with prose: the rows written.
    pub documents: u64,
    /// Paragraphs written.
    pub paragraphs: u64,
    /// Words written, as white space divides them, or a dictionary where a script has no spaces.
    pub words: u64,
    /// Paragraphs left out because an earlier one is equal.
    pub repeated: u64,
    /// Files left out because they are not UTF-8 or larger than 4 MiB.
    pub left_out: u64,
    /// Size of the written file.
    pub bytes: u64,
    /// Rust packages below the folder, by the licence that their `Cargo.toml` states. The key is empty for packages that state none.
    pub licences: BTreeMap<String, u64>,
}

/// Writes the prose of the files below `folder` as JSON lines, one object per file with the fields `user_id` (its path) and `text`
/// (one paragraph per line). Documents are `.md`, `.rst` and `.txt`; of Rust sources (`.rs`), the doc comments are read.
///
/// Code blocks, tables, addresses and repeated paragraphs are left out. The files are read in the order of their paths, so equal folders
/// give equal files.
///
/// # Guarantee
/// PRIVACY: none. The text is copied, so it must be public.
///
/// # Errors
/// [`DataError::NoFiles`] or [`DataError::Empty`] for a folder without prose, [`DataError::OutputExists`] unless overwriting is asked for,
/// [`DataError::Io`].
pub fn prose(folder: &Path, output: &Path, overwrite: bool, progress: &dyn Progress) -> Result<ProseSummary> {
    refuse_existing(output, overwrite)?;
    let found = files::files(folder, DOCUMENTS)?;
    let mut summary = ProseSummary {
        licences: licences(folder)?,
        ..ProseSummary::default()
    };
    let failed = || io("write", output);
    let mut writer = BufWriter::new(temporary_beside(output)?);
    let mut seen = HashSet::new();
    for (index, file) in found.iter().enumerate() {
        proceed(progress)?;
        if index % 64 == 0 {
            progress.update(Stage::Reading, index as u64, Some(found.len() as u64));
        }
        let Some(text) = text_of(file)? else {
            summary.left_out += 1;
            continue;
        };
        let kind = match file.extension().is_some_and(|extension| extension == "rs") {
            true => Kind::RustSource,
            false => Kind::Document,
        };
        let all = paragraphs(&text, kind);
        let before = all.len();
        let new: Vec<String> = all
            .into_iter()
            .filter(|paragraph| seen.insert(hash_bytes(paragraph.as_bytes())))
            .collect();
        summary.repeated += (before - new.len()) as u64;
        if new.is_empty() {
            continue;
        }
        summary.documents += 1;
        summary.paragraphs += new.len() as u64;
        summary.words += new
            .iter()
            .map(|paragraph| WordRule::Unicode.pieces(paragraph))
            .sum::<u64>();
        let name = file.strip_prefix(folder).unwrap_or(file);
        let row = serde_json::json!({ "user_id": name.to_string_lossy(), "text": new.join("\n") });
        writeln!(writer, "{row}").map_err(failed())?;
    }
    if summary.documents == 0 {
        return Err(empty(folder, "prose"));
    }
    let file = writer
        .into_inner()
        .map_err(|error| failed()(error.into_error()))?;
    summary.bytes = persist(file, output, overwrite)?;
    Ok(summary)
}

/// The text of a file; `None` for one that is too large or not UTF-8.
fn text_of(file: &Path) -> Result<Option<String>> {
    match read_bounded(file, MAX_DOCUMENT_BYTES, "read") {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(DataError::TooLarge { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The number of Rust packages below `folder`, by licence.
fn licences(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let manifests = match files::files(folder, &["toml"]) {
        Ok(files) => files,
        Err(DataError::NoFiles { .. }) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut licences = BTreeMap::new();
    for manifest in manifests
        .iter()
        .filter(|file| file.file_name().is_some_and(|name| name == "Cargo.toml"))
    {
        let text = text_of(manifest)?.unwrap_or_default();
        *licences.entry(licence(&text).to_owned()).or_default() += 1;
    }
    Ok(licences)
}

/// The value of the line `license = "..."` of a manifest, or an empty text.
fn licence(manifest: &str) -> &str {
    let stated = manifest.lines().find_map(|line| {
        let value = line.trim().strip_prefix("license")?.trim_start();
        value
            .strip_prefix('=')?
            .trim()
            .strip_prefix('"')?
            .split('"')
            .next()
    });
    stated.unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoProgress;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn documents_and_doc_comments_become_rows() {
        let folder = folder(&[
            (
                "one/README.md",
                "# A title of four words\n\nThe first paragraph\nspans two lines.\n",
            ),
            (
                "one/src/lib.rs",
                "//! The crate adds two numbers.\nlet x = 1; // Not a doc comment at all.\n",
            ),
            (
                "two/notes.txt",
                "The first paragraph spans two lines.\n\nA second note stands here.\n",
            ),
            ("one/Cargo.toml", "[package]\nlicense = \"MIT OR Apache-2.0\"\n"),
            ("two/Cargo.toml", "[package]\n"),
        ]);
        let output = folder.path().join("public.jsonl");
        let summary = prose(folder.path(), &output, false, &NoProgress).unwrap();
        let rows: Vec<serde_json::Value> = std::fs::read_to_string(&output)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let texts: Vec<_> = rows.iter().map(|row| row["text"].as_str().unwrap()).collect();
        assert_eq!(
            texts,
            [
                "A title of four words\nThe first paragraph spans two lines.",
                "The crate adds two numbers.",
                "A second note stands here.",
            ]
        );
        assert_eq!(rows[0]["user_id"], "one/README.md");
        assert_eq!(
            (
                summary.documents,
                summary.paragraphs,
                summary.words,
                summary.repeated
            ),
            (3, 4, 21, 1)
        );
        let stated: Vec<_> = summary.licences.into_iter().collect();
        assert_eq!(stated, [(String::new(), 1), ("MIT OR Apache-2.0".to_owned(), 1)]);
    }

    #[test]
    fn a_folder_without_prose_and_an_existing_file_are_refused() {
        let folder = folder(&[("x.md", "```\ncode only, and nothing else here\n```\n")]);
        let output = folder.path().join("public.jsonl");
        let error = prose(folder.path(), &output, false, &NoProgress).unwrap_err();
        assert!(matches!(error, DataError::Empty { .. }), "{error}");
        std::fs::write(&output, "kept").unwrap();
        let error = prose(folder.path(), &output, false, &NoProgress).unwrap_err();
        assert!(matches!(error, DataError::OutputExists { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "kept");
    }

    #[test]
    fn words_of_scripts_without_spaces_are_counted() {
        let folder = folder(&[(
            "a.md",
            "今天天气很好，我们去公园散步。\n\nFour words -- or six.\n",
        )]);
        let output = folder.path().join("public.jsonl");
        let summary = prose(folder.path(), &output, false, &NoProgress).unwrap();
        assert_eq!((summary.paragraphs, summary.words), (2, 7 + 5));
    }

    #[test]
    fn files_that_are_not_text_are_counted_and_left_out() {
        let folder = folder(&[("a.md", "A sentence of five words.\n")]);
        std::fs::write(folder.path().join("b.md"), [0xff, 0xfe, 0x00]).unwrap();
        let output = folder.path().join("public.jsonl");
        let summary = prose(folder.path(), &output, false, &NoProgress).unwrap();
        assert_eq!((summary.documents, summary.left_out), (1, 1));
    }
}
