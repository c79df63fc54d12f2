//! Places of the activations and gradients of a slot in its workspace.

use super::shape::{Head, Shape};
use crate::call::{Array, PARTS};
use crate::frame::{Extents, Frame, Ground};

/// The arrays of a slot's workspace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) frame: Frame,
    /// Sequences of the largest batch, whose first states stand in front.
    pub(crate) sequences: u32,

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
}

impl Room {
    /// The arrays for batches of these extents.
    pub(crate) fn new(shape: &Shape, extents: Extents) -> Self {
        let sequences = extents.sequences;
        let rows = sequences * extents.steps;
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
        let inputs = ground.take(u64::from(rows), embed);
        let of_gates = ground.take(u64::from(rows), gates);
        let of_hidden = ground.take(u64::from(states), hidden);
        let tangents = ground.take(u64::from(states), hidden);
        let cells = ground.take(u64::from(states), hidden);
        let projected = ground.take(u64::from(states), projection);
        let projected_gradient = ground.take(u64::from(rows), projection);
        let hidden_gradient = ground.take(u64::from(rows), hidden);
        let cell_gradient = ground.take(u64::from(sequences), hidden);
        let input_gradient = ground.take(u64::from(rows), embed);
        let past = ground.take(u64::from(rows), fed_back);
        let logits = ground.take(u64::from(rows), vocab);
        let parts = ground.take(u64::from(rows), 2 * PARTS as u32);
        let inverse_norms = ground.take(u64::from(if shape.unit_norm() { vocab } else { 0 }), 1);
        let word_gradient = ground.take(u64::from(of_words), embed);
        let carried_state = ground.take(u64::from(sequences), fed_back);
        let carried_cell = ground.take(u64::from(sequences), hidden);
        Self {
            frame: Frame::new(extents, shape.parameters, vocab, ground.0),
            sequences,
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
        }
    }
}
