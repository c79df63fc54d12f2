//! Work on secrets whose traces are removed from the stack of its thread.

use std::hint::black_box;

/// Bytes of the stack that are overwritten. The calls of a request use less.
const DEPTH: usize = 96 << 10;

/// Does work that handles subjects, and overwrites the stack that it used: values that are moved leave copies there, which no
/// destructor wipes.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let result = apart(work);
    overwrite();
    result
}

/// Keeps the frames of the work out of those of the caller, so that they lie where [`overwrite`] writes.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn overwrite() {
    let mut area = [0_u8; DEPTH];
    black_box(&mut area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_the_work_is_untouched() {
        let name = [7_u8; 32];
        assert_eq!(scrubbed(|| black_box(name)), name);
        assert!(scrubbed(|| Err::<(), _>("refused")).is_err());
    }
}
