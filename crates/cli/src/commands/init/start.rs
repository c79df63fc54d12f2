//! The start of a run: a public model and its words, or a public list of words alone. No user of the corpus has a part in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use undertone_data::WordRule;
use undertone_run::pretrain::{PretrainConfig, PretrainFile};
use undertone_run_directory::config::parse_as;
use undertone_run_directory::initial_model;
use undertone_vocabulary::record_of;

use super::ask::kind;
use super::text::quoted;
use super::{placed, placed_text};
use crate::commands::text;

/// Name of the run that makes the start.
const NAME: &str = "start";

/// Words of a start that is still to be made. Each word adds noised parameters, and few users know rare words.
const WORDS: usize = 2000;

/// Steps of a pre-training. 3,000 steps on the doc comments of Rust packages took 33 seconds of one core.
const STEPS: u64 = 8000;

/// The ids of a vocabulary that are no words: unknown, begin and end.
const SPECIAL_IDS: usize = 3;

/// The table `[model]` of a run without a public model: the smallest of the guides, since all of it is learnt from noised updates.
const FROM_SCRATCH: &str = "[model]\nfamily = \"tied_lstm\"\nembed = 32\nhidden = 64\n";

/// A public start, made or still to be made, or public words alone.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// The folder of its run, as the run file names it; `None` for a run that starts from random parameters.
    pub(super) folder: Option<String>,
    /// The file of its words, as the run file names it.
    pub(super) words: String,
    /// The rule that cut the text of the start, and that cuts the text of the run.
    pub(super) rule: WordRule,
    /// The table `[model]` of a run file.
    pub(super) model: String,
    /// Number of ids of its vocabulary.
    pub(super) ids: usize,
    /// The text of the file for `undertone pretrain`, for a start that is still to be made.
    pub(super) pretraining: Option<String>,
}

impl Start {
    /// A start that `undertone pretrain` makes from this public table. The files stand in `folder`.
    pub(super) fn to_make(public: &str, folder: Option<&Path>) -> anyhow::Result<Self> {
        ensure!(
            Path::new(public).exists(),
            "the public text {public} does not exist"
        );
        ensure!(
            record_of(Path::new(public))?.is_none(),
            "{public}: expected a public text, got one with a privacy record, which says that it was made from people's text; name another \
             text"
        );
        let file = pretraining(kind(public)?, &placed_text(public, folder)?);
        let config: PretrainConfig = parse_as(&file, Path::new("start.toml"), &[])?;
        config.validate()?;
        let run = placed(&format!("runs/{NAME}"), folder)?;
        Ok(Self {
            words: placed_text(&format!("runs/{NAME}/vocab.txt"), folder)?,
            folder: Some(run),
            rule: config.data.words,
            model: table(&config.model)?,
            ids: WORDS + SPECIAL_IDS,
            pretraining: Some(file),
        })
    }

    /// A start that `undertone pretrain` has made in the folder `run`.
    pub(super) fn made(run: &Path, folder: Option<&Path>) -> anyhow::Result<Self> {
        let expected = || {
            format!(
                "{}: expected the folder of a run of `undertone pretrain`",
                run.display()
            )
        };
        let file = PretrainFile::read(&run.join("config.toml"), &[]).with_context(expected)?;
        for name in ["model.safetensors", "vocab.txt"] {
            ensure!(
                run.join(name).is_file(),
                "{} with {name}; has the pre-training ended, and are its tokens words?",
                expected()
            );
        }
        if let Some(why) = initial_model::not_public(&run.join("model.safetensors"))? {
            bail!(
                "{}: expected a public start, got a model that {why}; make one from public text",
                run.display()
            );
        }
        let vocab = run.join("vocab.txt");
        let words = text(&vocab)?;
        let run = placed(&run.to_string_lossy(), folder)?;
        Ok(Self {
            words: placed_text(&vocab.to_string_lossy(), folder)?,
            folder: Some(run),
            rule: file.config.data.words,
            model: table(&file.config.model)?,
            ids: words.lines().count() + SPECIAL_IDS,
            pretraining: None,
        })
    }

    /// Random parameters over a public list of words.
    pub(super) fn words(list: &Path, folder: Option<&Path>) -> anyhow::Result<Self> {
        ensure!(
            record_of(list)?.is_none(),
            "{}: expected a public list of words, got one with a privacy record, which says that people's text was counted; name another \
             list",
            list.display()
        );
        let words = undertone_data::read_words(list)?;
        Ok(Self {
            folder: None,
            words: placed_text(&list.to_string_lossy(), folder)?,
            rule: WordRule::Unicode,
            model: FROM_SCRATCH.to_owned(),
            ids: words.len(),
            pretraining: None,
        })
    }
}

/// The table `[model]`, with its header and those of its parts.
fn table(model: &impl Serialize) -> anyhow::Result<String> {
    Ok(toml::to_string(&BTreeMap::from([("model", model)]))?)
}

/// The file that makes a start.
fn pretraining(kind: &str, public: &str) -> String {
    let path = quoted(public);
    format!(
        r#"# A public start for private training, written by `undertone init`. It takes less than three minutes on two cores:
#
#     undertone pretrain start.toml
#
# This is NOT private: nothing is clipped and no noise is added. The text must be public, its licence must allow the use, and its language
# must be that of the private text.
name = "{NAME}"
seed = 1
steps = {STEPS}

[data]
source = {{ kind = "{kind}", path = {path}, user = "user_id", text = "text" }}
# The words are counted on public text, so that they reveal nothing about the users of the private corpus.
vocabulary = {{ kind = "public_corpus", path = {path}, text = "text", size = {WORDS} }}
# The rule of words and sentences for every language. Without this line, text is cut by the rule of English.
words = "unicode"
split = {{ kind = "held_out_users", validation = 0.1, test = 0.0 }}

# A small LSTM with tied embeddings. Noise grows with the root of the number of parameters, so small populations need small models.
[model]
family = "tied_lstm"
embed = 48
hidden = 96

[training]
batch_size = 128
optimizer = {{ kind = "adam" }}
learning_rate = 0.004
warm_up_steps = 200
decay = {{ last_fraction = 0.5, final_factor = 0.02 }}

[evaluation]
every = 2000
max_tokens = 50000

[checkpoint]
every = 2000
"#
    )
}
