//! The numbers that a GPU of the caller measures, as Rust takes them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use undertone_aggregation::Limbs;

use crate::buffer::read_integers;

/// The norms of the groups of a unit: for each its largest magnitude as bits, and the sums of four digits.
pub(super) fn limbs(norms: &Bound<'_, PyAny>) -> PyResult<Vec<Limbs>> {
    let numbers = read_integers(norms, "norms")?;
    let (groups, rest) = numbers.as_chunks::<5>();
    let wrong = |found: String| {
        let expected = "a largest magnitude below 2^31 and four sums of digits for each group";
        PyValueError::new_err(format!("norms: expected {expected}, got {found}"))
    };
    if !rest.is_empty() {
        return Err(wrong(format!("{} numbers", numbers.len())));
    }
    let one = |&[largest, sums @ ..]: &[i64; 5]| {
        let largest = u32::try_from(largest).map_err(|_| wrong(largest.to_string()))?;
        // A sum of digits fills all 64 bits.
        let sums = sums.map(i64::cast_unsigned);
        Ok(Limbs { largest, sums })
    };
    groups.iter().map(one).collect()
}
