//! Conversion of a noise multiplier to a guarantee and back.

use anyhow::{Context, bail};
use serde::Serialize;
use undertone_accounting::{Delta, Epsilon, Guarantee, NoiseMultiplier, Rho, gaussian};
use undertone_mechanisms::{CertifiedSensitivity, Mechanism, Strategy};
use undertone_present::numbers::{number, upper_bound};

use super::run::Run;

/// Options of the guarantee.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Guarantee")]
pub(super) struct PrivacyArgs {
    /// Compute the guarantee of this noise multiplier: the standard deviation before correlation, divided by the clip norm.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "target_epsilon")]
    noise_multiplier: Option<f64>,
    /// Find the smallest noise multiplier with this epsilon at --delta (for example 8).
    #[arg(long, allow_negative_numbers = true, requires = "delta")]
    target_epsilon: Option<f64>,
    /// Set the delta of the guarantee (for example 1e-6).
    #[arg(long, allow_negative_numbers = true)]
    delta: Option<f64>,
}

/// A mechanism with its noise, and what it guarantees.
#[derive(Debug, Serialize)]
pub(super) struct Stated {
    #[serde(skip)]
    pub(super) mechanism: Mechanism,
    noise_multiplier: NoiseMultiplier,
    rho: Rho,
    /// Guarantee at the delta that was asked for.
    guarantee: Option<Guarantee>,
    /// The noise was searched for.
    found: bool,
}

impl PrivacyArgs {
    /// Checks what can be checked before anything is computed.
    pub(super) fn check(&self, default: Option<NoiseMultiplier>) -> anyhow::Result<()> {
        self.delta.map(Delta::new).transpose().context("--delta")?;
        self.target_epsilon
            .map(Epsilon::new)
            .transpose()
            .context("--target-epsilon")?;
        let noise = self.noise_multiplier.map(NoiseMultiplier::new).transpose();
        if noise.context("--noise-multiplier")?.or(default).is_none()
            && self.target_epsilon.is_none()
            && self.delta.is_some()
        {
            bail!("--delta needs --noise-multiplier or --target-epsilon");
        }
        Ok(())
    }

    /// The guarantee of a strategy in a run; `None` where no noise was asked for and there is no `default`.
    pub(super) fn state(
        &self,
        strategy: &Strategy,
        run: &Run,
        default: Option<NoiseMultiplier>,
    ) -> anyhow::Result<Option<Stated>> {
        self.check(default)?;
        let delta = self.delta.map(Delta::new).transpose()?;
        let make = |noise| Mechanism::new(strategy.clone(), run.rounds, run.participation, noise);
        let mechanism = match (self.target_epsilon, delta) {
            (Some(epsilon), Some(delta)) => {
                let squared = strategy.squared_sensitivity(run.rounds, &run.participation)?;
                make(noise_multiplier(squared, Epsilon::new(epsilon)?, delta)?)?
            }
            _ => match self
                .noise_multiplier
                .map(NoiseMultiplier::new)
                .transpose()?
                .or(default)
            {
                Some(noise) => make(noise)?,
                None => return Ok(None),
            },
        };
        Ok(Some(Stated {
            noise_multiplier: mechanism.noise_multiplier(),
            rho: mechanism
                .sensitivity()
                .squared
                .rho(mechanism.noise_multiplier())?,
            guarantee: delta.map(|delta| mechanism.guarantee(delta)).transpose()?,
            found: self.target_epsilon.is_some(),
            mechanism,
        }))
    }
}

impl Stated {
    /// Rows of names and values.
    pub(super) fn rows(&self) -> Vec<(String, String)> {
        let noise = self.noise_multiplier.get();
        let noise = if self.found {
            format!("{} (found for the target)", upper_bound(noise))
        } else {
            number(noise)
        };
        let mut rows = vec![
            ("noise multiplier".to_owned(), noise),
            ("rho".to_owned(), upper_bound(self.rho.get())),
        ];
        if let Some(guarantee) = &self.guarantee {
            let (epsilon, delta) = (guarantee.epsilon.get(), guarantee.delta.get());
            rows.push((
                "guarantee".to_owned(),
                format!(
                    "epsilon {} at delta {} ({}; {}; no sampling assumed)",
                    upper_bound(epsilon),
                    upper_bound(delta),
                    guarantee.adjacency,
                    guarantee.recipe
                ),
            ));
        }
        rows
    }
}

/// The smallest noise multiplier of a sensitivity with the guarantee.
pub(super) fn noise_multiplier(
    sensitivity: CertifiedSensitivity,
    epsilon: Epsilon,
    delta: Delta,
) -> anyhow::Result<NoiseMultiplier> {
    let unit = gaussian::noise_multiplier(epsilon, delta)?.get();
    let mut noise = unit * sensitivity.squared.sensitivity();
    // PRIVACY: the product is rounded; a noise multiplier counts only once its own guarantee is within the target.
    for _ in 0..64 {
        let candidate = NoiseMultiplier::new(noise)?;
        let rho = sensitivity.squared.rho(candidate)?;
        if undertone_accounting::zcdp::epsilon_of_gaussians(rho, delta)?.get() <= epsilon.get() {
            return Ok(candidate);
        }
        noise *= 1.0 + 1e-13;
    }
    bail!(
        "--target-epsilon: no noise multiplier near {noise} meets epsilon {} at delta {}",
        epsilon.get(),
        delta.get()
    )
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;
    use undertone_mechanisms::Tree;

    use super::*;

    fn check(epsilon: f64, delta: f64) {
        let run = Run::new(1000, Participation::single()).unwrap();
        let args = PrivacyArgs {
            noise_multiplier: None,
            target_epsilon: Some(epsilon),
            delta: Some(delta),
        };
        let stated = args
            .state(&Strategy::Tree(Tree::new()), &run, None)
            .unwrap()
            .unwrap();
        let reached = stated.guarantee.unwrap().epsilon.get();
        assert!(
            reached <= epsilon && reached > epsilon * (1.0 - 1e-6),
            "{reached} {epsilon}"
        );
    }

    #[test]
    fn targets_are_met_and_hardly_more() {
        check(1.0, 1e-6);
        check(8.0, 1e-10);
        check(0.01, 1e-12);
        check(30.0, 1e-5);
    }
}
