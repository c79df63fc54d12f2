//! Rows of correlated noise: streams in `f32` beside this machine's copy bandwidth, and releases in integers.

use std::hint::black_box;

use anyhow::Context;
use serde_json::json;
use undertone_accounting::NoiseMultiplier;
use undertone_accounting::participation::Participation;
use undertone_mechanisms::{
    BandedToeplitz, Blt, CorrelatedGaussian, Denominator, History, IdentityMatrix, InverseToeplitz,
    Mechanism, NoiseKey, NoiseStream, RawSum, Recurrence, ReleaseShape, Strategy, StreamOptions, StreamShape,
    Tree,
};

use super::Bench;

/// Rounds of every stream; the benchmark makes the first few.
const ROUNDS: usize = 2048;

/// Coordinates of the row with 400 bands: its memory is 1 GB.
const WIDE_DIM: usize = 640_000;

const BANDS: usize = 400;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    // Four buffers of the size that an optimum for 2000 rounds has.
    let blt = Strategy::Blt(Blt::new(&[0.999_99, 0.99, 0.9, 0.4], &[0.03, 0.06, 0.12, 0.25])?);
    let tree = Strategy::Tree(Tree::new());
    let lambda = Strategy::InverseToeplitz(InverseToeplitz::lambda(0.9)?);
    let bands = Strategy::BandedToeplitz(BandedToeplitz::fhu(BANDS)?);
    let (dim, options) = (bench.dim(), StreamOptions::default());
    let remake = StreamOptions {
        history: Some(History::Remake),
        ..options
    };
    step_alone(bench, &blt.recurrence(ROUNDS)?)?;
    stream(bench, "blt-4-stream", &blt, dim, options)?;
    stream(bench, "tree-stream", &tree, dim, options)?;
    stream(bench, "tree-stream-remade", &tree, dim, remake)?;
    stream(bench, "lambda-stream", &lambda, dim, options)?;
    stream(bench, "lambda-stream-remade", &lambda, dim, remake)?;
    stream(bench, "bands-400-stream", &bands, dim.min(WIDE_DIM), options)?;
    let independent = Strategy::Independent(IdentityMatrix);
    release(bench, "independent-release", &independent, dim)?;
    release(bench, "blt-4-release", &blt, dim)?;
    release(bench, "tree-release", &tree, dim)?;
    release(bench, "lambda-release", &lambda, dim)
}

fn key() -> NoiseKey {
    NoiseKey::from_bytes([7; 32])
}

/// The recurrence on rows that are given, as a fraction of what copying the same memory reaches: bytes that are read and
/// written, 4 for the row and 4 for every buffer each way.
fn step_alone(bench: &Bench<'_>, recurrence: &Recurrence) -> anyhow::Result<()> {
    let item = "blt-4-step-alone";
    if !bench.wants(item) {
        return Ok(());
    }
    let dim = bench.dim();
    let shape = StreamShape { rounds: ROUNDS, dim };
    let mut stream = NoiseStream::new(recurrence, shape, 1.0, key(), StreamOptions::default())?;
    let vectors = 2 * (stream.kept_vectors() + 1);
    let mut row = vec![1.0; dim];
    let seconds = bench.seconds(|_| Ok(stream.correlate(black_box(&mut row[..]))?))?;
    let gb = (vectors * 4 * dim) as f64 / 1e9;
    // A copy that reads and writes as many bytes.
    let half = vectors / 2 * dim;
    let (from, mut to) = (vec![1.0f32; half], vec![0.0f32; half]);
    let copy = bench.seconds(|_| {
        black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
        Ok(())
    })?;
    let details = json!({
        "gb_per_cpu_s": gb / seconds,
        "copy_gb_per_cpu_s": gb / copy,
        "fraction_of_copy": copy / seconds,
    });
    bench.report(item, dim, seconds, &details)
}

fn stream(
    bench: &Bench<'_>,
    item: &str,
    strategy: &Strategy,
    dim: usize,
    options: StreamOptions,
) -> anyhow::Result<()> {
    if !bench.wants(item) {
        return Ok(());
    }
    let shape = StreamShape { rounds: ROUNDS, dim };
    let mut stream = NoiseStream::new(&strategy.recurrence(ROUNDS)?, shape, 1.0, key(), options)?;
    let mut row = vec![0.0; dim];
    // Until the ring is full a round sums fewer rows than all those to come: not what is asked for.
    if stream.kept_vectors() >= 64 {
        for _ in 0..stream.kept_vectors() {
            stream.next(&mut row)?;
        }
    }
    // A repeat is 16 rounds: what some rounds do for others is in it, and a tree's nodes up to height 4.
    let rounds = 16;
    let seconds = bench.seconds(|_| {
        for _ in 0..rounds {
            stream.next(black_box(&mut row[..]))?;
        }
        Ok(())
    })?;
    let details = json!({ "dim": dim, "kept_vectors": stream.kept_vectors() });
    bench.report(item, rounds * dim, seconds, &details)
}

fn release(bench: &Bench<'_>, item: &str, strategy: &Strategy, dim: usize) -> anyhow::Result<()> {
    if !bench.wants(item) {
        return Ok(());
    }
    let noise = NoiseMultiplier::new(7.0)?;
    let mechanism = Mechanism::new(strategy.clone(), ROUNDS, Participation::single(), noise)?;
    let denominator = Denominator::Fixed(1000.0);
    let target = ReleaseShape {
        dim,
        clip_norm: 1e-3,
        denominator,
        history: None,
    };
    let mut releases = CorrelatedGaussian::new(mechanism, target, key())?;
    // The averages are the server's, not the mechanism's: they are there before the clock starts.
    let average = |_| RawSum::new(vec![1 << 40; dim], 0).average(denominator);
    let mut averages = (0..=bench.repeats())
        .map(average)
        .collect::<Result<Vec<_>, _>>()?;
    let seconds = bench.seconds(|round| {
        let average = averages.pop().context("an average for every repeat")?;
        black_box(releases.privatize(round, average)?);
        Ok(())
    })?;
    let details = json!({
        "kept_vectors": releases.kept_vectors(),
        "relative_rounding_slack": releases.rounding_slack() / target.clip_norm,
    });
    bench.report(item, dim, seconds, &details)
}
