//! Signals that would end the process without an error message.

/// Lets writing beyond a limit on file sizes (`ulimit -f`) fail with an error, as on a full disk, instead of ending the
/// process: the error names the file, and what was not finished is removed.
pub(crate) fn report_full_files() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal runs no code of ours when it comes; called before any other thread is there.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
