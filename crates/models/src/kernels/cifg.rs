//! The pointwise part of the cell with a coupled input and forget gate, `i = 1 - f`. Gates stand in one row of
//! `3 hidden` in the order forget, candidate, output.

use super::isa::kernel;

kernel! {
    /// One cell forward: turns pre-activations (without bias) in `gates` into activations, and writes the new cell
    /// state, its hyperbolic tangent and the new hidden state.
    pub(crate) fn coupled_forward<FUSED>(
        gates: &mut [T],
        bias: &[T],
        previous_cell: &[T],
        cell: &mut [T],
        cell_tanh: &mut [T],
        hidden: &mut [T],
    ) {
        let width = hidden.len();
        let (forget, rest) = gates.split_at_mut(width);
        let (candidate, output) = rest.split_at_mut(width);
        let output = &mut output[..width];
        let (bias_forget, rest) = bias.split_at(width);
        let (bias_candidate, bias_output) = rest.split_at(width);
        let bias_output = &bias_output[..width];
        let (previous_cell, cell, cell_tanh) = (
            &previous_cell[..width],
            &mut cell[..width],
            &mut cell_tanh[..width],
        );
        // One transcendental per loop: each loop then vectorises without spilling.
        for j in 0..width {
            forget[j] = (forget[j] + bias_forget[j]).logistic::<FUSED>();
        }
        for j in 0..width {
            candidate[j] = (candidate[j] + bias_candidate[j]).hyperbolic_tangent::<FUSED>();
        }
        for j in 0..width {
            output[j] = (output[j] + bias_output[j]).logistic::<FUSED>();
        }
        for j in 0..width {
            // f c + (1 - f) g, with one product less.
            let new = forget[j].multiply_add::<FUSED>(previous_cell[j] - candidate[j], candidate[j]);
            let tanh = new.hyperbolic_tangent::<FUSED>();
            cell[j] = new;
            cell_tanh[j] = tanh;
            hidden[j] = output[j] * tanh;
        }
    }
}

kernel! {
    /// One cell backward: turns activations in `gates` into gradients of the pre-activations, given the gradient
    /// of the hidden state; `cell_gradient` comes in as the gradient from the next step and leaves as that for the
    /// previous one.
    pub(crate) fn coupled_backward<FUSED>(
        gates: &mut [T],
        previous_cell: &[T],
        cell_tanh: &[T],
        hidden_gradient: &[T],
        cell_gradient: &mut [T],
    ) {
        let width = cell_gradient.len();
        let (forget, rest) = gates.split_at_mut(width);
        let (candidate, output) = rest.split_at_mut(width);
        let output = &mut output[..width];
        let (previous_cell, cell_tanh) = (&previous_cell[..width], &cell_tanh[..width]);
        let hidden_gradient = &hidden_gradient[..width];
        for j in 0..width {
            let (f, g, o, tanh) = (forget[j], candidate[j], output[j], cell_tanh[j]);
            let dh = hidden_gradient[j];
            let dc = (dh * o).multiply_add::<FUSED>(T::ONE - tanh * tanh, cell_gradient[j]);
            let input = T::ONE - f;
            forget[j] = dc * (previous_cell[j] - g) * f * input;
            candidate[j] = dc * input * (T::ONE - g * g);
            output[j] = dh * tanh * o * (T::ONE - o);
            cell_gradient[j] = dc * f;
        }
    }
}
