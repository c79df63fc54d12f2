//! Three guarantees of one mechanism: promised by the timer, shown by the ledger, exact for its sets of rounds.

use serde::Serialize;
use undertone_accounting::participation::Participation;
use undertone_accounting::{Delta, zcdp};
use undertone_mechanisms::{CertifiedSensitivity, Mechanism};

use undertone_coordinator::participation::exact::{RoundsByUser, exact_squared_sensitivity};
use undertone_coordinator::participation::observed::Observed;
use undertone_run::{Result, RunError};

/// The guarantees of one mechanism for one simulated run, for one user's data being zeroed out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrivacyComparison {
    /// Name of the strategy.
    pub mechanism: String,
    /// Noise standard deviation over clip norm.
    pub noise_multiplier: f64,
    /// Delta of all three guarantees.
    pub delta: f64,
    /// The guarantee for the schema that the timer promises while no round is abandoned.
    pub planned: Figures,
    /// The guarantee for the schema that the ledger shows.
    pub observed: Figures,
    /// The guarantee for the sets of rounds that users of the ledger took part in; no other set is covered.
    pub exact: Figures,
}

/// One guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// The schema; `None` where the sets themselves were counted.
    pub participation: Option<Participation>,
    /// Squared sensitivity per squared clip norm.
    pub sensitivity: CertifiedSensitivity,
    /// Rho of zero-concentrated differential privacy.
    pub rho: f64,
    /// Epsilon at the comparison's delta, exact for Gaussians.
    pub epsilon: f64,
}

impl PrivacyComparison {
    pub(super) fn new(
        planned: &Mechanism,
        delta: Delta,
        observed: &Observed,
        sets: RoundsByUser,
    ) -> Result<Self> {
        let nobody = || {
            RunError::value(
                "rounds",
                "participants in at least 1 round",
                "0 rounds with participants",
            )
        };
        let shown = observed.mechanism(planned)?.ok_or_else(nobody)?;
        let mut exact = exact_squared_sensitivity(planned, observed.rounds(), &sets)?;
        drop(sets);
        // All users kept to the observed schema, so its bound holds for their sets as well.
        if shown.sensitivity().squared < exact.squared {
            exact = shown.sensitivity();
        }
        let figures = |participation, sensitivity: CertifiedSensitivity| {
            let rho = sensitivity.squared.rho(planned.noise_multiplier())?;
            Ok::<_, RunError>(Figures {
                participation,
                sensitivity,
                rho: rho.get(),
                epsilon: zcdp::epsilon_of_gaussians(rho, delta)?.get(),
            })
        };
        Ok(Self {
            mechanism: planned.strategy().name(),
            noise_multiplier: planned.noise_multiplier().get(),
            delta: delta.get(),
            planned: figures(Some(planned.participation()), planned.sensitivity())?,
            observed: figures(Some(shown.participation()), shown.sensitivity())?,
            exact: figures(None, exact)?,
        })
    }
}
