//! The bound on what a packed file may expand to.

/// A file may expand to this size, or to [`MAX_EXPANSION`] times its own where that is more.
const EXPANSION_BYTES: u64 = 64 << 20;
const MAX_EXPANSION: u64 = 1000;

/// Bytes to which a file of `size` bytes may expand.
pub(crate) fn max_expanded(size: u64) -> u64 {
    EXPANSION_BYTES.max(size.saturating_mul(MAX_EXPANSION))
}

/// The message about a file that expands beyond that.
pub(crate) fn too_large() -> String {
    format!(
        "it expands to more than {} MiB and {MAX_EXPANSION} times its size",
        EXPANSION_BYTES >> 20
    )
}
