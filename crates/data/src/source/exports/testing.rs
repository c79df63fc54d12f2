//! Exports that tests make. They hold invented text alone.

use std::fs;
use std::io::Write;
use std::path::Path;

use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::whatsapp::DateOrder;
use super::{ExportKind, ExportSource};
use crate::noted::Noted;
use undertone_settings::time::NO_TIME;

/// User, text and time of a row.
pub(super) type Row = (String, String, Option<i64>);

pub(super) fn row(user: &str, text: &str, time: i64) -> Row {
    (user.to_owned(), text.to_owned(), Some(time))
}

/// An export in a folder of its own.
pub(super) struct Export {
    folder: TempDir,
    source: ExportSource,
}

impl Export {
    fn new(kind: ExportKind, name: &str) -> Export {
        let folder = tempfile::tempdir().expect("a folder");
        let source = ExportSource {
            kind,
            path: folder.path().join(name),
            date_order: None,
            user_column: "user_id".to_owned(),
        };
        Export { folder, source }
    }

    pub(super) fn file(kind: ExportKind, name: &str, content: &[u8]) -> Export {
        let export = Export::new(kind, name);
        fs::write(&export.source.path, content).expect("a file");
        export
    }

    pub(super) fn folder(kind: ExportKind, files: &[(&str, &str)]) -> Export {
        let export = Export::new(kind, "export");
        for (name, content) in files {
            let path = export.source.path.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, content).expect("a file");
        }
        export
    }

    pub(super) fn zip(kind: ExportKind, files: &[(&str, &str)]) -> Export {
        let mut archive = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, content) in files {
            archive
                .start_file(*name, SimpleFileOptions::default())
                .expect("a member");
            archive.write_all(content.as_bytes()).expect("its content");
        }
        let bytes = archive.finish().expect("an archive").into_inner();
        Export::file(kind, "export.zip", &bytes)
    }

    pub(super) fn with_order(&self, order: DateOrder) -> Export {
        let name = self
            .source
            .path
            .file_name()
            .expect("a name")
            .to_str()
            .expect("UTF-8");
        let mut export = Export::file(
            self.source.kind,
            name,
            &fs::read(&self.source.path).expect("the file"),
        );
        export.source.date_order = Some(order);
        export
    }

    pub(super) fn with_users(mut self, column: &str) -> Export {
        column.clone_into(&mut self.source.user_column);
        self
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn read(&self) -> crate::error::Result<(Vec<Row>, Noted)> {
        let (mut found, mut noted) = (Vec::new(), Noted::default());
        self.source.read(&mut |rows, _| {
            noted.merge(&rows.noted);
            for row in 0..rows.len() {
                let time = Some(rows.times[row]).filter(|&time| time != NO_TIME);
                found.push((
                    rows.users.get(row).to_owned(),
                    rows.texts.get(row).to_owned(),
                    time,
                ));
            }
            Ok(())
        })?;
        Ok((found, noted))
    }

    /// The rows, or the error.
    pub(super) fn try_rows(&self) -> crate::error::Result<Vec<Row>> {
        self.read().map(|found| found.0)
    }

    /// The rows, in the order of the export.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.read().expect("an export").0
    }

    /// Counts of what was left out, by kind.
    pub(super) fn left_out(&self) -> Vec<(String, u64)> {
        let noted = self.read().expect("an export").1;
        noted
            .iter()
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect()
    }

    /// The error, or the number of rows.
    pub(super) fn outcome(&self) -> String {
        match self.read() {
            Ok((rows, _)) => format!("{} rows", rows.len()),
            Err(error) => error.to_string(),
        }
    }

    pub(super) fn error(&self) -> String {
        self.read()
            .map(|found| found.0)
            .expect_err("an error")
            .to_string()
    }
}

/// Counts that a test expects, in the order of their kinds.
pub(super) fn counts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let own = expected.iter().map(|(kind, count)| ((*kind).to_owned(), *count));
    let mut counts: Vec<(String, u64)> = own.collect();
    counts.sort_unstable();
    counts
}
