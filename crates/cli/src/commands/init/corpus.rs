//! The text of people, by name: its file, and the two columns of it. Names of columns are read, and no value is.

use std::path::Path;

use serde::Serialize;
use undertone_data::DataError;

use super::ask::Questions;
use super::placed_text;
use crate::output::value;

/// Names of columns that a question offers.
const OFFERED: usize = 20;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Corpus")]
pub(super) struct CorpusArgs {
    #[command(flatten)]
    which: Which,
    /// Name the column of the user [default: user_id].
    #[arg(long, value_name = "NAME")]
    user_column: Option<String>,
    /// Name the column of the text [default: text].
    #[arg(long, value_name = "NAME")]
    text_column: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(id = "corpus", multiple = false)]
struct Which {
    /// Train on this file of JSON objects, one per line. The command reads the names of their fields, and no value.
    #[arg(long, value_name = "PATH")]
    jsonl: Option<String>,
    /// Train on this CSV file with a header line. The command reads that line alone.
    #[arg(long, value_name = "PATH")]
    csv: Option<String>,
    /// Train on this Parquet file. The command reads the names of its columns alone.
    #[arg(long, value_name = "PATH")]
    parquet: Option<String>,
}

/// The text of people, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Corpus {
    pub(super) kind: &'static str,
    pub(super) path: String,
    pub(super) user: String,
    pub(super) text: String,
}

impl CorpusArgs {
    /// The text that the flags name. In a terminal it asks for what they do not.
    pub(super) fn corpus(&self, questions: &mut Questions<'_>) -> anyhow::Result<Corpus> {
        let which = &self.which;
        let given = [
            ("jsonl", &which.jsonl),
            ("csv", &which.csv),
            ("parquet", &which.parquet),
        ];
        let given = given
            .into_iter()
            .find_map(|(kind, path)| Some((kind, path.clone()?)));
        let asked = given.is_none();
        let (kind, path) = match given {
            Some(given) => given,
            None => questions.corpus(&|kind, path| names(kind, path).map(|_| ()))?,
        };
        let names = match questions.can_ask() {
            true => names(kind, &path)?,
            false => Vec::new(),
        };
        let mut column = |given: &Option<String>, question: &str, default: &str| match given {
            Some(name) => Ok(name.clone()),
            None if asked || !has(&names, kind, default) => {
                questions.column(question, default, &names, &|name| has(&names, kind, name))
            }
            None => Ok(default.to_owned()),
        };
        let user = column(&self.user_column, "Which column names the user", "user_id")?;
        let text = column(&self.text_column, "Which column holds the text", "text")?;
        Ok(Corpus {
            kind,
            path,
            user,
            text,
        })
    }
}

impl Corpus {
    /// Refuses columns that the file lacks, both at once.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let names = names(self.kind, &self.path)?;
        let both = [("--user-column", &self.user), ("--text-column", &self.text)];
        let mut missing = both
            .into_iter()
            .filter(|(_, column)| !has(&names, self.kind, column));
        let Some((key, column)) = missing.next() else {
            return Ok(());
        };
        let also = missing.next().map_or(String::new(), |(key, column)| {
            format!("; it also lacks {:?} ({key})", value(column))
        });
        Err(DataError::MissingColumn {
            file: self.path.clone().into(),
            key,
            column: column.clone(),
            found: names,
            hint: also.into(),
        }
        .into())
    }
}

/// The names of the columns; none where an environment variable names the file, which may stand elsewhere.
fn names(kind: &str, path: &str) -> anyhow::Result<Vec<String>> {
    if path.starts_with('$') {
        return Ok(Vec::new());
    }
    let source = serde_json::json!({ "kind": kind, "path": placed_text(path, None)? });
    Ok(undertone_data::column_names(
        &serde_json::from_value(source)?,
        Path::new(""),
    )?)
}

/// `true` if a file with these names can have the column. In JSON, a name that begins with `/` is a place below the top.
fn has(names: &[String], kind: &str, column: &str) -> bool {
    let below = kind == "jsonl" && column.starts_with('/');
    names.is_empty() || below || names.iter().any(|name| name == column)
}

/// The first names as a question offers them.
pub(super) fn offered(names: &[String]) -> String {
    let mut shown: Vec<String> = names
        .iter()
        .take(OFFERED)
        .map(|name| value(name).into_owned())
        .collect();
    if names.len() > OFFERED {
        shown.push(format!("and {} more", names.len() - OFFERED));
    }
    shown.join(", ")
}
