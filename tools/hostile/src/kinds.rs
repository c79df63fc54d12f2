//! Every kind of file that is read, an honest one of it, and the reading itself: what the commands do with such a file, in this
//! process. The same functions are the fuzz targets.

mod models;
mod runs;
mod settings;
mod tables;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::mutate::Syntax;
use crate::world::World;

/// A kind of file.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Name of the kind, on the command line and in the folder of the corpus.
    pub name: &'static str,
    /// The syntax of the file.
    pub syntax: Syntax,
    /// The honest files, as paths below the world's folder; which one a mutation starts from follows from its number.
    pub honest: &'static [&'static str],
    /// Reads the world with another file in the place of the honest one.
    read: fn(&World, &str) -> Result<()>,
}

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is wrong with it: the change did not matter, or made another honest file.
    Accepted,
    /// An error, in its own words.
    Refused(String),
}

/// Every kind.
pub const KINDS: [Kind; 33] = [
    Kind {
        name: "config",
        syntax: Syntax::Toml,
        honest: &[
            "runs/sampled/config.toml",
            "runs/correlated/config.toml",
            "runs/adaptive/config.toml",
            "runs/els/config.toml",
            "runs/secagg/config.toml",
            "runs/public/config.toml",
            "runs/words/config.toml",
            "runs/tokens/config.toml",
        ],
        read: runs::verify_and_report,
    },
    Kind {
        name: "ledger",
        syntax: Syntax::JsonLines,
        honest: &[
            "runs/sampled/ledger.jsonl",
            "runs/correlated/ledger.jsonl",
            "runs/adaptive/ledger.jsonl",
            "runs/els/ledger.jsonl",
            "runs/secagg/ledger.jsonl",
            "runs/public/ledger.jsonl",
        ],
        read: runs::verify_and_report,
    },
    Kind {
        name: "metrics",
        syntax: Syntax::JsonLines,
        honest: &[
            "runs/sampled/metrics.jsonl",
            "runs/adaptive/metrics.jsonl",
            "runs/els/metrics.jsonl",
            "runs/secagg/metrics.jsonl",
        ],
        read: runs::verify_and_report,
    },
    Kind {
        name: "privacy",
        syntax: Syntax::Json,
        honest: &[
            "runs/sampled/privacy.json",
            "runs/correlated/privacy.json",
            "runs/els/privacy.json",
            "runs/words/privacy.json",
        ],
        read: runs::verify_and_report,
    },
    Kind {
        name: "manifest",
        syntax: Syntax::Json,
        honest: &["runs/sampled/manifest.json", "runs/correlated/manifest.json"],
        read: runs::verify_and_report,
    },
    Kind {
        name: "mechanism",
        syntax: Syntax::Json,
        honest: &["runs/correlated/mechanism.json", "runs/adaptive/mechanism.json"],
        read: runs::verify_and_report,
    },
    Kind {
        name: "run-vocabulary",
        syntax: Syntax::Bytes,
        honest: &["runs/sampled/vocab.txt", "runs/words/vocab.txt"],
        read: runs::verify_and_report,
    },
    Kind {
        name: "run-vocabulary-record",
        syntax: Syntax::Json,
        honest: &["runs/words/vocab.txt.privacy.json"],
        read: runs::verify_and_report,
    },
    Kind {
        name: "run-initial-model",
        syntax: Syntax::Json,
        honest: &["runs/adapters/initial_model.json"],
        read: runs::verify_and_report,
    },
    Kind {
        name: "run-tokenizer",
        syntax: Syntax::Json,
        honest: &["runs/tokens/tokenizer.json"],
        read: runs::verify_and_report,
    },
    Kind {
        name: "run-model",
        syntax: Syntax::Safetensors,
        honest: &[
            "runs/sampled/model.safetensors",
            "runs/transformer/model.safetensors",
            "runs/adapters/model.safetensors",
        ],
        read: runs::use_model,
    },
    Kind {
        name: "used-config",
        syntax: Syntax::Toml,
        honest: &[
            "runs/sampled/config.toml",
            "runs/words/config.toml",
            "runs/tokens/config.toml",
            "runs/adapters/config.toml",
        ],
        read: runs::use_model,
    },
    Kind {
        name: "checkpoint",
        syntax: Syntax::Safetensors,
        honest: &[
            "runs/open-sampled/checkpoint/state.safetensors",
            "runs/open-correlated/checkpoint/state.safetensors",
        ],
        read: runs::resume,
    },
    Kind {
        name: "noise-state",
        syntax: Syntax::Bytes,
        honest: &["runs/open-correlated/checkpoint/noise.state"],
        read: runs::resume,
    },
    Kind {
        name: "resumed-ledger",
        syntax: Syntax::JsonLines,
        honest: &[
            "runs/open-sampled/ledger.jsonl",
            "runs/open-correlated/ledger.jsonl",
        ],
        read: runs::resume,
    },
    Kind {
        name: "safetensors",
        syntax: Syntax::Safetensors,
        honest: &["plain/model.safetensors", "adapted/model.safetensors"],
        read: models::start_from,
    },
    Kind {
        name: "gpt2",
        syntax: Syntax::Safetensors,
        honest: &["gpt2/model.safetensors"],
        read: models::start_from,
    },
    Kind {
        name: "gpt2-config",
        syntax: Syntax::Json,
        honest: &["gpt2/config.json"],
        read: models::start_from_gpt2,
    },
    Kind {
        name: "huggingface-config",
        syntax: Syntax::Json,
        honest: &["huggingface/config.json"],
        read: models::open_huggingface,
    },
    Kind {
        name: "huggingface-index",
        syntax: Syntax::Json,
        honest: &["huggingface/model.safetensors.index.json"],
        read: models::open_huggingface,
    },
    Kind {
        name: "huggingface-shard",
        syntax: Syntax::Safetensors,
        honest: &["huggingface/model-00001-of-00003.safetensors"],
        read: models::open_huggingface,
    },
    Kind {
        name: "peft-config",
        syntax: Syntax::Json,
        honest: &["peft/adapter_config.json"],
        read: models::open_adapters,
    },
    Kind {
        name: "peft-tensors",
        syntax: Syntax::Safetensors,
        honest: &["peft/adapter_model.safetensors"],
        read: models::open_adapters,
    },
    Kind {
        name: "vocabulary",
        syntax: Syntax::Bytes,
        honest: &["words.txt"],
        read: tables::words,
    },
    Kind {
        name: "vocabulary-record",
        syntax: Syntax::Json,
        honest: &["words.txt.privacy.json"],
        read: tables::words,
    },
    Kind {
        name: "tokenizer",
        syntax: Syntax::Json,
        honest: &["bpe.json", "wordpiece.json"],
        read: tables::tokens,
    },
    Kind {
        name: "csv",
        syntax: Syntax::Bytes,
        honest: &["rows.csv"],
        read: tables::table,
    },
    Kind {
        name: "jsonl",
        syntax: Syntax::JsonLines,
        honest: &["rows.jsonl"],
        read: tables::table,
    },
    Kind {
        name: "parquet",
        syntax: Syntax::Bytes,
        honest: &["rows.parquet"],
        read: tables::table,
    },
    Kind {
        name: "arrow",
        syntax: Syntax::Bytes,
        honest: &["rows.arrow", "rows-file.arrow"],
        read: tables::table,
    },
    Kind {
        name: "grouped",
        syntax: Syntax::Json,
        honest: &[
            "grouped/manifest.json",
            "grouped/users.index",
            "grouped/shard-00000.parquet",
        ],
        read: tables::grouped,
    },
    Kind {
        name: "corpus-cache",
        syntax: Syntax::Bytes,
        honest: &["runs/.corpora/cache.bin"],
        read: tables::cached,
    },
    Kind {
        name: "settings",
        syntax: Syntax::Toml,
        honest: &[
            "sampled.toml",
            "secagg.toml",
            "pretrain.toml",
            "sweep.toml",
            "simulation.toml",
        ],
        read: settings::parse,
    },
];

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// The honest file that input `index` is put in the place of.
    #[must_use]
    pub fn place(&self, index: u64) -> &'static str {
        self.honest[(index % self.honest.len() as u64) as usize]
    }

    /// The number of the honest file that a case of this name is read in the place of: the one whose path it holds, with `~` for `/`.
    #[must_use]
    pub fn place_named(&self, case: &str) -> usize {
        let named = self
            .honest
            .iter()
            .position(|place| case.contains(&place.replace('/', "~")));
        named.unwrap_or(0)
    }

    /// The path of an honest file.
    ///
    /// # Errors
    /// A world without that file.
    pub fn path(&self, world: &World, place: &str) -> Result<PathBuf> {
        real(world, place)
    }

    /// The bytes of an honest file.
    ///
    /// # Errors
    /// A world without that file.
    pub fn honest_bytes(&self, world: &World, place: &str) -> Result<Vec<u8>> {
        let path = real(world, place)?;
        fs::read(&path).with_context(|| path.display().to_string())
    }

    /// Reads the world with `bytes` in the place of one of its files, and puts everything back.
    ///
    /// # Errors
    /// A world that cannot be written; what the reader refuses is an [`Outcome`].
    pub fn read(&self, world: &World, place: &str, bytes: &[u8]) -> Result<Outcome> {
        let path = real(world, place)?;
        let kept = Kept::of(&path)?;
        fs::write(&path, bytes)?;
        let result = (self.read)(world, place);
        drop(kept);
        Ok(match result {
            Ok(()) => Outcome::Accepted,
            Err(error) => Outcome::Refused(format!("{error:#}")),
        })
    }
}

/// Files whose names the writers choose stand under names of our own in the table above.
fn real(world: &World, place: &str) -> Result<PathBuf> {
    let (folder, start) = match place {
        "runs/open-correlated/checkpoint/noise.state" => ("runs/open-correlated/checkpoint", "noise-"),
        "runs/.corpora/cache.bin" => ("runs/.corpora", "corpus-"),
        other => return Ok(world.path(other)),
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(world.path(folder))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            found.push(entry.path());
        }
    }
    found.sort();
    found
        .into_iter()
        .next()
        .with_context(|| format!("{folder} has no {start}*"))
}

/// The files beside one that is changed, put back at the end whatever happens: reading may change them, too.
struct Kept(Vec<(PathBuf, Vec<u8>)>);

impl Kept {
    fn of(path: &std::path::Path) -> Result<Self> {
        let mut files = vec![(path.to_owned(), fs::read(path)?)];
        if let Some(folder) = path.parent()
            && folder.join("ledger.jsonl").exists()
        {
            for name in ["ledger.jsonl", "manifest.json"] {
                let path = folder.join(name);
                if let Ok(bytes) = fs::read(&path) {
                    files.push((path, bytes));
                }
            }
        }
        // The changed file last: it may be one of the others.
        files.reverse();
        Ok(Self(files))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (path, bytes) in &self.0 {
            if let Err(error) = fs::write(path, bytes) {
                panic!("{} was not put back: {error}", path.display());
            }
        }
    }
}
