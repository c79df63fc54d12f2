//! The memory and the disk that an item needs, before it begins.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

/// Bytes that an item needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    /// Memory of all processes together.
    pub(super) memory: u64,
    /// Space in the folder of the servers.
    pub(super) disk: u64,
}

impl Needs {
    /// Refuses to begin where the machine has less. A system that does not tell lets it begin.
    pub(super) fn check(self, folder: &Path) -> anyhow::Result<()> {
        let memory = std::fs::read_to_string("/proc/meminfo");
        self.check_memory(memory.ok().as_deref().and_then(available))?;
        let output = Command::new("df").arg("-Pk").arg(folder).output();
        let table = output
            .ok()
            .and_then(|output| String::from_utf8(output.stdout).ok());
        self.check_disk(table.as_deref().and_then(free), folder)
    }

    fn check_memory(self, available: Option<u64>) -> anyhow::Result<()> {
        let enough = available.is_none_or(|available| available >= self.memory);
        ensure!(
            enough,
            "this needs {} MB of memory, and {} MB are available: choose smaller --devices or --parameters",
            self.memory >> 20,
            available.unwrap_or(0) >> 20
        );
        Ok(())
    }

    fn check_disk(self, free: Option<u64>, folder: &Path) -> anyhow::Result<()> {
        let enough = free.is_none_or(|free| free >= self.disk);
        ensure!(
            enough,
            "this needs {} MB of disk, and {} has {} MB: choose another --folder",
            self.disk >> 20,
            folder.display(),
            free.unwrap_or(0) >> 20
        );
        Ok(())
    }
}

/// Available memory in bytes, by the text of `/proc/meminfo`.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Free space in bytes, by the table of `df -Pk`.
fn free(table: &str) -> Option<u64> {
    let row = table.lines().nth(1)?;
    // The name of the device may hold spaces, so the columns are counted from the right one of them.
    let percent = row.split_whitespace().position(|word| word.ends_with('%'))?;
    let kilobytes: u64 = row
        .split_whitespace()
        .nth(percent.checked_sub(1)?)?
        .parse()
        .ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
#[path = "needs_tests.rs"]
mod tests;
