//! Hostile inputs: honest files of every kind that Undertone reads, mutations of them, and a harness that reads each mutation as the
//! commands do and says where one does more than end in an error.
//!
//! The readers called here are those of the commands, none is written again. What must not happen: a panic, an abort, more than
//! [`hunt::SECONDS`] of work, more than [`hunt::MEMORY`] of memory; of whole commands also more than three lines of error, a control
//! character on the terminal, and a file written outside of the run ([`commands`]).
//!
//! [`federated`] reads the inputs of the federated service. Not here: messages of secure aggregation, whose targets `secagg_*` in `fuzz/` make their own.

#![forbid(unsafe_code)]

pub mod commands;
pub mod corpus;
pub mod federated;
pub mod hunt;
mod kinds;
mod mutate;
mod random;
mod world;

use std::sync::OnceLock;

pub use kinds::{KINDS, Kind, Outcome};
pub use mutate::{Syntax, mutant};
pub use world::World;

/// Environment variable with the path of honest files that were made before, for fuzz targets: making them takes longer than starting.
const WORLD: &str = "UNDERTONE_HOSTILE_WORLD";

/// Fuzz targets and the kinds of files that each reads: the first byte of an input chooses one of them, the rest is the file.
pub const TARGETS: [(&str, &[&str]); 10] = [
    ("arrow_stream", &["arrow"]),
    (
        "run_directory",
        &[
            "config",
            "ledger",
            "metrics",
            "privacy",
            "manifest",
            "mechanism",
            "run-vocabulary",
            "run-vocabulary-record",
            "run-initial-model",
            "run-tokenizer",
        ],
    ),
    ("used_run", &["run-model", "used-config", "corpus-cache"]),
    ("checkpoint", &["checkpoint", "noise-state", "resumed-ledger"]),
    (
        "models",
        &[
            "safetensors",
            "gpt2",
            "gpt2-config",
            "huggingface-config",
            "huggingface-index",
            "huggingface-shard",
            "peft-config",
            "peft-tensors",
        ],
    ),
    ("vocabularies", &["vocabulary", "vocabulary-record"]),
    ("tokenizers", &["tokenizer"]),
    ("tables", &["csv", "jsonl", "parquet"]),
    ("grouped", &["grouped"]),
    ("settings", &["settings"]),
];

/// The body of a fuzz target. Where a kind has several honest files, the first byte also says in the place of which one the input is
/// read.
///
/// # Panics
/// Ends the process where the reader panics: that is what is looked for. Panics that a reader catches itself are none.
pub fn fuzz(target: &str, input: &[u8]) {
    static HONEST: OnceLock<World> = OnceLock::new();
    let Some((first, bytes)) = input.split_first() else {
        return;
    };
    let world = HONEST.get_or_init(|| {
        // A fuzzer ends the process at the first panic; one that is caught below is judged here.
        std::panic::set_hook(Box::new(|_| {}));
        let folder = std::env::temp_dir().join(format!("undertone-hostile-{}", std::process::id()));
        let made = std::fs::create_dir_all(&folder).map_err(anyhow::Error::from);
        let made = made.and_then(|()| match std::env::var_os(WORLD) {
            Some(made) => World::at(made.as_ref()).copy(&folder),
            None => World::make(&folder),
        });
        made.unwrap_or_else(|error| stop(&format!("no honest files: {error:#}")))
    });
    let kinds = TARGETS.iter().find(|(name, _)| *name == target);
    let Some((_, kinds)) = kinds else {
        stop(&format!("no target {target}"))
    };
    let first = usize::from(*first);
    let Some(kind) = Kind::named(kinds[first % kinds.len()]) else {
        stop("no such kind")
    };
    let place = kind.place((first / kinds.len()) as u64);
    match std::panic::catch_unwind(|| kind.read(world, place, bytes)) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => stop(&format!("{}: {error:#}", kind.name)),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
            stop(&format!("{}: {}", kind.name, message.unwrap_or("a panic")))
        }
    }
}

/// Ends the process as a fuzzer notices.
fn stop(why: &str) -> ! {
    eprintln!("{why}");
    std::process::abort()
}
