//! Errors between a user's update and the raw sum.

/// Every error of this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregationError {
    /// A layout without any tensor, or a tensor with a zero dimension, has nothing to train.
    #[error("tensor {name:?} of shape {shape:?} is empty; each dimension must be at least 1")]
    EmptyTensor {
        /// Name of the tensor (empty when the layout holds no tensor at all).
        name: String,
        /// Shape of the tensor.
        shape: Vec<usize>,
    },
    /// The total number of parameters does not fit the address space.
    #[error(
        "tensor {name:?} of shape {shape:?} brings the number of parameters above the max of this machine"
    )]
    TooManyParameters {
        /// Name of the tensor at which the count overflowed.
        name: String,
        /// Shape of the tensor.
        shape: Vec<usize>,
    },
    /// Two tensors share a name.
    #[error("tensor {name:?} appears twice in the layout")]
    DuplicateTensor {
        /// The repeated name.
        name: String,
    },
    /// Two clip groups share a name.
    #[error("clip group {name:?} appears twice in the layout")]
    DuplicateGroup {
        /// The repeated name.
        name: String,
    },
    /// A block reaches past the parameters, or its rows overlap one another.
    #[error(
        "clip group {group:?}: block at {offset} with {rows} rows of {cols} columns, stride {row_stride}, \
         does not fit into {len} parameters"
    )]
    BlockOutOfRange {
        /// The group that owns the block.
        group: String,
        /// First index of the block.
        offset: usize,
        /// Number of rows.
        rows: usize,
        /// Distance between the starts of two rows.
        row_stride: usize,
        /// Indices taken from each row.
        cols: usize,
        /// Length of the parameter vector.
        len: usize,
    },
    /// The clip groups do not cover every parameter exactly once.
    #[error(
        "clip groups must cover each parameter exactly once, but parameter {index} is covered {times} times"
    )]
    NotAPartition {
        /// First parameter at which the cover fails.
        index: usize,
        /// 0 where a parameter is left out, 2 where two blocks meet.
        times: usize,
    },
    /// A vector does not have the length that the layout or the sum prescribes.
    #[error("{what}: expected {expected} values, got {got}")]
    Length {
        /// The vector, in words.
        what: &'static str,
        /// Length prescribed.
        expected: usize,
        /// Length received.
        got: usize,
    },
    /// A vector holds a NaN or an infinity, or so large a value that its square overflows.
    #[error("{what}: value at index {index} is not finite")]
    NotFinite {
        /// The vector, in words.
        what: &'static str,
        /// First offending index.
        index: usize,
    },
    /// A setting is outside its range.
    #[error("{name} must be {expected}, got {got}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The admissible range, in words.
        expected: &'static str,
        /// The value received.
        got: f64,
    },
    /// Per-layer clipping needs one bound for each clip group.
    #[error("per-layer clipping: the layout has {expected} clip groups, got {got} clip norms")]
    GroupCount {
        /// Number of groups in the layout.
        expected: usize,
        /// Number of bounds given.
        got: usize,
    },
    /// A weighted value or a sum left the range of the fixed-point accumulator.
    #[error("the fixed-point sum at index {index} leaves the range of +-{limit}")]
    SumOverflow {
        /// First offending index.
        index: usize,
        /// Largest magnitude that fits.
        limit: f64,
    },
    /// The thread that held part of a sum panicked, so the sum may be incomplete.
    #[error("a thread panicked while it added to the sum, so the sum is lost")]
    Poisoned,
    /// A sum that holds part of a vector, or a vector that should not be in it.
    #[error("an addition to the sum ended half-way or was given up, so the sum is lost")]
    SumLost,
    /// A sum that was read or discarded.
    #[error("the sum was read or discarded, and takes no further vector")]
    SumClosed,
    /// A modulus outside `2..=2^62`.
    #[error("the modulus must be from 2 to 2^62, got {got}")]
    Modulus {
        /// The number received.
        got: u64,
    },
    /// Two vectors of different moduli.
    #[error("expected residues modulo {expected}, got residues modulo {got}")]
    ModulusMismatch {
        /// Modulus of the vector that would have changed.
        expected: u64,
        /// Modulus of the other one.
        got: u64,
    },
    /// An element that is not below the modulus. What it is instead stays untold: it may be a client's own.
    #[error("element at index {index} is not below the modulus {modulus}")]
    NotAResidue {
        /// First offending index.
        index: usize,
        /// The modulus.
        modulus: u64,
    },
    /// A packed vector with bits after its last element.
    #[error("bit {bit} of byte {byte} of a packed vector lies after the last element and must be 0")]
    Padding {
        /// The last byte.
        byte: usize,
        /// The first bit that is set.
        bit: u32,
    },
    /// A vector whose packed length overflows.
    #[error("{len} packed residues do not fit the address space")]
    PackedLength {
        /// Number of residues.
        len: usize,
    },
    /// A transform of a length that is not a power of two.
    #[error("expected a vector whose length is a power of two, got {got} numbers")]
    NotAPowerOfTwo {
        /// Length received.
        got: usize,
    },
    /// An encoding whose numbers do not fit the integers that carry them.
    #[error("the encoding needs {what} below 2^{limit}, got 2^{got:.1}; {remedy}")]
    EncodingTooLarge {
        /// The number, in words.
        what: &'static str,
        /// Base-2 logarithm of the limit.
        limit: u32,
        /// Base-2 logarithm of the number.
        got: f64,
        /// The setting to change.
        remedy: &'static str,
    },
    /// A sum of more clients than the modulus was chosen for.
    #[error("the encoding allows sums of at most {max} clients, got {got}")]
    TooManyClients {
        /// The cap.
        max: u64,
        /// Clients of the sum.
        got: u64,
    },
    /// An update whose encoding is longer than the sensitivity allows, whatever the rounding.
    #[error("the norm of the update after rotation is {norm:e} grid steps, above its bound of {bound:e}")]
    EncodedNorm {
        /// Norm of the update after rotation, in grid steps.
        norm: f64,
        /// The bound.
        bound: f64,
    },
    /// A GPU or its driver failed.
    #[error("the GPU failed: {reason}")]
    Gpu {
        /// The report of the GPU.
        reason: String,
    },
    /// A GPU delivered a norm that the update of the unit does not have, or that no update can have.
    #[error(
        "the GPU's norm of unit {unit} differs from the exact norm of its update, so the GPU or its memory is faulty"
    )]
    GpuNorm {
        /// The place of the unit in the part of the GPU.
        unit: usize,
    },
    /// A GPU delivered a sum that is larger than its units can make it.
    #[error(
        "the GPU's sum at index {index} is larger than its units can make it, so the GPU or its memory is faulty"
    )]
    GpuSum {
        /// First offending index.
        index: usize,
    },
    /// The update of a unit on a GPU is not finite, where this is an error.
    #[error("the update of a unit on the GPU is not finite")]
    NotFiniteOnGpu,
    /// The accountant refused the noise.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
    /// The mechanism refused the sum.
    #[error(transparent)]
    Mechanism(#[from] undertone_mechanisms::MechanismError),
}

/// Shorthand for results of this crate.
pub type Result<T, E = AggregationError> = std::result::Result<T, E>;

/// Refuses a vector of another length.
pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(AggregationError::Length { what, expected, got })
}

/// [`AggregationError::Setting`], to be returned.
pub(crate) const fn setting(name: &'static str, expected: &'static str, got: f64) -> AggregationError {
    AggregationError::Setting { name, expected, got }
}

/// The value `got` if it is in its range, otherwise the refusal.
pub(crate) fn ensure(holds: bool, name: &'static str, expected: &'static str, got: f64) -> Result<f64> {
    if holds {
        Ok(got)
    } else {
        Err(setting(name, expected, got))
    }
}

/// A setting that has to be positive and finite.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<f64> {
    let holds = value > 0.0 && value.is_finite();
    ensure(holds, name, "positive and finite", value)
}

/// Refuses residues of another modulus.
pub(crate) fn check_modulus(expected: u64, got: u64) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(AggregationError::ModulusMismatch { expected, got })
}

/// Checks that a result is an error that says `expected`, or "ok".
#[cfg(test)]
pub(crate) fn check_message<T>(result: Result<T>, expected: &str) {
    let message = result
        .err()
        .map_or_else(|| "ok".to_owned(), |error| error.to_string());
    assert!(
        message.contains(expected),
        "{message:?} does not contain {expected:?}"
    );
}
