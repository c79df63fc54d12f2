//! Copies and products of the machine.

use std::time::Instant;

use serde_json::{Value, json};
use undertone_gpu::Trainer;
use undertone_models::ModelSpec;

use crate::world::{Cohort, Sum, World};

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Gigabytes per second up and down, and the floating-point operations per second of local training in large products.
pub(crate) fn run<M: Trainer + Clone>(machine: &M, small: bool) -> anyhow::Result<Value> {
    let words = if small { 1 << 18 } else { 1 << 26 };
    let mut memory = machine.zeros::<u32>(words)?;
    let mut host = vec![1u32; words];
    machine.write::<u32>(&mut memory, 0, &host)?;
    let bytes = 4.0 * words as f64;
    let started = Instant::now();
    machine.write::<u32>(&mut memory, 0, &host)?;
    machine.read::<u32>(&memory, 0, &mut host[..1])?;
    let up = bytes / started.elapsed().as_secs_f64() / 1e9;
    let started = Instant::now();
    machine.read::<u32>(&memory, 0, &mut host)?;
    let down = bytes / started.elapsed().as_secs_f64() / 1e9;
    drop(memory);
    // Nearly all work of this model is in the product of states and words, forward and twice backward.
    let (ids, width, users, examples, tokens) = if small {
        (500, 16, 2, 4, 5)
    } else {
        (10_000, 256, 64, 32, 10)
    };
    let spec = ModelSpec::Dplm {
        embed: width,
        hidden: 8,
        unit_norm: false,
    };
    let world = World::new("head", spec, ids, examples as usize)?;
    let cohort = Cohort::even(users, examples, tokens, ids);
    let mut engine = world.engine(machine, &cohort, users)?;
    let mut seconds = f64::INFINITY;
    for _ in 0..if small { 1 } else { 3 } {
        let sink = Sum::new(world.bound(), true);
        let started = Instant::now();
        world.train(&mut engine, &cohort, &cohort.places(), &sink)?;
        seconds = seconds.min(started.elapsed().as_secs_f64());
    }
    let rows = users as f64 * f64::from(examples * tokens);
    let operations = 6.0 * rows * f64::from(ids) * width as f64;
    Ok(json!({
        "up_gb_per_s": rounded(up),
        "down_gb_per_s": rounded(down),
        "product_tflop_per_s": operations / seconds / 1e12,
        "host_cores": std::thread::available_parallelism().map_or(1, usize::from),
    }))
}
