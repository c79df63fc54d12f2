//! Where the activations and gradients of a slot stand in its workspace.

use crate::call::{Array, PARTS, place};
use crate::shape::{Head, Shape};

/// The arrays of a slot's workspace, and those behind the workspaces of all slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Rows of the largest batch.
    pub(crate) rows: u32,
    /// Sequences of the largest batch.
    pub(crate) sequences: u32,
    /// Floats of a slot.
    pub(crate) slot: u64,
    /// Floats that all slots share.
    pub(crate) shared: u64,

    pub(crate) inputs: Array,
    pub(crate) gates: Array,
    /// States with the first ones in front; so are the cells, and the projected states.
    pub(crate) hidden: Array,
    pub(crate) tangents: Array,
    pub(crate) cells: Array,
    pub(crate) projected: Array,
    pub(crate) projected_gradient: Array,
    pub(crate) hidden_gradient: Array,
    pub(crate) cell_gradient: Array,
    pub(crate) input_gradient: Array,
    /// The state before each row.
    pub(crate) past: Array,
    pub(crate) logits: Array,
    pub(crate) parts: Array,
    pub(crate) inverse_norms: Array,
    pub(crate) word_gradient: Array,
    pub(crate) carried_state: Array,
    pub(crate) carried_cell: Array,

    /// Three numbers per row.
    pub(crate) statistics: Array,
    /// The parts of the squared distance of each clip group, as doubles.
    pub(crate) distances: Array,
    /// The factor of each clip group, as a double.
    pub(crate) factors: Array,
}

/// Hands out places one after another, each at an even number, as doubles need it.
struct Ground(u64);

impl Ground {
    fn take(&mut self, rows: u32, cols: u32) -> Array {
        let at = self.0;
        self.0 += (u64::from(rows) * u64::from(cols)).next_multiple_of(2);
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
        let array = self.take(slots, of_slot);
        Array {
            row: 1,
            col: of_slot,
            place: place::SHARED,
            ..array
        }
    }
}

impl Room {
    /// The arrays for batches of so many sequences and time steps, and for a projection of so many clip groups.
    pub(crate) fn new(shape: &Shape, slots: u32, sequences: u32, steps: u32, groups: u32) -> Self {
        let rows = sequences * steps;
        let Shape {
            vocab,
            embed,
            hidden,
            projection,
            gates,
            fed_back,
            ..
        } = *shape;
        let states = sequences + rows;
        let of_words = match shape.head {
            Head::Tied { .. } => vocab,
            Head::Dense { .. } => 0,
        };
        let mut ground = Ground(0);
        let inputs = ground.take(rows, embed);
        let of_gates = ground.take(rows, gates);
        let of_hidden = ground.take(states, hidden);
        let tangents = ground.take(states, hidden);
        let cells = ground.take(states, hidden);
        let projected = ground.take(states, projection);
        let projected_gradient = ground.take(rows, projection);
        let hidden_gradient = ground.take(rows, hidden);
        let cell_gradient = ground.take(sequences, hidden);
        let input_gradient = ground.take(rows, embed);
        let past = ground.take(rows, fed_back);
        let logits = ground.take(rows, vocab);
        let parts = ground.take(rows, 2 * PARTS as u32);
        let inverse_norms = ground.take(if shape.unit_norm() { vocab } else { 0 }, 1);
        let word_gradient = ground.take(of_words, embed);
        let carried_state = ground.take(sequences, fed_back);
        let carried_cell = ground.take(sequences, hidden);
        let mut behind = Ground(shape.parameters as u64 + shape.parameters as u64 % 2);
        let statistics = behind.take_shared(slots, 3 * rows);
        let distances = behind.take_shared(slots, 2 * PARTS as u32 * groups);
        let factors = behind.take_shared(slots, 2 * groups);
        Self {
            rows,
            sequences,
            slot: ground.0,
            shared: behind.0,
            inputs,
            gates: of_gates,
            hidden: of_hidden,
            tangents,
            cells,
            projected,
            projected_gradient,
            hidden_gradient,
            cell_gradient,
            input_gradient,
            past,
            logits,
            parts,
            inverse_norms,
            word_gradient,
            carried_state,
            carried_cell,
            statistics,
            distances,
            factors,
        }
    }
}

impl Array {
    /// The array from the time step on that `shift` says.
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
