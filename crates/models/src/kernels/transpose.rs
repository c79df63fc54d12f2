use super::isa::{Isa, kernel};
use crate::scalar::Scalar;

/// Writes the transpose of a row-major `rows x cols` matrix: `target[j * target_stride + i] = source[i * stride + j]`.
pub(crate) fn transpose<T: Scalar>(
    isa: Isa,
    source: &[T],
    stride: usize,
    rows: usize,
    cols: usize,
    target: &mut [T],
    target_stride: usize,
) {
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(
        stride >= cols && (rows - 1) * stride + cols <= source.len(),
        "source too small"
    );
    assert!(
        target_stride >= rows && (cols - 1) * target_stride + rows <= target.len(),
        "target too small"
    );
    #[cfg(target_arch = "x86_64")]
    if let (Isa::Avx512, Some(wide)) = (isa, T::WIDE_TRANSPOSE) {
        // SAFETY: `Isa::Avx512` stands for the feature, the assertions above for the extents, and `target` is borrowed
        // mutably.
        unsafe {
            wide(
                source.as_ptr(),
                stride,
                rows,
                cols,
                target.as_mut_ptr(),
                target_stride,
            );
        };
        return;
    }
    transpose_blocks(isa, source, stride, rows, cols, target, target_stride);
}

kernel! {
    fn transpose_blocks<FUSED>(
        source: &[T],
        stride: usize,
        rows: usize,
        cols: usize,
        target: &mut [T],
        target_stride: usize,
    ) {
        let (whole_rows, whole_cols) = (rows - rows % BLOCK, cols - cols % BLOCK);
        for col in (0..whole_cols).step_by(BLOCK) {
            for row in (0..whole_rows).step_by(BLOCK) {
                let mut block = [[T::ZERO; BLOCK]; BLOCK];
                for (i, line) in block.iter_mut().enumerate() {
                    line.copy_from_slice(&source[(row + i) * stride + col..][..BLOCK]);
                }
                for j in 0..BLOCK {
                    let mut line = [T::ZERO; BLOCK];
                    for i in 0..BLOCK {
                        line[i] = block[i][j];
                    }
                    target[(col + j) * target_stride + row..][..BLOCK].copy_from_slice(&line);
                }
            }
        }
        for row in 0..rows {
            let from = if row < whole_rows { whole_cols } else { 0 };
            for col in from..cols {
                target[col * target_stride + row] = source[row * stride + col];
            }
        }
    }
}

const BLOCK: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: usize, cols: usize) {
        let source: Vec<f32> = (0..rows * (cols + 2)).map(|i| i as f32).collect();
        for isa in Isa::available() {
            let mut target = vec![-1.0; cols * (rows + 1)];
            transpose(isa, &source, cols + 2, rows, cols, &mut target, rows + 1);
            for (index, &got) in target.iter().enumerate() {
                let (j, i) = (index / (rows + 1), index % (rows + 1));
                let expected = if i < rows {
                    source[i * (cols + 2) + j]
                } else {
                    -1.0
                };
                assert_eq!(got, expected, "{isa:?} {rows}x{cols} at {j},{i}");
            }
        }
    }

    #[test]
    fn any_shape_is_transposed() {
        for (rows, cols) in [(1, 1), (8, 8), (16, 16), (17, 33), (48, 20), (5, 64)] {
            check(rows, cols);
        }
    }
}
