//! Noise: million samples per CPU second beside the memory bandwidth of the same machine in the same run.

mod streams;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde_json::json;
use undertone_mechanisms::{
    Binomial, DiscreteGaussian, DiscreteLaplace, NoiseKey, Poisson, Skellam, SnappedGaussian,
};

use crate::bench::usage::{clocked, median};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Coordinates of a round's vector
    #[arg(long, default_value_t = 6_400_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    dim: u64,
    /// Threads; rates are per CPU second, whatever the number
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Repeats of every item, after one that is discarded; the median is printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// One item only
    #[arg(long)]
    only: Option<String>,
}

/// The inputs that every item needs to measure itself.
pub(crate) struct Bench<'a> {
    arguments: &'a Arguments,
    asked: AtomicUsize,
}

impl Bench<'_> {
    /// Coordinates of a round's vector.
    pub(crate) fn dim(&self) -> usize {
        self.arguments.dim as usize
    }

    /// Repeats that count; one more comes before them.
    pub(crate) fn repeats(&self) -> u64 {
        self.arguments.repeats.into()
    }

    /// Returns `true` if this item is asked for, and counts it then.
    pub(crate) fn wants(&self, item: &str) -> bool {
        let wanted = self.arguments.only.as_deref().is_none_or(|only| only == item);
        self.asked.fetch_add(usize::from(wanted), Ordering::Relaxed);
        wanted
    }

    /// Median CPU seconds of `work`, which gets the number of the repeat.
    pub(crate) fn seconds(&self, mut work: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
        work(0)?;
        let mut seconds = Vec::new();
        for repeat in 1..=u64::from(self.arguments.repeats) {
            let (done, took) = clocked(|| work(repeat))?;
            done?;
            seconds.push(took);
        }
        Ok(median(&mut seconds))
    }

    /// Prints the rate of an item that makes `count` samples each time; `details` is a JSON object.
    pub(crate) fn report(
        &self,
        item: &str,
        count: usize,
        seconds: f64,
        details: &serde_json::Value,
    ) -> anyhow::Result<()> {
        let mut result = json!({
            "name": "undertone",
            "version": env!("CARGO_PKG_VERSION"),
            "item": item,
            "count": count,
            "threads": self.arguments.threads,
            "cpu_s": seconds,
            "msamples_per_cpu_s": count as f64 / seconds / 1e6,
        });
        let fields = result.as_object_mut().context("a result is an object")?;
        fields.extend(
            details
                .as_object()
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        println!("RESULT {result}");
        Ok(())
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let bench = Bench {
        arguments,
        asked: AtomicUsize::new(0),
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(usize::from(arguments.threads))
        .build()?;
    pool.install(|| {
        bandwidth(&bench)?;
        samplers(&bench)?;
        streams::run(&bench)
    })?;
    if bench.asked.load(Ordering::Relaxed) == 0 {
        anyhow::bail!("--only: no item of this name");
    }
    Ok(())
}

/// Memory bandwidth of one core: bytes read and written per CPU second, not counting the cache's own traffic.
fn bandwidth(bench: &Bench<'_>) -> anyhow::Result<()> {
    let dim = bench.dim();
    let report = |item: &str, vectors: usize, seconds: f64| {
        let details = json!({ "gb_per_cpu_s": (vectors * 4 * dim) as f64 / seconds / 1e9 });
        bench.report(item, dim, seconds, &details)
    };
    if bench.wants("memory-copy") {
        let (from, mut to) = (vec![1.0f32; dim], vec![0.0f32; dim]);
        let seconds = bench.seconds(|_| {
            black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
            Ok(())
        })?;
        report("memory-copy", 2, seconds)?;
    }
    if bench.wants("memory-triad") {
        let (a, b, mut c) = (vec![1.0f32; dim], vec![2.0f32; dim], vec![0.0f32; dim]);
        let seconds = bench.seconds(|repeat| {
            triad(
                black_box(&a[..]),
                black_box(&b[..]),
                0.5 + repeat as f32,
                black_box(&mut c[..]),
            );
            Ok(())
        })?;
        report("memory-triad", 3, seconds)?;
    }
    Ok(())
}

undertone_simd::vectorised! {
    /// `c = a + factor b`.
    fn triad(a: &[f32], b: &[f32], factor: f32, c: &mut [f32]) {
        for ((c, &a), &b) in c.iter_mut().zip(a).zip(b) {
            *c = a + factor * b;
        }
    }
}

/// Samplers alone.
fn samplers(bench: &Bench<'_>) -> anyhow::Result<()> {
    let key = NoiseKey::from_bytes([7; 32]);
    let dim = bench.dim();
    // The finer the grid, the more pairs need more than `f64`: 1 in 4,000, 1 in 100 and all of them.
    for (item, bits) in [("snapped-2^20", 20), ("snapped-2^40", 40), ("snapped-2^48", 48)] {
        if bench.wants(item) {
            let gaussian = SnappedGaussian::new(2f64.powi(bits))?;
            let mut out = vec![0; dim];
            let seconds = bench.seconds(|round| Ok(gaussian.fill(&key, round, &mut out)?))?;
            let details = json!({ "total_variation_per_sample": gaussian.total_variation_per_sample() });
            bench.report(item, dim, seconds, &details)?;
        }
    }
    // Exact integers, at the standard deviations of distributed noise.
    let (gaussian, laplace) = (
        DiscreteGaussian::new(1 << 20, 1)?,
        DiscreteLaplace::new(1 << 10, 1)?,
    );
    integers(bench, "discrete-gaussian", |round, out| {
        Ok(gaussian.fill(&key, round, out)?)
    })?;
    integers(bench, "discrete-laplace", |round, out| {
        Ok(laplace.fill(&key, round, out)?)
    })?;
    let (counted, looked_up) = (Binomial::fair(128)?, Binomial::fair(1 << 16)?);
    integers(bench, "binomial-128", |round, out| {
        Ok(counted.fill(&key, round, out)?)
    })?;
    integers(bench, "binomial-2^16", |round, out| {
        Ok(looked_up.fill(&key, round, out)?)
    })?;
    let (poisson, skellam) = (Poisson::new(1 << 16, 1)?, Skellam::new(1 << 16, 1)?);
    integers(bench, "poisson-2^16", |round, out| {
        Ok(poisson.fill(&key, round, out)?)
    })?;
    integers(bench, "skellam-2^16", |round, out| {
        Ok(skellam.fill(&key, round, out)?)
    })
}

/// One sampler of integers; a tenth of the coordinates will do.
fn integers(
    bench: &Bench<'_>,
    item: &str,
    fill: impl Fn(u64, &mut [i64]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if bench.wants(item) {
        let mut out = vec![0; bench.dim().div_ceil(10)];
        let seconds = bench.seconds(|round| fill(round, &mut out))?;
        bench.report(item, out.len(), seconds, &json!({}))?;
    }
    Ok(())
}
