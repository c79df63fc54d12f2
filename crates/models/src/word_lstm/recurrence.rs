//! Embedding, LSTM layer and projection: forward, backward and weight update over a packed batch.

use super::{Dimensions, Output, Tensors};
use crate::batch::SequenceBatch;
use crate::kernels::{
    isa::Isa,
    lstm::{cell_backward, cell_forward},
    matmul::{Extent, Left, PANEL, Right, matmul, matmul_tall},
    pack::{pack_left, pack_panels, pack_panels_transposed, packed_left_len, panels_len},
    vector::{add_column_sums, inverse_norms},
};
use crate::scalar::Scalar;

/// Activations and gradients of one batch. Rows are the batch's rows; `hidden` and `cell` have the initial state of
/// each sequence in front.
#[derive(Debug)]
pub(crate) struct Recurrence<T> {
    isa: Isa,
    dimensions: Dimensions,
    /// Input vectors, `[rows, embed]`.
    inputs: Vec<T>,
    /// Gate activations, then gradients of their pre-activations, `[rows, 4 hidden]`.
    gates: Vec<T>,
    hidden: Vec<T>,
    cell: Vec<T>,
    cell_tanh: Vec<T>,
    /// Output of the projection, `[rows, embed]`.
    pub(crate) projected: Vec<T>,
    /// Gradient of the hidden states, `[rows, hidden]`.
    hidden_gradient: Vec<T>,
    /// Gradient of the input vectors, `[rows, embed]`.
    pub(crate) input_gradient: Vec<T>,
    cell_gradient: Vec<T>,
    /// Recurrent matrix in panels: as it is in the forward pass, transposed in the backward pass.
    recurrent_panels: Vec<T>,
    small_panels: Vec<T>,
    previous_hidden: Vec<T>,
    panel: Vec<T>,
    /// Carried state, `[sequences, hidden]`.
    state_hidden: Vec<T>,
    state_cell: Vec<T>,
    /// First row of each step.
    starts: Vec<usize>,
    carried: bool,
}

impl<T: Scalar> Recurrence<T> {
    pub(crate) fn new(isa: Isa, dimensions: Dimensions, max_sequences: usize, max_rows: usize) -> Self {
        let Dimensions { embed, hidden, .. } = dimensions;
        let gates = dimensions.gates();
        let zeros = |len: usize| vec![T::ZERO; len];
        Self {
            isa,
            dimensions,
            inputs: zeros(max_rows * embed),
            gates: zeros(max_rows * gates),
            hidden: zeros((max_sequences + max_rows) * hidden),
            cell: zeros((max_sequences + max_rows) * hidden),
            cell_tanh: zeros(max_rows * hidden),
            projected: zeros(max_rows * embed),
            hidden_gradient: zeros(max_rows * hidden),
            input_gradient: zeros(max_rows * embed),
            cell_gradient: zeros(max_sequences * hidden),
            recurrent_panels: zeros(panels_len(hidden, gates).max(panels_len(gates, hidden))),
            small_panels: zeros(panels_len(gates, embed).max(panels_len(embed, hidden))),
            previous_hidden: zeros(packed_left_len(hidden, max_rows)),
            panel: zeros(max_rows.max(embed) * PANEL),
            state_hidden: zeros(max_sequences * hidden),
            state_cell: zeros(max_sequences * hidden),
            starts: Vec::with_capacity(max_rows + 1),
            carried: false,
        }
    }

    pub(crate) fn reset_state(&mut self) {
        self.state_hidden.fill(T::ZERO);
        self.state_cell.fill(T::ZERO);
    }

    /// Runs embedding, LSTM and projection over the batch.
    pub(crate) fn forward(
        &mut self,
        params: &[T],
        tensors: &Tensors,
        output: Output,
        batch: &SequenceBatch<'_>,
        carry: bool,
    ) {
        let Dimensions { embed, hidden, .. } = self.dimensions;
        let (isa, gates) = (self.isa, self.dimensions.gates());
        let (rows, sequences) = (batch.rows(), batch.sequences());
        self.carried = carry;
        self.starts.clear();
        let mut start = 0;
        for &active in batch.active {
            self.starts.push(start);
            start += active;
        }

        let embedding = &params[tensors.embedding.clone()];
        let unit_norm = output == Output::Tied { unit_norm: true };
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

        let initial = ..sequences * hidden;
        if carry {
            self.hidden[initial].copy_from_slice(&self.state_hidden[initial]);
            self.cell[initial].copy_from_slice(&self.state_cell[initial]);
        } else {
            self.hidden[initial].fill(T::ZERO);
            self.cell[initial].fill(T::ZERO);
        }
        if carry || batch.active.len() > 1 {
            let wh = &params[tensors.wh.clone()];
            pack_panels(wh, gates, hidden, gates, &mut self.recurrent_panels);
        }
        let bias = &params[tensors.bias.clone()];
        for (step, &active) in batch.active.iter().enumerate() {
            let start = self.starts[step];
            // Initial states stand in front, so the rows of a step begin `sequences` later in `hidden` and `cell`.
            let before = if step == 0 {
                0
            } else {
                sequences + self.starts[step - 1]
            };
            let gate_rows = &mut self.gates[start * gates..(start + active) * gates];
            if carry || step > 0 {
                let extent = Extent {
                    rows: active,
                    cols: gates,
                    depth: hidden,
                };
                let left = Left::strided(&self.hidden[before * hidden..], hidden, 1);
                let right = Right::Panels(&self.recurrent_panels);
                matmul(isa, extent, T::ONE, left, right, gate_rows, gates, true);
            }
            let (past, present) = self.cell.split_at_mut((sequences + start) * hidden);
            for j in 0..active {
                cell_forward(
                    isa,
                    &mut gate_rows[j * gates..][..gates],
                    bias,
                    &past[(before + j) * hidden..][..hidden],
                    &mut present[j * hidden..][..hidden],
                    &mut self.cell_tanh[(start + j) * hidden..][..hidden],
                    &mut self.hidden[(sequences + start + j) * hidden..][..hidden],
                );
            }
        }

        let projection = &params[tensors.projection.clone()];
        let bias = &params[tensors.projection_bias.clone()];
        for row in self.projected[..rows * embed].chunks_exact_mut(embed) {
            row.copy_from_slice(bias);
        }
        let extent = Extent {
            rows,
            cols: embed,
            depth: hidden,
        };
        let left = Left::strided(&self.hidden[sequences * hidden..], hidden, 1);
        matmul(
            isa,
            extent,
            T::ONE,
            left,
            Right::Rows(projection, embed),
            &mut self.projected,
            embed,
            true,
        );
    }

    /// Keeps each sequence's last state for the next batch.
    pub(crate) fn keep_state(&mut self, batch: &SequenceBatch<'_>) {
        let hidden = self.dimensions.hidden;
        let sequences = batch.sequences();
        for (step, &active) in batch.active.iter().enumerate() {
            let ends_from = batch.active.get(step + 1).copied().unwrap_or(0);
            let row = (sequences + self.starts[step] + ends_from) * hidden;
            let len = (active - ends_from) * hidden;
            let kept = ends_from * hidden;
            self.state_hidden[kept..][..len].copy_from_slice(&self.hidden[row..][..len]);
            self.state_cell[kept..][..len].copy_from_slice(&self.cell[row..][..len]);
        }
    }

    /// Turns the gradient of the projection's output, `[rows, embed]`, into gradients of everything below it.
    pub(crate) fn backward(
        &mut self,
        params: &[T],
        tensors: &Tensors,
        batch: &SequenceBatch<'_>,
        projected_gradient: &[T],
    ) {
        let Dimensions { embed, hidden, .. } = self.dimensions;
        let (isa, gates) = (self.isa, self.dimensions.gates());
        let (rows, sequences) = (batch.rows(), batch.sequences());

        let projection = &params[tensors.projection.clone()];
        pack_panels_transposed(isa, projection, embed, embed, hidden, &mut self.small_panels);
        let extent = Extent {
            rows,
            cols: hidden,
            depth: embed,
        };
        let left = Left::strided(projected_gradient, embed, 1);
        let right = Right::Panels(&self.small_panels);
        matmul(
            isa,
            extent,
            T::ONE,
            left,
            right,
            &mut self.hidden_gradient,
            hidden,
            false,
        );

        if batch.active.len() > 1 {
            let wh = &params[tensors.wh.clone()];
            pack_panels_transposed(isa, wh, gates, gates, hidden, &mut self.recurrent_panels);
        }
        self.cell_gradient[..sequences * hidden].fill(T::ZERO);
        for (step, &active) in batch.active.iter().enumerate().rev() {
            let start = self.starts[step];
            let before = if step == 0 {
                0
            } else {
                sequences + self.starts[step - 1]
            };
            let gate_rows = &mut self.gates[start * gates..(start + active) * gates];
            for j in 0..active {
                cell_backward(
                    isa,
                    &mut gate_rows[j * gates..][..gates],
                    &self.cell[(before + j) * hidden..][..hidden],
                    &self.cell_tanh[(start + j) * hidden..][..hidden],
                    &self.hidden_gradient[(start + j) * hidden..][..hidden],
                    &mut self.cell_gradient[j * hidden..][..hidden],
                );
            }
            if step > 0 {
                let extent = Extent {
                    rows: active,
                    cols: hidden,
                    depth: gates,
                };
                let right = Right::Panels(&self.recurrent_panels);
                let earlier = &mut self.hidden_gradient[self.starts[step - 1] * hidden..];
                matmul(
                    isa,
                    extent,
                    T::ONE,
                    Left::strided(gate_rows, gates, 1),
                    right,
                    earlier,
                    hidden,
                    true,
                );
            }
        }

        let wx = &params[tensors.wx.clone()];
        pack_panels_transposed(isa, wx, gates, gates, embed, &mut self.small_panels);
        let extent = Extent {
            rows,
            cols: embed,
            depth: gates,
        };
        let left = Left::strided(&self.gates, gates, 1);
        let right = Right::Panels(&self.small_panels);
        matmul(
            isa,
            extent,
            T::ONE,
            left,
            right,
            &mut self.input_gradient,
            embed,
            false,
        );
    }

    /// Adds `factor` times the gradients of the LSTM's and the projection's parameters to `target`.
    pub(crate) fn accumulate(
        &mut self,
        target: &mut [T],
        factor: T,
        tensors: &Tensors,
        batch: &SequenceBatch<'_>,
        projected_gradient: &[T],
    ) {
        let Dimensions { embed, hidden, .. } = self.dimensions;
        let (isa, gates) = (self.isa, self.dimensions.gates());
        let (rows, sequences) = (batch.rows(), batch.sequences());

        let states = &self.hidden[sequences * hidden..(sequences + rows) * hidden];
        pack_left(states, hidden, hidden, rows, 0, rows, &mut self.previous_hidden);
        let extent = Extent {
            rows: hidden,
            cols: embed,
            depth: rows,
        };
        let left = Left::packed(&self.previous_hidden, rows);
        let right = Right::Rows(projected_gradient, embed);
        matmul(
            isa,
            extent,
            factor,
            left,
            right,
            &mut target[tensors.projection.clone()],
            embed,
            true,
        );
        let bias = &mut target[tensors.projection_bias.clone()];
        add_column_sums(isa, bias, factor, &projected_gradient[..rows * embed]);

        // Rows of the first step have no previous state unless it was carried in.
        let first = if self.carried { 0 } else { sequences };
        let depth = rows - first;
        for (step, &active) in batch.active.iter().enumerate() {
            let (row, before) = match step {
                0 if !self.carried => continue,
                0 => (0, 0),
                _ => (self.starts[step], sequences + self.starts[step - 1]),
            };
            let states = &self.hidden[before * hidden..];
            pack_left(
                states,
                hidden,
                hidden,
                depth,
                row - first,
                active,
                &mut self.previous_hidden,
            );
        }
        let extent = Extent {
            rows: hidden,
            cols: gates,
            depth,
        };
        let left = Left::packed(&self.previous_hidden, depth);
        let right = (&self.gates[first * gates..rows * gates], gates);
        let wh = &mut target[tensors.wh.clone()];
        matmul_tall(isa, extent, factor, left, right, wh, gates, true, &mut self.panel);

        let extent = Extent {
            rows: embed,
            cols: gates,
            depth: rows,
        };
        let left = Left::strided(&self.inputs, 1, embed);
        let right = (&self.gates[..rows * gates], gates);
        let wx = &mut target[tensors.wx.clone()];
        matmul_tall(isa, extent, factor, left, right, wx, gates, true, &mut self.panel);
        let bias = &mut target[tensors.bias.clone()];
        add_column_sums(isa, bias, factor, &self.gates[..rows * gates]);
    }
}
