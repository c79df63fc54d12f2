use crate::error::{ModelError, Result};

/// Target value that masks a row out of the loss.
pub const IGNORE: u32 = u32::MAX;

/// Sequences packed time-major, without padding.
///
/// Sequences are ordered by length, longest first. Rows of step `t` are the first `active[t]` sequences; rows of
/// step 0 come first, then step 1, and so on. `inputs` and `targets` have one id per row, in total the sum of
/// `active`. A target of [`IGNORE`] leaves the row out of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceBatch<'a> {
    /// Number of sequences still running at each step; positive and never growing.
    pub active: &'a [usize],
    /// Input token of each row.
    pub inputs: &'a [u32],
    /// Target token of each row, or [`IGNORE`].
    pub targets: &'a [u32],
}

impl SequenceBatch<'_> {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.inputs.len()
    }

    /// Number of sequences.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.active.first().copied().unwrap_or(0)
    }

    /// Number of rows with a target.
    #[must_use]
    pub fn targets_count(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORE).count()
    }

    /// Length of a sequence, given by its place in the order of the batch.
    pub(crate) fn length(&self, sequence: usize) -> usize {
        self.active.partition_point(|&active| active > sequence)
    }

    pub(crate) fn validate(&self, vocab_size: usize, max_sequences: usize, max_rows: usize) -> Result<()> {
        let mut rows = 0usize;
        let mut previous = usize::MAX;
        for (step, &got) in self.active.iter().enumerate() {
            if got == 0 || got > previous {
                return Err(ModelError::ActiveOrder { step, previous, got });
            }
            rows = rows.saturating_add(got);
            previous = got;
        }
        if rows != self.inputs.len() || rows != self.targets.len() {
            return Err(ModelError::BatchShape {
                rows,
                inputs: self.inputs.len(),
                targets: self.targets.len(),
            });
        }
        if rows == 0 {
            return Err(ModelError::EmptyBatch);
        }
        let too_large = |what, limit, got| Err(ModelError::BatchTooLarge { what, limit, got });
        if self.sequences() > max_sequences {
            return too_large("sequences", max_sequences, self.sequences());
        }
        if rows > max_rows {
            return too_large("rows", max_rows, rows);
        }
        let known = |token: u32| (token as usize) < vocab_size;
        for row in 0..rows {
            let (input, target) = (self.inputs[row], self.targets[row]);
            let token = if !known(input) {
                input
            } else if target != IGNORE && !known(target) {
                target
            } else {
                continue;
            };
            return Err(ModelError::TokenOutOfRange {
                row,
                token,
                vocab_size,
            });
        }
        Ok(())
    }
}

/// A reusable buffer that packs sequences into a [`SequenceBatch`].
///
/// # Example
/// ```
/// use undertone_models::PackedBatch;
/// let mut packed = PackedBatch::default();
/// let batch = packed.pack(&[(&[1, 7], &[7, 2]), (&[1, 5, 6], &[5, 6, 2])]);
/// assert_eq!(batch.active, [2, 2, 1]);
/// assert_eq!(batch.inputs, [1, 1, 5, 7, 6]);
/// assert_eq!(batch.targets, [5, 7, 6, 2, 2]);
/// ```
#[derive(Debug, Default, Clone)]
pub struct PackedBatch {
    order: Vec<usize>,
    active: Vec<usize>,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl PackedBatch {
    /// Packs pairs of inputs and targets. A pair is cut to its shorter half, and empty pairs are left out.
    ///
    /// Sequences of equal length keep their order.
    pub fn pack(&mut self, sequences: &[(&[u32], &[u32])]) -> SequenceBatch<'_> {
        let length = |index: usize| sequences[index].0.len().min(sequences[index].1.len());
        self.order.clear();
        self.order
            .extend((0..sequences.len()).filter(|&index| length(index) > 0));
        // The index breaks ties, so that an unstable sort without allocation keeps the given order.
        self.order
            .sort_unstable_by_key(|&index| (usize::MAX - length(index), index));
        self.active.clear();
        self.inputs.clear();
        self.targets.clear();
        let mut running = self.order.len();
        for step in 0.. {
            while running > 0 && length(self.order[running - 1]) <= step {
                running -= 1;
            }
            if running == 0 {
                break;
            }
            self.active.push(running);
            for &index in &self.order[..running] {
                self.inputs.push(sequences[index].0[step]);
                self.targets.push(sequences[index].1[step]);
            }
        }
        self.batch()
    }

    /// The batch packed last.
    #[must_use]
    pub fn batch(&self) -> SequenceBatch<'_> {
        SequenceBatch {
            active: &self.active,
            inputs: &self.inputs,
            targets: &self.targets,
        }
    }

    /// Index of each packed sequence among those given to [`pack`](Self::pack).
    #[must_use]
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The index of its sequence, for each row of the batch, among those given to [`pack`](Self::pack).
    pub fn places(&self) -> impl Iterator<Item = usize> {
        let running = self.active.iter().map(|&running| &self.order[..running]);
        running.flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_batches_are_typed_errors() {
        let refused = |active: &[usize], inputs: &[u32], targets: &[u32]| {
            let batch = SequenceBatch {
                active,
                inputs,
                targets,
            };
            batch.validate(10, 3, 6).unwrap_err().to_string()
        };
        assert_eq!(refused(&[], &[], &[]), ModelError::EmptyBatch.to_string());
        let order = "the number of active sequences must be positive and must not grow: step 1 has";
        assert_eq!(refused(&[1, 2], &[0; 3], &[0; 3]), format!("{order} 2 after 1"));
        assert_eq!(refused(&[2, 0], &[0; 2], &[0; 2]), format!("{order} 0 after 2"));
        assert_eq!(
            refused(&[2], &[0; 2], &[0; 1]),
            "the active counts of the batch sum to 2 rows, but it has 2 inputs and 1 targets"
        );
        assert_eq!(
            refused(&[4], &[0; 4], &[0; 4]),
            "the batch has 4 sequences, above the max of the worker, 3"
        );
        assert_eq!(
            refused(&[3, 3, 1], &[0; 7], &[0; 7]),
            "the batch has 7 rows, above the max of the worker, 6"
        );
        assert_eq!(
            refused(&[2], &[0, 10], &[0, 0]),
            "token id 10 at row 1 is not below the vocabulary size 10"
        );
        assert_eq!(
            refused(&[2], &[0, 0], &[11, 0]),
            "token id 11 at row 0 is not below the vocabulary size 10"
        );
    }

    #[test]
    fn packing_orders_by_length_and_keeps_ties() {
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(&[1], &[2]), (&[], &[]), (&[3, 4], &[4, 5]), (&[6, 7], &[7, 8])]);
        assert_eq!((batch.rows(), batch.sequences()), (5, 3));
        assert_eq!(batch.active, [3, 2]);
        assert_eq!(batch.inputs, [3, 6, 1, 4, 7]);
        assert_eq!(packed.order(), [2, 3, 0]);
    }

    proptest::proptest! {
        /// Every row of every sequence comes out once, at its step, and the batch is well formed.
        #[test]
        fn packing_keeps_every_row(lengths in proptest::collection::vec(0usize..9, 1..12)) {
            let ids = |sequence: usize, shift: u32| -> Vec<u32> {
                (0..lengths[sequence] as u32).map(|step| 100 * sequence as u32 + step + shift).collect()
            };
            let sequences: Vec<(Vec<u32>, Vec<u32>)> =
                (0..lengths.len()).map(|sequence| (ids(sequence, 0), ids(sequence, 1))).collect();
            let pairs: Vec<(&[u32], &[u32])> = sequences.iter().map(|(a, b)| (&a[..], &b[..])).collect();
            let mut packed = PackedBatch::default();
            packed.pack(&pairs);
            let batch = packed.batch();
            let rows: usize = lengths.iter().sum();
            let valid = batch.validate(2000, 12, 200);
            proptest::prop_assert_eq!(valid.is_ok(), rows > 0);
            let places: Vec<usize> = packed.places().collect();
            proptest::prop_assert_eq!(places.len(), rows);
            let mut row = 0;
            for (step, &active) in batch.active.iter().enumerate() {
                for &sequence in &packed.order()[..active] {
                    proptest::prop_assert_eq!(batch.inputs[row], sequences[sequence].0[step]);
                    proptest::prop_assert_eq!(batch.targets[row], sequences[sequence].1[step]);
                    proptest::prop_assert_eq!(places[row], sequence);
                    row += 1;
                }
            }
            proptest::prop_assert_eq!(row, rows);
        }
    }
}
