//! The backward pass of embedding, recurrent layer and projection, and the gradients of their weights.

use super::Recurrence;
use crate::batch::SequenceBatch;
use crate::kernels::{
    cifg::coupled_backward,
    lstm::cell_backward,
    matmul::{Extent, Left, Right, matmul, matmul_tall},
    pack::{pack_left, pack_panels_transposed},
    vector::add_column_sums,
};
use crate::scalar::Scalar;
use crate::word_lstm::{Cell, Dimensions, Tensors};

impl<T: Scalar> Recurrence<T> {
    /// Turns the gradient of the projection's output, `[rows, projection]`, into gradients of everything below it.
    ///
    /// Where the projected state goes back into the gates, `projected_gradient` comes in as what the output layer sent
    /// back and leaves with the part of the later steps added.
    ///
    /// The letters of the formulas are those of [`forward`](Self::forward). `dy` is the gradient of `y`, and `dA_t` that of the gates
    /// before their activation, in the parts `dA_i`, `dA_f`, `dA_u` and `dA_o`.
    pub(crate) fn backward(
        &mut self,
        params: &[T],
        tensors: &Tensors,
        batch: &SequenceBatch<'_>,
        projected_gradient: &mut [T],
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

        let weights = &params[tensors.projection.clone()];
        pack_panels_transposed(
            isa,
            weights,
            projection,
            projection,
            hidden,
            &mut self.small_panels,
        );
        if cell == Cell::Lstm {
            // dH = dR Wp^T
            self.project_back(0, rows, projected_gradient);
        }
        if batch.active.len() > 1 {
            let wh = &params[tensors.wh.clone()];
            pack_panels_transposed(isa, wh, gates, gates, fed_back, &mut self.recurrent_panels);
        }
        self.cell_gradient[..sequences * hidden].fill(T::ZERO);
        let retreat = match cell {
            Cell::Lstm => cell_backward::<T>,
            Cell::Cifg => coupled_backward::<T>,
        };
        // dc_t += dh_t o (1 - tanh(c_t)^2), then dc_{t-1} = dc_t f
        // dA_i = dc_t u i (1 - i), dA_f = dc_t c_{t-1} f (1 - f), dA_u = dc_t i (1 - u^2), dA_o = dh_t tanh(c_t) o (1 - o)
        // ds_{t-1} += dA_t Wh^T
        // In the CIFG, dh_t = dr_t Wp^T comes first, and dA_f = dc_t (c_{t-1} - u) f (1 - f).
        for (step, &active) in batch.active.iter().enumerate().rev() {
            let start = self.starts[step];
            if cell == Cell::Cifg {
                self.project_back(start, active, projected_gradient);
            }
            let before = self.rows_before(step, sequences);
            let gate_rows = &mut self.gates[start * gates..(start + active) * gates];
            for j in 0..active {
                retreat(
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
                    cols: fed_back,
                    depth: gates,
                };
                let left = Left::strided(gate_rows, gates, 1);
                let right = Right::Panels(&self.recurrent_panels);
                let states_gradient = cell.fed_back_mut(&mut self.hidden_gradient, projected_gradient);
                let earlier = &mut states_gradient[self.starts[step - 1] * fed_back..];
                matmul(isa, extent, T::ONE, left, right, earlier, fed_back, true);
            }
        }

        // dX = dA Wx^T
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

    /// Gradients of hidden states from those of their projections, for `rows` rows from `first` on; the transposed
    /// projection stands in `small_panels`.
    fn project_back(&mut self, first: usize, rows: usize, projected_gradient: &[T]) {
        let Dimensions {
            hidden, projection, ..
        } = self.dimensions;
        let extent = Extent {
            rows,
            cols: hidden,
            depth: projection,
        };
        let left = Left::strided(&projected_gradient[first * projection..], projection, 1);
        let right = Right::Panels(&self.small_panels);
        let gradient = &mut self.hidden_gradient[first * hidden..];
        matmul(self.isa, extent, T::ONE, left, right, gradient, hidden, false);
    }

    /// Adds `factor` times the gradients of the recurrent layer's and the projection's parameters to `target`.
    ///
    /// The letters of the formulas are those of [`backward`](Self::backward). `k` is the factor, `1^T` adds up the rows of a matrix, and
    /// `S` holds, per row, the state that went into its gates.
    pub(crate) fn accumulate(
        &mut self,
        target: &mut [T],
        factor: T,
        tensors: &Tensors,
        batch: &SequenceBatch<'_>,
        projected_gradient: &[T],
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

        // dWp += k H^T dR, and dbp += k 1^T dR
        let states = &self.hidden[sequences * hidden..(sequences + rows) * hidden];
        pack_left(states, hidden, hidden, rows, 0, rows, &mut self.packed_states);
        let extent = Extent {
            rows: hidden,
            cols: projection,
            depth: rows,
        };
        let left = Left::packed(&self.packed_states, rows);
        let right = Right::Rows(projected_gradient, projection);
        matmul(
            isa,
            extent,
            factor,
            left,
            right,
            &mut target[tensors.projection.clone()],
            projection,
            true,
        );
        let bias = &mut target[tensors.projection_bias.clone()];
        add_column_sums(isa, bias, factor, &projected_gradient[..rows * projection]);

        // Rows of the first step have no previous state unless it was carried in.
        let first = if self.carried { 0 } else { sequences };
        let depth = rows - first;
        // S[row] = s_{t-1} of the row's sequence. Rows of step 0 without a carried state are left out, for they are zero.
        for (step, &active) in batch.active.iter().enumerate() {
            if step == 0 && !self.carried {
                continue;
            }
            let (row, before) = (self.starts[step], self.rows_before(step, sequences));
            let states = &cell.fed_back(&self.hidden, &self.projected)[before * fed_back..];
            pack_left(
                states,
                fed_back,
                fed_back,
                depth,
                row - first,
                active,
                &mut self.packed_states,
            );
        }
        // dWh += k S^T dA
        let extent = Extent {
            rows: fed_back,
            cols: gates,
            depth,
        };
        let left = Left::packed(&self.packed_states, depth);
        let right = (&self.gates[first * gates..rows * gates], gates);
        let wh = &mut target[tensors.wh.clone()];
        matmul_tall(isa, extent, factor, left, right, wh, gates, true, &mut self.panel);

        // dWx += k X^T dA, and db += k 1^T dA
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
