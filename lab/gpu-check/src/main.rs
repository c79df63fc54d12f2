//! `gpu-check`: each question that the design of training on a GPU leaves open is a step that prints one line `RESULT {...}`.
//!
//! A line is printed as soon as its step has ended, so a run that is cut off still counts. Texts and parameters are invented from fixed
//! seeds.

mod bits;
mod models;
mod peers;
mod probe;
mod profile;
mod speed;
mod world;

use std::time::{Duration, Instant};

#[cfg(feature = "cuda")]
use anyhow::Context;
use anyhow::bail;
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use undertone_gpu::Trainer;
use undertone_gpu_sum::Emulator;

/// Checks a GPU, or the emulator, and prints one line `RESULT {...}` per step.
#[derive(Debug, Parser)]
#[command(name = "gpu-check", version)]
pub(crate) struct Arguments {
    /// Check this machine.
    #[arg(long, value_enum, default_value_t = MachineName::Gpu)]
    machine: MachineName,
    /// Run these steps only.
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Use small models and few users in every step.
    #[arg(long)]
    pub(crate) small: bool,
    /// Measure this model only in the steps `speed`, `profile` and `torch`.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Train this number of users at once in the steps `speed`, `profile` and `torch`.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) users: Option<usize>,
    /// Measure this number of rounds in the step `speed`, after one that warms up.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Begin no step after this number of seconds.
    #[arg(long, default_value_t = 480)]
    seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MachineName {
    /// The first GPU that `CUDA_VISIBLE_DEVICES` names.
    Gpu,
    /// The kernels on the processor.
    Emulator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Names, versions, copies and products.
    Probe,
    /// The kernels against the emulator, bit by bit.
    Kernels,
    /// Losses and gradients against the models of the processor.
    Models,
    /// The bits of an update in other slots, beside other users.
    Independence,
    /// The digest of the same rounds twice.
    Determinism,
    /// The sum of the machine against the sum of the processor.
    Exactness,
    /// Tokens per second.
    Speed,
    /// The time of each kernel.
    Profile,
    /// Local training of the same shapes in PyTorch.
    Torch,
    /// The kernels under compute-sanitizer.
    Sanitizer,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.machine {
        MachineName::Emulator => all(&Emulator::default(), "emulator", &arguments),
        MachineName::Gpu => gpu(&arguments),
    }
}

#[cfg(feature = "cuda")]
fn gpu(arguments: &Arguments) -> anyhow::Result<()> {
    let gpu = undertone_gpu::open(0).context("the GPU cannot be used")?;
    let name = gpu.name().to_owned();
    all(&gpu, &name, arguments)
}

#[cfg(not(feature = "cuda"))]
fn gpu(_: &Arguments) -> anyhow::Result<()> {
    bail!(
        "this program was built without the feature `cuda`: build it with the feature, or pass `--machine emulator`"
    )
}

fn all<M: Trainer + Clone>(machine: &M, name: &str, arguments: &Arguments) -> anyhow::Result<()> {
    let begun = Instant::now();
    let limit = Duration::from_secs(arguments.seconds);
    let (small, mut failed) = (arguments.small, Vec::new());
    for &step in Step::value_variants() {
        let chosen = arguments.only.is_empty() || arguments.only.contains(&step);
        if !chosen {
            continue;
        }
        let label = format!("{step:?}").to_lowercase();
        if begun.elapsed() > limit {
            println!(
                "RESULT {}",
                json!({"step": label, "machine": name, "left_out": "no time left"})
            );
            continue;
        }
        let started = Instant::now();
        let result = match step {
            Step::Probe => probe::run(machine, small),
            Step::Kernels => bits::kernels(machine),
            Step::Models => models::run(machine, small),
            Step::Independence => bits::independence(machine, small),
            Step::Determinism => bits::determinism(machine, small),
            Step::Exactness => bits::exactness(machine, small),
            Step::Speed => speed::run(machine, arguments),
            Step::Profile => profile::run(machine, arguments),
            Step::Torch => peers::torch(arguments),
            Step::Sanitizer => peers::sanitizer(arguments.machine == MachineName::Gpu),
        };
        let seconds = started.elapsed().as_secs_f64();
        let mut line = match result {
            Ok(line) => line,
            Err(error) => {
                failed.push(label.clone());
                json!({"error": format!("{error:#}")})
            }
        };
        if line.get("holds") == Some(&Value::Bool(false)) {
            failed.push(label.clone());
        }
        line["step"] = json!(label);
        line["machine"] = json!(name);
        line["seconds"] = json!((seconds * 100.0).round() / 100.0);
        println!("RESULT {line}");
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("these steps failed: {}", failed.join(", ")),
    }
}
