//! Encodings for secure sums: transforms, modular sums, packing and whole encoders beside copy bandwidth in the same run. The
//! plain sum, which clips and adds without any encoding, is there for comparison.

use std::hint::black_box;
use std::sync::Arc;

use serde_json::json;
use undertone_aggregation::{
    Bound, BoundedSum, Clipping, Encoding, EncodingKind, EncodingSize, Levels, ModularVec, Modulus,
    NonFinite, ParamLayout, Rotation, pack, walsh_hadamard,
};
use undertone_mechanisms::{NoiseKey, NonPrivate};

use crate::bench::usage::{clocked, median};

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
    plain_sum(arguments)?;
    encoders(arguments)
}

impl Arguments {
    fn asks_for(&self, item: &str) -> bool {
        self.only.as_deref().is_none_or(|only| item.contains(only))
    }
}

/// CPU seconds of `work`.
fn cpu_seconds(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let (done, seconds) = clocked(work)?;
    done.map(|()| seconds)
}

/// Median and least.
fn summary(mut seconds: Vec<f64>) -> (f64, f64) {
    (median(&mut seconds), seconds[0])
}

/// Median and least CPU seconds of `work`; nothing if the item is not asked for.
fn seconds(
    arguments: &Arguments,
    item: &str,
    mut work: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Option<(f64, f64)>> {
    if !arguments.asks_for(item) {
        return Ok(None);
    }
    work()?;
    let repeats = (0..arguments.repeats).map(|_| cpu_seconds(&mut work));
    Ok(Some(summary(repeats.collect::<anyhow::Result<_>>()?)))
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

/// Copy bandwidth is bytes read plus bytes written over CPU time; a transform reads and writes its vector once, whatever it
/// needs to touch more often. Copies and transforms take turns, so that other work on the machine slows both.
fn transforms(arguments: &Arguments) -> anyhow::Result<()> {
    let n = 1usize << arguments.log_dim;
    let rotation = Rotation::new(n, &NoiseKey::from_insecure_seed(1), 0)?;
    let factor = (n as f32).sqrt().recip();
    let single: Vec<f32> = (0..n).map(|i| (i % 17) as f32 - 8.0).collect();
    in_turn(
        arguments,
        &single,
        &mut [
            ("walsh-hadamard-f32", &mut |out| Ok(walsh_hadamard(out)?)),
            ("rotation-f32, in place", &mut |out| {
                Ok(rotation.forward_in_place(out, factor)?)
            }),
            ("rotation-f32, into another vector", &mut |out| {
                Ok(rotation.forward(&single, factor, out)?)
            }),
        ],
    )?;
    let double: Vec<f64> = single.iter().map(|&value| f64::from(value)).collect();
    let mut transform = |out: &mut [f64]| Ok(walsh_hadamard(out)?);
    in_turn(arguments, &double, &mut [("walsh-hadamard-f64", &mut transform)])
}

/// An operation on a copy of the values.
type Work<'a, T> = &'a mut dyn FnMut(&mut [T]) -> anyhow::Result<()>;

/// Each item on a copy of `values`, and that copy, take turns, so that other work on the machine slows all of them.
fn in_turn<T: Copy>(
    arguments: &Arguments,
    values: &[T],
    items: &mut [(&str, Work<'_, T>)],
) -> anyhow::Result<()> {
    let (count, bytes) = (values.len(), 2 * size_of_val(values));
    // As an encoder's own memory: from a cache line on.
    let mut memory = vec![values[0]; values.len() + 64];
    let start = memory.as_ptr().align_offset(64);
    let out = &mut memory[start..start + values.len()];
    for (item, work) in items.iter_mut().filter(|(item, _)| arguments.asks_for(item)) {
        let (mut copies, mut took) = (Vec::new(), Vec::new());
        for _ in 0..=arguments.repeats {
            copies.push(cpu_seconds(|| {
                black_box(&mut *out).copy_from_slice(black_box(values));
                Ok(())
            })?);
            took.push(cpu_seconds(|| work(black_box(&mut *out)))?);
        }
        let copied = summary(copies.split_off(1));
        let rate = bytes as f64 / copied.1 / 1e9;
        report(&format!("copy beside {item}"), count, bytes, copied, Some(rate));
        report(item, count, bytes, summary(took.split_off(1)), Some(rate));
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

/// Clipping and adding as a round without encoding does it, with the parameters of a small LSTM.
fn plain_sum(arguments: &Arguments) -> anyhow::Result<()> {
    let (parameters, updates) = (1_350_000, 16);
    let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![parameters])])?;
    let clipping = Clipping::Flat { clip_norm: 0.3 };
    let sum = BoundedSum::new(Bound::new(Arc::new(layout), clipping, NonFinite::Zero));
    let update: Vec<f32> = (0..parameters)
        .map(|i| ((i * 7919) % 2003) as f32 * 1e-6 - 1e-3)
        .collect();
    if let Some(took) = seconds(arguments, "clip-and-add", || {
        for _ in 0..updates {
            black_box(sum.add(black_box(&update), 0.7)?);
        }
        Ok(())
    })? {
        let count = updates * parameters;
        report("clip-and-add", count, 20 * count, took, None);
    }
    Ok(())
}

fn encoders(arguments: &Arguments) -> anyhow::Result<()> {
    let dim = (1usize << arguments.log_dim) - 5;
    let size = EncodingSize {
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
        let encoding = Encoding::new(kind, size)?;
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
            match encoding.client_noise() {
                Some(_) => drop(black_box(round.decode(sum, 1)?)),
                None => {
                    let noised = NonPrivate.privatize_residues(0, round.residues(sum, 1)?);
                    black_box(round.release(noised, 1, 1.0)?);
                }
            }
            Ok(())
        })? {
            report(&item, dim, (8 + lane) * dim, took, None);
        }
    }
    Ok(())
}
