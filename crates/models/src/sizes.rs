//! Bounds on the sizes of a model, so that no run file and no header asks for memory that no machine has.

use crate::error::{ModelError, Result};

/// Maximum number of parameters: 8 GiB in f32. GPT-2's largest model has 1.56 billion.
pub(crate) const MAX_PARAMETERS: usize = 1 << 31;

/// Maximum number of layers.
pub(crate) const MAX_LAYERS: usize = 1000;

/// Maximum number of token ids, and of positions.
pub(crate) const MAX_IDS: usize = 1 << 24;

/// Maximum width of embeddings, states and projections.
pub(crate) const MAX_WIDTH: usize = 1 << 16;

/// Maximum width of a feed-forward layer.
pub(crate) const MAX_INNER: usize = 1 << 20;

/// The largest product of a context and a head width with rotary positions: half a million positions of heads of 128.
pub(crate) const MAX_TURNS: usize = 1 << 26;

/// The largest number of keys that a decoder keeps for all its sequences; it keeps as many values.
pub(crate) const MAX_KEYS: usize = 1 << 31;

/// Checks one size under the name that run files use.
pub(crate) fn check(name: &'static str, got: usize, minimum: usize, maximum: usize) -> Result<()> {
    if got < minimum {
        return Err(ModelError::Dimension { name, minimum, got });
    }
    if got > maximum {
        return Err(ModelError::DimensionTooLarge { name, maximum, got });
    }
    Ok(())
}

/// Checks the number of parameters, which factors within the bounds above cannot make overflow.
pub(crate) fn check_total(got: u128) -> Result<()> {
    match got > MAX_PARAMETERS as u128 {
        true => Err(ModelError::TooManyParameters {
            maximum: MAX_PARAMETERS,
            got,
        }),
        false => Ok(()),
    }
}
