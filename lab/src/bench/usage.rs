//! CPU time and memory of this process.

use std::time::Duration;

use anyhow::Context;

#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

#[cfg(all(unix, target_pointer_width = "64"))]
unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut TimeSpec) -> i32;
}

/// CPU time of all threads so far, where the system tells it (64-bit Unix).
pub(crate) fn cpu_time() -> Option<Duration> {
    #[cfg(all(unix, target_pointer_width = "64"))]
    {
        const PROCESS_CPU_TIME: i32 = if cfg!(target_os = "macos") { 12 } else { 2 };
        let mut time = TimeSpec {
            seconds: 0,
            nanoseconds: 0,
        };
        // SAFETY: `time` is a valid `struct timespec` of a 64-bit system, and the call writes nothing else.
        if unsafe { clock_gettime(PROCESS_CPU_TIME, &raw mut time) } == 0 {
            let seconds = u64::try_from(time.seconds).ok()?;
            return Some(Duration::new(seconds, u32::try_from(time.nanoseconds).ok()?));
        }
    }
    None
}

/// The result of `work`, and the CPU seconds that it took on all threads.
pub(crate) fn clocked<T>(work: impl FnOnce() -> T) -> anyhow::Result<(T, f64)> {
    let now = || cpu_time().context("this system does not tell CPU time");
    let start = now()?;
    let result = work();
    Ok((result, now()?.saturating_sub(start).as_secs_f64()))
}

/// The middle value.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Largest resident set so far in MB of 2^20 bytes, where the system tells it (Linux).
pub(crate) fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}
