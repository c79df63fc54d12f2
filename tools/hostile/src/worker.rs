//! The process that reads: one line on standard output for every input.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use undertone_hostile::{Kind, Outcome, World, hunt, mutant};

use crate::memory;

/// Arguments of a worker, which the other commands start.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    world: PathBuf,
    kind: String,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[arg(long)]
    from: u64,
    #[arg(long, default_value_t = 0)]
    to: u64,
    #[arg(long)]
    files: Option<PathBuf>,
}

/// Place and message of the last panic, in its own words.
static PANIC: Mutex<String> = Mutex::new(String::new());

pub(crate) fn run(args: &WorkerArgs) -> Result<()> {
    let kind = Kind::named(&args.kind).with_context(|| format!("no kind {}", args.kind))?;
    let world = World::at(&args.world);
    memory::limit();
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut last) = PANIC.lock() {
            *last = panic.to_string();
        }
    }));
    back_up(&world, kind)?;
    match &args.files {
        None => {
            for index in args.from..args.to {
                let place = kind.place(index);
                let honest = kind.honest_bytes(&world, place)?;
                read(
                    kind,
                    &world,
                    index,
                    place,
                    &mutant(kind.syntax, &honest, args.seed, index),
                )?;
            }
        }
        Some(folder) => {
            let entries = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
            let mut files: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
            files.sort();
            for (path, index) in files.iter().zip(0..).skip(args.from as usize) {
                let bytes = std::fs::read(path)?;
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                read(kind, &world, index, kind.honest[kind.place_named(&name)], &bytes)?;
            }
        }
    }
    Ok(())
}

fn read(kind: Kind, world: &World, index: u64, place: &str, bytes: &[u8]) -> Result<()> {
    let before = memory::start();
    let start = Instant::now();
    let outcome = std::panic::catch_unwind(|| kind.read(world, place, bytes));
    let (micros, most) = (start.elapsed().as_micros(), memory::most().saturating_sub(before));
    let mut out = std::io::stdout().lock();
    match outcome {
        Ok(outcome) => {
            let (letter, error) = match outcome? {
                Outcome::Accepted => ("a", String::new()),
                Outcome::Refused(error) => ("r", error.chars().take(400).collect()),
            };
            writeln!(out, "read {index} {letter} {micros} {most} {error:?}")?;
        }
        Err(_) => {
            let message = PANIC.lock().map(|message| message.clone()).unwrap_or_default();
            writeln!(out, "panic {index} {message:?}")?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Keeps the files that this worker changes, for the case that it is killed in between.
fn back_up(world: &World, kind: Kind) -> Result<()> {
    let backup = world.path(hunt::BACKUP);
    if backup.exists() {
        return Ok(());
    }
    for place in kind.honest {
        let relative = kind.path(world, place)?;
        let folder = relative.parent().context("a folder")?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_file() {
                continue;
            }
            let below = entry.path();
            let to = backup.join(below.strip_prefix(world.folder())?);
            std::fs::create_dir_all(to.parent().context("a folder")?)?;
            std::fs::copy(&below, &to)?;
        }
    }
    ensure!(backup.exists(), "nothing to keep");
    Ok(())
}
