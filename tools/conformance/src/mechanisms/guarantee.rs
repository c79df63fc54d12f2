//! Guarantees that follow from noise: Gaussian mechanisms, amplified banded matrices.

use undertone_accounting::sensitivity::banded::Amplified;
use undertone_accounting::{
    Accountant, Delta, Epsilon, NoiseMultiplier, Recipe, Rho, SamplingProbability, gaussian, zcdp,
};

use crate::case::Case;

pub(super) fn gaussian_rho_to_eps(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rho = Rho::new(case.number("rho")?)?;
    let mu = (2.0 * rho.get()).sqrt();
    let noise = NoiseMultiplier::new(1.0 / mu)?;
    case.close("mu", mu, tolerance)?;
    case.near(
        "rho of the noise",
        zcdp::rho_of_gaussian(noise)?.get(),
        rho.get(),
        1e-14 * rho.get(),
    );
    for digits in ["5", "7", "10"] {
        let delta = Delta::new(format!("1e-{digits}").parse()?)?;
        let epsilon = zcdp::epsilon_of_gaussians(rho, delta)?.get();
        case.close(&format!("eps_delta1e_{digits}"), epsilon, tolerance)?;
    }
    case.close(
        "delta_at_eps1",
        gaussian::delta(noise, Epsilon::new(1.0)?),
        tolerance,
    )
}

pub(super) fn amplified_bandmf(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let share = SamplingProbability::new(case.number("batch_size")? / case.number("dataset_size")?)?;
    let noise = case.noise("sigma_over_column_norm")?;
    let amplified = Amplified::new(case.whole("n")?, case.whole("bands")?, share, noise)?;
    case.close("sampling_prob", amplified.sampling_probability.get(), 1e-12)?;
    case.close("compositions", amplified.compositions as f64, 0.0)?;
    for (name, recipe) in [("eps_rdp", Recipe::Rdp), ("eps_pld", Recipe::Pld)] {
        let mut accountant = Accountant::new(recipe);
        accountant.compose(&amplified.event(), amplified.compositions)?;
        case.close(
            name,
            accountant.guarantee(case.delta()?)?.epsilon.get(),
            tolerance,
        )?;
    }
    Ok(())
}
