//! Noise to which each client adds a part, so that only the (securely aggregated) sum carries all of it.
//!
//! [`RoundedSensitivity`] has the sensitivities of a vector rounded to a grid. [`DistributedDiscreteGaussian`] and [`DistributedSkellam`] give the
//! Renyi divergence of the noisy sum.
//!
//! Both are stated for clipped vectors of one user set to zero (zero-out; the user's part of the noise stays). Under
//! replace-one the clip norm counts twice. They hold against every observer of the sum, as long as the stated number of
//! parts was added: clients that drop out or collude must not be counted.
//!
//! Sampling earns no credit here. With a random number of participating clients the noise, too, is random,
//! and the amplification theorems for a fixed mechanism do not apply; so there is no sampling probability to
//! pass.

mod discrete_gaussian;
mod rounding;
mod skellam;

pub use discrete_gaussian::DistributedDiscreteGaussian;
pub use rounding::RoundedSensitivity;
pub use skellam::DistributedSkellam;

#[cfg(test)]
mod tests {
    use crate::rdp::conversion;

    /// Checks the epsilon of all rounds, which order 2 gives, and their divergence of order 8.
    pub(super) fn check_divergences(total: impl Fn(f64) -> f64, delta: f64, want: f64, at_8: f64) {
        let orders: Vec<f64> = (2..=128).chain([256]).map(f64::from).collect();
        let total: Vec<f64> = orders.iter().map(|&order| total(order)).collect();
        let (epsilon, index) = conversion::epsilon(&orders, &total, delta.ln());
        assert!((epsilon - want).abs() <= 1e-9 * want, "{epsilon} != {want}");
        assert_eq!(orders[index], 2.0);
        assert!((total[6] - at_8).abs() <= 1e-12 * at_8, "{} != {at_8}", total[6]);
    }
}
