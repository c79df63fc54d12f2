//! `undertone predict RUN [PREFIX]`.

mod keyboard;
mod strip;

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use undertone_run::language::{Prediction, Predictor};

use crate::output::{Output, value};

/// Arguments of `undertone predict`.
#[derive(Debug, clap::Args)]
pub(crate) struct PredictArgs {
    /// Read the model of this run, exported task or exported model.
    ///
    /// A run that has not ended gives the model of its last checkpoint.
    run: PathBuf,
    /// Add the adapters in this folder, which PEFT or `undertone export --layout peft` wrote. The model must be the one that they were
    /// trained on.
    #[arg(long, value_name = "FOLDER")]
    adapters: Option<PathBuf>,
    #[command(flatten)]
    special: super::SpecialArgs,
    /// Predict the words after this text. Its last word counts as complete.
    prefix: Option<String>,
    /// Show this many words.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    top: u64,
}

/// One line of standard input with the words that may follow it.
#[derive(Debug, Serialize)]
struct Line {
    prefix: String,
    predictions: Vec<Prediction>,
}

/// Predicts and shows the words, or opens the keyboard.
pub(crate) fn run(args: &PredictArgs, output: &Output) -> anyhow::Result<()> {
    let spinner = output.spinner("loading the model");
    let model = super::language_model(&args.run, args.adapters.as_deref(), &args.special, output)?;
    let mut predictor = Predictor::new(&model)?;
    spinner.finish_and_clear();
    let top = usize::try_from(args.top)?;
    if let Some(prefix) = &args.prefix {
        let predictions = predictor.next_words(prefix, "", top)?;
        return output.show(&predictions, || table(&predictions));
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() && output.is_read() {
        return strip::type_with(&mut predictor, &model);
    }
    let mut lines = Vec::new();
    for line in stdin.lock().lines() {
        let prefix = line.context("standard input")?;
        let predictions = predictor.next_words(&prefix, "", top)?;
        match output.json {
            true => lines.push(Line { prefix, predictions }),
            false => output.print(&words(&prefix, &predictions))?,
        }
    }
    match output.json {
        true => output.print_json(&lines),
        false => Ok(()),
    }
}

/// A row per word, with its probability.
fn table(predictions: &[Prediction]) -> String {
    if predictions.is_empty() {
        return "The model predicts no word here.".to_owned();
    }
    let width = predictions.iter().map(|word| word.word.chars().count()).max();
    let width = width.unwrap_or(0).min(40);
    let row = |prediction: &Prediction| {
        let (word, percent) = (value(&prediction.word), 100.0 * prediction.probability);
        format!("{word:width$}  {percent:6.2} %")
    };
    predictions.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// A text and the words that may follow it, in one line.
fn words(prefix: &str, predictions: &[Prediction]) -> String {
    let all: Vec<_> = predictions.iter().map(|word| value(&word.word)).collect();
    format!("{} → {}", value(prefix), all.join("  "))
}
