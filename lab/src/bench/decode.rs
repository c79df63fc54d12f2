//! Decoding with a transformer: tokens per second with a cache of keys and values, beside the bandwidth of memory.

use std::hint::black_box;
use std::time::Instant;

use serde_json::json;
use undertone_models::{Architecture, Extension, Positions, SequenceModel, Transformer, TransformerSizes};

use crate::bench::usage::peak_rss_mb;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Sequences that grow together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sequences: u32,
    /// Tokens of each sequence before the first new one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..512))]
    prefix: u32,
    /// New tokens of each sequence
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..512))]
    tokens: u32,
}

/// GB per second at which one thread reads these numbers, the fastest of five passes.
fn reads(numbers: &[f32]) -> f64 {
    let pass = || {
        let start = Instant::now();
        let mut sums = [0.0_f32; 64];
        for chunk in numbers.as_chunks::<64>().0 {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += value;
            }
        }
        black_box(sums);
        size_of_val(numbers) as f64 / 1e9 / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| pass()).fold(0.0, f64::max)
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let sequences = arguments.sequences as usize;
    let model = Transformer::new(TransformerSizes {
        vocab: 50_257,
        layers: 12,
        width: 768,
        heads: 12,
        context: 1024,
        inner: 4 * 768,
        positions: Positions::Learned,
        architecture: Architecture::GPT2,
    })?;
    let params = model.initial_params(1);
    let bandwidth = reads(&params);
    let bytes = size_of_val(&params[..]) as f64;
    let count = params.len();
    let mut decoder = model.decoder(&params, sequences)?;
    drop(params);
    let vocab = model.vocab_size();
    let mut logits = vec![0.0; sequences * vocab];
    let prefix: Vec<u32> = (0..arguments.prefix).map(|token| token * 131 % 50_257).collect();
    let start = Instant::now();
    for (sequence, line) in logits.chunks_exact_mut(vocab).enumerate() {
        decoder.extend(
            &[Extension {
                sequence,
                tokens: &prefix,
            }],
            line,
        )?;
    }
    let prefill = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..arguments.tokens {
        let likeliest = |line: &[f32]| {
            (0..vocab)
                .max_by(|&a, &b| line[a].total_cmp(&line[b]))
                .unwrap_or(0) as u32
        };
        let next: Vec<[u32; 1]> = logits.chunks_exact(vocab).map(|line| [likeliest(line)]).collect();
        let extensions: Vec<Extension<'_>> = next
            .iter()
            .enumerate()
            .map(|(sequence, tokens)| Extension { sequence, tokens })
            .collect();
        decoder.extend(&extensions, &mut logits)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = f64::from(arguments.tokens) * sequences as f64 / seconds;
    let limit = sequences as f64 * bandwidth * 1e9 / bytes;
    println!(
        "RESULT {}",
        json!({
            "name": "undertone",
            "size": "gpt2",
            "params": count,
            "sequences": sequences,
            "prefix": arguments.prefix,
            "tokens": arguments.tokens,
            "threads": 1,
            "tokens_per_s": (10.0 * rate).round() / 10.0,
            "limit": (10.0 * limit).round() / 10.0,
            "limit_is": "the parameters read from memory by one thread, once per step of all sequences",
            "of_limit": (1000.0 * rate / limit).round() / 1000.0,
            "read_gb_per_s": (10.0 * bandwidth).round() / 10.0,
            "prefill_tokens_per_s": (f64::from(arguments.prefix) * sequences as f64 / prefill).round(),
            "peak_rss_mb": peak_rss_mb(),
        })
    );
    Ok(())
}
