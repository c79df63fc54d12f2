//! The minimum requirements of a client, whatever a server proposes.

use crate::assurance::Assumptions;
use crate::error::{Result, SecAggError, ensure};
use crate::keys::Trust;
use crate::terms::{MAX_CLIENTS, Params, ThreatModel};

/// Bits of privacy below which no floors can be set.
const MIN_PRIVACY_BITS: u32 = 40;

/// The minimum requirements of a client: set in its own program, never read from a message.
///
/// # Guarantee
/// A client takes part in a session only if all of these hold, whatever values the floors have:
///
/// - the session is active: the survivors sign their set;
/// - `2 t > k + corrupt`, with `corrupt` the assumed fraction of the `k` neighbours, rounded up;
/// - the probability that privacy fails on the session's graph, computed by this client from its
///   [`Assumptions`], is at most `2^-40`;
/// - every neighbour's identity is one that the client knows, or one that an issuer certified: [`Trust::Anyone`] is refused.
///
/// The minimum numbers of clients and of survivors are counted over the clients that this client can vouch for: itself and
/// the neighbours whose keys, places and presence it checked. The total that the server claims does not count.
///
/// The computed probability assumes that the server placed the clients in random order. Nobody can check that on a sparse
/// graph. [`Floors::COMPILED`] therefore demands the full graph, on which places mean nothing.
#[derive(Debug, Clone)]
pub struct Floors {
    min_clients: u32,
    min_survivors: u32,
    min_neighbours: u32,
    max_neighbours: u32,
    assumptions: Assumptions,
    trust: Trust,
}

impl Floors {
    /// The floors of a deployed client: 50 clients, 30 survivors, the full graph of at most 1001 clients, and a quarter of
    /// the clients corrupt. They accept nobody until [`with_trust`](Self::with_trust) names the known identities.
    ///
    /// ```
    /// use std::{collections::BTreeSet, sync::Arc};
    /// use undertone_secagg::{Floors, Trust};
    /// let known = Trust::Listed(Arc::new(BTreeSet::from([[7; 32], [8; 32]])));
    /// let floors = Floors::COMPILED.with_trust(known)?;
    /// assert!(floors.with_trust(Trust::Anyone).is_err());
    /// # Ok::<(), undertone_secagg::SecAggError>(())
    /// ```
    pub const COMPILED: Self = Self {
        min_clients: 50,
        min_survivors: 30,
        min_neighbours: MAX_CLIENTS,
        max_neighbours: 1000,
        assumptions: Assumptions::DEVICE,
        trust: Trust::Nobody,
    };

    /// Sets the identities that the client accepts as neighbours: a list, or those that an issuer certified.
    ///
    /// # Errors
    /// [`SecAggError::Demand`] for [`Trust::Anyone`]: a server could invent the neighbours, and their signatures with them.
    pub fn with_trust(self, trust: Trust) -> Result<Self> {
        if matches!(trust, Trust::Anyone) {
            return Err(SecAggError::Demand {
                name: "the trust",
                expected: "a list of known identities or an issuer",
                got: "Trust::Anyone",
            });
        }
        Ok(Self { trust, ..self })
    }

    /// Sets the minimum numbers of clients in the session and of survivors in the sum, this client included.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] where not `2 <= min_survivors <= min_clients`.
    pub fn with_clients(self, min_clients: u32, min_survivors: u32) -> Result<Self> {
        let (name, expected) = ("the floor of survivors", "2 to the floor of clients");
        ensure(
            (2..=min_clients).contains(&min_survivors),
            name,
            expected,
            min_survivors,
        )?;
        Ok(Self {
            min_clients,
            min_survivors,
            ..self
        })
    }

    /// Sets the bounds on the number of neighbours. A session with fewer clients than `min + 1` must have the full graph.
    ///
    /// PRIVACY: a minimum below the number of clients admits sparse graphs, on which the server places the clients. The
    /// assumed fraction of corrupt neighbours is then a statement about the server.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] where not `1 <= min` and `1 <= max`.
    pub fn with_neighbours(self, min: u32, max: u32) -> Result<Self> {
        let name = "the bounds on the number of neighbours";
        ensure(min > 0 && max > 0, name, "at least 1", 0u64)?;
        Ok(Self {
            min_neighbours: min,
            max_neighbours: max,
            ..self
        })
    }

    /// Sets the assumptions about drop-outs and corrupt clients.
    ///
    /// # Errors
    /// [`SecAggError::Demand`] for assumptions of an honest-but-curious server; [`SecAggError::Setting`] for fewer than 40
    /// bits of privacy.
    pub fn with_assumptions(self, assumptions: Assumptions) -> Result<Self> {
        if assumptions.threat_model() != ThreatModel::Active {
            return Err(SecAggError::Demand {
                name: "the assumed threat model",
                expected: "ThreatModel::Active",
                got: "ThreatModel::HonestButCurious",
            });
        }
        let bits = assumptions.privacy_bits();
        ensure(bits >= MIN_PRIVACY_BITS, "the bits of privacy", "40 to 128", bits)?;
        Ok(Self { assumptions, ..self })
    }

    /// The minimum number of survivors that the client can vouch for, itself included.
    #[must_use]
    pub fn min_survivors(&self) -> u32 {
        self.min_survivors
    }

    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Checks that a client with these floors takes part under `params`.
    ///
    /// # Errors
    /// [`SecAggError::Demand`], [`SecAggError::Floor`] or [`SecAggError::Assurance`] names the first parameter that is too
    /// weak.
    pub fn admit(&self, params: &Params) -> Result<()> {
        let (terms, topology) = (params.terms(), params.topology());
        let (n, k, t) = (topology.clients(), topology.neighbours(), topology.threshold());
        if terms.threat_model() != ThreatModel::Active {
            return Err(SecAggError::Demand {
                name: "the threat model of the session",
                expected: "active",
                got: "honest but curious",
            });
        }
        // PRIVACY: counted over the clients whose keys this client checks, not over those that the server claims.
        let name = "the number of clients whose keys this client checks";
        at_least(name, k + 1, self.min_clients)?;
        let survivors = terms.min_survivors();
        at_least("the floor of survivors", survivors, self.min_survivors)?;
        at_least("the number of neighbours", k, self.min_neighbours.min(n - 1))?;
        if k > self.max_neighbours {
            return Err(SecAggError::Floor {
                name: "the number of neighbours",
                expected: "at most",
                demanded: self.max_neighbours.into(),
                got: k.into(),
            });
        }
        // PRIVACY: a corrupt neighbour gives both kinds of share, an honest one gives one kind. Rounded up, never in the
        // server's favour.
        let corrupt = (self.assumptions.corrupt_rate() * f64::from(k)).ceil() as u64;
        let demanded = u64::from(k) + corrupt + 1;
        at_least("twice the threshold", 2 * u64::from(t), demanded)?;
        let privacy = self.assumptions.assurance(topology).privacy();
        if privacy <= -f64::from(self.assumptions.privacy_bits()) {
            Ok(())
        } else {
            Err(SecAggError::Assurance {
                demanded: self.assumptions.privacy_bits(),
                got: (0.0 - privacy).max(0.0),
            })
        }
    }
}

fn at_least(name: &'static str, got: impl Into<u64>, demanded: impl Into<u64>) -> Result<()> {
    let (got, demanded, expected) = (got.into(), demanded.into(), "at least");
    if got >= demanded {
        return Ok(());
    }
    Err(SecAggError::Floor {
        name,
        expected,
        demanded,
        got,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Topology;
    use crate::terms::tests::params;

    const ACTIVE: ThreatModel = ThreatModel::Active;

    fn admit(floors: &Floors, threat_model: ThreatModel, n: u32, k: u32, t: u32) -> Result<()> {
        floors.admit(&params(threat_model, n, k, t).unwrap())
    }

    #[test]
    fn compiled_floors_admit_full_active_graphs_and_refuse_what_is_weaker() {
        let compiled = Floors::COMPILED;
        // 2 t > 99 + 25.
        assert_eq!(admit(&compiled, ACTIVE, 100, 99, 63), Ok(()));
        assert!(admit(&compiled, ACTIVE, 100, 99, 62).is_err());
        assert!(admit(&compiled, ACTIVE, 49, 48, 40).is_err(), "too few clients");
        assert!(
            admit(&compiled, ACTIVE, 100, 98, 63).is_err(),
            "not the full graph"
        );
        let curious = admit(&compiled, ThreatModel::HonestButCurious, 100, 99, 63);
        assert!(matches!(curious, Err(SecAggError::Demand { .. })));
        let narrow = compiled.clone().with_neighbours(12, 90).unwrap();
        assert!(
            admit(&narrow, ACTIVE, 100, 99, 63).is_err(),
            "too many neighbours"
        );
        let terms = crate::Terms::new(10, 2, ACTIVE)
            .unwrap()
            .with_clients(29, 1000)
            .unwrap();
        let lax = Params::new(terms, Topology::full(100, 63).unwrap()).unwrap();
        assert!(compiled.admit(&lax).is_err(), "too low a floor of survivors");
    }

    #[test]
    fn sparse_graphs_are_admitted_only_with_forty_bits() {
        let assumptions = Assumptions::new(0.1, 0.1, ACTIVE).unwrap();
        let floors = Floors::COMPILED
            .with_neighbours(12, 1000)
            .unwrap()
            .with_assumptions(assumptions)
            .unwrap();
        let found = assumptions.topology(1000).unwrap();
        let (k, t) = (found.neighbours(), found.threshold());
        assert_eq!(admit(&floors, ACTIVE, 1000, k, t), Ok(()));
        for (k, t) in [(k, t - 6), (56, 36), (52, 34)] {
            let error = admit(&floors, ACTIVE, 1000, k, t).unwrap_err();
            assert!(matches!(error, SecAggError::Assurance { .. }), "{k} {t}: {error}");
        }
        // Beyond what is rounded, whatever the bits say: 2 t > k + corrupt.
        assert!(admit(&floors, ACTIVE, 1000, 96, 52).is_err());
    }

    #[test]
    fn no_floors_are_weaker_than_active_listed_and_forty_bits() {
        let floors = || Floors::COMPILED;
        assert!(floors().with_trust(Trust::Anyone).is_err());
        let curious = Assumptions::new(0.1, 0.1, ThreatModel::HonestButCurious).unwrap();
        assert!(floors().with_assumptions(curious).is_err());
        let weak = Assumptions::new(0.1, 0.1, ACTIVE)
            .unwrap()
            .with_bits(39, 20)
            .unwrap();
        assert!(floors().with_assumptions(weak).is_err());
        assert!(floors().with_clients(1, 1).is_err() && floors().with_clients(5, 6).is_err());
        assert!(floors().with_neighbours(0, 5).is_err());
    }
}
