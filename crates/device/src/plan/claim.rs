//! The claim of a plan, compared with everything that a device can compute of it.
//!
//! PRIVACY: a plan says how much noise the server adds. No device can see that it did: the amount is the word of the person
//! who signs plans. The figures of the claim must still fit each other. Where devices add the noise, the plan holds all inputs of its cost.

use undertone_accounting::participation::Gap;
use undertone_accounting::{Accountant, Adjacency, Delta, Event, Recipe, Rho, zcdp};
use undertone_aggregation::Encoding;

use super::{Planned, TaskPlan};
use crate::error::Refusal;

/// Relative difference of a figure that another version of the accountant may have.
const TOLERANCE: f64 = 1e-3;

impl TaskPlan {
    /// Refuses a claim that no noise of its multiplier can keep: one participation costs a rho of `1 / (2 z^2)`, and no Gaussian release of
    /// a rho has a smaller epsilon than its exact one.
    pub(super) fn check_claim(&self) -> Result<(), Refusal> {
        let Planned {
            epsilon,
            delta,
            rho,
            noise_multiplier,
        } = self.planned;
        at_least("guarantee.rho", 0.5 / (noise_multiplier * noise_multiplier), rho)?;
        let exact = Rho::new(rho)
            .and_then(|rho| zcdp::epsilon_of_gaussians(rho, Delta::new(delta)?))
            .map_err(not_computed)?;
        // Integers of devices have another curve, which the encoding tells.
        match self.adds_own_noise() {
            true => Ok(()),
            false => at_least("guarantee.epsilon", exact.get(), epsilon),
        }
    }

    /// Refuses a claim that is better than the noise of the devices themselves, by this encoding, in as many rounds as one may take part.
    pub(super) fn check_own_noise(&self, encoding: &Encoding) -> Result<(), Refusal> {
        let gap = Gap::new(self.min_sep.into()).map_err(not_computed)?;
        let times = u64::from(self.max_part).min(gap.fitting(self.rounds));
        keeps_to_own_noise(self.planned, self.clip.norm(), times, encoding)
    }
}

/// Refuses a claim that the noise of the devices by this encoding does not keep, for one that takes part so many times.
fn keeps_to_own_noise(
    planned: Planned,
    clip_norm: f64,
    times: u64,
    encoding: &Encoding,
) -> Result<(), Refusal> {
    let Some(noise) = encoding.client_noise() else {
        return Ok(());
    };
    // A sum moves by a clip norm at least.
    let most = noise.share_std() * (noise.min_clients() as f64).sqrt() / clip_norm;
    if planned.noise_multiplier > most * (1.0 + TOLERANCE) {
        return Err(Refusal::value(
            "guarantee.noise_multiplier",
            format!("at most {most}, by the noise of {} devices", noise.min_clients()),
            planned.noise_multiplier,
        ));
    }
    at_least("guarantee.rho", times as f64 * 0.5 / (most * most), planned.rho)?;
    let recipe = match noise.event() {
        Event::DistributedDiscreteGaussian { .. } | Event::Skellam { .. } => Recipe::Rdp,
        _ => Recipe::Pld,
    };
    let mut accountant = Accountant::under(recipe, Adjacency::ZeroOut);
    let delta = Delta::new(planned.delta).map_err(not_computed)?;
    let exact = accountant
        .compose(noise.event(), times)
        .and_then(|()| accountant.guarantee(delta))
        .map_err(not_computed)?;
    at_least("guarantee.epsilon", exact.epsilon.get(), planned.epsilon)
}

/// Refuses a cost that is smaller than the least one that it can be.
fn at_least(name: &'static str, least: f64, claimed: f64) -> Result<(), Refusal> {
    // Written so that a NaN is refused.
    match claimed >= least * (1.0 - TOLERANCE) {
        true => Ok(()),
        false => Err(Refusal::value(
            name,
            format!("at least {least}, which this device computes from the plan"),
            claimed,
        )),
    }
}

/// PRIVACY: a claim that cannot be computed is refused.
fn not_computed(error: impl std::fmt::Display) -> Refusal {
    Refusal::value("guarantee", "a claim that this device can compute", error)
}

#[cfg(test)]
mod tests {
    use undertone_aggregation::{EncodingConfig, EncodingSize};

    use super::*;

    const CLIP_NORM: f64 = 0.5;

    fn encoding(text: &str, noise_multiplier: f64, delta: f64, times: u64) -> Encoding {
        let config: EncodingConfig = serde_json::from_str(text).unwrap();
        let size = EncodingSize {
            dim: 50,
            clip_norm: CLIP_NORM,
            min_clients: 100,
            max_clients: 140,
        };
        Encoding::new(config.kind(noise_multiplier, delta, times), size).unwrap()
    }

    fn refused(planned: Planned, times: u64, encoding: &Encoding) -> String {
        let answer = keeps_to_own_noise(planned, CLIP_NORM, times, encoding);
        answer.unwrap_err().to_string()
    }

    /// The two plans of the attack: few trials beside a strong claim, and many participations beside the claim of one.
    #[test]
    fn a_device_refuses_a_claim_that_its_own_noise_does_not_keep() {
        let strong = Planned {
            epsilon: 0.1,
            delta: 1e-6,
            rho: 0.02,
            noise_multiplier: 5.0,
        };
        let binomial = encoding(
            r#"{"kind": "binomial", "levels": 64, "trials": 512}"#,
            5.0,
            1e-6,
            4,
        );
        let said = refused(strong, 4, &binomial);
        assert!(
            said.starts_with("guarantee.noise_multiplier must be at most "),
            "{said}"
        );
        for kind in ["discrete_gaussian", "skellam"] {
            let text = format!(r#"{{"kind": "{kind}", "scale": 100.0}}"#);
            let made = encoding(&text, 0.8, 1e-6, 1000);
            let one = Planned {
                epsilon: 9.0,
                delta: 1e-6,
                rho: 0.79,
                noise_multiplier: 0.8,
            };
            keeps_to_own_noise(one, CLIP_NORM, 1, &made).unwrap();
            let said = refused(one, 1000, &made);
            assert!(said.starts_with("guarantee.rho must be at least "), "{said}");
            let said = refused(Planned { rho: 800.0, ..one }, 1000, &made);
            assert!(said.starts_with("guarantee.epsilon must be at least "), "{said}");
            let said = refused(Planned { epsilon: 1.0, ..one }, 1, &made);
            assert!(said.starts_with("guarantee.epsilon must be at least "), "{said}");
        }
        // Of noise of the server a device sees nothing.
        let of_server = encoding(r#"{"kind": "rotated_rounding", "scale": 1000.0}"#, 5.0, 1e-6, 4);
        keeps_to_own_noise(strong, CLIP_NORM, 4, &of_server).unwrap();
    }
}
