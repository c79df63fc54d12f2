//! Planted errors, for the test that every kind of error is caught by the check that is named for it.
//!
//! Nothing is ever planted without both the feature `fault-points` and debug assertions, and the compiler then removes the wrong side of
//! every fault point. The feature is in no default and in no feature of the program: tests alone ask for it.

/// `true` where the named error is planted; never in a build for use.
#[cfg(not(all(feature = "fault-points", debug_assertions)))]
#[inline(always)]
#[must_use]
pub const fn planted(_name: &str) -> bool {
    false
}

/// `true` where the variable `UNDERTONE_FAULT`, which is read once, names the error.
#[cfg(all(feature = "fault-points", debug_assertions))]
#[must_use]
pub fn planted(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("UNDERTONE_FAULT").ok());
    chosen.as_deref() == Some(name)
}
