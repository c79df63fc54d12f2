//! Closed forms: one Gaussian, concentrated privacy, groups.

use pyo3::prelude::*;
use undertone_accounting::{
    Accountant, Delta, Epsilon, Event, NoiseMultiplier, Recipe, Rho, gaussian, group, zcdp,
};

use crate::count;
use crate::error::Answer;

/// The smallest epsilon at which one Gaussian release holds `delta`.
///
/// >>> import undertone_dp as udp
/// >>> round(udp.gaussian.epsilon(4.0, 1e-5), 4)
/// 0.9263
#[pyfunction]
pub(crate) fn gaussian_epsilon(noise_multiplier: f64, delta: f64) -> Answer<f64> {
    Ok(gaussian::epsilon(NoiseMultiplier::new(noise_multiplier)?, Delta::new(delta)?)?.get())
}

/// The smallest delta at which one Gaussian release holds `epsilon`, which may be negative.
///
/// >>> import undertone_dp as udp
/// >>> round(udp.gaussian.delta(1.0, 1.0), 6), round(udp.gaussian.delta(1.0, -1.0), 6)
/// (0.126937, 0.678818)
#[pyfunction]
pub(crate) fn gaussian_delta(noise_multiplier: f64, epsilon: f64) -> Answer<f64> {
    let z = NoiseMultiplier::new(noise_multiplier)?;
    if epsilon < 0.0 {
        let mut accountant = Accountant::new(Recipe::ExactGaussian);
        accountant.compose(&Event::Gaussian { noise_multiplier: z }, 1)?;
        return Ok(accountant.delta_at(epsilon)?);
    }
    Ok(gaussian::delta(z, Epsilon::new(epsilon)?))
}

/// The smallest noise multiplier at which one Gaussian release holds `(epsilon, delta)`.
///
/// >>> import undertone_dp as udp
/// >>> round(udp.gaussian.noise_multiplier(1.0, 1e-5), 4)
/// 3.7306
#[pyfunction]
pub(crate) fn gaussian_noise_multiplier(epsilon: f64, delta: f64) -> Answer<f64> {
    Ok(gaussian::noise_multiplier(Epsilon::new(epsilon)?, Delta::new(delta)?)?.get())
}

/// Epsilon at `delta` of anything with this rho, by the improved conversion.
///
/// >>> import undertone_dp as udp
/// >>> udp.zcdp.epsilon(0.5, 1e-6) > udp.zcdp.epsilon_of_gaussians(0.5, 1e-6)
/// True
#[pyfunction]
pub(crate) fn zcdp_epsilon(rho: f64, delta: f64) -> Answer<f64> {
    Ok(zcdp::epsilon(Rho::new(rho)?, Delta::new(delta)?)?.get())
}

/// Exact epsilon at `delta` of a composition of Gaussians whose rhos add up to `rho`; wrong for other mechanisms.
///
/// >>> import undertone_dp as udp
/// >>> udp.zcdp.epsilon_of_gaussians(0.5, 1e-6) == udp.gaussian.epsilon(1.0, 1e-6)
/// True
#[pyfunction]
pub(crate) fn zcdp_epsilon_of_gaussians(rho: f64, delta: f64) -> Answer<f64> {
    Ok(zcdp::epsilon_of_gaussians(Rho::new(rho)?, Delta::new(delta)?)?.get())
}

/// The guarantee for a group of `size` records, from `(epsilon, delta)` for one record.
///
/// It holds for every mechanism. Accounting for the whole user is tighter where the mechanism is known.
///
/// >>> import undertone_dp as udp
/// >>> epsilon, delta = udp.group(0.5, 1e-9, 4)
/// >>> epsilon, f"{delta:.4e}"
/// (2.0, '9.8487e-09')
#[pyfunction]
pub(crate) fn group_privacy(
    epsilon: f64,
    delta: f64,
    #[pyo3(from_py_with = count::size)] size: u64,
) -> Answer<(f64, f64)> {
    let (epsilon, delta) = group::Group::new(size)?.guarantee(Epsilon::new(epsilon)?, Delta::new(delta)?)?;
    Ok((epsilon.get(), delta.get()))
}
