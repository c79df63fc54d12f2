//! The minimum requirements of a device, whatever a server or a plan proposes.

use std::collections::BTreeSet;
use std::sync::Arc;

use undertone_protocol::Digest32;
use undertone_secagg::Floors;

/// The clients whose keys a device accepts beside its own in a secure sum.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Neighbours {
    /// Every key must carry a certificate of an issuer that the device trusts and the plan names.
    ///
    /// PRIVACY: this protects against a server that lies, if server and issuer do not collude.
    Certified,
    /// Only these public keys are accepted. The list must come by another channel than the server.
    Listed(Arc<BTreeSet<Digest32>>),
    /// Any key is accepted, as in simulations and with the identity level `dev`.
    ///
    /// PRIVACY: a server that lies can invent the neighbours and read the update. The sum protects against a curious server alone.
    Anyone,
}

/// The minimum requirements of a device. They are set in the app, never read from a message.
///
/// # Guarantee
/// A device takes part in no task whose signed plan claims less than one of these values, or more than its figures can keep. It stops for
/// good when the planned costs of all its tasks in a population would exceed [`population_rho`](Self::population_rho).
///
/// A device computes the cost from the plan itself where devices add the noise. Where the server adds it, the amount of noise is the word
/// of the person who signs plans: no device can see it.
#[derive(Debug, Clone)]
pub struct PolicyFloors {
    /// Min number of reports that end a round.
    pub min_goal: u64,
    /// Min number of devices in a sum that the server sees: in one group of a secure sum.
    pub min_group: u32,
    /// Min noise multiplier of the plan.
    pub min_noise_multiplier: f64,
    /// Max planned epsilon of a task.
    pub max_epsilon: f64,
    /// Max delta at which that epsilon may be stated.
    pub max_delta: f64,
    /// `true` if the server must not see single updates.
    pub require_secagg: bool,
    /// Max planned zCDP cost (rho) of all tasks of the population together, over the life of this device's store.
    pub population_rho: f64,
    /// The floors of secure sums. Their trust is replaced by [`neighbours`](Self::neighbours).
    pub secagg: Floors,
    /// The clients whose keys the device accepts in a secure sum.
    pub neighbours: Neighbours,
}

impl PolicyFloors {
    /// The floors of a deployed device.
    ///
    /// They demand 100 reports per round and secure groups of 50 devices. The epsilon of a task is at most 10 at a delta of at most 1e-5.
    /// All tasks together may cost a rho of 1. The noise multiplier is at least the square root of 1/2, at which one participation costs
    /// that rho. The rest is that of [`Floors::COMPILED`].
    pub const COMPILED: Self = Self {
        min_goal: 100,
        min_group: 50,
        min_noise_multiplier: core::f64::consts::FRAC_1_SQRT_2,
        max_epsilon: 10.0,
        max_delta: 1e-5,
        require_secagg: true,
        population_rho: 1.0,
        secagg: Floors::COMPILED,
        neighbours: Neighbours::Certified,
    };
}

impl Default for PolicyFloors {
    fn default() -> Self {
        Self::COMPILED
    }
}

/// The limits of what one session may take from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Max processor time of local training, in milliseconds.
    pub cpu_ms: u64,
    /// Max time from the assignment to the end, in milliseconds.
    pub wall_ms: u64,
    /// Max bytes that a session loads, the model and the vocabulary included.
    pub down_bytes: u64,
    /// Max bytes that a session sends.
    pub up_bytes: u64,
    /// Max part of the battery that a plan may ask for, in percent.
    pub battery_percent: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_ms: 10 * 60_000,
            wall_ms: 3 * 3_600_000,
            down_bytes: 256 << 20,
            up_bytes: 128 << 20,
            battery_percent: 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_floors_admit_one_participation_at_their_own_noise_multiplier() {
        let PolicyFloors {
            min_noise_multiplier,
            population_rho,
            ..
        } = PolicyFloors::COMPILED;
        let one = 0.5 / (min_noise_multiplier * min_noise_multiplier);
        assert!(one <= population_rho * (1.0 + 1e-12), "{one}");
        // A smaller multiplier would be one that the budget refuses.
        assert!(one >= population_rho * (1.0 - 1e-12), "{one}");
    }
}
