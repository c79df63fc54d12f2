//! A guarantee that rests on noise which users add to their own updates, and on the participations of one user.

use undertone_accounting::participation::Participation;
use undertone_accounting::{Accountant, Adjacency, Delta, Event, Recipe};
use undertone_aggregation::{Encoding, EncodingSize};

use crate::error::check::require;
use crate::error::{CoordinatorError, Result};
use crate::task::TaskConfig;

/// The noise that clients add, each a part of it, independent in each round.
///
/// # Guarantee
/// Every release has the noise of at least the floor of survivors, or there is none: each costs at most
/// [`ClientNoisePlan::event`], and a user pays for as many rounds as it takes part in. Nothing is amplified by sampling. Under the
/// zero-out relation the cohorts are the same for both neighbours, and so is which rounds are abandoned.
///
/// Users who add less than their part are not covered.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientNoisePlan {
    event: Event,
    participation: Participation,
    /// Standard deviation of the noise of `min_clients` users together, in the unit of the updates.
    noise_std: f64,
}

impl ClientNoisePlan {
    /// The plan of an encoding with client noise; `None` for the others.
    pub(super) fn new(encoding: &Encoding, participation: Participation) -> Option<Self> {
        let noise = encoding.client_noise()?;
        Some(Self {
            event: noise.event().clone(),
            participation,
            noise_std: noise.share_std() * (noise.min_clients() as f64).sqrt(),
        })
    }

    /// The event of one release.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The schema that users keep to.
    #[must_use]
    pub(crate) fn participation(&self) -> Participation {
        self.participation
    }

    /// Standard deviation of the min noise in a coordinate of the sum.
    pub(super) fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// The accountant of the first `rounds` rounds, for each user who keeps to `participation`.
    ///
    /// # Errors
    /// From the accountant.
    pub(crate) fn accountant(&self, rounds: u64, participation: Participation) -> Result<Accountant> {
        let recipe = match self.event {
            // Of these a Renyi curve is known; of the others outcomes, or a statement, that loss distributions compose.
            Event::DistributedDiscreteGaussian { .. } | Event::Skellam { .. } => Recipe::Rdp,
            _ => Recipe::Pld,
        };
        let mut accountant = Accountant::under(recipe, Adjacency::ZeroOut);
        accountant.compose(&self.event, self.times(rounds, participation))?;
        Ok(accountant)
    }

    /// The max number of participations of one user in the first `rounds` rounds.
    #[must_use]
    pub fn times(&self, rounds: u64, participation: Participation) -> u64 {
        participation
            .max_participation()
            .min(participation.gap().fitting(rounds))
    }
}

/// The inputs of an encoding besides the configuration.
pub(super) struct EncodingInputs {
    pub(super) dim: usize,
    pub(super) clip_norm: Option<f64>,
    /// Max number of users of a round.
    pub(super) max_users: u64,
    /// The delta of the run.
    pub(super) delta: Delta,
    pub(super) participation: Option<Participation>,
}

/// The encoding of a run file; `None` where updates are simply added up.
pub(super) fn encoding(config: &TaskConfig, inputs: &EncodingInputs) -> Result<Option<Encoding>> {
    let Some(aggregation) = &config.aggregation else {
        return Ok(None);
    };
    let Some(clip_norm) = inputs.clip_norm else {
        return Err(CoordinatorError::missing(
            "clip",
            "a clip norm with [aggregation]",
        ));
    };
    let noise_multiplier = config
        .privacy
        .as_ref()
        .and_then(|privacy| privacy.noise_multiplier)
        .unwrap_or(f64::NAN);
    let max_part = inputs
        .participation
        .map_or(config.rounds, |schema| schema.max_participation());
    let kind = aggregation
        .encoding
        .kind(noise_multiplier, inputs.delta.get(), max_part);
    let cohort = EncodingSize {
        dim: inputs.dim,
        clip_norm,
        min_clients: aggregation.min_clients,
        max_clients: aggregation
            .max_clients
            .unwrap_or(inputs.max_users)
            .max(aggregation.min_clients),
    };
    let holds = cohort.min_clients <= inputs.max_users;
    let expected = format!("at most the {} users that a round can have", inputs.max_users);
    require(holds, "aggregation.min_clients", expected, cohort.min_clients)?;
    let holds = cohort.max_clients >= inputs.max_users;
    let expected = format!("at least the {} users that a round can have", inputs.max_users);
    require(holds, "aggregation.max_clients", expected, cohort.max_clients)?;
    Ok(Some(Encoding::new(kind, cohort)?))
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Gap;

    use super::*;

    /// One user pays for the rounds in which it can have taken part, and for no others.
    #[test]
    fn a_user_pays_for_its_own_rounds() {
        let event = Event::Skellam {
            clip_norm: 1.0,
            granularity: 1e-3,
            dimension: 64,
            conditional_beta: 0.6,
            central_stddev: 3.0,
        };
        let schema = Participation::fixed_epochs(Gap::new(12).unwrap(), 3).unwrap();
        let noise = ClientNoisePlan {
            event: event.clone(),
            participation: schema,
            noise_std: 3.0,
        };
        let delta = Delta::new(1e-5).unwrap();
        for (rounds, times) in [(1, 1), (12, 1), (13, 2), (24, 2), (25, 3), (60, 3)] {
            let mut expected = Accountant::under(Recipe::Rdp, Adjacency::ZeroOut);
            expected.compose(&event, times).unwrap();
            let found = noise.accountant(rounds, schema).unwrap();
            assert_eq!(
                found.guarantee(delta).unwrap(),
                expected.guarantee(delta).unwrap()
            );
            assert_eq!(noise.times(rounds, schema), times);
        }
        // Close to the Gaussian of the same size: epsilon of z = 3 and of three such releases.
        let one = noise.accountant(1, schema).unwrap().guarantee(delta).unwrap();
        assert!((1.2..1.6).contains(&one.epsilon.get()), "{one}");
    }
}
