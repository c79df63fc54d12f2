//! Planted errors, for the test that every kind of error is caught by the check that is named for it.
//!
//! Without the feature `fault-points` nothing is ever planted, and the compiler removes the wrong side of every fault point. The feature
//! is in no default, in no feature of the program, and refuses to compile without debug assertions.

#[cfg(all(feature = "fault-points", not(debug_assertions)))]
compile_error!("`fault-points` plants errors in the noise; it needs a profile with debug assertions");

/// `true` where the named error is planted; never without the feature `fault-points`.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
#[must_use]
pub const fn planted(_name: &str) -> bool {
    false
}

/// `true` where the variable `UNDERTONE_FAULT`, which is read once, names the error.
#[cfg(feature = "fault-points")]
#[must_use]
pub fn planted(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("UNDERTONE_FAULT").ok());
    chosen.as_deref() == Some(name)
}
