//! The self-test passes on a right machine in any grid, and names the kernel of a wrong one.

use undertone_gpu_sum::{Emulator, Machine, Result, Span, Word, self_test};

#[test]
#[ignore = "slow"]
fn the_self_test_passes_in_every_grid() {
    for (blocks, threads, stride) in [(1, 1, 1), (3, 2, 2), (5, 64, 3), (1, 256, 1), (64, 1, 13)] {
        self_test(&Emulator::new(blocks, threads, stride).unwrap()).unwrap();
    }
}

/// A machine that adds one to one word of a kernel's output.
struct Broken(u8);

impl Machine for Broken {
    type Memory<T: Word> = Vec<T>;

    fn zeros<T: Word>(&self, len: usize) -> Result<Vec<T>> {
        Emulator::default().zeros(len)
    }

    fn clear<T: Word>(&self, memory: &mut Vec<T>) -> Result<()> {
        Emulator::default().clear(memory)
    }

    fn write<T: Word>(&self, memory: &mut Vec<T>, at: usize, words: &[T]) -> Result<()> {
        Emulator::default().write(memory, at, words)
    }

    fn read<T: Word>(&self, memory: &Vec<T>, at: usize, into: &mut [T]) -> Result<()> {
        Emulator::default().read(memory, at, into)
    }

    fn largest(&self, span: Span, values: &Vec<u32>, found: &mut Vec<u32>) -> Result<()> {
        Emulator::default().largest(span, values, found)?;
        found[1] += u32::from(self.0 == 0);
        Ok(())
    }

    fn squares(&self, span: Span, values: &Vec<u32>, found: &Vec<u32>, limbs: &mut Vec<u64>) -> Result<()> {
        Emulator::default().squares(span, values, found, limbs)?;
        limbs[4] += u64::from(self.0 == 1);
        Ok(())
    }

    fn add_bounded(
        &self,
        span: Span,
        values: &Vec<u32>,
        factors: &Vec<u32>,
        sum: &mut Vec<u64>,
    ) -> Result<()> {
        Emulator::default().add_bounded(span, values, factors, sum)?;
        sum[20] = sum[20].wrapping_add(u64::from(self.0 == 2));
        Ok(())
    }
}

#[test]
fn the_self_test_names_the_kernel_that_is_wrong() {
    for (fault, kernel) in [(0, "largest"), (1, "squares"), (2, "add_bounded")] {
        let error = self_test(&Broken(fault)).unwrap_err().to_string();
        assert!(
            error.contains(&format!("the self-test of `{kernel}` gave wrong results")),
            "{error}"
        );
    }
    self_test(&Broken(3)).unwrap();
}
