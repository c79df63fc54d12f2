//! Text of a transformer of GPT-2's size: tokens per second by one thread and by several, with drafts and without, beside the bandwidth of
//! memory that as many threads have.

use std::hint::black_box;
use std::time::Instant;

use anyhow::ensure;
use serde_json::json;
use undertone_models::ModelSpec;
use undertone_run::language::{GenerateOptions, LanguageModel, Means, generate};

use crate::bench::usage::peak_rss_mb;

/// GPT-2's vocabulary without the three special ids of a list of words.
const WORDS: usize = 50_257 - 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Texts that grow together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    sequences: u32,
    /// Words of each text before the first new one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..512))]
    prefix: u32,
    /// New words of each text
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..512))]
    tokens: u32,
    /// Temperature of the draws; 0 takes the likeliest word
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Measure up to this number of threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Make each text this often, and report the fastest
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
}

/// GB per second at which threads together read these numbers, the fastest of five passes.
fn reads(numbers: &[f32], threads: usize) -> f64 {
    let read = |part: &[f32]| {
        let mut sums = [0.0_f32; 64];
        for chunk in part.as_chunks::<64>().0 {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += value;
            }
        }
        black_box(sums);
    };
    let pass = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in numbers.chunks(numbers.len().div_ceil(threads)) {
                scope.spawn(move || read(part));
            }
        });
        size_of_val(numbers) as f64 / 1e9 / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| pass()).fold(0.0, f64::max)
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let spec: ModelSpec = serde_json::from_value(json!({
        "family": "transformer", "layers": 12, "width": 768, "heads": 12, "context": 1024,
    }))?;
    let words: Vec<String> = (0..WORDS).map(|word| format!("w{word}")).collect();
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("vocab.txt"), words.join("\n") + "\n")?;
    let model = spec.build(WORDS + 3)?;
    let params = model.initial_params(1);
    let description = json!({ "model": spec, "rounds": 0, "vocabulary": "vocab.txt" }).to_string();
    let file = model.write_params(&params, &description)?;
    std::fs::write(folder.path().join("model.safetensors"), file)?;
    let bandwidths: Vec<f64> = (1..=arguments.threads as usize)
        .map(|threads| reads(&params, threads))
        .collect();
    let bytes = size_of_val(&params[..]) as f64;
    let count = params.len();
    drop((params, model));
    let mut model = LanguageModel::open(folder.path())?;
    let samples = arguments.sequences as usize;
    let prefix: Vec<&str> = (0..arguments.prefix as usize)
        .map(|word| &*words[word * 131 % WORDS])
        .collect();
    let prefix = prefix.join(" ");
    let options = GenerateOptions {
        tokens: arguments.tokens as usize,
        samples,
        temperature: arguments.temperature,
        ignore_end: true,
        ..GenerateOptions::default()
    };
    let mut texts: Option<Vec<String>> = None;
    for (place, bandwidth) in bandwidths.into_iter().enumerate() {
        let threads = place + 1;
        for drafts in [false, true] {
            model = model.with_means(Means { threads, drafts });
            let (mut least, mut drafted, mut prepared) = (f64::INFINITY, 0, f64::INFINITY);
            for _ in 0..arguments.repeats {
                // The time of all words but the first of each text, before which the prefix is read.
                let (begun, mut seen, mut first) = (Instant::now(), 0, None);
                let made = generate(&model, std::slice::from_ref(&prefix), &options, &mut |_, _| {
                    seen += 1;
                    if seen == samples {
                        first = Some(Instant::now());
                    }
                })?;
                let first = first.unwrap_or(begun);
                least = least.min(first.elapsed().as_secs_f64());
                prepared = prepared.min((first - begun).as_secs_f64());
                drafted = made.iter().map(|text| text.drafted).sum();
                let made: Vec<String> = made.into_iter().map(|text| text.text).collect();
                let same = texts.get_or_insert_with(|| made.clone());
                ensure!(
                    *same == made,
                    "the texts differ with {threads} threads, drafts: {drafts}"
                );
            }
            let new = (arguments.tokens as usize - 1) * samples;
            let rate = new as f64 / least;
            let limit = samples as f64 * bandwidth * 1e9 / bytes;
            println!(
                "RESULT {}",
                json!({
                    "name": "undertone",
                    "size": "gpt2",
                    "params": count,
                    "sequences": samples,
                    "prefix": arguments.prefix,
                    "tokens": arguments.tokens,
                    "temperature": arguments.temperature,
                    "threads": threads,
                    "drafts": drafts,
                    "drafted": drafted,
                    "tokens_per_s": (10.0 * rate).round() / 10.0,
                    "limit": (10.0 * limit).round() / 10.0,
                    "limit_is": "the parameters read from memory by these threads, once per step of all sequences",
                    "of_limit": (1000.0 * rate / limit).round() / 1000.0,
                    "read_gb_per_s": (10.0 * bandwidth).round() / 10.0,
                    "seconds_before_first": (100.0 * prepared).round() / 100.0,
                    "peak_rss_mb": peak_rss_mb(),
                })
            );
        }
    }
    Ok(())
}
