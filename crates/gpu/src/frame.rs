//! The memory of a machine: arrays of a slot's workspace one after another, and what all slots have behind their workspaces.

use crate::call::{Array, Call, Kernel, PARTS, THREADS, place, product_kernel};

/// A kernel, the number of results of a slot that it computes at most, and its arguments.
pub(crate) type Launch = (Kernel, u64, Call);

/// Rows, columns and terms of a product.
pub(crate) struct Extent {
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) depth: u32,
}

/// Hands out places one after another, each at an even number, as doubles need it.
pub(crate) struct Ground(pub(crate) u64);

impl Ground {
    /// An array of a slot's workspace.
    pub(crate) fn take(&mut self, rows: u64, cols: u32) -> Array {
        let at = self.0;
        self.0 += (rows * u64::from(cols)).next_multiple_of(2);
        Array {
            at,
            row: cols,
            col: 1,
            place: place::ROOM,
            shift: 0,
        }
    }

    /// One part of so many floats for each slot, behind the workspaces.
    fn take_shared(&mut self, slots: u32, floats: u32) -> Array {
        let of_slot = floats.next_multiple_of(2);
        let array = self.take(u64::from(slots), of_slot);
        Array {
            row: 1,
            col: of_slot,
            place: place::SHARED,
            ..array
        }
    }
}

/// The sizes that every model's memory has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) parameters: usize,
    /// Ids that a batch may have.
    pub(crate) vocab: u32,
    /// Rows of the largest batch.
    pub(crate) rows: u32,
    /// Sequences of the largest batch.
    pub(crate) sequences: u32,
    /// Floats of a slot.
    pub(crate) slot: u64,
    /// The first float behind the workspaces of all slots.
    pub(crate) behind: u64,
    /// Floats that all slots share.
    pub(crate) shared: u64,
    /// Three numbers per row.
    pub(crate) statistics: Array,
    /// The parts of the squared distance of each clip group, as doubles.
    pub(crate) distances: Array,
    /// The factor of each clip group, as a double.
    pub(crate) factors: Array,
}

/// The numbers that a frame follows from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) slots: u32,
    pub(crate) sequences: u32,
    /// Tokens of the longest sequence.
    pub(crate) steps: u32,
    /// Clip groups.
    pub(crate) groups: u32,
}

impl Frame {
    /// The frame of a model of so many parameters and ids, with `slot` floats per slot.
    pub(crate) fn new(extents: Extents, parameters: usize, vocab: u32, slot: u64) -> Self {
        let Extents {
            slots,
            sequences,
            steps,
            groups,
        } = extents;
        let rows = sequences * steps;
        // The parameters of the round stand in front.
        let mut ground = Ground((parameters as u64).next_multiple_of(2));
        Self {
            parameters,
            vocab,
            rows,
            sequences,
            slot,
            behind: u64::from(slots).saturating_mul(slot),
            statistics: ground.take_shared(slots, 3 * rows),
            distances: ground.take_shared(slots, 2 * PARTS as u32 * groups),
            factors: ground.take_shared(slots, 2 * groups),
            shared: ground.0,
        }
    }

    /// Arguments that name no array yet.
    pub(crate) fn call(&self) -> Call {
        Call {
            slot_parameters: self.parameters as u64,
            slot_room: self.slot,
            shared: self.behind,
            ..Call::default()
        }
    }

    /// A product for at most so many rows.
    pub(crate) fn product(
        &self,
        max_rows: u32,
        extent: &Extent,
        (a, b, c): (Array, Array, Array),
        mode: u32,
        d: Array,
    ) -> Launch {
        let &Extent { rows, cols, depth } = extent;
        let (kernel, tiles) = product_kernel(u64::from(max_rows), u64::from(cols));
        let call = Call {
            rows,
            cols,
            depth,
            mode,
            a,
            b,
            c,
            d,
            ..self.call()
        };
        (kernel, tiles * THREADS, call)
    }
}

impl Array {
    /// The array from the row on that `shift` says.
    pub(crate) fn shifted(self, shift: u32) -> Self {
        Self { shift, ..self }
    }

    /// The array without its first rows.
    pub(crate) fn after_rows(self, row: u32) -> Self {
        let at = self.at + u64::from(row) * u64::from(self.row);
        Self { at, ..self }
    }

    /// The array with rows for columns.
    pub(crate) fn turned(self) -> Self {
        Self {
            row: self.col,
            col: self.row,
            ..self
        }
    }
}

/// An array of the slot's parameters.
pub(crate) fn parameter(at: u64, cols: u32) -> Array {
    Array {
        at,
        row: cols,
        col: 1,
        place: place::PARAMETERS,
        shift: 0,
    }
}
