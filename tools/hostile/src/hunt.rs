//! Inputs read one after the other in a process of its own, watched from here: a process that is ended by one input is started
//! again behind it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::kinds::Kind;
use crate::world::World;

/// Seconds that one input may take, of the processor. They find what never ends: a million words take 4 in a debug build, and several
/// times that on a machine whose cores are shared.
pub const SECONDS: f64 = 30.0;
/// Seconds by the clock after which an input waits for something that never comes.
const WAITING: Duration = Duration::from_secs(90);
/// Bytes of memory beyond which nothing more is given.
pub const MEMORY: usize = 1 << 30;

/// The inputs to read.
#[derive(Debug, Clone)]
pub enum Inputs {
    /// Mutations by seed and number.
    Mutations {
        /// The seed.
        seed: u64,
        /// Numbers from here,
        from: u64,
        /// to here, which is not read any more.
        to: u64,
    },
    /// The files of a folder, in the order of their names.
    Files(PathBuf),
}

/// An input that did what no input may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the file.
    pub kind: &'static str,
    /// Index of the input.
    pub index: u64,
    /// The forbidden event in words.
    pub what: String,
}

/// The counts and the failures of the inputs of one kind.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Inputs read.
    pub inputs: u64,
    /// Inputs that ended in an error.
    pub refused: u64,
    /// The longest time by the clock.
    pub slowest: Duration,
    /// The most memory in bytes that an input took, beyond what was taken before it.
    pub most_memory: usize,
    /// Errors in their own words, where they were asked for.
    pub errors: Vec<(u64, String)>,
    /// The forbidden events.
    pub failures: Vec<Failure>,
}

/// Reads the inputs of a kind with the program `undertone-hostile` in a copy of the world.
///
/// # Errors
/// A world or a program that cannot be used; what inputs do is in the tally.
pub fn hunt(program: &Path, world: &World, kind: Kind, inputs: &Inputs) -> Result<Tally> {
    let copy = tempfile::tempdir()?;
    let world = world.copy(copy.path())?;
    let mut tally = Tally::default();
    let (mut next, end) = match inputs {
        Inputs::Mutations { from, to, .. } => (*from, *to),
        Inputs::Files(folder) => (0, std::fs::read_dir(folder)?.count() as u64),
    };
    while next < end {
        let before = next;
        let mut worker = Worker::start(program, &world, kind, inputs, next)?;
        let failure = worker.follow(&mut next, &mut tally)?;
        if let Some(what) = failure {
            let index = next;
            tally.inputs += 1;
            tally.failures.push(Failure {
                kind: kind.name,
                index,
                what,
            });
            next += 1;
            // The worker had no time to put things back.
            refresh(copy.path(), &world)?;
        } else if next == before {
            bail!("{}: the worker ended without reading input {next}", kind.name);
        }
    }
    Ok(tally)
}

/// Copies what a killed worker may have left changed.
fn refresh(folder: &Path, world: &World) -> Result<()> {
    let backup = folder.join(BACKUP);
    if backup.exists() {
        crate::world::copy(&backup, world.folder())?;
    }
    Ok(())
}

/// Below the folder of a worker's world: the files that it changes, as they were.
pub const BACKUP: &str = ".backup";

struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(program: &Path, world: &World, kind: Kind, inputs: &Inputs, next: u64) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("worker").arg(world.folder()).arg(kind.name);
        match inputs {
            Inputs::Mutations { seed, to, .. } => {
                command.args(["--seed", &seed.to_string(), "--to", &to.to_string()])
            }
            Inputs::Files(folder) => command.arg("--files").arg(folder),
        };
        let mut child = command
            .args(["--from", &next.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("the worker's output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Counts until the worker ends; what ended it, if it was an input.
    fn follow(&mut self, next: &mut u64, tally: &mut Tally) -> Result<Option<String>> {
        let mut since = Instant::now();
        let mut worked = self.processor_seconds();
        loop {
            match self.lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => {
                    if let Some(what) = count(&line, next, tally)? {
                        self.stop();
                        return Ok(Some(what));
                    }
                    (since, worked) = (Instant::now(), self.processor_seconds());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = self.processor_seconds() - worked;
                    if seconds > SECONDS || since.elapsed() > WAITING {
                        self.stop();
                        let waited = since.elapsed().as_secs_f64();
                        return Ok(Some(format!(
                            "more than {seconds:.0} s of work, {waited:.0} s by the clock"
                        )));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    return Ok((!status.success()).then(|| format!("ended the process: {status}")));
                }
            }
        }
    }

    fn stop(&mut self) {
        // It may have ended by itself in between.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Seconds of the processor that the worker has used; 0 where the system does not tell, and only the clock is left.
    fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // Behind the name in brackets; user and system time are fields 14 and 15, in hundredths of a second.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let times = fields.split_whitespace().skip(11).take(2);
        times.filter_map(|time| time.parse::<f64>().ok()).sum::<f64>() / 100.0
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One line of a worker: `read INDEX a|r MICROSECONDS BYTES ERROR` or `panic INDEX MESSAGE`.
fn count(line: &str, next: &mut u64, tally: &mut Tally) -> Result<Option<String>> {
    let mut words = line.splitn(6, ' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    match line.split(' ').next() {
        Some("read") => {
            number();
            let index = number().with_context(|| line.to_owned())?;
            let refused = words.next() == Some("r");
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            let (micros, bytes) = (number().unwrap_or(0), number().unwrap_or(0));
            tally.inputs += 1;
            tally.refused += u64::from(refused);
            tally.slowest = tally.slowest.max(Duration::from_micros(micros));
            tally.most_memory = tally.most_memory.max(bytes as usize);
            if refused && let Some(error) = words.next() {
                tally.errors.push((index, error.to_owned()));
            }
            *next = index + 1;
            Ok(None)
        }
        Some("panic") => Ok(Some(line.to_owned())),
        _ => bail!("the worker said: {line}"),
    }
}
