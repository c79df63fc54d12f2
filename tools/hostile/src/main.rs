//! `undertone-hostile`: mutations of honest files, read as the commands read them.

mod memory;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use undertone_hostile::hunt::{self, Inputs, Tally};
use undertone_hostile::{KINDS, Kind, World, commands, corpus, federated, mutant};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Read hostile files of every kind, and say where one does more than end in an error.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Make the honest files in a new folder, for --world and for fuzz targets.
    World { folder: PathBuf },
    /// Read mutations of the honest files of each kind, in this program.
    Mutations(MutationArgs),
    /// Run whole commands on mutations of run directories.
    Commands {
        /// The program `undertone`.
        program: PathBuf,
        /// Mutations.
        #[arg(long, default_value_t = 300)]
        count: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The first of them.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Honest files that were made before.
        #[arg(long)]
        world: Option<PathBuf>,
    },
    /// Write one mutation to standard output.
    Mutant {
        kind: String,
        index: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long)]
        world: PathBuf,
    },
    /// Write a folder of inputs for each kind: honest files and the corpus, for a fuzzer to start from.
    Seeds { folder: PathBuf, world: PathBuf },
    /// Read inputs in a process of its own; the other commands start it.
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

#[derive(Debug, clap::Args)]
struct MutationArgs {
    /// Mutations of each kind.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// These kinds only.
    #[arg(long)]
    kind: Vec<String>,
    /// Show each error.
    #[arg(long)]
    show: bool,
    /// Honest files that were made before.
    #[arg(long)]
    world: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task and returns `true` if nothing failed.
fn run(task: Task) -> Result<bool> {
    match task {
        Task::World { folder } => {
            std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
            World::make(&folder)?;
            Ok(true)
        }
        Task::Mutations(args) => mutations(&args),
        Task::Commands {
            program,
            count,
            seed,
            from,
            world,
        } => with_world(world.as_deref(), |world| {
            let tally = commands::hunt(&program.canonicalize()?, world, seed, from..from + count)?;
            println!("{tally}");
            Ok(tally.failures.is_empty())
        }),
        Task::Mutant {
            kind,
            index,
            seed,
            world,
        } => {
            use std::io::Write;
            let kind = Kind::named(&kind).context("no such kind")?;
            let honest = kind.honest_bytes(&World::at(&world), kind.place(index))?;
            std::io::stdout().write_all(&mutant(kind.syntax, &honest, seed, index))?;
            Ok(true)
        }
        Task::Seeds { folder, world } => {
            corpus::seeds(&World::at(&world), &folder)?;
            federated_seeds(&folder)?;
            Ok(true)
        }
        Task::Worker(args) => worker::run(&args).map(|()| true),
    }
}

/// Honest inputs of the federated service, a folder per target.
fn federated_seeds(folder: &Path) -> Result<()> {
    for target in federated::TARGETS {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for (place, (_, bytes)) in federated::honest(target).into_iter().enumerate() {
            let path = folder.join(format!("honest-{place}"));
            std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn with_world(made: Option<&Path>, work: impl FnOnce(&World) -> Result<bool>) -> Result<bool> {
    match made {
        Some(folder) => work(&World::at(folder)),
        None => {
            let folder = tempfile::tempdir()?;
            work(&World::make(folder.path())?)
        }
    }
}

fn mutations(args: &MutationArgs) -> Result<bool> {
    let program = std::env::current_exe()?;
    with_world(args.world.as_deref(), |world| {
        let mut failed = false;
        for kind in KINDS {
            if !args.kind.is_empty() && !args.kind.iter().any(|name| name == kind.name) {
                continue;
            }
            let inputs = Inputs::Mutations {
                seed: args.seed,
                from: args.from,
                to: args.from + args.count,
            };
            let tally = hunt::hunt(&program, world, kind, &inputs)?;
            show(kind, &tally, args.show);
            failed |= !tally.failures.is_empty();
        }
        Ok(!failed)
    })
}

fn show(kind: Kind, tally: &Tally, errors: bool) {
    println!(
        "{:<22} {:>6} read, {:>6} refused, slowest {:>6.2} s, most memory {:>5} MB, {} failed",
        kind.name,
        tally.inputs,
        tally.refused,
        tally.slowest.as_secs_f64(),
        tally.most_memory / 1_000_000,
        tally.failures.len()
    );
    for failure in &tally.failures {
        println!("  input {}: {}", failure.index, failure.what);
    }
    if errors {
        for (index, error) in &tally.errors {
            println!("  {index}: {error}");
        }
    }
}
