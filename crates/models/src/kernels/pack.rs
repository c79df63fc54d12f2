//! Packing of operands into the order in which matrix tiles read them.

use super::isa::{Isa, kernel};
use super::matmul::{PANEL, TILE_ROWS};
use super::transpose::transpose;
use crate::scalar::Scalar;

/// Elements that a packed right operand of `depth x cols` takes.
pub(crate) fn panels_len(depth: usize, cols: usize) -> usize {
    depth * cols.div_ceil(PANEL) * PANEL
}

/// Elements that a packed left operand of `rows x depth` takes.
pub(crate) fn packed_left_len(rows: usize, depth: usize) -> usize {
    rows.div_ceil(TILE_ROWS) * TILE_ROWS * depth
}

/// Packs lines `first..first + count` of the transpose of a left operand of `rows x depth`: `source` is row-major
/// `count x rows` with row stride `stride`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn pack_left<T: Scalar>(
    source: &[T],
    stride: usize,
    rows: usize,
    depth: usize,
    first: usize,
    count: usize,
    packed: &mut [T],
) {
    for (k, line) in (first..first + count).zip(source.chunks(stride)) {
        let (whole, rest) = line[..rows].as_chunks::<TILE_ROWS>();
        for (tile, values) in whole.iter().enumerate() {
            packed[(tile * depth + k) * TILE_ROWS..][..TILE_ROWS].copy_from_slice(values);
        }
        if !rest.is_empty() {
            packed[(whole.len() * depth + k) * TILE_ROWS..][..rest.len()].copy_from_slice(rest);
        }
    }
}

/// Packs a row-major `depth x cols` matrix of row stride `stride` into panels.
pub(crate) fn pack_panels<T: Scalar>(
    isa: Isa,
    source: &[T],
    stride: usize,
    depth: usize,
    cols: usize,
    panels: &mut [T],
) {
    for col in (0..cols).step_by(PANEL) {
        let width = PANEL.min(cols - col);
        pack_panel(
            isa,
            &source[col..],
            stride,
            width,
            &mut panels[col * depth..][..depth * PANEL],
        );
    }
}

kernel! {
    /// Packs `width` columns of the lines of `source` into one panel, which says how many lines.
    pub(crate) fn pack_panel<FUSED>(source: &[T], stride: usize, width: usize, panel: &mut [T]) {
        for (line, source) in panel
            .as_chunks_mut::<PANEL>()
            .0
            .iter_mut()
            .zip(source.chunks(stride))
        {
            // A whole line is copied by a few vector moves, a part by a call.
            match source.first_chunk::<PANEL>() {
                Some(source) if width == PANEL => *line = *source,
                _ => line[..width].copy_from_slice(&source[..width]),
            }
        }
    }
}

/// Packs the transpose of a row-major `cols x depth` matrix of row stride `stride` into panels.
pub(crate) fn pack_panels_transposed<T: Scalar>(
    isa: Isa,
    source: &[T],
    stride: usize,
    depth: usize,
    cols: usize,
    panels: &mut [T],
) {
    for col in (0..cols).step_by(PANEL) {
        let width = PANEL.min(cols - col);
        let panel = &mut panels[col * depth..][..depth * PANEL];
        transpose(isa, &source[col * stride..], stride, width, depth, panel, PANEL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_packing_is_the_packing_of_the_transpose() {
        for isa in Isa::available() {
            let (depth, cols) = (37, 101);
            let source: Vec<f32> = (0..depth * cols).map(|i| i as f32).collect();
            let turned: Vec<f32> = (0..depth * cols)
                .map(|i| source[i % cols * depth + i / cols])
                .collect();
            let mut expected = vec![0.0; panels_len(depth, cols)];
            let mut got = expected.clone();
            pack_panels(isa, &turned, cols, depth, cols, &mut expected);
            pack_panels_transposed(isa, &source, depth, depth, cols, &mut got);
            assert_eq!(got, expected);
        }
    }
}
