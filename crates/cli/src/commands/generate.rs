//! `undertone generate RUN [PREFIX]...`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use undertone_present::terminal;
use undertone_run::language::{Ended, GenerateOptions, Generated, generate};

use crate::output::Output;

/// Arguments of `undertone generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
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
    /// Continue each of these texts (default: begin a text).
    prefix: Vec<String>,
    /// Limit the number of new tokens, which are words where the model has a list of words.
    #[arg(long, value_name = "N", default_value_t = 64)]
    tokens: usize,
    /// Make this number of texts per prefix, at most 1,000,000 in all.
    #[arg(long, value_name = "N", default_value_t = 1)]
    samples: usize,
    /// Divide the logits by this number. 0 always takes the likeliest token.
    #[arg(
        long,
        value_name = "T",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Drawing"
    )]
    temperature: f64,
    /// Draw from the K likeliest tokens only.
    #[arg(long, value_name = "K", help_heading = "Drawing")]
    top_k: Option<usize>,
    /// Draw from the likeliest tokens that together have the probability P.
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Drawing"
    )]
    top_p: f64,
    /// Draw the same text again (default: from the operating system).
    #[arg(long, value_name = "SEED", help_heading = "Drawing")]
    seed: Option<u64>,
    /// End a text before this string. The option may be repeated.
    #[arg(long, value_name = "TEXT", help_heading = "End")]
    stop: Vec<String>,
    /// Never draw the end of an example.
    #[arg(long, help_heading = "End")]
    ignore_end: bool,
}

/// The texts with the options that made them.
#[derive(Debug, Serialize)]
struct Document<'a> {
    options: &'a GenerateOptions,
    texts: &'a [Generated],
    tokens: usize,
    seconds: f64,
    tokens_per_second: f64,
}

/// Generates and shows the texts; a single text appears word by word on a terminal.
pub(crate) fn run(args: &GenerateArgs, output: &Output) -> anyhow::Result<()> {
    let seed = match args.seed {
        Some(seed) => seed,
        None => {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
            u64::from_le_bytes(bytes)
        }
    };
    let options = GenerateOptions {
        tokens: args.tokens,
        samples: args.samples,
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed,
        stop: args.stop.clone(),
        ignore_end: args.ignore_end,
    };
    let prefixes = match args.prefix.is_empty() {
        true => vec![String::new()],
        false => args.prefix.clone(),
    };
    let spinner = output.spinner("loading the model");
    let model = super::language_model(&args.run, args.adapters.as_deref(), &args.special, output)?;
    spinner.finish_and_clear();
    let single = prefixes.len() * options.samples == 1;
    let streams = single && output.is_read();
    if streams {
        output.continue_with(&prefixes[0])?;
    }
    let bar = match streams {
        true => indicatif::ProgressBar::hidden(),
        false => output.bar(0, "generating {pos} tokens, {elapsed}"),
    };
    let (begun, mut shown) = (Instant::now(), 0);
    let (mut first, mut failed) = (None, None);
    let texts = generate(&model, &prefixes, &options, &mut |_, text| {
        first.get_or_insert_with(Instant::now);
        bar.inc(1);
        // The last character may change while its bytes are not complete.
        if streams && !text.ends_with('\u{fffd}') {
            if let Some(new) = text.get(shown..)
                && let Err(error) = output.continue_with(new)
            {
                failed.get_or_insert(error);
            }
            shown = text.len();
        }
    })?;
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let tokens = texts.iter().map(|text| text.tokens).sum();
    let document = Document {
        options: &options,
        texts: &texts,
        tokens,
        seconds,
        tokens_per_second: speed(tokens, seconds, first.unwrap_or(begun).elapsed().as_secs_f64()),
    };
    if streams {
        output.continue_with("\n")?;
    } else {
        output.show(&document, || page(&texts))?;
    }
    output.note(&format!(
        "{tokens} tokens, {:.1} per second, --seed {seed}",
        document.tokens_per_second
    ));
    Ok(())
}

/// Tokens per second after the first one, before which the model is prepared and the prefix is read; a single token counts with that.
fn speed(tokens: usize, seconds: f64, after_first: f64) -> f64 {
    match tokens {
        0 | 1 => tokens as f64 / seconds.max(1e-9),
        _ => (tokens - 1) as f64 / after_first.max(1e-9),
    }
}

/// The texts one below the other, with an ellipsis where one could go on.
fn page(texts: &[Generated]) -> String {
    let text = |generated: &Generated| {
        let more = match generated.ended {
            Ended::Length => " …",
            Ended::End | Ended::Stop => "",
        };
        terminal::lines(&format!("{}{}{more}", generated.prefix, generated.text)).into_owned()
    };
    texts.iter().map(text).collect::<Vec<_>>().join("\n\n")
}
