//! Signals that would end the process without an error message, or in the middle of its work.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::asked;

/// Lets writing beyond a limit on file sizes (`ulimit -f`) fail with an error, as on a full disk, instead of ending the
/// process: the error names the file, and what was not finished is removed.
pub(crate) fn report_full_files() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal runs no code of ours when it comes; called before any other thread is there.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The number of the signal that has asked the process to end, or 0.
static STOP: AtomicI32 = AtomicI32::new(0);

/// Lets the first SIGTERM or Ctrl-C ask for an end in order, and the second one end the process at once.
pub(crate) fn end_in_order() {
    // Signals are those of the program that asks.
    if asked::is_on() {
        return;
    }
    #[cfg(unix)]
    // SAFETY: the handler only stores into an atomic and calls `signal`, both of which POSIX allows in a handler.
    unsafe {
        let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::signal(libc::SIGTERM, handler);
        libc::signal(libc::SIGINT, handler);
    }
}

/// Lets SIGTERM and Ctrl-C end the process at once again.
pub(crate) fn end_at_once() {
    #[cfg(unix)]
    // SAFETY: the default action runs no code of ours.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::signal(libc::SIGINT, libc::SIG_DFL);
    }
}

#[cfg(unix)]
extern "C" fn note(signal: libc::c_int) {
    STOP.store(signal, Ordering::Release);
    // SAFETY: `signal` may be called in a handler, and the default action runs no code of ours.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// `true` once the process was asked to read its files again, until that is asked for.
static RELOAD: AtomicBool = AtomicBool::new(false);

/// Lets SIGHUP ask for files that changed to be read again, instead of ending the process.
pub(crate) fn reload_on_hangup() {
    #[cfg(unix)]
    // SAFETY: the handler only stores into an atomic, which POSIX allows in a handler.
    unsafe {
        let handler = note_reload as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::signal(libc::SIGHUP, handler);
    }
}

#[cfg(unix)]
extern "C" fn note_reload(_signal: libc::c_int) {
    RELOAD.store(true, Ordering::Release);
}

/// `true` if a signal has asked for it since the last call; only after [`reload_on_hangup`].
pub(crate) fn asked_to_reload() -> bool {
    RELOAD.swap(false, Ordering::AcqRel)
}

/// `true` once a signal, or the reader of an answer, has asked for an end; a signal only after [`end_in_order`].
pub(crate) fn asked_to_end() -> bool {
    STOP.load(Ordering::Acquire) != 0 || asked::stops()
}

/// The exit status of a process that a signal has ended in order, as shells count it: 130 after Ctrl-C.
pub(crate) fn status() -> u8 {
    128 + u8::try_from(STOP.load(Ordering::Acquire)).unwrap_or(0) % 128
}
