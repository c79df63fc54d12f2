//! The modulus of a secure sum.

use crate::error::{AggregationError, Result};

/// The modulus of a secure sum: any whole number from 2 to `2^62`.
///
/// # Example
/// ```
/// use undertone_aggregation::Modulus;
/// let modulus = Modulus::new(1000)?;
/// assert_eq!((modulus.bits(), modulus.is_power_of_two()), (10, false));
/// assert!(Modulus::new(1).is_err());
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Modulus(u64);

impl Modulus {
    /// The largest modulus: two residues then add without leaving an `i64`.
    pub const MAX: u64 = 1 << 62;

    /// # Errors
    /// [`AggregationError::Modulus`] outside `2..=2^62`.
    pub fn new(modulus: u64) -> Result<Self> {
        if (2..=Self::MAX).contains(&modulus) {
            return Ok(Self(modulus));
        }
        Err(AggregationError::Modulus { got: modulus })
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// Bits of one residue on the wire, `ceil(log2 M)`.
    #[must_use]
    pub fn bits(self) -> u32 {
        (self.0 - 1).ilog2() + 1
    }

    /// Returns `true` if the residues are all words of [`bits`](Self::bits) bits, so that reduction is a mask.
    #[must_use]
    pub fn is_power_of_two(self) -> bool {
        self.0.is_power_of_two()
    }

    /// Returns `true` if residues are kept in lanes of 32 bits (`M <= 2^32`) instead of 64.
    #[must_use]
    pub fn is_narrow(self) -> bool {
        self.bits() <= 32
    }
}

impl std::fmt::Display for Modulus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
