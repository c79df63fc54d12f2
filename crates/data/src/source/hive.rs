//! Columns that the names of folders give: `user_id=ada/part-0.parquet`.
//!
//! Programs that write tables in parts leave such a column out of the files. Names are as Hive writes them, with `%` before two
//! hexadecimal digits for other characters.

use std::path::Path;

use crate::columns::Columns;
use crate::error::{DataError, Place, Result, bad_value, quoted};
use crate::rows::{OnRows, Rows};
use undertone_settings::time::{self, NO_TIME};

/// The name of a folder whose column is null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A reader of one file, which is told its columns.
pub(crate) type Read<'a> = dyn FnMut(Columns<'_>, &mut OnRows<'_>) -> Result<()> + 'a;

/// Reads a file whose folders may give some of the columns. A column that stands in the file, too, must hold the value of the folder in
/// every row.
pub(crate) fn read(
    path: &Path,
    columns: Columns<'_>,
    read: &mut Read<'_>,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    let given = Given::of(path, columns)?;
    if given.is_empty() {
        return read(columns, on_rows);
    }
    let (mut asked, mut begun) = (columns, false);
    loop {
        let result = read(asked, &mut |rows, total| {
            begun = true;
            given.check(rows, asked, columns)?;
            let with = rows.with(given.user.as_deref(), given.time, given.split.as_deref());
            on_rows(&with, total)
        });
        match result {
            Err(error) if !begun => match lacking(&error) {
                Some(column) if given.leave_out(&column, &mut asked) => {}
                _ => return Err(error),
            },
            other => return other,
        }
    }
}

/// The names of the columns that the folders of a file give.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let name = |part: std::path::Component<'_>| decoded(part.as_os_str().to_str()?.split_once('=')?.0);
    folders.filter_map(name).collect()
}

/// `true` if the folders of a file give its time.
pub(crate) fn gives_time(path: &Path, columns: Columns<'_>) -> bool {
    Given::of(path, columns).is_ok_and(|given| given.time.is_some())
}

/// The quoted name of the column that a file lacks.
fn lacking(error: &DataError) -> Option<String> {
    match error {
        DataError::MissingColumn { column, .. } => Some(quoted(column)),
        // The first object of JSON lines.
        DataError::BadValue { what, got, .. } if got.starts_with("no such field") => Some(what.clone()),
        _ => None,
    }
}

/// The values that folders give.
#[derive(Debug, Default)]
struct Given {
    user: Option<String>,
    time: Option<i64>,
    split: Option<String>,
}

impl Given {
    fn of(path: &Path, columns: Columns<'_>) -> Result<Given> {
        let mut given = Given::default();
        for part in path.parent().into_iter().flat_map(Path::components) {
            let Some((name, value)) = part.as_os_str().to_str().and_then(|part| part.split_once('=')) else {
                continue;
            };
            let (Some(name), wanted) = (decoded(name), [columns.user, columns.time, columns.split]) else {
                continue;
            };
            if !wanted.contains(&Some(&name)) {
                continue;
            }
            let bad = |expected: &str, got: String| {
                let what = format!("the folder {}", quoted(&part.as_os_str().to_string_lossy()));
                bad_value(path, Place::Row(1), what, expected, got)
            };
            let text = decoded(value).ok_or_else(|| bad("UTF-8 and %XX", quoted(value)))?;
            if columns.time == Some(&name) {
                let seconds = match &*text {
                    NULL => Ok(None),
                    text => time::of_text(text, columns.time_unit),
                };
                given.time = Some(match seconds {
                    Ok(None) => NO_TIME,
                    Ok(Some(NO_TIME)) => return Err(bad(&time::expected(), quoted(text.trim()))),
                    Ok(Some(seconds)) => seconds,
                    Err(expected) => return Err(bad(&expected, quoted(text.trim()))),
                });
                continue;
            }
            if text.is_empty() || text == NULL {
                return Err(bad("a value", quoted(&text)));
            }
            match columns.user == Some(&name) {
                true => given.user = Some(text),
                false => given.split = Some(text),
            }
        }
        Ok(given)
    }

    fn is_empty(&self) -> bool {
        self.user.is_none() && self.time.is_none() && self.split.is_none()
    }

    /// Asks the file no more for a column with this quoted name; `false` where no folder gives it.
    fn leave_out(&self, name: &str, asked: &mut Columns<'_>) -> bool {
        let is = |column: Option<&str>| column.is_some_and(|column| quoted(column) == name);
        if self.user.is_some() && is(asked.user) {
            asked.user = None;
        } else if self.time.is_some() && is(asked.time) {
            asked.time = None;
        } else if self.split.is_some() && is(asked.split) {
            asked.split = None;
        } else {
            return false;
        }
        true
    }

    /// Refuses a row with another value than the folder.
    fn check(&self, rows: &Rows, asked: Columns<'_>, columns: Columns<'_>) -> Result<()> {
        for row in 0..rows.len() {
            let differs = |name: Option<&str>, expected: &str, got: &str| {
                let what = format!("column {}", quoted(name.unwrap_or_default()));
                let expected = format!("{}, as the name of its folder says", quoted(expected));
                Err(rows.bad(row, what, expected, quoted(got)))
            };
            if let (Some(_), Some(user)) = (asked.user, &self.user)
                && rows.users.get(row) != user
            {
                return differs(columns.user, user, rows.users.get(row));
            }
            if let (Some(_), Some(split), Some(got)) = (asked.split, &self.split, rows.split(row))
                && got != split
            {
                return differs(columns.split, split, got);
            }
            if let (Some(_), Some(time)) = (asked.time, self.time)
                && ![NO_TIME, time].contains(&rows.times[row])
            {
                return differs(columns.time, &time.to_string(), &rows.times[row].to_string());
            }
        }
        Ok(())
    }
}

/// The text of a name; `None` for bytes that are no UTF-8 and for a lone `%`.
fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::progress::NoProgress;
    use crate::source::Source;
    use undertone_settings::SourceSpec;

    /// Users, texts, times and splits of a folder.
    fn rows(source: &str, base: &Path) -> Result<Vec<(String, String, i64, String)>, DataError> {
        let spec: SourceSpec = toml::from_str(source).expect("a source");
        let (source, _) = Source::open(&spec, base, &NoProgress)?;
        let mut found = Vec::new();
        source.read(&mut |rows, _| {
            found.extend((0..rows.len()).map(|row| {
                let text = |text: &str| text.to_owned();
                let split = rows.split(row).unwrap_or("none");
                (
                    text(rows.users.get(row)),
                    text(rows.texts.get(row)),
                    rows.times[row],
                    text(split),
                )
            }));
            Ok(())
        })?;
        Ok(found)
    }

    fn write(base: &Path, name: &str, contents: &str) {
        let path = base.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, contents).expect("a file");
    }

    #[test]
    fn folders_give_the_columns_that_files_lack() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path();
        for (kind, ending, of) in [
            (
                "csv",
                "csv",
                (|text| format!("text\n{text}\n")) as fn(&str) -> String,
            ),
            ("jsonl", "jsonl", |text| format!("{{\"text\": \"{text}\"}}\n")),
        ] {
            write(
                base,
                &format!("{kind}/part=train/user_id=ada/part-0.{ending}"),
                &of("one"),
            );
            write(
                base,
                &format!("{kind}/part=train/user_id=caf%C3%A9%20b/day=2024-06-05/part-0.{ending}"),
                &of("two"),
            );
            write(
                base,
                &format!("{kind}/part=test/user_id=a=b/day=3/part-0.{ending}"),
                &of("three"),
            );
            let found = rows(
                &format!("kind = \"{kind}\"\npath = \"{kind}\"\nsplit = \"part\""),
                base,
            )
            .expect("rows");
            let of = |user: &str, text: &str, split: &str| {
                (user.to_owned(), text.to_owned(), i64::MIN, split.to_owned())
            };
            let expected = [
                of("a=b", "three", "test"),
                of("ada", "one", "train"),
                of("café b", "two", "train"),
            ];
            assert_eq!(found, expected, "{kind}");
        }
        let at = "csv/part=train/user_id=caf%C3%A9%20b/day=2024-06-05/part-0.csv";
        let timed = rows(&format!("kind = \"csv\"\npath = \"{at}\"\ntime = \"day\""), base).expect("rows");
        assert_eq!(timed[0].2, 1_717_545_600);
    }

    #[test]
    fn a_folder_that_contradicts_its_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path();
        write(base, "a/user_id=ada/a.csv", "user_id,text\nada,one\n");
        assert_eq!(rows("kind = \"csv\"\npath = \"a\"", base).expect("rows").len(), 1);
        write(base, "a/user_id=bob/a.csv", "user_id,text\nbob,one\neve,two\n");
        write(
            base,
            "b/user_id=bob/a.jsonl",
            "{\"user_id\": \"eve\", \"text\": \"one\"}\n",
        );
        write(base, "c/user_id=%zz/a.csv", "text\none\n");
        write(base, "d/user_id=__HIVE_DEFAULT_PARTITION__/a.csv", "text\none\n");
        write(base, "e/user=ada/a.csv", "text\none\n");
        for (path, kind, part) in [
            (
                "a",
                "csv",
                "line 3: column \"user_id\": expected \"bob\", as the name of its folder says, got \"eve\"",
            ),
            (
                "b",
                "jsonl",
                "expected \"bob\", as the name of its folder says, got \"eve\"",
            ),
            ("c", "csv", "the folder \"user_id=%zz\": expected UTF-8 and %XX"),
            ("d", "csv", "expected a value, got \"__HIVE_DEFAULT_PARTITION__\""),
            ("e", "csv", "it lacks the column \"user_id\""),
        ] {
            let message = rows(&format!("kind = \"{kind}\"\npath = \"{path}\""), base)
                .expect_err(path)
                .to_string();
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}
