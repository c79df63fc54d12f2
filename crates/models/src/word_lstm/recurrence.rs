//! Embedding, recurrent layer and projection over a packed batch: the forward pass, and what both passes remember.
//!
//! One engine serves both cells. They differ in the number of gates and in what goes back into the gates at the next
//! step: the hidden state (LSTM), whose projection is then one product over all rows, or the projected state (CIFG
//! with a recurrent projection), which has to be computed step by step.

mod backward;

use super::{Cell, Dimensions, Output, Tensors};
use crate::batch::SequenceBatch;
use crate::kernels::{
    cifg::coupled_forward,
    isa::Isa,
    lstm::cell_forward,
    matmul::{Extent, Left, PANEL, Right, matmul, matmul_tall},
    pack::{pack_panels, packed_left_len, panels_len},
    vector::inverse_norms,
};
use crate::scalar::Scalar;

/// Activations and gradients of one batch. Rows are the batch's rows; `hidden`, `cell` and `projected` have room for
/// the initial state of each sequence in front.
#[derive(Debug)]
pub(crate) struct Recurrence<T> {
    isa: Isa,
    dimensions: Dimensions,
    /// Input vectors, `[rows, embed]`.
    inputs: Vec<T>,
    /// Gate activations, then gradients of their pre-activations, `[rows, gates]`.
    gates: Vec<T>,
    hidden: Vec<T>,
    cell: Vec<T>,
    cell_tanh: Vec<T>,
    /// Output of the projection, `[rows, projection]`.
    projected: Vec<T>,
    /// Gradient of the hidden states, `[rows, hidden]`.
    hidden_gradient: Vec<T>,
    /// Gradient of the input vectors, `[rows, embed]`.
    pub(crate) input_gradient: Vec<T>,
    cell_gradient: Vec<T>,
    /// Recurrent matrix in panels: as it is in the forward pass, transposed in the backward pass.
    recurrent_panels: Vec<T>,
    small_panels: Vec<T>,
    /// States packed as the left operand of a weight gradient.
    packed_states: Vec<T>,
    panel: Vec<T>,
    /// Carried states: what goes back into the gates, `[sequences, fed back]`, and the cells, `[sequences, hidden]`.
    state_fed_back: Vec<T>,
    state_cell: Vec<T>,
    /// First row of each step.
    starts: Vec<usize>,
    carried: bool,
}

impl<T: Scalar> Recurrence<T> {
    pub(crate) fn new(isa: Isa, dimensions: Dimensions, max_sequences: usize, max_rows: usize) -> Self {
        let Dimensions {
            embed,
            hidden,
            projection,
            ..
        } = dimensions;
        let (gates, fed_back) = (dimensions.gates(), dimensions.fed_back());
        let zeros = |len: usize| vec![T::ZERO; len];
        let small = [(gates, embed), (projection, hidden), (hidden, projection)];
        let small = small.map(|(depth, cols)| panels_len(depth, cols));
        Self {
            isa,
            dimensions,
            inputs: zeros(max_rows * embed),
            gates: zeros(max_rows * gates),
            hidden: zeros((max_sequences + max_rows) * hidden),
            cell: zeros((max_sequences + max_rows) * hidden),
            cell_tanh: zeros(max_rows * hidden),
            projected: zeros((max_sequences + max_rows) * projection),
            hidden_gradient: zeros(max_rows * hidden),
            input_gradient: zeros(max_rows * embed),
            cell_gradient: zeros(max_sequences * hidden),
            recurrent_panels: zeros(panels_len(fed_back, gates).max(panels_len(gates, fed_back))),
            small_panels: zeros(small.into_iter().fold(0, usize::max)),
            packed_states: zeros(packed_left_len(hidden.max(fed_back), max_rows)),
            panel: zeros(max_rows.max(embed) * PANEL),
            state_fed_back: zeros(max_sequences * fed_back),
            state_cell: zeros(max_sequences * hidden),
            starts: Vec::with_capacity(max_rows + 1),
            carried: false,
        }
    }

    pub(crate) fn reset_state(&mut self) {
        self.state_fed_back.fill(T::ZERO);
        self.state_cell.fill(T::ZERO);
    }

    /// Output of the projection for each row of the batch that ran last.
    pub(crate) fn projected(&self, batch: &SequenceBatch<'_>) -> &[T] {
        &self.projected[batch.sequences() * self.dimensions.projection..]
    }

    /// Runs embedding, recurrent layer and projection over the batch.
    ///
    /// The letters of the formulas: `E` is the embedding; `Wx`, `Wh` and `b` are matrices and bias of the gates, `Wp` and `bp` those of
    /// the projection. At step `t`, `x_t` are the input vectors, one row per sequence, `i`, `f`, `u` and `o` the gates input, forget,
    /// candidate and output, `c_t` the cells, `h_t` the hidden states, `r_t` the projected states, and `s_t` is what goes back into the
    /// gates: `h_t` in the LSTM, `r_t` in the CIFG. `act` is the hyperbolic tangent for `u` and the logistic function for the others.
    /// `X`, `H` and `R` hold the rows of all steps.
    pub(crate) fn forward(
        &mut self,
        params: &[T],
        tensors: &Tensors,
        output: Output,
        batch: &SequenceBatch<'_>,
        carry: bool,
    ) {
        let Dimensions {
            embed,
            hidden,
            projection,
            cell,
            ..
        } = self.dimensions;
        let (isa, gates, fed_back) = (self.isa, self.dimensions.gates(), self.dimensions.fed_back());
        let (rows, sequences) = (batch.rows(), batch.sequences());
        self.carried = carry;
        self.starts.clear();
        let mut start = 0;
        // start_t = active_0 + .. + active_{t-1}
        for &active in batch.active {
            self.starts.push(start);
            start += active;
        }

        let embedding = &params[tensors.embedding.clone()];
        let unit_norm = output == Output::Tied { unit_norm: true };
        // X[row] = E[token], divided by its norm in a model of unit norm.
        for (input, &token) in self.inputs.chunks_exact_mut(embed).zip(batch.inputs) {
            let vector = &embedding[token as usize * embed..][..embed];
            if unit_norm {
                let mut inverse = [T::ZERO];
                inverse_norms(isa, vector, embed, &mut inverse);
                for (input, &value) in input.iter_mut().zip(vector) {
                    *input = value * inverse[0];
                }
            } else {
                input.copy_from_slice(vector);
            }
        }
        let wx = &params[tensors.wx.clone()];
        let extent = Extent {
            rows,
            cols: gates,
            depth: embed,
        };
        let left = Left::strided(&self.inputs, embed, 1);
        let product = &mut self.gates;
        matmul_tall(
            isa,
            extent,
            T::ONE,
            left,
            (wx, gates),
            product,
            gates,
            false,
            &mut self.panel,
        );

        let (states, cells) = (..sequences * fed_back, ..sequences * hidden);
        let first_states = &mut cell.fed_back_mut(&mut self.hidden, &mut self.projected)[states];
        if carry {
            first_states.copy_from_slice(&self.state_fed_back[states]);
            self.cell[cells].copy_from_slice(&self.state_cell[cells]);
        } else {
            first_states.fill(T::ZERO);
            self.cell[cells].fill(T::ZERO);
        }
        if carry || batch.active.len() > 1 {
            let wh = &params[tensors.wh.clone()];
            pack_panels(isa, wh, gates, fed_back, gates, &mut self.recurrent_panels);
        }
        let weights = &params[tensors.projection.clone()];
        if cell == Cell::Cifg {
            pack_panels(
                isa,
                weights,
                projection,
                hidden,
                projection,
                &mut self.small_panels,
            );
        }
        let bias = &params[tensors.bias.clone()];
        let advance = match cell {
            Cell::Lstm => cell_forward::<T>,
            Cell::Cifg => coupled_forward::<T>,
        };
        // (i, f, u, o)_t = act(x_t Wx + s_{t-1} Wh + b)
        // c_t = f c_{t-1} + i u, where i = 1 - f in the CIFG; h_t = o tanh(c_t); and r_t = h_t Wp in the CIFG.
        for (step, &active) in batch.active.iter().enumerate() {
            let start = self.starts[step];
            // Initial states stand in front, so the rows of a step begin `sequences` later in `hidden`, `cell` and
            // `projected`.
            let before = self.rows_before(step, sequences);
            let gate_rows = &mut self.gates[start * gates..(start + active) * gates];
            if carry || step > 0 {
                let extent = Extent {
                    rows: active,
                    cols: gates,
                    depth: fed_back,
                };
                let states = cell.fed_back(&self.hidden, &self.projected);
                let left = Left::strided(&states[before * fed_back..], fed_back, 1);
                let right = Right::Panels(&self.recurrent_panels);
                matmul(isa, extent, T::ONE, left, right, gate_rows, gates, true);
            }
            let (past, present) = self.cell.split_at_mut((sequences + start) * hidden);
            for j in 0..active {
                advance(
                    isa,
                    &mut gate_rows[j * gates..][..gates],
                    bias,
                    &past[(before + j) * hidden..][..hidden],
                    &mut present[j * hidden..][..hidden],
                    &mut self.cell_tanh[(start + j) * hidden..][..hidden],
                    &mut self.hidden[(sequences + start + j) * hidden..][..hidden],
                );
            }
            if cell == Cell::Cifg {
                let extent = Extent {
                    rows: active,
                    cols: projection,
                    depth: hidden,
                };
                let left = Left::strided(&self.hidden[(sequences + start) * hidden..], hidden, 1);
                let right = Right::Panels(&self.small_panels);
                let projected = &mut self.projected[(sequences + start) * projection..];
                matmul(isa, extent, T::ONE, left, right, projected, projection, false);
            }
        }
        if cell == Cell::Lstm {
            let bias = &params[tensors.projection_bias.clone()];
            let projected = &mut self.projected[sequences * projection..(sequences + rows) * projection];
            // R = H Wp + bp: each row starts as `bp`, and the product below is added.
            for row in projected.chunks_exact_mut(projection) {
                row.copy_from_slice(bias);
            }
            let extent = Extent {
                rows,
                cols: projection,
                depth: hidden,
            };
            let left = Left::strided(&self.hidden[sequences * hidden..], hidden, 1);
            let right = Right::Rows(weights, projection);
            matmul(isa, extent, T::ONE, left, right, projected, projection, true);
        }
    }

    /// The row, counted with the initial states, that holds the first sequence's state before a step.
    fn rows_before(&self, step: usize, sequences: usize) -> usize {
        match step {
            0 => 0,
            _ => sequences + self.starts[step - 1],
        }
    }

    /// Keeps each sequence's last state for the next batch.
    pub(crate) fn keep_state(&mut self, batch: &SequenceBatch<'_>) {
        let Dimensions { hidden, cell, .. } = self.dimensions;
        let fed_back = self.dimensions.fed_back();
        let sequences = batch.sequences();
        let states = cell.fed_back(&self.hidden, &self.projected);
        for (step, &active) in batch.active.iter().enumerate() {
            let ends_from = batch.active.get(step + 1).copied().unwrap_or(0);
            let row = sequences + self.starts[step] + ends_from;
            let count = active - ends_from;
            self.state_fed_back[ends_from * fed_back..][..count * fed_back]
                .copy_from_slice(&states[row * fed_back..][..count * fed_back]);
            self.state_cell[ends_from * hidden..][..count * hidden]
                .copy_from_slice(&self.cell[row * hidden..][..count * hidden]);
        }
    }
}
