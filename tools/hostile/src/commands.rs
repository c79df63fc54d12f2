//! Whole commands on run directories that somebody else has changed: file by file, and with links, pipes and folders in the place of
//! files.

use std::fmt;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::mutate::{Syntax, mutant};
use crate::random::Random;
use crate::world::{RUNS, World, copy};

/// Lines that an error may have.
const LINES: usize = 3;
/// Kilobytes of address space of a command: a gigabyte, and room for the program and its threads.
const ADDRESSES: u64 = 1_500_000;
/// Seconds of the processor that a command may use.
const SECONDS: u64 = 12;
/// Seconds by the clock after which it waits for something that never comes.
const WAITING: Duration = Duration::from_secs(90);

/// A command on a run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Verify,
    Report,
    Evaluate,
    Personalize,
    Export,
    Resume,
    Read(&'static FileTask),
}

/// A command on one file of the world.
#[derive(Debug, PartialEq, Eq)]
struct FileTask {
    file: &'static str,
    arguments: &'static str,
}

const fn on(file: &'static str, arguments: &'static str) -> FileTask {
    FileTask { file, arguments }
}

/// The name of the folder that the commands below write.
const WRITTEN: &str = "written";

/// Commands on files that are no run directories.
const FILE_TASKS: [FileTask; 13] = [
    on(
        "rows.csv",
        "data stats --csv rows.csv --time-column at --split-column split --public-corpus rows.txt",
    ),
    on(
        "rows.jsonl",
        "data stats --jsonl rows.jsonl --time-column at --split-column split --public-corpus rows.txt",
    ),
    on(
        "rows.parquet",
        "data stats --parquet rows.parquet --split-column split --public-corpus rows.parquet",
    ),
    on(
        "rows.csv",
        "data import --csv rows.csv --time-column at -o written",
    ),
    on("rows.parquet", "data group --parquet rows.parquet -o written"),
    on("rows.jsonl", "data vocab --public --jsonl rows.jsonl -o written"),
    on(
        "rows.jsonl",
        "data dedup rows.jsonl --against rows.csv -o written",
    ),
    on("rows.txt", "data tokenizer rows.txt --size 300 -o written"),
    on("bpe.json", "data stats --csv odd.csv --tokenizer bpe.json"),
    on(
        "wordpiece.json",
        "data stats --csv odd.csv --tokenizer wordpiece.json",
    ),
    on(
        "grouped/manifest.json",
        "data stats --grouped grouped --public-corpus rows.txt",
    ),
    on("mechanism.json", "mechanism show mechanism.json"),
    on("events.toml", "account compose events.toml --delta 1e-6"),
];

const FINISHED: [&str; 9] = [
    "sampled",
    "correlated",
    "adaptive",
    "els",
    "secagg",
    "public",
    "words",
    "tokens",
    "adapters",
];
const OPEN: [&str; 2] = ["open-sampled", "open-correlated"];

/// The counts and the failures of a series of commands.
#[derive(Debug, Clone, Default)]
pub struct CommandTally {
    /// Commands that were run.
    pub commands: u64,
    /// Commands that ended with an error.
    pub refused: u64,
    /// The longest time by the clock.
    pub slowest: Duration,
    /// Forbidden outcomes: number, command line and event of each.
    pub failures: Vec<String>,
}

impl fmt::Display for CommandTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commands on changed run directories, {} ended with an error, slowest {:.2} s, {} failed",
            self.commands,
            self.refused,
            self.slowest.as_secs_f64(),
            self.failures.len()
        )?;
        self.failures
            .iter()
            .try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// A folder for one command: the run that is changed, and beside it files that nothing may touch.
struct Sandbox {
    folder: tempfile::TempDir,
    run: &'static str,
    /// All files, before the change.
    files: Vec<PathBuf>,
}

/// The result of one command.
struct Ended {
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    time: Duration,
}

/// Runs each command on honest run directories.
///
/// # Errors
/// A command that does not succeed there: its refusals on others would say nothing.
pub fn honest(program: &Path, world: &World) -> Result<()> {
    for (task, run) in [
        (Task::Verify, "sampled"),
        (Task::Verify, "correlated"),
        (Task::Report, "sampled"),
        (Task::Evaluate, "words"),
        (Task::Personalize, "sampled"),
        (Task::Export, "adapters"),
        (Task::Resume, "open-sampled"),
        (Task::Resume, "open-correlated"),
    ]
    .into_iter()
    .chain(FILE_TASKS.iter().map(|task| (Task::Read(task), "")))
    {
        let sandbox = Sandbox::new(world, run)?;
        let ended = sandbox.execute(program, task, world, false)?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let succeeded = ended.status.is_some_and(|status| status.success());
        ensure!(
            succeeded,
            "{task:?} of the honest run {run}: {:?}: {said}",
            ended.status
        );
        if let Some(what) = sandbox.wrong(task, &ended)? {
            anyhow::bail!("{task:?} of the honest run {run}: {what}");
        }
    }
    Ok(())
}

/// Runs a command on each of these mutations.
///
/// # Errors
/// A sandbox that cannot be made; what commands do is in the tally.
pub fn hunt(program: &Path, world: &World, seed: u64, numbers: Range<u64>) -> Result<CommandTally> {
    let mut tally = CommandTally::default();
    for number in numbers {
        let mut random = Random::new(seed ^ 0xc0ff_ee00, number);
        let task = *random.choose(&[
            Task::Read(&FILE_TASKS[number as usize % FILE_TASKS.len()]),
            Task::Read(&FILE_TASKS[number as usize % FILE_TASKS.len()]),
            Task::Verify,
            Task::Verify,
            Task::Report,
            Task::Evaluate,
            Task::Personalize,
            Task::Export,
            Task::Resume,
            Task::Resume,
        ]);
        let run = match task {
            Task::Read(_) => "",
            Task::Resume => *random.choose(&OPEN),
            Task::Verify | Task::Report if random.one_in(6) => *random.choose(&OPEN),
            _ => *random.choose(&FINISHED),
        };
        let sandbox = Sandbox::new(world, run)?;
        let change = match task {
            Task::Read(task) => sandbox.change_file(task.file, seed, number)?,
            _ => sandbox.change(&mut random, seed, number)?,
        };
        let json = random.one_in(3);
        let ended = sandbox.execute(program, task, world, json)?;
        tally.commands += 1;
        tally.refused += u64::from(!ended.status.is_some_and(|status| status.success()));
        tally.slowest = tally.slowest.max(ended.time);
        if let Some(what) = sandbox.wrong(task, &ended)? {
            let json = if json { " --json" } else { "" };
            tally
                .failures
                .push(format!("{number}: {task:?} {run}{json}, {change}: {what}"));
        }
    }
    Ok(tally)
}

impl Sandbox {
    fn new(world: &World, run: &'static str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        if run.is_empty() {
            for entry in fs::read_dir(world.folder())? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    fs::copy(entry.path(), folder.path().join(entry.file_name()))?;
                }
            }
            copy(&world.path("grouped"), &at("grouped"))?;
        } else {
            copy(&world.run(run), &at(RUNS).join(run))?;
            copy(&world.path(RUNS).join(".corpora"), &at(RUNS).join(".corpora"))?;
            fs::copy(world.path(&format!("{run}.toml")), at(&format!("{run}.toml")))?;
        }
        fs::create_dir(at("outside"))?;
        for name in ["outside/precious", "precious.jsonl", "outside/state.safetensors"] {
            fs::write(at(name), precious_bytes())?;
        }
        let mut files = Vec::new();
        list(folder.path(), &mut files)?;
        Ok(Self { folder, run, files })
    }

    fn change_file(&self, file: &str, seed: u64, number: u64) -> Result<String> {
        let path = self.path(file);
        fs::write(&path, mutant(syntax_of(&path), &fs::read(&path)?, seed, number))?;
        Ok(format!("{file} changed"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self) -> PathBuf {
        self.path(RUNS).join(self.run)
    }

    /// Changes one file of the run; what was done.
    fn change(&self, random: &mut Random, seed: u64, number: u64) -> Result<String> {
        let mut files = Vec::new();
        list(&self.run(), &mut files)?;
        files.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !name.ends_with(".svg") && !name.ends_with(".html") && !name.ends_with(".md")
        });
        files.sort();
        let path = random.choose(&files).clone();
        let shown = path.strip_prefix(self.run())?.display().to_string();
        if random.one_in(5) {
            return self.replace(random, &path, &shown);
        }
        fs::write(&path, mutant(syntax_of(&path), &fs::read(&path)?, seed, number))?;
        Ok(format!("{shown} changed"))
    }

    /// Puts something that is no honest file in the place of one, or where a command writes.
    fn replace(&self, random: &mut Random, path: &Path, shown: &str) -> Result<String> {
        let name = *random.choose(&[
            "",
            "",
            ".lock",
            "plots",
            "report.html",
            "privacy.md",
            "checkpoint",
        ]);
        let (path, shown) = match name {
            "" => (path.to_owned(), shown),
            name => (self.run().join(name), name),
        };
        match path.is_dir() {
            true => fs::remove_dir_all(&path)?,
            false if path.exists() => fs::remove_file(&path)?,
            false => {}
        }
        let what = *random.choose(&["missing", "folder", "empty", "link", "zero", "pipe", "outside"]);
        match what {
            "folder" => fs::create_dir(&path)?,
            "empty" => fs::write(&path, "")?,
            #[cfg(unix)]
            "link" => std::os::unix::fs::symlink(self.path("outside/precious"), &path)?,
            #[cfg(unix)]
            "outside" => std::os::unix::fs::symlink(self.path("outside"), &path)?,
            #[cfg(unix)]
            "zero" => std::os::unix::fs::symlink("/dev/zero", &path)?,
            #[cfg(unix)]
            "pipe" => {
                let made = Command::new("mkfifo").arg(&path).status()?;
                ensure!(made.success(), "mkfifo: {made}");
            }
            _ => {}
        }
        Ok(format!("{shown} is {what}"))
    }

    fn execute(&self, program: &Path, task: Task, world: &World, json: bool) -> Result<Ended> {
        let run = format!("{RUNS}/{}", self.run);
        let file = format!("{}.toml", self.run);
        let base = world.folder().display().to_string();
        let mut arguments: Vec<&str> = match task {
            Task::Verify => vec!["verify", &run],
            Task::Report => vec!["report", &run],
            Task::Evaluate => vec!["eval", &run, "--base", &base, "--threads", "1"],
            Task::Personalize => {
                vec![
                    "personalize",
                    &run,
                    "--base",
                    &base,
                    "--users",
                    "2",
                    "--epochs",
                    "1",
                    "--threads",
                    "1",
                ]
            }
            Task::Export => vec!["export", &run, "--layout", "undertone", "--out", "exported"],
            Task::Resume => vec!["train", &file, "--resume", "--out", RUNS, "--threads", "1"],
            Task::Read(task) => task.arguments.split(' ').collect(),
        };
        if json {
            arguments.push("--json");
        }
        let limits = format!("ulimit -v {ADDRESSES}; ulimit -t {SECONDS}; ulimit -c 0; exec \"$@\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &limits, "sh"])
            .arg(program)
            .args(&arguments)
            .current_dir(self.folder.path())
            .env("MALLOC_ARENA_MAX", "2")
            .env("RAYON_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = command.spawn().context("starting sh")?;
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let status = wait(&mut child, start)?;
        let [stdout, stderr] = [stdout, stderr].map(|thread| thread.join().unwrap_or_default());
        Ok(Ended {
            status,
            stdout,
            stderr,
            time: start.elapsed(),
        })
    }

    /// Returns the event of a command that no input may cause, if there was one.
    fn wrong(&self, task: Task, ended: &Ended) -> Result<Option<String>> {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let shown: String = said.chars().take(600).collect();
        let Some(status) = ended.status else {
            return Ok(Some(format!("still running after {WAITING:?}")));
        };
        let Some(code) = status.code() else {
            return Ok(Some(format!("{status}: {shown:?}")));
        };
        // 101 is a panic's.
        if !matches!(code, 0 | 1) || said.contains("panicked") {
            return Ok(Some(format!("{status}: {shown:?}")));
        }
        // A training says how far it is before it fails.
        let error = said
            .lines()
            .skip_while(|line| task == Task::Resume && !line.starts_with("error"));
        if code == 1 && (said.is_empty() || error.count() > LINES) {
            return Ok(Some(format!(
                "an error that is not of 1 to {LINES} lines: {shown:?}"
            )));
        }
        for bytes in [&ended.stdout, &ended.stderr] {
            let text = String::from_utf8_lossy(bytes);
            let obeyed = |c: char| {
                (c.is_control() && c != '\n')
                    || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            };
            if let Some(at) = text.find(obeyed) {
                let around: String = text[at..].chars().take(40).collect();
                return Ok(Some(format!("a control character in its output: {around:?}")));
            }
        }
        self.touched()
    }

    /// A file outside of the run that was changed, removed or added.
    fn touched(&self) -> Result<Option<String>> {
        // A file that was made from people's text has its record beside it.
        let record = self.path(&format!("{WRITTEN}.privacy.json"));
        let mut own = vec![self.path("exported"), self.path(WRITTEN), record];
        if !self.run.is_empty() {
            own.extend([self.run(), self.path(RUNS).join(".corpora")]);
        }
        let outside = |path: &&PathBuf| !own.iter().any(|own| path.starts_with(own));
        let mut files = Vec::new();
        list(self.folder.path(), &mut files)?;
        for path in self.files.iter().filter(outside) {
            let name = path.strip_prefix(self.folder.path())?;
            let precious = name.starts_with("outside") || name == Path::new("precious.jsonl");
            if !path.is_file() || (precious && fs::read(path)? != precious_bytes()) {
                return Ok(Some(format!(
                    "{}, a file outside of the run, was changed",
                    name.display()
                )));
            }
        }
        let added = files
            .iter()
            .filter(outside)
            .find(|path| !self.files.contains(path));
        Ok(added.map(|path| format!("{} was written outside of the run", path.display())))
    }
}

/// The contents of files that no command may touch.
fn precious_bytes() -> Vec<u8> {
    "precious\n".repeat(20_000).into_bytes()
}

fn syntax_of(path: &Path) -> Syntax {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => Syntax::Toml,
        Some("json") => Syntax::Json,
        Some("jsonl") => Syntax::JsonLines,
        Some("safetensors") => Syntax::Safetensors,
        _ => Syntax::Bytes,
    }
}

/// All files below a folder; links are not followed, and are files.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

/// Reads the output of a command, up to a limit that no honest output reaches.
fn collect(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What a killed command has not written is not there.
            let _ = stream.by_ref().take(16 << 20).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        bytes
    })
}

fn wait(child: &mut Child, start: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > WAITING {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
