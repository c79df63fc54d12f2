//! A folder of its own for every test, and the corpora that are opened in it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use undertone_data::{Corpus, DataError, NoProgress, Split};
use undertone_settings::CorpusSpec;

use crate::testing::contains;

/// A folder that is removed after the test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A folder with a vocabulary of two words.
    pub(crate) fn with_vocabulary() -> Self {
        let folder = Self::new();
        folder.write("vocab.txt", "two\nwords\n");
        folder
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }

    pub(crate) fn try_open(&self, text: &str) -> Result<Corpus, DataError> {
        Corpus::open(&spec(text), self.root(), &self.path("cache"), &NoProgress)
    }

    pub(crate) fn open(&self, text: &str) -> Corpus {
        self.try_open(text).unwrap()
    }

    /// Opens, and expects an error that contains these parts.
    #[track_caller]
    pub(crate) fn fails(&self, text: &str, parts: &str) {
        contains(&self.try_open(text).expect_err(text).to_string(), parts);
    }
}

pub(crate) fn spec(text: &str) -> CorpusSpec {
    toml::from_str(text).unwrap()
}

/// Every user of a partition as sentences.
pub(crate) fn texts(corpus: &Corpus, split: Split) -> Vec<Vec<String>> {
    let vocab = corpus.vocab();
    let sentence = |ids: &[u32]| ids.iter().map(|&id| vocab.word(id)).collect::<Vec<_>>().join(" ");
    let partition = corpus.partition(split);
    let users = partition.users();
    users
        .map(|user| user.examples().map(sentence).collect())
        .collect()
}

/// The lines of a table that start with `$`, each with the line below it.
pub(crate) fn cases(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    std::iter::from_fn(move || {
        let line = lines.next()?.strip_prefix('$').expect("a line of `$`").trim();
        Some((line, lines.next().expect("a line below")))
    })
}
