//! The commands, one per module.

use std::path::Path;

use anyhow::{Context, anyhow};
use undertone_run::language::{LanguageModel, SpecialTokens};
use undertone_run_directory::config::syntax_error;

use crate::output::Output;

/// The heading of options that belong to no group, which clap calls "Options". An option behind flattened ones needs it: without
/// a heading of its own it would get theirs.
pub(crate) const NO_GROUP: Option<&str> = None;

/// The path of a picture, which is always SVG.
pub(crate) fn svg_file(text: &str) -> Result<std::path::PathBuf, String> {
    match std::path::Path::new(text).extension() {
        Some(suffix) if suffix.eq_ignore_ascii_case("svg") => Ok(text.into()),
        _ => Err("expected a name that ends in .svg, because the picture is SVG".to_owned()),
    }
}

pub(crate) mod advise;
pub(crate) mod audit;
pub(crate) mod data;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod init;
pub(crate) mod lacking;
pub(crate) mod mechanism;
pub(crate) mod personalize;
pub(crate) mod plan;
pub(crate) mod planner;
pub(crate) mod predict;
pub(crate) mod pretrain;
pub(crate) mod publish;
pub(crate) mod report;
#[cfg(feature = "service")]
pub(crate) mod service;
pub(crate) mod shell;
pub(crate) mod simulate;
pub(crate) mod stopped;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod verify;

/// The text of a file that an option names.
fn text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The model that an argument names, with the adapters of an option.
fn language_model(
    path: &Path,
    adapters: Option<&Path>,
    tokens: &SpecialArgs,
    output: &Output,
) -> anyhow::Result<LanguageModel> {
    let given = SpecialTokens {
        bos: tokens.bos.clone(),
        eos: tokens.eos.clone(),
    };
    let model = LanguageModel::open_with(path, &given)?;
    for note in model.notes() {
        output.warn(note);
    }
    let model = match adapters {
        Some(folder) => model.with_adapters(folder)?,
        None => model,
    };
    model.one_word().iter().for_each(|sentence| output.warn(sentence));
    Ok(model)
}

/// Names of special tokens.
#[derive(Debug, clap::Args)]
struct SpecialArgs {
    /// Begin texts with this token of the tokenizer.
    ///
    /// By default it is the one that config.json, generation_config.json or tokenizer_config.json beside it names, else one of the usual
    /// names.
    #[arg(long, value_name = "TOKEN", help_heading = "Tokens")]
    bos: Option<String>,
    /// End texts with this token of the tokenizer (default: as for --bos). The ends that the files name end a text, too.
    #[arg(long, value_name = "TOKEN", help_heading = "Tokens")]
    eos: Option<String>,
}

/// The value of a TOML file that an option names.
fn parsed_file<T: serde::de::DeserializeOwned>(file: &Path, expected: &str) -> anyhow::Result<T> {
    parsed(file, &text(file)?, expected)
}

/// The value of a TOML text; the error names the file, what was expected and the place.
fn parsed<T: serde::de::DeserializeOwned>(file: &Path, text: &str, expected: &str) -> anyhow::Result<T> {
    toml::from_str(text)
        .map_err(|error| anyhow!("{}: {expected}: {}", file.display(), syntax_error(text, &error)))
}
