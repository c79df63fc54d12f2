//! A run file with its folder, and with its corpus where that is open already.

use std::path::{Path, PathBuf};

use undertone_data::{Corpus, Partition, Split};
use undertone_run_directory::config::{EvaluationSplit, Override, RunConfig};
use undertone_run_directory::files::names::TOKENIZER_FILE;
use undertone_run_directory::{files, plan_inputs};
use undertone_settings::{CorpusSpec, VocabularySpec};
use undertone_text::Vocab;
use undertone_vocabulary::parse_tokenizer;

use crate::error::{Result, RunError};

/// A run file that was read: the configuration, and the folder where its relative paths start.
#[derive(Debug, Clone)]
pub struct RunFile {
    /// The checked configuration, overrides applied.
    pub config: RunConfig,
    /// Folder of the run file.
    pub base: PathBuf,
    /// Settings that the file leaves out and the run takes, as lines of a run file.
    pub taken: Vec<String>,
    corpus: Option<Corpus>,
}

impl RunFile {
    /// A checked configuration whose relative paths start at `base`.
    #[must_use]
    pub fn new(config: RunConfig, base: impl Into<PathBuf>) -> Self {
        Self {
            config,
            base: base.into(),
            taken: Vec::new(),
            corpus: None,
        }
    }

    /// The run on a corpus that is open already, such as that of a table in memory.
    ///
    /// # Errors
    /// [`RunError::Coordinator`] if the corpus was opened with other settings than `[data]`.
    pub fn with_corpus(mut self, corpus: Corpus) -> Result<Self> {
        let named = &self.config.data;
        // A `config.toml` does not name a table by its rows.
        if corpus.spec() != named && (&corpus.spec().unnamed() != named || named.unnamed() != *named) {
            let text = |data: &CorpusSpec| toml::to_string(data).unwrap_or_default().replace('\n', ", ");
            let expected = format!("the settings of the corpus: {}", text(corpus.spec()));
            return Err(RunError::value("data", expected, text(named)));
        }
        self.config.data = corpus.spec().clone();
        self.corpus = Some(corpus);
        Ok(self)
    }

    /// The corpus that is open already.
    pub(crate) fn corpus(&self) -> Option<&Corpus> {
        self.corpus.as_ref()
    }

    /// Checks a configuration that a program has made, with the keys of a run file. Relative paths start at `base`.
    ///
    /// # Errors
    /// The errors of [`RunConfig::from_value`].
    pub fn from_value(
        value: serde_json::Value,
        base: impl Into<PathBuf>,
        overrides: &[Override],
    ) -> Result<Self> {
        let (config, taken) = RunConfig::from_value(value, overrides)?;
        Ok(Self {
            taken,
            ..Self::new(config, base)
        })
    }

    /// Reads and checks a run file.
    ///
    /// # Errors
    /// The errors of [`RunConfig::parse`]; from the file system.
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self> {
        let text = files::read_given_text(path)?;
        let config = RunConfig::parse(&text, path, overrides)?;
        Ok(Self {
            taken: config.taken(&text, path, overrides)?,
            ..Self::new(config, RunConfig::base_of(path))
        })
    }
}

/// The text that a run is trained on.
///
/// # Errors
/// [`RunError`] for a fraction of `audit.holdback` outside `[0, 1)`.
pub fn training_users<'a>(config: &RunConfig, corpus: &'a Corpus) -> Result<Partition<'a>> {
    Ok(corpus.partition(Split::Train).holding_back(config.holdback())?)
}

/// The partition of a corpus that an evaluation reads.
pub(crate) fn split_of(evaluated: EvaluationSplit) -> Split {
    match evaluated {
        EvaluationSplit::Validation => Split::Validation,
        EvaluationSplit::Test => Split::Test,
    }
}

/// The words or tokens of a run, from its folder. Unlike those that a verifier reads, they cut text.
pub(crate) fn vocabulary_of(folder: &Path, data: &CorpusSpec) -> Result<Vocab> {
    let Some(VocabularySpec::Tokenizer { bos, eos, .. }) = &data.vocabulary else {
        return Ok(plan_inputs::vocabulary_of(folder, data)?);
    };
    let path = folder.join(TOKENIZER_FILE);
    let vocab = parse_tokenizer(&path, files::read(&path)?, bos.as_deref(), eos.as_deref())?;
    Ok(vocab.with_rule(data.words))
}
