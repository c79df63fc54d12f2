//! Questions to a person at a terminal, and the list of flags that are missing where there is none.

use std::fmt::Display;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};

use crate::output::Output;

/// The start of a run, as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begin {
    /// A start that is still to be made from this public text.
    Public(String),
    /// A run of `undertone pretrain`.
    Start(PathBuf),
    /// Random parameters over a public list of words.
    Words(PathBuf),
}

/// Asks for facts that no flag states.
pub(super) struct Questions<'a> {
    terminal: Option<&'a mut dyn BufRead>,
    output: &'a Output,
    missing: Vec<&'static str>,
}

impl<'a> Questions<'a> {
    /// Questions that are answered on `terminal`, line by line; without one they are refused together, by [`finish`](Self::finish).
    pub(super) fn new(terminal: Option<&'a mut dyn BufRead>, output: &'a Output) -> Self {
        Self {
            terminal,
            output,
            missing: Vec::new(),
        }
    }

    /// A fact that has to be known.
    pub(super) fn number<T: FromStr + Display + Default>(
        &mut self,
        flag: &'static str,
        given: Option<T>,
        question: &str,
        default: Option<T>,
    ) -> anyhow::Result<T> {
        match (given, self.terminal.is_some()) {
            (Some(given), _) => Ok(given),
            (None, true) => self.answer(question, default.map(|default| default.to_string()).as_deref()),
            (None, false) => {
                self.missing.push(flag);
                Ok(T::default())
            }
        }
    }

    /// A fact with a default, which is taken unasked where there is no terminal.
    pub(super) fn optional<T: FromStr + Display>(
        &mut self,
        given: Option<T>,
        question: &str,
        default: T,
    ) -> anyhow::Result<T> {
        match (given, self.terminal.is_some()) {
            (Some(given), _) => Ok(given),
            (None, true) => self.answer(question, Some(&default.to_string())),
            (None, false) => Ok(default),
        }
    }

    /// Kind and path of the corpus.
    pub(super) fn corpus(&mut self) -> anyhow::Result<(&'static str, String)> {
        if self.terminal.is_none() {
            self.missing.push("--jsonl (or --csv, --parquet)");
            return Ok(("jsonl", String::new()));
        }
        let path: String = self.answer(
            "Which file holds the text of the users (.jsonl, .csv or .parquet)?",
            None,
        )?;
        Ok((kind(&path)?, path))
    }

    /// A public text, a start that is there, or a list of words.
    pub(super) fn begin(&mut self) -> anyhow::Result<Begin> {
        if self.terminal.is_none() {
            self.missing.push(
                "--public (a public text), --start (a run of `undertone pretrain`) or --words (a public list of words)",
            );
            return Ok(Begin::Public(String::new()));
        }
        let path: String = self.answer(
            "Which public text in the language of the users, or which run of `undertone pretrain` on one, shall it start from? \
             Without any, name a public list of their words (.txt).",
            None,
        )?;
        let is_list = Path::new(&path)
            .extension()
            .is_some_and(|extension| extension == "txt");
        Ok(match (Path::new(&path).is_dir(), is_list) {
            (true, _) => Begin::Start(path.into()),
            (false, true) => Begin::Words(path.into()),
            (false, false) => Begin::Public(path),
        })
    }

    /// Refuses facts that are missing.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        bail!(
            "outside a terminal, `undertone init` needs flags for every fact; missing: {}",
            self.missing.join(", ")
        )
    }

    /// Asks until the answer can be understood.
    fn answer<T: FromStr>(&mut self, question: &str, default: Option<&str>) -> anyhow::Result<T> {
        loop {
            let hint = default.map(|default| format!(" [{default}]")).unwrap_or_default();
            self.output.continue_with(&format!("{question}{hint} "))?;
            let mut line = String::new();
            let terminal = self.terminal.as_mut().context("no terminal to ask on")?;
            let read = terminal.read_line(&mut line).context("standard input")?;
            if read == 0 {
                bail!("the input ended before the question \"{question}\" was answered");
            }
            let answer = match line.trim() {
                "" => default.unwrap_or_default(),
                answer => answer,
            };
            match answer.parse() {
                Ok(value) if !answer.is_empty() => return Ok(value),
                _ => self
                    .output
                    .print("The answer cannot be read; please give it once more.")?,
            }
        }
    }
}

/// The kind of a table, by its extension.
pub(super) fn kind(path: &str) -> anyhow::Result<&'static str> {
    let extension = Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str());
    match extension {
        Some("jsonl" | "ndjson" | "json") => Ok("jsonl"),
        Some("csv") => Ok("csv"),
        Some("parquet") => Ok("parquet"),
        _ => bail!("expected a file whose name ends in .jsonl, .csv or .parquet, got {path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Output = Output { json: true };

    #[test]
    fn answers_are_read_line_by_line_and_asked_again() {
        let mut lines: &[u8] = b"posts.csv\nmany\n120\n\n";
        let mut questions = Questions::new(Some(&mut lines), &QUIET);
        assert_eq!(questions.corpus().unwrap(), ("csv", "posts.csv".to_owned()));
        assert_eq!(
            questions.number::<u64>("--users", None, "users?", None).unwrap(),
            120
        );
        assert_eq!(
            questions
                .number("--epsilon", None, "epsilon?", Some(4.0))
                .unwrap(),
            4.0
        );
        questions.finish().unwrap();
        let error = questions.optional(None, "minutes?", 5.0).unwrap_err().to_string();
        assert!(error.contains("the input ended"), "{error}");
    }

    #[test]
    fn the_beginning_is_a_text_a_folder_or_a_list_of_words() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().display().to_string();
        for (answer, expected) in [
            ("public.csv", Begin::Public("public.csv".to_owned())),
            ("words.txt", Begin::Words("words.txt".into())),
            (&*run, Begin::Start(folder.path().to_owned())),
        ] {
            let line = format!("{answer}\n");
            let mut lines = line.as_bytes();
            let mut questions = Questions::new(Some(&mut lines), &QUIET);
            assert_eq!(questions.begin().unwrap(), expected);
        }
    }

    #[test]
    fn missing_flags_are_named_together() {
        let mut questions = Questions::new(None, &QUIET);
        questions.corpus().unwrap();
        questions.number::<u64>("--users", None, "users?", None).unwrap();
        questions
            .number("--epsilon", Some(2.0), "epsilon?", None)
            .unwrap();
        assert_eq!(questions.optional(None, "minutes?", 5.0).unwrap(), 5.0);
        let error = questions.finish().unwrap_err().to_string();
        assert!(
            error.ends_with("missing: --jsonl (or --csv, --parquet), --users"),
            "{error}"
        );
    }
}
