//! Training steps of a decoder-only transformer, plain and clipped by example, on random tokens; one worker per thread.

use crate::bench::numpy_random::DefaultRng;
use crate::bench::peak;
use crate::bench::usage::{clocked, peak_rss_mb};
use clap::ValueEnum;
use serde_json::json;
use std::time::Instant;
use undertone_models::{
    Architecture, PackedBatch, Positions, SequenceModel, SequenceWeights, SequenceWorker, StateMode,
    StepStats, Transformer, TransformerSizes,
};

const SEED: u32 = 17;
const LEARNING_RATE: f32 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Size {
    /// 8,000 tokens, 10 layers of width 256, 8 heads
    Ten,
    /// 50,257 tokens, 12 layers of width 768, 12 heads
    Gpt2,
    /// 50,257 tokens, 24 layers of width 1024, 16 heads
    Gpt2Medium,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Sizes of the model
    #[arg(long, value_enum, default_value = "ten")]
    size: Size,
    /// Sequences of a batch
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    length: u32,
    /// Steps of every measurement, after one that is not counted
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Threads, each with a worker, parameters and a batch of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Compute activations again in the backward pass
    #[arg(long)]
    recompute: bool,
    /// Measure the plain step alone
    #[arg(long)]
    step_only: bool,
}

/// One thread's share.
struct Lane {
    worker: Box<dyn SequenceWorker>,
    params: Vec<f32>,
    gradient: Vec<f32>,
    norms: Vec<f32>,
    fixed: Vec<f32>,
    data: PackedBatch,
    last: StepStats,
}

/// The part of the work that is measured.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Forward,
    Step,
    Weighted,
    Clipped,
}

impl Lane {
    fn run(&mut self, phase: Phase) -> anyhow::Result<()> {
        let batch = self.data.batch();
        let (worker, gradient) = (&mut self.worker, &mut self.gradient);
        let mut weighted =
            |weights| worker.weighted_gradient(&self.params, &batch, weights, gradient, &mut self.norms);
        self.last = match phase {
            Phase::Weighted => weighted(SequenceWeights::Fixed(&self.fixed))?,
            Phase::Clipped => weighted(SequenceWeights::Clip { bound: 1.0 })?,
            Phase::Step => worker.sgd_step(&mut self.params, &batch, LEARNING_RATE, StateMode::Zero)?,
            Phase::Forward => {
                worker.evaluate(&self.params, &batch, StateMode::Zero, &mut |_, _, _| {})?;
                self.last
            }
        };
        Ok(())
    }
}

/// CPU and wall seconds of `steps` runs on every lane, after one that is not counted.
fn measure(lanes: &mut [Lane], phase: Phase, steps: u32) -> anyhow::Result<(f64, f64)> {
    let mut all = |times: u32| -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let run = |lane: &mut Lane| (0..times).try_for_each(|_| lane.run(phase));
            let handles: Vec<_> = lanes
                .iter_mut()
                .map(|lane| scope.spawn(move || run(lane)))
                .collect();
            handles.into_iter().try_for_each(|handle| {
                handle
                    .join()
                    .map_err(|_| anyhow::anyhow!("a worker thread panicked"))?
            })
        })
    };
    all(1)?;
    let start = Instant::now();
    let (done, cpu) = clocked(|| all(steps).map(|()| start.elapsed().as_secs_f64()))?;
    Ok((cpu, done?))
}

/// Largest relative error of the norms of a lane's last clipped run against gradients that are written out.
fn norm_error(lane: &mut Lane, sequences: usize) -> anyhow::Result<f64> {
    let batch = lane.data.batch();
    let mut worst = 0.0f64;
    for sequence in 0..sequences {
        // All sequences have one length.
        let column =
            |ids: &[u32]| -> Vec<u32> { ids.iter().skip(sequence).step_by(sequences).copied().collect() };
        let (inputs, targets) = (column(batch.inputs), column(batch.targets));
        let mut one = PackedBatch::default();
        let alone = one.pack(&[(&inputs, &targets)]);
        lane.worker.gradient(&lane.params, &alone, &mut lane.gradient)?;
        let squares: f64 = lane.gradient.iter().map(|&g| f64::from(g).powi(2)).sum();
        let norm = squares.sqrt();
        worst = worst.max((f64::from(lane.norms[sequence]) - norm).abs() / norm);
    }
    Ok(worst)
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let &Arguments {
        size,
        batch,
        length,
        steps,
        threads,
        recompute,
        step_only,
    } = arguments;
    let (name, vocab, layers, width, heads) = match size {
        Size::Ten => ("ten", 8000, 10, 256, 8),
        Size::Gpt2 => ("gpt2", 50_257, 12, 768, 12),
        Size::Gpt2Medium => ("gpt2-medium", 50_257, 24, 1024, 16),
    };
    let (sequences, length) = (batch as usize, length as usize);
    let model = Transformer::new(TransformerSizes {
        vocab,
        layers,
        width,
        heads,
        context: length.max(128),
        inner: 4 * width,
        positions: Positions::Learned,
        architecture: Architecture::GPT2,
    })?
    .recomputing(recompute);
    let params = model.layout().len();
    let tokens = sequences * length;
    let lane = |number: u32| {
        let mut rng = DefaultRng::new(&[SEED, number]);
        let ids: Vec<Vec<u32>> = (0..sequences)
            .map(|_| {
                (0..=length)
                    .map(|_| (rng.random() * vocab as f64) as u32)
                    .collect()
            })
            .collect();
        let pairs: Vec<(&[u32], &[u32])> = ids.iter().map(|ids| (&ids[..length], &ids[1..])).collect();
        let mut data = PackedBatch::default();
        data.pack(&pairs);
        Lane {
            worker: model.worker(sequences, tokens),
            params: model.initial_params(1),
            gradient: if step_only { Vec::new() } else { vec![0.0; params] },
            norms: vec![0.0; sequences],
            fixed: vec![1.0; sequences],
            data,
            last: StepStats::default(),
        }
    };
    let mut lanes: Vec<Lane> = (0..threads).map(lane).collect();
    let peak_before = peak::gflops()?;
    let round_to = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
    let runs = f64::from(steps) * f64::from(threads);
    let per_step = |cpu: f64| round_to(cpu / runs, 4);
    let (step, seconds) = measure(&mut lanes, Phase::Step, steps)?;
    let loss = lanes[0].last.mean_loss();
    let step_rss = peak_rss_mb();
    let others = if step_only {
        None
    } else {
        let (forward, _) = measure(&mut lanes, Phase::Forward, steps)?;
        let (weighted, _) = measure(&mut lanes, Phase::Weighted, steps)?;
        let (clipped, _) = measure(&mut lanes, Phase::Clipped, steps)?;
        Some((forward, weighted, clipped))
    };
    let norm_error = match others {
        Some(_) => Some(norm_error(&mut lanes[0], sequences)?),
        None => None,
    };
    let peak = (peak_before + peak::gflops()?) / 2.0;
    let gflops_per_cpu_s = 6.0 * params as f64 * tokens as f64 * runs / step / 1e9;
    let result = json!({
        "name": "undertone",
        "size": name,
        "params": params,
        "batch": sequences,
        "length": length,
        "threads": threads,
        "recompute": recompute,
        "tokens_per_s": round_to(tokens as f64 * runs / seconds, 1),
        "tokens_per_cpu_s": round_to(tokens as f64 * runs / step, 1),
        "gflops_per_cpu_s": round_to(gflops_per_cpu_s, 1),
        "peak_gflops": round_to(peak, 1),
        "peak_fraction": round_to(gflops_per_cpu_s / peak, 3),
        "step_cpu_s": per_step(step),
        "forward_cpu_s": others.map(|(forward, _, _)| per_step(forward)),
        "backward_and_update_cpu_s": others.map(|(forward, _, _)| per_step(step - forward)),
        "weighted_cpu_s": others.map(|(_, weighted, _)| per_step(weighted)),
        "clipped_cpu_s": others.map(|(_, _, clipped)| per_step(clipped)),
        "norms_cpu_s": others.map(|(_, weighted, clipped)| per_step(clipped - weighted)),
        "ghost_ratio": others.map(|(_, weighted, clipped)| round_to(clipped / weighted, 3)),
        "norm_error": norm_error,
        "step_peak_rss_mb": step_rss.map(|mb| round_to(mb, 1)),
        "peak_rss_mb": peak_rss_mb().map(|mb| round_to(mb, 1)),
        "loss": round_to(loss, 4),
    });
    println!("RESULT {result}");
    Ok(())
}
