use super::architecture::{Architecture, Norm};
use crate::kernels::{
    isa::Isa,
    layer_norm::{normalise, normalise_backward},
    rms_norm::{normalise_by_root, normalise_by_root_backward},
};
use crate::scalar::Scalar;

/// The norms of a transformer: which one, and its constant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Normaliser {
    isa: Isa,
    norm: Norm,
    epsilon: f64,
}

impl Normaliser {
    pub(super) fn new(isa: Isa, architecture: &Architecture) -> Self {
        Self {
            isa,
            norm: architecture.norm,
            epsilon: architecture.norm_epsilon,
        }
    }

    /// The norm by the root mean square, with the same constant: that of heads, and that of what a block adds.
    pub(super) fn by_root(self) -> Self {
        Self {
            norm: Norm::Rms,
            ..self
        }
    }

    /// `rows` to `output`; `stats` keeps what [`backward`](Self::backward) needs. A root mean square norm has no bias.
    pub(super) fn forward<T: Scalar>(
        self,
        rows: &[T],
        gain: &[T],
        bias: &[T],
        output: &mut [T],
        stats: &mut [[T; 2]],
    ) {
        match self.norm {
            Norm::Layer => normalise(self.isa, rows, gain, bias, self.epsilon, output, stats),
            Norm::Rms => normalise_by_root(self.isa, rows, gain, self.epsilon, output, stats),
        }
    }

    /// Adds the gradient of the rows to `target` and those of gain and bias to theirs.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn backward<T: Scalar>(
        self,
        gradient: &[T],
        rows: &[T],
        stats: &[[T; 2]],
        gain: &[T],
        target: &mut [T],
        gain_gradient: &mut [T],
        bias_gradient: &mut [T],
    ) {
        match self.norm {
            Norm::Layer => normalise_backward(
                self.isa,
                gradient,
                rows,
                stats,
                gain,
                target,
                gain_gradient,
                bias_gradient,
            ),
            Norm::Rms => {
                normalise_by_root_backward(self.isa, gradient, rows, stats, gain, target, gain_gradient);
            }
        }
    }
}
