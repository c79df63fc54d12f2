//! Encodings for secure sums: transforms, modular sums, packing and whole encoders beside copy bandwidth in the same run.

use std::hint::black_box;

use anyhow::Context;
use serde_json::json;
use undertone_aggregation::{
    Cohort, Encoding, EncodingKind, Levels, ModularVec, Modulus, pack, walsh_hadamard,
};
use undertone_mechanisms::NoiseKey;

use crate::usage::cpu_time;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Base-2 logarithm of the transforms' length
    #[arg(long, default_value_t = 23, value_parser = clap::value_parser!(u32).range(4..=27))]
    log_dim: u32,
    /// Base-2 logarithm of the number of residues that are summed and packed
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(4..=28))]
    log_residues: u32,
    /// Repeats of every item, after one that is discarded; median and least are printed
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Items whose name contains this
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    transforms(arguments)?;
    residues(arguments)?;
    encoders(arguments)
}

/// Median and least CPU seconds of `work`; nothing if the item is not asked for.
fn seconds(
    arguments: &Arguments,
    item: &str,
    mut work: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Option<(f64, f64)>> {
    if arguments.only.as_deref().is_some_and(|only| !item.contains(only)) {
        return Ok(None);
    }
    work()?;
    let mut seconds = Vec::new();
    for _ in 0..arguments.repeats {
        let start = cpu_time().context("this system does not tell CPU time")?;
        work()?;
        let end = cpu_time().context("this system does not tell CPU time")?;
        seconds.push(end.saturating_sub(start).as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Some((seconds[seconds.len() / 2], seconds[0])))
}

/// Prints an item over `count` numbers that reads and writes `bytes` in all, and so its share of copy bandwidth.
fn report(item: &str, count: usize, bytes: usize, (median, least): (f64, f64), copy: Option<f64>) {
    let rate = bytes as f64 / least / 1e9;
    let result = json!({
        "name": "undertone",
        "version": env!("CARGO_PKG_VERSION"),
        "item": item,
        "count": count,
        "cpu_s": median,
        "cpu_s_least": least,
        "mnumbers_per_cpu_s": count as f64 / least / 1e6,
        "gbytes_read_and_written_per_cpu_s": rate,
        "share_of_copy_bandwidth": copy.map(|copy| rate / copy),
    });
    println!("RESULT {result}");
}

/// Copy bandwidth is bytes read plus bytes written over CPU time; a transform in place reads and writes its vector once,
/// whatever it needs to touch more often.
fn transforms(arguments: &Arguments) -> anyhow::Result<()> {
    let n = 1usize << arguments.log_dim;
    let values: Vec<f32> = (0..n).map(|i| (i % 17) as f32 - 8.0).collect();
    let mut other = values.clone();
    let copied = seconds(arguments, "copy", || {
        black_box(&mut other).copy_from_slice(black_box(&values));
        Ok(())
    })?;
    let copy = copied.map(|(_, least)| 8.0 * n as f64 / least / 1e9);
    if let Some(took) = copied {
        report("copy-f32", n, 8 * n, took, copy);
    }
    if let Some(took) = seconds(arguments, "rotation-f32", || {
        // Each pass multiplies the norm by sqrt(n): undone, so that nothing overflows.
        other.copy_from_slice(&values);
        Ok(walsh_hadamard(black_box(&mut other))?)
    })? {
        // The copy that restores the input is not part of it.
        let restore = copied.map_or((0.0, 0.0), |took| took);
        report(
            "rotation-f32",
            n,
            8 * n,
            (took.0 - restore.0, took.1 - restore.1),
            copy,
        );
    }
    let mut whole: Vec<i64> = (0..n as i64).map(|i| i % 17 - 8).collect();
    if let Some(took) = seconds(arguments, "rotation-i64", || {
        // Wraps around after some repeats, which takes the same time.
        walsh_hadamard(black_box(&mut whole))?;
        whole.iter_mut().for_each(|x| *x >>= arguments.log_dim);
        Ok(())
    })? {
        report("rotation-i64", n, 16 * n, took, copy);
    }
    Ok(())
}

fn residues(arguments: &Arguments) -> anyhow::Result<()> {
    let n = 1usize << arguments.log_residues;
    for (name, m) in [
        ("2^20", 1u64 << 20),
        ("2^20-3", (1 << 20) - 3),
        ("2^45", 1 << 45),
        ("2^45-55", (1 << 45) - 55),
    ] {
        let modulus = Modulus::new(m)?;
        let lane = if modulus.is_narrow() { 4 } else { 8 };
        let numbers: Vec<u64> = (0..n as u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % m)
            .collect();
        let vector = ModularVec::from_residues(modulus, &numbers)?;
        drop(numbers);
        let mut sum = ModularVec::zeros(modulus, n);
        let item = format!("modular-sum {name}");
        if let Some(took) = seconds(arguments, &item, || Ok(sum.add(black_box(&vector))?))? {
            report(&item, n, 3 * lane * n, took, None);
        }
        let mut bytes = vec![0; pack::packed_len(modulus, n)?];
        let moved = bytes.len() + lane * n;
        let item = format!("pack {name}");
        if let Some(took) = seconds(arguments, &item, || {
            Ok(pack::pack_into(&vector, black_box(&mut bytes))?)
        })? {
            report(&item, n, moved, took, None);
        }
        let item = format!("unpack {name}");
        pack::pack_into(&vector, &mut bytes)?;
        if let Some(took) = seconds(arguments, &item, || {
            Ok(pack::unpack_into(black_box(&bytes), &mut sum)?)
        })? {
            report(&item, n, moved, took, None);
        }
    }
    Ok(())
}

fn encoders(arguments: &Arguments) -> anyhow::Result<()> {
    let dim = (1usize << arguments.log_dim) - 5;
    let cohort = Cohort {
        dim,
        clip_norm: 1.0,
        min_clients: 100,
        max_clients: 130,
    };
    let scale = 1e5;
    let noise_multiplier = 1.0;
    let levels = Levels {
        levels: 256,
        trials: 128,
        success_probability: (1, 2),
        x_max: None,
        rotate: true,
        delta: 1e-6,
    };
    let update: Vec<f32> = (0..dim)
        .map(|i| ((i * 7919) % 2003) as f32 * 1e-6 - 1e-3)
        .collect();
    let identity: Vec<f32> = update.iter().map(|x| x * 0.1).collect();
    let (seed, key) = (NoiseKey::from_insecure_seed(1), NoiseKey::from_insecure_seed(2));
    for (name, kind) in [
        ("identity", EncodingKind::Identity),
        ("rotated-rounding", EncodingKind::RotatedRounding { scale }),
        ("binomial", EncodingKind::Binomial(levels)),
        (
            "skellam",
            EncodingKind::Skellam {
                scale,
                noise_multiplier,
            },
        ),
        (
            "discrete-gaussian",
            EncodingKind::DiscreteGaussian {
                scale,
                noise_multiplier,
            },
        ),
    ] {
        let encoding = Encoding::new(kind, cohort)?;
        let round = encoding.for_round(&seed, 0)?;
        let (mut encoder, mut out) = (round.encoder(), encoding.zeros());
        let update = if name == "identity" { &identity } else { &update };
        let lane = if encoding.modulus().is_narrow() { 4 } else { 8 };
        let item = format!("encode {name}");
        if let Some(took) = seconds(arguments, &item, || {
            Ok(encoder.encode(black_box(update), 1.0, &key, &mut out)?)
        })? {
            report(&item, dim, (4 + lane) * dim, took, None);
        }
        let item = format!("decode {name}");
        if let Some(took) = seconds(arguments, &item, || {
            let mut sum = encoding.zeros();
            sum.add(&out)?;
            black_box(round.decode(sum, 1)?);
            Ok(())
        })? {
            report(&item, dim, (8 + lane) * dim, took, None);
        }
    }
    Ok(())
}
