//! The activation between the two matrices of a feed-forward layer.

use super::TransformerSizes;
use super::architecture::{FeedForward, Gate};
use crate::kernels::{
    gated::{gelu_gated, gelu_gated_backward, silu_gated, silu_gated_backward},
    gelu::{gelu, gelu_backward},
    isa::Isa,
};
use crate::scalar::Scalar;

#[derive(Debug, Clone, Copy)]
pub(super) struct Activation {
    isa: Isa,
    kind: FeedForward,
    inner: usize,
}

impl Activation {
    pub(super) fn of(isa: Isa, sizes: TransformerSizes) -> Self {
        Self {
            isa,
            kind: sizes.architecture.feed_forward,
            inner: sizes.inner,
        }
    }

    /// Rows of the output of `up` to rows of the input of `down`.
    pub(super) fn forward<T: Scalar>(self, up: &[T], activated: &mut [T]) {
        let (isa, inner) = (self.isa, self.inner);
        match self.kind {
            FeedForward::Gelu => gelu(isa, up, activated),
            FeedForward::Gated(Gate::Silu) => silu_gated(isa, up, inner, activated),
            FeedForward::Gated(Gate::Gelu) => gelu_gated(isa, up, inner, activated),
        }
    }

    /// The gradient of `up` in `gradient`, from that of the activation's output, which `output_gradient` writes to the slice that it
    /// is given. The output stands in `activated` afterwards, and without gate in `up` itself; `scratch` has its size.
    pub(super) fn backward<T: Scalar>(
        self,
        output_gradient: impl FnOnce(&mut [T]),
        up: &mut [T],
        gradient: &mut [T],
        scratch: &mut [T],
        activated: &mut [T],
    ) {
        let (isa, inner) = (self.isa, self.inner);
        let gate = match self.kind {
            FeedForward::Gelu => {
                output_gradient(gradient);
                return gelu_backward(isa, up, gradient);
            }
            FeedForward::Gated(gate) => gate,
        };
        output_gradient(scratch);
        match gate {
            Gate::Silu => silu_gated_backward(isa, up, inner, scratch, gradient, activated),
            Gate::Gelu => gelu_gated_backward(isa, up, inner, scratch, gradient, activated),
        }
    }
}
