use crate::batch::{IGNORE, SequenceBatch};
use std::ops::Range;

/// The rows of a batch sequence by sequence, as attention wants them.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// First row of every sequence, and the number of rows.
    pub(super) starts: Vec<usize>,
    pub(super) inputs: Vec<u32>,
    pub(super) targets: Vec<u32>,
    /// Place of every sequence in the batch.
    pub(super) sequences: Vec<usize>,
    /// Row here of every row of the batch.
    packed: Vec<usize>,
}

impl Rows {
    pub(super) fn new(max_sequences: usize, max_rows: usize) -> Self {
        Self {
            starts: Vec::with_capacity(max_sequences + 1),
            inputs: Vec::with_capacity(max_rows),
            targets: Vec::with_capacity(max_rows),
            sequences: Vec::with_capacity(max_sequences),
            packed: Vec::with_capacity(max_rows),
        }
    }

    /// Takes the sequences of a validated batch for which `keep` holds.
    pub(super) fn gather(&mut self, batch: &SequenceBatch<'_>, keep: impl Fn(usize) -> bool) {
        self.starts.clear();
        self.inputs.clear();
        self.targets.clear();
        self.sequences.clear();
        self.packed.clear();
        self.packed.resize(batch.rows(), usize::MAX);
        for sequence in (0..batch.sequences()).filter(|&sequence| keep(sequence)) {
            self.starts.push(self.inputs.len());
            self.sequences.push(sequence);
            let mut row = sequence;
            for &active in batch.active.iter().take_while(|&&active| active > sequence) {
                self.packed[row] = self.inputs.len();
                self.inputs.push(batch.inputs[row]);
                self.targets.push(batch.targets[row]);
                row += active;
            }
        }
        self.starts.push(self.inputs.len());
    }

    pub(super) fn len(&self) -> usize {
        self.inputs.len()
    }

    pub(super) fn count(&self) -> usize {
        self.sequences.len()
    }

    /// Rows of a sequence.
    pub(super) fn range(&self, sequence: usize) -> Range<usize> {
        self.starts[sequence]..self.starts[sequence + 1]
    }

    /// Rows of several consecutive sequences.
    pub(super) fn span(&self, sequences: &Range<usize>) -> Range<usize> {
        self.starts[sequences.start]..self.starts[sequences.end]
    }

    /// Unmasked targets of a sequence.
    pub(super) fn targets_of(&self, sequence: usize) -> usize {
        let targets = &self.targets[self.range(sequence)];
        targets.iter().filter(|&&target| target != IGNORE).count()
    }

    /// Runs of whole sequences of at most `limit` rows, longer where one sequence is.
    pub(super) fn chunks(&self, limit: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = next;
            while next < self.count()
                && (next == first || self.starts[next + 1] - self.starts[first] <= limit)
            {
                next += 1;
            }
            (next > first).then_some(first..next)
        })
    }

    /// Row here of every row of the batch, in the order of the batch.
    pub(super) fn packed(&self) -> &[usize] {
        &self.packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PackedBatch;

    #[test]
    fn sequences_come_out_whole() {
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(&[1, 2], &[3, 4]), (&[5, 6, 7], &[8, IGNORE, 9]), (&[10], &[11])]);
        let mut rows = Rows::new(3, 6);
        rows.gather(&batch, |_| true);
        assert_eq!(rows.inputs, [5, 6, 7, 1, 2, 10]);
        assert_eq!(rows.targets, [8, IGNORE, 9, 3, 4, 11]);
        assert_eq!(rows.starts, [0, 3, 5, 6]);
        assert_eq!(rows.targets_of(0), 2);
        let inputs: Vec<u32> = rows.packed().iter().map(|&row| rows.inputs[row]).collect();
        assert_eq!(inputs, batch.inputs);
        let ends = |limit| rows.chunks(limit).map(|run| run.end).collect::<Vec<_>>();
        assert_eq!(ends(1), [1, 2, 3]);
        assert_eq!(ends(3), [1, 3]);
        assert_eq!(ends(100), [3]);
        rows.gather(&batch, |sequence| sequence != 1);
        assert_eq!(
            (rows.inputs.as_slice(), rows.sequences.as_slice()),
            (&[5, 6, 7, 10][..], &[0, 2][..])
        );
    }
}
