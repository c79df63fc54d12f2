//! A mechanism as one value: the noise and the accountant's event come from the same matrix.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_accounting::participation::Participation;
use undertone_accounting::{Accountant, Adjacency, Delta, Event, Guarantee, NoiseMultiplier, Recipe};

use crate::error::{MechanismError, Result, ensure};
use crate::loss::{CertifiedSensitivity, Errors, Losses};
use crate::sampler::uniform::NoiseKey;
use crate::strategy::Strategy;
use crate::stream::engine::StreamOptions;
use crate::stream::{NoiseStream, StreamShape};
use crate::workload::Workload;

pub(crate) mod correlated;
pub(crate) mod independent;
mod largest_row;
mod reach;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod resume_tests;
mod rounded;
mod slack;

/// Version of the description.
const VERSION: u32 = 1;

/// A strategy matrix for a number of rounds, a participation schema and a noise multiplier.
///
/// From one value come the noise ([`stream`](Self::stream), and [`CorrelatedGaussian`](crate::CorrelatedGaussian) for
/// releases), its certified sensitivity, its losses, the event that an accountant composes, and the description that is
/// stored: none can be of another matrix than the others.
///
/// The description serialises as `{version, strategy, rounds, participation, noise_multiplier}`. The sensitivity is not
/// in it: a reader of a description computes it again.
///
/// # Guarantee
/// The guarantee of one Gaussian whose noise multiplier is `noise_multiplier / sensitivity`, for every user who keeps
/// to the participation schema, under the zero-out relation. It assumes nothing about how users are sampled, nor about
/// the uses of earlier releases.
///
/// # Source
/// \[BLT\] section 2; Denisov et al. (2022), Theorem 2.1, for sums that depend on earlier releases.
///
/// # Example
/// ```
/// use undertone_accounting::{Delta, NoiseMultiplier, participation::Participation};
/// use undertone_mechanisms::{IdentityMatrix, Mechanism, Strategy, Workload};
///
/// let strategy = Strategy::Independent(IdentityMatrix);
/// let noise = NoiseMultiplier::new(4.0)?;
/// let mechanism = Mechanism::new(strategy, 100, Participation::single(), noise)?;
/// assert_eq!(mechanism.sensitivity().squared.get(), 1.0);
/// assert_eq!(mechanism.losses(&Workload::prefix_sum())?.max_loss, 10.0);
/// assert!(mechanism.guarantee(Delta::new(1e-6)?)?.epsilon.get() < 1.2);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Mechanism {
    version: u32,
    strategy: Strategy,
    rounds: usize,
    participation: Participation,
    noise_multiplier: NoiseMultiplier,
    #[serde(skip)]
    sensitivity: CertifiedSensitivity,
    /// The cached digest: computing it reads every number of the description.
    #[serde(skip)]
    digest: OnceLock<[u8; 32]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    version: u32,
    strategy: Strategy,
    rounds: usize,
    participation: Participation,
    noise_multiplier: NoiseMultiplier,
}

impl TryFrom<Unchecked> for Mechanism {
    type Error = MechanismError;

    fn try_from(value: Unchecked) -> Result<Self> {
        let name = "version of the mechanism's description";
        ensure(value.version == VERSION, name, "1", f64::from(value.version))?;
        Self::new(
            value.strategy,
            value.rounds,
            value.participation,
            value.noise_multiplier,
        )
    }
}

impl Mechanism {
    /// A mechanism whose noise has standard deviation `noise_multiplier` clip norms in every entry of `Z`, for the first
    /// `rounds` rounds of the strategy.
    ///
    /// # Errors
    /// More rounds than the strategy has; a schema for which it has no bound on the sensitivity.
    pub fn new(
        strategy: Strategy,
        rounds: usize,
        participation: Participation,
        noise_multiplier: NoiseMultiplier,
    ) -> Result<Self> {
        let sensitivity = strategy.squared_sensitivity(rounds, &participation)?;
        Ok(Self {
            version: VERSION,
            strategy,
            rounds,
            participation,
            noise_multiplier,
            sensitivity,
            digest: OnceLock::new(),
        })
    }

    /// The strategy matrix.
    #[must_use]
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// Rounds that the guarantee covers.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// The schema that every user has to keep to.
    #[must_use]
    pub fn participation(&self) -> Participation {
        self.participation
    }

    /// Standard deviation of every entry of `Z`, in clip norms.
    #[must_use]
    pub fn noise_multiplier(&self) -> NoiseMultiplier {
        self.noise_multiplier
    }

    /// Squared L2 sensitivity per squared clip norm, and whether it is exact.
    #[must_use]
    pub fn sensitivity(&self) -> CertifiedSensitivity {
        self.sensitivity
    }

    /// Standard deviation of the noise in the iterates, for standard deviation 1 in every entry of `Z`.
    ///
    /// # Errors
    /// A workload of fewer rounds.
    pub fn errors(&self, workload: &Workload) -> Result<Errors> {
        self.strategy.errors(self.rounds, workload)
    }

    /// Errors times sensitivity, by which mechanisms are compared at equal privacy.
    ///
    /// # Errors
    /// A workload of fewer rounds.
    pub fn losses(&self, workload: &Workload) -> Result<Losses> {
        Ok(self.errors(workload)?.losses(self.sensitivity.squared))
    }

    /// The event of the whole run, in exact arithmetic. A release has an event of its own, which counts the roundings:
    /// [`CorrelatedGaussian::event`](crate::CorrelatedGaussian::event).
    #[must_use]
    pub fn event(&self) -> Event {
        Event::CorrelatedGaussian {
            sensitivity_squared: self.sensitivity.squared.get(),
            noise_multiplier: self.noise_multiplier,
        }
    }

    /// The guarantee of the whole run for one user's data being zeroed out, exact for Gaussians.
    ///
    /// # Errors
    /// [`MechanismError::Accounting`] where epsilon exceeds what a number holds.
    pub fn guarantee(&self, delta: Delta) -> Result<Guarantee> {
        guarantee_of(&self.event(), delta)
    }

    /// SHA-256 of the description.
    ///
    /// # Errors
    /// [`MechanismError::Description`] where a number of the strategy is not finite, which strategies refuse.
    pub fn digest(&self) -> Result<[u8; 32]> {
        if let Some(digest) = self.digest.get() {
            return Ok(*digest);
        }
        let mut hash = Sha256::new();
        serde_json::to_writer(Hashing(&mut hash), self).map_err(|error| MechanismError::Description {
            message: error.to_string(),
        })?;
        let digest = hash.finalize().into();
        Ok(*self.digest.get_or_init(|| digest))
    }

    /// The noise in `f32` for simulations, where the clip norm is `clip_norm`.
    ///
    /// # Errors
    /// As [`NoiseStream::new`].
    pub fn stream(
        &self,
        dim: usize,
        clip_norm: f64,
        key: NoiseKey,
        options: StreamOptions,
    ) -> Result<NoiseStream> {
        let shape = StreamShape {
            rounds: self.rounds,
            dim,
        };
        let recurrence = self.strategy.recurrence(self.rounds)?;
        NoiseStream::new(
            &recurrence,
            shape,
            self.noise_multiplier.get() * clip_norm,
            key,
            options,
        )
    }
}

impl PartialEq for Mechanism {
    fn eq(&self, other: &Self) -> bool {
        (
            &self.strategy,
            self.rounds,
            self.participation,
            self.noise_multiplier,
        ) == (
            &other.strategy,
            other.rounds,
            other.participation,
            other.noise_multiplier,
        )
    }
}

/// The guarantee of one correlated Gaussian.
fn guarantee_of(event: &Event, delta: Delta) -> Result<Guarantee> {
    let mut accountant = Accountant::under(Recipe::ExactGaussian, Adjacency::ZeroOut);
    accountant.compose(event, 1)?;
    Ok(accountant.guarantee(delta)?)
}

/// A writer that hashes its input: a description of millions of numbers is never in memory as text.
struct Hashing<'a>(&'a mut Sha256);

impl std::io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::sensitivity::SquaredSensitivity;

    use super::*;
    use crate::strategy::identity::IdentityMatrix;
    use crate::strategy::tree::Tree;
    use crate::testing::at_least;

    fn mechanism(strategy: Strategy, noise: f64) -> Mechanism {
        let schema = at_least(10, 3);
        Mechanism::new(strategy, 40, schema, NoiseMultiplier::new(noise).unwrap()).unwrap()
    }

    #[test]
    fn one_sensitivity_serves_event_losses_and_guarantee() {
        let tree = mechanism(Strategy::Tree(Tree::default()), 5.0);
        let squared = tree.sensitivity().squared.get();
        assert_eq!(
            tree.event(),
            Event::CorrelatedGaussian {
                sensitivity_squared: squared,
                noise_multiplier: NoiseMultiplier::new(5.0).unwrap()
            }
        );
        let losses = tree.losses(&Workload::prefix_sum()).unwrap();
        let errors = tree.errors(&Workload::prefix_sum()).unwrap();
        assert_eq!(losses, errors.losses(SquaredSensitivity::new(squared).unwrap()));
        // As if all were one Gaussian of noise multiplier z / sensitivity.
        let delta = Delta::new(1e-6).unwrap();
        let rho = tree.sensitivity().squared.rho(tree.noise_multiplier()).unwrap();
        let exact = undertone_accounting::zcdp::epsilon_of_gaussians(rho, delta).unwrap();
        let stated = tree.guarantee(delta).unwrap().epsilon;
        // The composition leaves room for the rounding of its sum.
        assert!(stated >= exact && stated.get() <= exact.get() * (1.0 + 1e-14));
        assert_eq!(tree.guarantee(delta).unwrap().adjacency, Adjacency::ZeroOut);
    }

    #[test]
    fn a_description_survives_json_and_decides_the_digest() {
        let tree = mechanism(Strategy::Tree(Tree::default()), 5.0);
        let json = serde_json::to_string(&tree).unwrap();
        let back: Mechanism = serde_json::from_str(&json).unwrap();
        assert_eq!(back, tree);
        assert_eq!(back.sensitivity(), tree.sensitivity());
        assert_eq!(back.digest().unwrap(), tree.digest().unwrap());
        assert_eq!(tree.digest().unwrap(), <[u8; 32]>::from(Sha256::digest(&json)));
        let others = [
            mechanism(Strategy::Tree(Tree::default()), 5.1),
            mechanism(Strategy::Independent(IdentityMatrix), 5.0),
        ];
        for other in others {
            assert_ne!(other, tree);
            assert_ne!(other.digest().unwrap(), tree.digest().unwrap());
        }
        let check = |from: &str, to: &str, message: &str| {
            assert!(json.contains(from), "{json} without {from}");
            let error = serde_json::from_str::<Mechanism>(&json.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(message), "{error} instead of {message}");
        };
        check(
            r#""version":1"#,
            r#""version":2"#,
            "version of the mechanism's description must be 1, got 2",
        );
        check(r#""rounds":40"#, r#""rounds":0"#, "rounds");
        check(
            r#""rounds":40"#,
            r#""rounds":40,"sensitivity":1"#,
            "unknown field `sensitivity`",
        );
        check(
            r#""noise_multiplier":5.0"#,
            r#""noise_multiplier":-5.0"#,
            "noise_multiplier",
        );
    }

    #[test]
    fn streams_are_of_the_strategy() {
        let tree = mechanism(Strategy::Tree(Tree::default()), 5.0);
        let key = NoiseKey::from_bytes([1; 32]);
        let mut stream = tree
            .stream(50, 0.5, key.clone(), StreamOptions::default())
            .unwrap();
        let shape = StreamShape { rounds: 40, dim: 50 };
        let recurrence = tree.strategy().recurrence(40).unwrap();
        let mut same =
            NoiseStream::new(&recurrence, shape, 2.5, key.clone(), StreamOptions::default()).unwrap();
        let (mut a, mut b) = (vec![0.0; 50], vec![0.0; 50]);
        for _ in 0..40 {
            stream.next(&mut a).unwrap();
            same.next(&mut b).unwrap();
            assert_eq!(a, b);
        }
        assert_eq!(
            stream.next(&mut a),
            Err(MechanismError::NoMoreRounds { rounds: 40 })
        );
        assert!(tree.stream(50, 0.0, key, StreamOptions::default()).is_err());
    }
}
