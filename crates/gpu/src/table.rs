//! The words that tell each slot what it trains on in one local step.

use undertone_gpu_sum::GpuError;
use undertone_models::{IGNORE, SequenceBatch};

use crate::call::header;
use crate::frame::Frame;

/// The words that the kernels read about the batches of one local step. A slot's words depend on its own batch alone.
#[derive(Default)]
pub(crate) struct Table {
    words: Vec<u32>,
    slots: usize,
    rows: u32,
    steps: u32,
    /// The last row that read each token; [`IGNORE`] for none. All are [`IGNORE`] between batches.
    last_of: Vec<u32>,
}

impl Table {
    /// An empty table for tokens below `vocab`.
    pub(crate) fn new(vocab: u32) -> Self {
        Self {
            last_of: vec![IGNORE; vocab as usize],
            ..Self::default()
        }
    }

    /// Number of words that a table of so many slots may need.
    pub(crate) fn max_words(frame: &Frame, slots: usize) -> usize {
        let (rows, sequences) = (frame.rows as usize, frame.sequences as usize);
        slots * (header::WORDS + 5 * rows + (rows + 1) + sequences)
    }

    /// Begins a table for so many slots, none of which has work.
    pub(crate) fn begin(&mut self, slots: usize) {
        self.words.clear();
        self.words.resize(slots * header::WORDS, 0);
        (self.slots, self.rows, self.steps) = (slots, 0, 0);
    }

    /// Gives a slot its batch, whose rows stand step after step.
    ///
    /// # Errors
    /// A batch that is larger than the frame, whose rows are not in order, or that has a token outside the vocabulary.
    pub(crate) fn give(
        &mut self,
        slot: usize,
        batch: &SequenceBatch<'_>,
        carries: bool,
        frame: &Frame,
    ) -> Result<(), GpuError> {
        self.check(batch, frame)?;
        let (rows, steps) = (batch.rows() as u32, batch.active.len() as u32);
        (self.rows, self.steps) = (self.rows.max(rows), self.steps.max(steps));
        let numbers = [
            (header::ROWS, rows),
            (header::SEQUENCES, batch.sequences() as u32),
            (header::STEPS, steps),
            (header::TARGETS, batch.targets_count() as u32),
            (header::CARRY, u32::from(carries)),
        ];
        for (word, number) in numbers {
            self.words[slot * header::WORDS + word] = number;
        }
        self.put_lists(slot, batch, frame.sequences);
        Ok(())
    }

    fn put_lists(&mut self, slot: usize, batch: &SequenceBatch<'_>, first_states: u32) {
        let mut starts = Vec::with_capacity(batch.active.len() + 1);
        let mut previous = Vec::with_capacity(batch.rows());
        let mut lasts = vec![0; batch.sequences()];
        let mut start = 0;
        for &active in batch.active {
            let before = match starts.last() {
                None => 0,
                Some(&before) => first_states + before,
            };
            previous.extend((0..active as u32).map(|row| before + row));
            for (last, row) in lasts.iter_mut().zip(0..active as u32) {
                *last = first_states + start + row;
            }
            starts.push(start);
            start += active as u32;
        }
        starts.push(start);
        let (is_first, chain) = self.chains(batch.inputs);
        self.put(slot, header::INPUT_IDS, batch.inputs);
        self.put(slot, header::TARGET_IDS, batch.targets);
        self.put(slot, header::PREVIOUS, &previous);
        self.put(slot, header::CHAINS, &is_first);
        self.words.extend_from_slice(&chain);
        self.put(slot, header::STARTS, &starts);
        self.put(slot, header::LASTS, &lasts);
    }

    /// Appends a list, and says in the header of the slot where it is.
    fn put(&mut self, slot: usize, word: usize, list: &[u32]) {
        self.words[slot * header::WORDS + word] = self.words.len() as u32;
        self.words.extend_from_slice(list);
    }

    /// Says that the update of a slot is to be zero.
    pub(crate) fn discard(&mut self, slot: usize) {
        self.words[slot * header::WORDS + header::DISCARD] = 1;
    }

    /// The words, slot after slot and then the lists.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// Number of slots, with and without work.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Rows of the largest batch, over all slots.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Time steps of the longest batch, over all slots.
    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    /// Returns, for each row, whether it is the first that reads its token, and the next row that does.
    fn chains(&mut self, inputs: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let (mut is_first, mut chain) = (vec![0; inputs.len()], vec![IGNORE; inputs.len()]);
        for (row, &token) in inputs.iter().enumerate() {
            let last = &mut self.last_of[token as usize];
            match *last {
                IGNORE => is_first[row] = 1,
                last => chain[last as usize] = row as u32,
            }
            *last = row as u32;
        }
        for &token in inputs {
            self.last_of[token as usize] = IGNORE;
        }
        (is_first, chain)
    }

    fn check(&self, batch: &SequenceBatch<'_>, frame: &Frame) -> Result<(), GpuError> {
        let wrong = |what, expected: String, got: usize| Err(GpuError::Shape { what, expected, got });
        let rows: usize = batch.active.iter().sum();
        let in_order = batch.active.windows(2).all(|pair| pair[0] >= pair[1]);
        if rows != batch.inputs.len() || rows != batch.targets.len() || !in_order || batch.active.contains(&0)
        {
            return wrong(
                "rows of a batch",
                format!("{rows} in falling numbers per step"),
                batch.inputs.len(),
            );
        }
        if batch.sequences() > frame.sequences as usize {
            return wrong(
                "sequences of a batch",
                format!("at most {}", frame.sequences),
                batch.sequences(),
            );
        }
        if rows > frame.rows as usize {
            return wrong("rows of a batch", format!("at most {}", frame.rows), rows);
        }
        let vocab = self.last_of.len();
        let unknown = |&&token: &&u32| token as usize >= vocab;
        let targets = batch.targets.iter().filter(|&&target| target != IGNORE);
        match batch.inputs.iter().chain(targets).find(unknown) {
            Some(&token) => wrong("a token", format!("below {vocab}"), token as usize),
            None => Ok(()),
        }
    }
}
