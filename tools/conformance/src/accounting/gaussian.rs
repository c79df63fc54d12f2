//! The plain Gaussian and the conversions of zCDP.

use undertone_accounting::{Rho, gaussian, zcdp};

use super::{EXACT, second};
use crate::case::Case;

/// The improved conversion is a minimum over a continuous order, which both sides search.
const SEARCHED: f64 = 1e-8;

pub(super) fn gaussian(case: &Case<'_>) -> anyhow::Result<()> {
    // A noise multiplier is per sensitivity already.
    let sensitivity = case.number("sensitivity")?;
    anyhow::ensure!(
        sensitivity == 1.0,
        "expected sensitivity 1, got {sensitivity}; scale sigma"
    );
    if !case.has_input("sigma") {
        let sigma = gaussian::noise_multiplier(case.epsilon()?, case.delta()?)?.get();
        case.close("sigma", sigma, EXACT)?;
        return case.close("sigma_dp_accounting", sigma, EXACT);
    }
    let sigma = case.noise("sigma")?;
    if case.has_input("epsilon") {
        let epsilon = case.epsilon()?;
        let delta = gaussian::delta(sigma, epsilon);
        case.close("delta", delta, EXACT)?;
        second::not_below(case, delta)?;
        case.close("log_delta", gaussian::log_delta(sigma, epsilon), EXACT)?;
    }
    if case.has_input("delta") {
        let epsilon = gaussian::epsilon(sigma, case.delta()?)?.get();
        case.close("epsilon", epsilon, EXACT)?;
        case.close("epsilon_dp_accounting", epsilon, EXACT)?;
    }
    Ok(())
}

pub(super) fn zcdp(case: &Case<'_>) -> anyhow::Result<()> {
    let (rho, delta) = (Rho::new(case.number("rho")?)?, case.delta()?);
    let of_noise = zcdp::rho_of_gaussian(case.noise("noise_multiplier")?)?.get();
    case.near(
        "rho of the noise multiplier",
        of_noise,
        rho.get(),
        1e-12 * rho.get(),
    );
    let loose = zcdp::epsilon_bun_steinke(rho, delta)?.get();
    case.close("eps_bun_steinke", loose, EXACT)?;
    let tight = zcdp::epsilon(rho, delta)?.get();
    case.close("eps_rdp_tight", tight, SEARCHED)?;
    if let Some(order) = case.expected("alpha_opt")? {
        // Where the minimum lies is known to the square root of what its value is known to; a bound at that
        // order that is below ours would mean that our minimum is none.
        let there = rho.get() * order + (-1.0 / order).ln_1p() - (delta.get() * order).ln() / (order - 1.0);
        case.near(
            "epsilon at alpha_opt",
            tight,
            there.max(0.0),
            SEARCHED * there.abs(),
        );
    }
    let exact = zcdp::epsilon_of_gaussians(rho, delta)?.get();
    case.close("eps_gaussian_exact", exact, EXACT)?;
    if let Some(reference) = case.expected("eps_pld")? {
        // An upper bound on a grid of 1e-4, of the same mechanism.
        let slack = 1e-3 * exact.max(1.0);
        case.ensure(
            exact <= reference * (1.0 + 1e-6) + 1e-9 && exact >= reference - slack,
            || format!("eps_pld: expected {reference:e} from below within {slack:e}, got {exact:e}"),
        );
    }
    Ok(())
}
