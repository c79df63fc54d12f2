//! Fail points: places where a test kills the process. They are compiled only with the feature `failpoints`.

/// Kills the process if the environment names this place. Without the feature, this is nothing.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        undertone_store::reach_fail_point($name);
    };
}
pub(crate) use failpoint;

/// Notes a draw of noise by the public name of its key, for a test that looks for a name that was used twice.
#[cfg(feature = "failpoints")]
pub(crate) fn drawn(attempt: undertone_store::AttemptId, round: u64, key: Option<&str>) {
    let key = key.unwrap_or("none");
    undertone_store::note_for_tests("UNDERTONE_FAIL_POINT_DRAWS", &format!("{attempt} {round} {key}"));
}
