//! A process that is started, dies at a fail point or is killed at a random time, and is started again.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::error::{FleetError, Result};
use crate::seeds::Seed;

/// The variable that names the fail point of a process, as `NAME:VISIT`.
pub(crate) const FAIL_POINT_VARIABLE: &str = "UNDERTONE_FAIL_POINT";

/// The time between two looks at a process.
const LOOK: Duration = Duration::from_millis(5);

/// A place in a program, and the visit at which the process ends itself there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailPoint {
    /// The name of the place.
    pub name: String,
    /// The visit, from 1.
    pub visit: u64,
}

impl FailPoint {
    /// The fail point of this name at a visit, from 1.
    #[must_use]
    pub fn new(name: impl Into<String>, visit: u64) -> Self {
        Self {
            name: name.into(),
            visit,
        }
    }
}

impl std::fmt::Display for FailPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.visit)
    }
}

impl FromStr for FailPoint {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self> {
        let read = text.rsplit_once(':').and_then(|(name, visit)| {
            let visit: u64 = visit.parse().ok()?;
            (visit > 0 && !name.is_empty()).then(|| Self::new(name, visit))
        });
        let expected = "a name, a colon and a visit from 1";
        read.ok_or_else(|| FleetError::value("the fail point", expected, text.escape_debug()))
    }
}

/// The end that a process will meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doom {
    /// No planned end: the process runs until it ends by itself or [`Kill::kill`] is called.
    None,
    /// The process ends itself at a fail point.
    At(FailPoint),
    /// The process is killed at a random time after its start, uniform between the two durations.
    Within(Duration, Duration),
}

/// A command as it is started each time.
#[derive(Debug, Clone)]
pub struct Launch {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    log: Option<PathBuf>,
}

impl Launch {
    /// A program without arguments. It inherits the environment, but no fail point.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            envs: Vec::new(),
            log: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Appends all output to this file. Without it, output goes nowhere.
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    fn spawn(&self, doom: &Doom) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null());
        command.envs(self.envs.iter().map(|(name, value)| (name, value)));
        command.env_remove(FAIL_POINT_VARIABLE);
        if let Doom::At(point) = doom {
            command.env(FAIL_POINT_VARIABLE, point.to_string());
        }
        let failed = |source| FleetError::io(format!("start {}", self.program.to_string_lossy()), source);
        match &self.log {
            None => command.stdout(Stdio::null()).stderr(Stdio::null()),
            Some(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                let named = |source| FleetError::io(format!("write {}", path.display()), source);
                let log = opened.map_err(named)?;
                let other = log.try_clone().map_err(named)?;
                command.stdout(log).stderr(other)
            }
        };
        command.spawn().map_err(failed)
    }
}

/// A process that dies and is started again. Dropping it kills the process.
#[derive(Debug)]
pub struct Kill {
    launch: Launch,
    seed: Seed,
    child: Option<Child>,
    doom: Doom,
    kill_at: Option<Instant>,
    starts: u64,
    deaths: u64,
}

impl Kill {
    /// A process that was not started yet. Random times follow from the seed and the number of the start.
    #[must_use]
    pub fn new(launch: Launch, seed: u64) -> Self {
        Self {
            launch,
            seed: Seed(seed),
            child: None,
            doom: Doom::None,
            kill_at: None,
            starts: 0,
            deaths: 0,
        }
    }

    /// Starts the process. One that still runs is killed first.
    ///
    /// # Errors
    /// [`FleetError::Io`] where it cannot be started.
    pub fn start(&mut self, doom: Doom) -> Result<()> {
        self.kill()?;
        self.child = Some(self.launch.spawn(&doom)?);
        self.kill_at = match doom {
            Doom::Within(min, max) => {
                let part = self.seed.unit("kill", &[self.starts]);
                Some(Instant::now() + min + max.saturating_sub(min).mul_f64(part))
            }
            _ => None,
        };
        self.doom = doom;
        self.starts += 1;
        Ok(())
    }

    /// Returns how the process ended; `None` while it runs. It is killed here once its random time has come, so call this often.
    ///
    /// # Errors
    /// [`FleetError::Io`] where the process cannot be observed or killed.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let failed = |source| FleetError::io("look at a process", source);
        let mut status = child.try_wait().map_err(failed)?;
        if status.is_none() && self.kill_at.is_some_and(|at| Instant::now() >= at) {
            child.kill().map_err(failed)?;
            status = Some(child.wait().map_err(failed)?);
        }
        if status.is_some() {
            self.child = None;
            self.deaths += 1;
        }
        Ok(status)
    }

    /// Waits until the process has met its end.
    ///
    /// # Errors
    /// [`FleetError::Late`] where it still runs after `within`, for example because it never visits its fail point; it runs on.
    pub fn wait(&mut self, within: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        while self.is_running() {
            if let Some(status) = self.poll()? {
                return Ok(Some(status));
            }
            if started.elapsed() > within {
                return Err(FleetError::Late {
                    what: format!("the end of a process doomed by {:?}", self.doom),
                    seconds: within.as_secs_f64(),
                });
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// Waits until `ready` returns `true`, for example because the service answers. Returns `false` where the process ended before.
    ///
    /// # Errors
    /// [`FleetError::Late`] where it is not ready after `within`.
    pub fn wait_ready(&mut self, within: Duration, mut ready: impl FnMut() -> bool) -> Result<bool> {
        let started = Instant::now();
        loop {
            if self.poll()?.is_some() || !self.is_running() {
                return Ok(false);
            }
            if ready() {
                return Ok(true);
            }
            if started.elapsed() > within {
                return Err(FleetError::Late {
                    what: "the start of a process".to_owned(),
                    seconds: within.as_secs_f64(),
                });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Kills the process by SIGKILL, if it runs.
    ///
    /// # Errors
    /// [`FleetError::Io`] where it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            let failed = |source| FleetError::io("kill a process", source);
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            self.deaths += 1;
        }
        Ok(())
    }

    /// Stops the process by SIGSTOP: it keeps its files and its locks, and does nothing.
    ///
    /// # Errors
    /// [`FleetError::Io`] where no process runs or no signal can be sent.
    pub fn pause(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Lets a paused process go on.
    ///
    /// # Errors
    /// [`FleetError::Io`] where no process runs or no signal can be sent.
    pub fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    /// Asks the process to end by SIGTERM. It ends when it has done what it does before its end.
    ///
    /// # Errors
    /// [`FleetError::Io`] where no process runs or no signal can be sent.
    pub fn terminate(&self) -> Result<()> {
        self.signal("-TERM")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let failed = |source| FleetError::io(format!("send {name} to a process"), source);
        let Some(child) = &self.child else {
            return Err(failed(std::io::Error::other("no process runs")));
        };
        let mut kill = Command::new("kill");
        kill.args([name, &child.id().to_string()]).stdin(Stdio::null());
        match kill.status().map_err(failed)? {
            status if status.success() => Ok(()),
            status => Err(failed(std::io::Error::other(status.to_string()))),
        }
    }

    /// `true` from a start until the end was seen by [`poll`](Self::poll), [`wait`](Self::wait) or [`kill`](Self::kill).
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Number of times that the process was started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Number of times that the process ended, by itself or not.
    #[must_use]
    pub fn deaths(&self) -> u64 {
        self.deaths
    }
}

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Launch {
        Launch::new("sh").arg("-c").arg(script)
    }

    #[test]
    fn a_process_dies_at_its_fail_point_and_starts_again_without() {
        // As a program with fail points does, at the visit that the environment names.
        let script = r#"case "$UNDERTONE_FAIL_POINT" in commit:3) kill -KILL $$;; esac; sleep 60"#;
        let mut process = Kill::new(shell(script), 1);
        process.start(Doom::At(FailPoint::new("commit", 3))).unwrap();
        let status = process.wait(SOON).unwrap().unwrap();
        assert_eq!(status.signal(), Some(9));
        assert!(!process.is_running());
        process.start(Doom::None).unwrap();
        let late = process.wait(Duration::from_millis(100));
        assert!(matches!(late, Err(FleetError::Late { .. })));
        assert!(process.is_running());
        process.kill().unwrap();
        assert_eq!((process.starts(), process.deaths()), (2, 2));
    }

    #[test]
    fn a_process_is_killed_at_a_random_time_within_its_bounds() {
        let (min, max) = (Duration::from_millis(50), Duration::from_millis(150));
        let mut process = Kill::new(shell("sleep 60"), 7);
        for _ in 0..2 {
            let started = Instant::now();
            process.start(Doom::Within(min, max)).unwrap();
            let first = process.kill_at.unwrap();
            assert!(first >= started + min && first <= Instant::now() + max);
            assert_eq!(process.wait(SOON).unwrap().unwrap().signal(), Some(9));
            assert!(started.elapsed() >= min);
        }
    }

    #[test]
    fn a_paused_process_does_nothing_until_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (begun, go) = (folder.path().join("begun"), folder.path().join("go"));
        let script = format!(
            "touch {}; while ! test -e {}; do sleep 0.01; done; exit 7",
            begun.display(),
            go.display()
        );
        let mut process = Kill::new(shell(&script), 1);
        assert!(process.pause().is_err());
        process.start(Doom::None).unwrap();
        assert!(process.wait_ready(SOON, || begun.exists()).unwrap());
        process.pause().unwrap();
        std::fs::write(&go, "").unwrap();
        assert!(process.wait(Duration::from_millis(300)).is_err(), "it went on");
        process.resume().unwrap();
        assert_eq!(process.wait(SOON).unwrap().unwrap().code(), Some(7));
    }

    #[test]
    fn a_process_that_ends_before_it_is_ready_is_not_waited_for() {
        let mut process = Kill::new(shell("exit 3"), 1);
        process.start(Doom::None).unwrap();
        assert!(!process.wait_ready(SOON, || false).unwrap());
        process.start(Doom::None).unwrap();
        assert_eq!(process.wait(SOON).unwrap().unwrap().code(), Some(3));
    }

    #[test]
    fn the_output_of_all_starts_is_kept_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let launch = shell("echo out; echo $WORD >&2").env("WORD", "err").log(&log);
        let mut process = Kill::new(launch, 1);
        for _ in 0..2 {
            process.start(Doom::None).unwrap();
            process.wait(SOON).unwrap();
        }
        let text = std::fs::read_to_string(&log).unwrap();
        assert_eq!(text, "out\nerr\nout\nerr\n");
        assert!(
            Kill::new(Launch::new("no such program"), 1)
                .start(Doom::None)
                .is_err()
        );
    }

    #[test]
    fn fail_points_are_read_from_text() {
        let point: FailPoint = "release:after_commit:2".parse().unwrap();
        assert_eq!(point, FailPoint::new("release:after_commit", 2));
        for bad in ["", "commit", "commit:0", "commit:x", ":1"] {
            assert!(bad.parse::<FailPoint>().is_err(), "{bad}");
        }
    }
}
