//! Whole clients: local SGD from the global model, clipping of the update, weighted sum; one client per thread.

use crate::bench::peak;
use crate::bench::usage::{cpu_time, peak_rss_mb};
use crate::bench::workload::{Model, Step, Workload};
use anyhow::{Context, ensure};
use serde_json::json;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use undertone_aggregation::{Bound, BoundedSum, Clipping, NonFinite};
use undertone_models::{SequenceBatch, SequenceModel, SequenceWorker};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Workload
    #[arg(long, value_enum)]
    model: Model,
    /// Threads, one client each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Clients in all, beside one warm-up client per thread
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Leave the embeddings of dplm as they are, as the peers do
    #[arg(long)]
    no_unit_norm: bool,
}

/// Loss of a client's last step and norm of its update before clipping.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    loss: f64,
    norm: f64,
}

/// The state that all threads share.
struct Round<'a> {
    workload: Workload,
    global: &'a [f32],
    sum: &'a BoundedSum,
    active: Vec<usize>,
}

impl Round<'_> {
    /// Trains one client from the global model, clips its update and adds it to the sum.
    fn client(
        &self,
        worker: &mut dyn SequenceWorker,
        params: &mut [f32],
        steps: &[Step],
    ) -> anyhow::Result<Outcome> {
        params.copy_from_slice(self.global);
        worker.reset_state();
        let mut loss = f64::NAN;
        for step in steps {
            let batch = SequenceBatch {
                active: &self.active,
                inputs: &step.inputs,
                targets: &step.targets,
            };
            let workload = &self.workload;
            let stats = worker.sgd_step(params, &batch, workload.learning_rate, workload.state)?;
            loss = stats.mean_loss();
        }
        for (value, &global) in params.iter_mut().zip(self.global) {
            *value -= global;
        }
        let added = self.sum.add(params, 1.0)?;
        Ok(Outcome {
            loss,
            norm: added.report().norm,
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let &Arguments {
        model: kind,
        threads,
        clients,
        no_unit_norm,
    } = arguments;
    ensure!(!no_unit_norm || kind == Model::Dplm, "--no-unit-norm is for dplm");
    let workload = Workload::of(kind);
    let model: Box<dyn SequenceModel> = workload.build(kind, !no_unit_norm)?;
    let layout = model.layout();
    let global = model.initial_params(1);
    let clipping = Clipping::Flat {
        clip_norm: workload.clip_norm,
    };
    let sum = BoundedSum::new(Bound::new(Arc::new(layout.clone()), clipping, NonFinite::Refuse));
    let round = Round {
        workload,
        global: &global,
        sum: &sum,
        active: vec![workload.batch; workload.unroll],
    };
    let cumulative = workload.cumulative();
    let data: Vec<Vec<Step>> = (0..clients)
        .map(|client| workload.client(&cumulative, client))
        .collect();

    let peak_before = peak::gflops()?;
    let next = AtomicU32::new(0);
    let ready = Barrier::new(threads as usize + 1);
    let work = || -> anyhow::Result<Option<Outcome>> {
        let mut worker = model.worker(workload.batch, workload.batch * workload.unroll);
        let mut params = vec![0.0; layout.len()];
        let warm_up = round.client(worker.as_mut(), &mut params, &data[0]);
        // Twice, so that the main thread reads the clocks while nobody works; before any return on error.
        ready.wait();
        ready.wait();
        warm_up?;
        let mut last = None;
        loop {
            let client = next.fetch_add(1, Ordering::Relaxed);
            if client >= clients {
                return Ok(last);
            }
            let outcome = round.client(worker.as_mut(), &mut params, &data[client as usize])?;
            if client == clients - 1 {
                last = Some(outcome);
            }
        }
    };
    let (outcomes, seconds, cpu_seconds) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        ready.wait();
        let cpu_start = cpu_time().context("this system does not tell CPU time")?;
        let start = Instant::now();
        ready.wait();
        let outcomes: Vec<_> = handles
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu_time().context("this system does not tell CPU time")? - cpu_start;
        Ok((outcomes, seconds, cpu.as_secs_f64()))
    })?;
    let mut last = None;
    for outcome in outcomes {
        let outcome = outcome.map_err(|_| anyhow::anyhow!("a worker thread panicked"))??;
        last = last.or(outcome);
    }
    let last = last.context("no thread took the last client")?;
    let peak_after = peak::gflops()?;

    let peak = (peak_before + peak_after) / 2.0;
    let tokens = workload.tokens_per_client() as f64 * f64::from(clients);
    let gflops_per_cpu_s = tokens * workload.flops_per_token(kind) / cpu_seconds / 1e9;
    let round_to = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
    let result = json!({
        "name": "undertone",
        "model": kind.name(),
        "unit_norm": kind == Model::Dplm && !no_unit_norm,
        "threads": threads,
        "clients": clients,
        "seconds": round_to(seconds, 3),
        "cpu_s": round_to(cpu_seconds, 3),
        "clients_per_s": round_to(f64::from(clients) / seconds, 3),
        "clients_per_cpu_s": round_to(f64::from(clients) / cpu_seconds, 3),
        "tokens_per_s": round_to(tokens / seconds, 1),
        "gflops_per_cpu_s": round_to(gflops_per_cpu_s, 1),
        "peak_gflops": round_to(peak, 1),
        "peak_fraction": round_to(gflops_per_cpu_s / peak, 3),
        "peak_rss_mb": peak_rss_mb().map(|mb| round_to(mb, 1)),
        "params": layout.len(),
        "loss": round_to(last.loss, 4),
        "dnorm": round_to(last.norm, 4),
    });
    println!("RESULT {result}");
    Ok(())
}
