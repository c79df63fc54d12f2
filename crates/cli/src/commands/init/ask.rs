//! Questions to a person at a terminal, and the list of flags that are missing where there is none.

use std::fmt::Display;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};

use super::corpus::offered;
use crate::output::{Output, value};

/// Refuses an answer with the reason.
type Check<'c, T> = &'c dyn Fn(&T) -> anyhow::Result<()>;

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
        check: Check<'_, T>,
    ) -> anyhow::Result<T> {
        match (given, self.can_ask()) {
            (Some(given), _) => check(&given).map(|()| given),
            (None, true) => {
                let default = default.map(|default| default.to_string());
                self.answer(question, default.as_deref(), check)
            }
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
        check: Check<'_, T>,
    ) -> anyhow::Result<T> {
        match (given, self.can_ask()) {
            (Some(given), _) => check(&given).map(|()| given),
            (None, true) => self.answer(question, Some(&default.to_string()), check),
            (None, false) => Ok(default),
        }
    }

    /// `true` if there is a person to ask.
    pub(super) fn can_ask(&self) -> bool {
        self.terminal.is_some()
    }

    /// One of these columns; the default one where there is nobody to ask.
    pub(super) fn column(
        &mut self,
        question: &str,
        default: &str,
        names: &[String],
        has: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        if !self.can_ask() {
            return Ok(default.to_owned());
        }
        let offered = offered(names);
        let question = match names.is_empty() {
            true => format!("{question}?"),
            false => format!("{question} ({offered})?"),
        };
        self.answer(
            &question,
            Some(default).filter(|name| has(name)),
            &|name: &String| {
                ensure!(
                    has(name),
                    "There is no column of this name; the columns are {offered}."
                );
                Ok(())
            },
        )
    }

    /// Kind and path of the corpus, which `check` can read.
    pub(super) fn corpus(
        &mut self,
        check: &dyn Fn(&str, &str) -> anyhow::Result<()>,
    ) -> anyhow::Result<(&'static str, String)> {
        if !self.can_ask() {
            self.missing.push("--jsonl (or --csv, --parquet)");
            return Ok(("jsonl", String::new()));
        }
        let path: String = self.answer(
            "Which file holds the text of the users (.jsonl, .csv or .parquet)?",
            None,
            &|path: &String| check(kind(path)?, path),
        )?;
        Ok((kind(&path)?, path))
    }

    /// A public text, a start that is there, or a list of words.
    pub(super) fn begin(&mut self) -> anyhow::Result<Begin> {
        if !self.can_ask() {
            self.missing.push(
                "--public (a public text), --start (a run of `undertone pretrain`) or --words (a public list of words)",
            );
            return Ok(Begin::Public(String::new()));
        }
        let path: String = self.answer(
            "Which public text in the language of the users, or which run of `undertone pretrain` on one, shall it start from? \
             Without any, name a public list of their words (.txt).",
            None,
            &|path: &String| {
                ensure!(Path::new(path).exists(), "{path} does not exist.");
                match Path::new(path).is_dir() || is_list(path) {
                    true => Ok(()),
                    false => kind(path).map(|_| ()),
                }
            },
        )?;
        Ok(match (Path::new(&path).is_dir(), is_list(&path)) {
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

    /// Asks until the answer can be understood and holds.
    fn answer<T: FromStr>(
        &mut self,
        question: &str,
        default: Option<&str>,
        check: Check<'_, T>,
    ) -> anyhow::Result<T> {
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
            let sentence = match answer.parse() {
                Ok(value) if !answer.is_empty() => match check(&value) {
                    Ok(()) => return Ok(value),
                    Err(error) => error.to_string(),
                },
                _ => "The answer cannot be read; please give it once more.".to_owned(),
            };
            self.output.print(&value(&sentence))?;
        }
    }
}

fn is_list(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "txt")
}

/// The kind of a table, by its extension. Packed files have another one below that of their packing.
pub(super) fn kind(path: &str) -> anyhow::Result<&'static str> {
    let packed = [".gz", ".zst", ".zip"];
    let inner = packed.iter().find_map(|packing| path.strip_suffix(packing));
    let extension = Path::new(inner.unwrap_or(path))
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
        let mut lines: &[u8] = b"posts.txt\nnowhere.csv\nposts.csv.gz\n6155\nauthor\nmany\n3\n120\n\n";
        let mut questions = Questions::new(Some(&mut lines), &QUIET);
        let there = |_: &str, path: &str| {
            ensure!(path.starts_with("posts"), "no such file");
            Ok(())
        };
        assert_eq!(
            questions.corpus(&there).unwrap(),
            ("csv", "posts.csv.gz".to_owned())
        );
        let names = ["author".to_owned()];
        let has = |name: &str| name == "author";
        assert_eq!(
            questions.column("user", "user_id", &names, &has).unwrap(),
            "author"
        );
        let several = |users: &u64| {
            ensure!(*users > 3, "too few");
            Ok(())
        };
        assert_eq!(
            questions
                .number("--users", None, "users?", None, &several)
                .unwrap(),
            120
        );
        assert_eq!(
            questions
                .number("--epsilon", None, "epsilon?", Some(4.0), &|_| Ok(()))
                .unwrap(),
            4.0
        );
        questions.finish().unwrap();
        let error = questions
            .optional(None, "minutes?", 5.0, &|_| Ok(()))
            .unwrap_err();
        assert!(error.to_string().contains("the input ended"), "{error}");
    }

    #[test]
    fn the_beginning_is_a_text_a_folder_or_a_list_of_words() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().display().to_string();
        let [public, words, other] =
            ["public.csv", "words.txt", "other.md"].map(|name| format!("{run}/{name}"));
        for path in [&public, &words, &other] {
            std::fs::write(path, "").unwrap();
        }
        for (answer, expected) in [
            (&public, Begin::Public(public.clone())),
            (&words, Begin::Words(words.clone().into())),
            (&run, Begin::Start(folder.path().to_owned())),
        ] {
            let line = format!("{run}/nowhere.csv\n{other}\n{answer}\n");
            let mut lines = line.as_bytes();
            let mut questions = Questions::new(Some(&mut lines), &QUIET);
            assert_eq!(questions.begin().unwrap(), expected);
        }
    }

    #[test]
    fn missing_flags_are_named_together() {
        let mut questions = Questions::new(None, &QUIET);
        questions.corpus(&|_, _| Ok(())).unwrap();
        questions
            .number::<u64>("--users", None, "users?", None, &|_| Ok(()))
            .unwrap();
        questions
            .number("--epsilon", Some(2.0), "epsilon?", None, &|_| Ok(()))
            .unwrap();
        let minutes = questions.optional(None, "minutes?", 5.0, &|_| Ok(()));
        assert_eq!(minutes.unwrap(), 5.0);
        let error = questions.finish().unwrap_err().to_string();
        assert!(
            error.ends_with("missing: --jsonl (or --csv, --parquet), --users"),
            "{error}"
        );
    }
}
