//! Fail points: places where a test kills the process. They are compiled only with the feature `failpoints`.

/// Kills the process if the environment names this place. Without the feature, this is nothing.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        undertone_store::reach_fail_point($name);
    };
}
pub(crate) use failpoint;
