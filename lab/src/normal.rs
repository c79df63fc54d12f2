//! Standard normal numbers for experiments.

use undertone_mechanisms::{MechanismError, NoiseKey, SnappedGaussian};

/// The first `count` standard normal numbers of a round: those of a release, which stand `2^-40` apart.
///
/// # Errors
/// A round of `2^48` or more.
pub fn standard_normal(key: &NoiseKey, round: u64, count: usize) -> Result<Vec<f64>, MechanismError> {
    let gaussian = SnappedGaussian::new(f64::exp2(40.0))?;
    let mut steps = vec![0; count];
    gaussian.fill(key, round, &mut steps)?;
    Ok(steps
        .into_iter()
        .map(|step| step as f64 / gaussian.steps())
        .collect())
}
