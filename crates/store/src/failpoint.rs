//! Fail points: places where a test kills the process. They are compiled only for tests and with the feature `failpoints`.

/// Kills the process if the environment names this place. Without tests and the feature, this is nothing.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(any(test, feature = "failpoints"))]
        $crate::failpoint::reach($name);
    };
}
pub(crate) use failpoint;

/// The variable that names a fail point and the visit that ends the process, as `NAME:VISIT`, from 1.
#[cfg(any(test, feature = "failpoints"))]
pub(crate) const VARIABLE: &str = "UNDERTONE_FAIL_POINT";

/// Ends the process by SIGKILL at the visit that the environment names.
#[cfg(any(test, feature = "failpoints"))]
pub(crate) fn reach(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static CHOSEN: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static VISITS: AtomicU64 = AtomicU64::new(0);

    let chosen = CHOSEN.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok()?;
        let (name, visit) = text.rsplit_once(':')?;
        Some((name.to_owned(), visit.parse().ok()?))
    });
    note(VISITS_VARIABLE, name);
    let Some((chosen, visit)) = chosen else { return };
    if chosen == name && VISITS.fetch_add(1, Ordering::SeqCst) + 1 == *visit {
        let _ = std::process::Command::new("kill")
            .args(["-KILL", &std::process::id().to_string()])
            .status();
        // The signal may be on its way still, and nothing may run meanwhile.
        loop {
            std::thread::park();
        }
    }
}

/// The variable that names the file to which a test's process adds the fail points that it visits.
#[cfg(any(test, feature = "failpoints"))]
pub(crate) const VISITS_VARIABLE: &str = "UNDERTONE_FAIL_POINT_VISITS";

/// Adds a line to the file that this variable of the environment names, if it names one. The end of the process leaves what was written.
#[cfg(any(test, feature = "failpoints"))]
pub(crate) fn note(variable: &str, line: &str) {
    use std::io::Write as _;
    if let Some(path) = std::env::var_os(variable) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // One write per line, so that lines of two threads stay apart.
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .expect("a file for the notes of a test");
    }
}
