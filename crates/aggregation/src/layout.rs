//! Positions of each tensor, and of each clip group, inside the flat parameter vector.

use std::collections::HashSet;
use std::ops::Range;

use crate::error::{AggregationError, Result};

/// One named tensor: a contiguous, row-major slice of the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Unique name, as used in safetensors files.
    pub name: String,
    /// Dimensions, outermost first; a scalar has none.
    pub shape: Vec<usize>,
    /// Index of the first element in the flat vector.
    pub offset: usize,
}

impl TensorSpec {
    /// Number of elements (1 for a scalar).
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns `true` if the tensor has no elements. A checked layout has no such tensor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices of the tensor in the flat vector.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// `rows` spans of `cols` consecutive parameters, `row_stride` apart, the first one at `offset`.
///
/// A whole tensor is one row; the columns of one gate inside a fused LSTM matrix are one row per matrix row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Index of the first parameter.
    pub offset: usize,
    /// Number of spans.
    pub rows: usize,
    /// Distance between the starts of two spans; at least `cols`, ignored when there is one row.
    pub row_stride: usize,
    /// Length of a span.
    pub cols: usize,
}

impl Block {
    /// The block of consecutive parameters `range`.
    #[must_use]
    pub fn contiguous(range: Range<usize>) -> Self {
        let cols = range.len();
        Self {
            offset: range.start,
            rows: 1,
            row_stride: cols,
            cols,
        }
    }

    /// Number of parameters in the block.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// Returns `true` if the block holds no parameter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The spans of the block in increasing order; a block without gaps is a single span.
    pub fn spans(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Self {
            offset,
            rows,
            row_stride,
            cols,
        } = *self;
        let (rows, cols) = if row_stride == cols {
            (1, rows * cols)
        } else {
            (rows, cols)
        };
        (0..rows).map(move |row| offset + row * row_stride..offset + row * row_stride + cols)
    }

    /// Returns `true` if the block is not empty, its rows are disjoint and its end lies within `len`.
    fn fits(&self, len: usize) -> bool {
        let end = (self.rows.checked_sub(1))
            .and_then(|steps| steps.checked_mul(self.row_stride))
            .and_then(|reach| reach.checked_add(self.offset))
            .and_then(|last| last.checked_add(self.cols));
        let disjoint = self.rows == 1 || self.row_stride >= self.cols;
        self.cols > 0 && disjoint && end.is_some_and(|end| end <= len)
    }
}

/// The parameters that per-layer clipping bounds together: one "layer" of \[DPLM\].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClipGroup {
    /// Unique name, shown in reports.
    pub name: String,
    /// The blocks that make up the group.
    pub blocks: Vec<Block>,
}

impl ClipGroup {
    /// Number of parameters in the group.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(Block::len).sum()
    }

    /// Returns `true` if the group holds no parameter. A checked layout has no such group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The map between named tensors and the flat vector, together with the clip groups that partition it.
///
/// Tensors lie one behind the other in the order given. Values are immutable once built, so the holder of a
/// `ParamLayout` may rely on the partition.
///
/// # Example
/// ```
/// use undertone_aggregation::{Block, ClipGroup, ParamLayout};
///
/// // A 2 x 4 matrix whose left and right halves are two gates, and a bias.
/// let half = |offset| Block { offset, rows: 2, row_stride: 4, cols: 2 };
/// let layout = ParamLayout::new(
///     vec![("gates".into(), vec![2, 4]), ("bias".into(), vec![3])],
///     vec![
///         ClipGroup { name: "gate.in".into(), blocks: vec![half(0)] },
///         ClipGroup { name: "gate.out".into(), blocks: vec![half(2)] },
///         ClipGroup { name: "bias".into(), blocks: vec![Block::contiguous(8..11)] },
///     ],
/// )?;
/// assert_eq!(layout.len(), 11);
/// assert_eq!(layout.range("bias"), Some(8..11));
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamLayout {
    tensors: Vec<TensorSpec>,
    groups: Vec<ClipGroup>,
    len: usize,
}

impl ParamLayout {
    /// Lays the tensors out one behind the other and checks that the groups partition them.
    ///
    /// # Errors
    /// Repeated names, empty tensors or blocks, blocks out of range, and groups that leave a parameter out or
    /// cover it twice.
    pub fn new(tensors: Vec<(String, Vec<usize>)>, groups: Vec<ClipGroup>) -> Result<Self> {
        let (tensors, len) = place(tensors)?;
        check_partition(&groups, len)?;
        Ok(Self { tensors, groups, len })
    }

    /// A layout whose clip groups are its tensors.
    ///
    /// # Errors
    /// Repeated names and empty tensors.
    pub fn with_tensor_groups(tensors: Vec<(String, Vec<usize>)>) -> Result<Self> {
        let (tensors, len) = place(tensors)?;
        let group = |t: &TensorSpec| ClipGroup {
            name: t.name.clone(),
            blocks: vec![Block::contiguous(t.range())],
        };
        let groups = tensors.iter().map(group).collect();
        Ok(Self { tensors, groups, len })
    }

    /// Number of parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `false`: layouts without parameters are refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tensors, in the order of their offsets.
    #[must_use]
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// The indices of the tensor called `name`.
    #[must_use]
    pub fn range(&self, name: &str) -> Option<Range<usize>> {
        self.tensors
            .iter()
            .find(|tensor| tensor.name == name)
            .map(TensorSpec::range)
    }

    /// The clip groups; together they hold every parameter exactly once.
    #[must_use]
    pub fn groups(&self) -> &[ClipGroup] {
        &self.groups
    }
}

fn place(tensors: Vec<(String, Vec<usize>)>) -> Result<(Vec<TensorSpec>, usize)> {
    if tensors.is_empty() {
        return Err(AggregationError::EmptyTensor {
            name: String::new(),
            shape: Vec::new(),
        });
    }
    let mut names = HashSet::new();
    let mut offset = 0usize;
    let mut placed = Vec::with_capacity(tensors.len());
    for (name, shape) in tensors {
        if shape.contains(&0) {
            return Err(AggregationError::EmptyTensor { name, shape });
        }
        if !names.insert(name.clone()) {
            return Err(AggregationError::DuplicateTensor { name });
        }
        let end = shape
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))
            .and_then(|n| n.checked_add(offset));
        let Some(end) = end.filter(|&end| isize::try_from(end).is_ok()) else {
            return Err(AggregationError::TooManyParameters { name, shape });
        };
        placed.push(TensorSpec { name, shape, offset });
        offset = end;
    }
    Ok((placed, offset))
}

fn check_partition(groups: &[ClipGroup], len: usize) -> Result<()> {
    let mut names = HashSet::new();
    let mut spans = Vec::new();
    for group in groups {
        if !names.insert(group.name.as_str()) {
            return Err(AggregationError::DuplicateGroup {
                name: group.name.clone(),
            });
        }
        for block in &group.blocks {
            if !block.fits(len) {
                return Err(AggregationError::BlockOutOfRange {
                    group: group.name.clone(),
                    offset: block.offset,
                    rows: block.rows,
                    row_stride: block.row_stride,
                    cols: block.cols,
                    len,
                });
            }
            spans.extend(block.spans());
        }
    }
    spans.sort_unstable_by_key(|span| span.start);
    let refuse = |index, times| Err(AggregationError::NotAPartition { index, times });
    let mut covered = 0;
    for span in spans {
        match span.start.cmp(&covered) {
            std::cmp::Ordering::Less => return refuse(span.start, 2),
            std::cmp::Ordering::Greater => return refuse(covered, 0),
            std::cmp::Ordering::Equal => covered = span.end,
        }
    }
    if covered < len {
        return refuse(covered, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_message;

    fn tensors(shapes: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
        shapes
            .iter()
            .map(|&(name, shape)| (name.to_string(), shape.to_vec()))
            .collect()
    }

    fn group(name: &str, blocks: &[Block]) -> ClipGroup {
        ClipGroup {
            name: name.to_string(),
            blocks: blocks.to_vec(),
        }
    }

    fn check(groups: Vec<ClipGroup>, expected: &str) {
        let result = ParamLayout::new(tensors(&[("m", &[2, 4]), ("b", &[3])]), groups);
        check_message(result, expected);
    }

    #[test]
    fn groups_must_partition() {
        let half = |offset| Block {
            offset,
            rows: 2,
            row_stride: 4,
            cols: 2,
        };
        let bias = Block::contiguous(8..11);
        let (l, b) = (|blocks: &[Block]| group("l", blocks), group("b", &[bias]));
        let thrice = vec![l(&[half(0)]), group("r", &[half(2)]), b.clone()];
        let (whole, overlapping) = ([Block::contiguous(0..11)], [half(0), half(1), bias]);
        for (groups, expected) in [
            (thrice, "ok"),
            (vec![l(&whole)], "ok"),
            (vec![l(&[half(0), bias, half(2)])], "ok"),
            (vec![], "parameter 0 is covered 0 times"),
            (vec![l(&[half(0)]), b], "parameter 2 is covered 0 times"),
            (vec![l(&[half(0), half(2)])], "parameter 8 is covered 0 times"),
            (vec![l(&overlapping)], "parameter 1 is covered 2 times"),
            (vec![l(&[bias]), l(&[half(0)])], "\"l\" appears twice"),
        ] {
            check(groups, expected);
        }
        for (offset, rows, row_stride, expected) in [
            (4, 3, 4, "does not fit into 11"),
            (0, 2, 1, "does not fit"),
            (0, usize::MAX, 9, "does not fit"),
            (0, 0, 2, "does not fit"),
        ] {
            let cols = 2;
            let block = Block {
                offset,
                rows,
                row_stride,
                cols,
            };
            check(vec![l(&[block])], expected);
        }
    }

    #[test]
    fn tensors_are_checked() {
        type Shapes<'a> = &'a [(&'a str, &'a [usize])];
        let of = |shapes: Shapes<'_>| ParamLayout::with_tensor_groups(tensors(shapes));
        let (empty, too_many) = ("is empty; each dimension", "the number of parameters above");
        let cases: [(Shapes<'_>, &str); 5] = [
            (&[], empty),
            (&[("a", &[3, 0])], empty),
            (&[("a", &[1]), ("a", &[2])], "\"a\" appears twice"),
            (&[("a", &[usize::MAX, 2])], too_many),
            (&[("a", &[usize::MAX])], too_many),
        ];
        for (shapes, expected) in cases {
            check_message(of(shapes), expected);
        }
        let layout = of(&[("scalar", &[]), ("m", &[2, 3])]).unwrap();
        assert_eq!(
            (layout.len(), layout.range("m"), layout.range("x")),
            (7, Some(1..7), None)
        );
        assert_eq!(
            layout.groups().iter().map(ClipGroup::len).collect::<Vec<_>>(),
            [1, 6]
        );
    }
}
