//! The conditions of the measurements.

use std::path::Path;

use serde_json::json;

use super::physical::{self, Database};
use super::table::{report, rounded};

/// Prints the machine, its load, and what its memory, processor and disk can do.
pub(super) fn report_conditions(folder: &Path) -> anyhow::Result<()> {
    let own = tempfile::tempdir_in(folder)?;
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let field = |text: Option<String>, name: &str| -> Option<String> {
        let text = text?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let load = read("/proc/loadavg").and_then(|text| {
        let mut words = text.split(' ').map(str::parse::<f64>);
        words.next()?.ok()
    });
    report(
        "machine",
        &json!({
            "processor": field(read("/proc/cpuinfo"), "model name"),
            "cores": physical::cores(),
            "memory": field(read("/proc/meminfo"), "MemTotal"),
            "load_average": load,
            "folder": folder,
            "copies_gb_s": rounded(physical::copies() / 1e9),
            "verifications_s": rounded(physical::verifications()?),
            "fsync_ms": rounded(1000.0 * physical::synced(own.path())?),
            "write_128_mb_s": rounded(physical::written(own.path(), 128 << 20)?),
            "sqlite_full_commits_s": rounded(Database::new(own.path(), "full", true)?.commits(0.5)?),
            "sqlite_normal_commits_s": rounded(Database::new(own.path(), "normal", false)?.commits(0.5)?),
        }),
    );
    Ok(())
}
