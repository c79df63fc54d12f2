//! The limit on descriptors of this process.

/// Raises the limit as far as the system allows, and gives it; `None` where the system has no such limit.
#[cfg(unix)]
pub(crate) fn raise_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a value of the right type that lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a value of the right type that lives through the call, which reads it.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    let now = if raised { limit.rlim_max } else { before };
    // The type of a limit differs between systems.
    #[expect(
        clippy::useless_conversion,
        reason = "on some systems the type is another one"
    )]
    u64::try_from(now).ok()
}

/// Raises the limit as far as the system allows, and gives it; `None` where the system has no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_limit() -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_descriptors_is_the_highest_that_the_system_allows() {
        let raised = raise_limit().unwrap();
        let shown = std::process::Command::new("sh")
            .args(["-c", "ulimit -n; ulimit -Hn"])
            .output()
            .unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        let (soft, hard) = text.trim().split_once('\n').unwrap();
        assert_eq!(soft, hard);
        assert_eq!(hard.parse(), Ok(raised));
    }
}
