//! The terms of a session and its graph.

use crate::error::{Result, SecAggError, at_least, ensure};

/// Maximum number of clients in one session: indices fit a field element many times over, and rosters stay in memory.
pub const MAX_CLIENTS: u32 = 1 << 20;

/// Maximum length of a vector: 2^36 elements, so that no length in bytes overflows.
pub const MAX_LENGTH: u64 = 1 << 36;

/// Maximum modulus: 2^62, so that two elements add without carry into the sign.
pub const MAX_MODULUS: u64 = 1 << 62;

/// The primitives of a session: X25519, HKDF-SHA256, AES-256 in counter mode for masks, AES-256-GCM for shares, Ed25519, Shamir over
/// GF(2^61 - 1). A session of one suite never talks to one of another.
pub(crate) const SUITE: u8 = 1;

/// The trust that clients put in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ThreatModel {
    /// The server follows the protocol and is curious: no signatures of the set of survivors.
    HonestButCurious = 1,
    /// The server may lie about who survived: the survivors sign their set, and `2 threshold > neighbours`.
    Active = 2,
}

impl ThreatModel {
    pub(crate) fn from_id(id: u8) -> Option<Self> {
        [Self::HonestButCurious, Self::Active]
            .into_iter()
            .find(|threat_model| *threat_model as u8 == id)
    }
}

/// The terms of a session, which are known before anybody joins. A client agrees to them by joining.
///
/// ```
/// use undertone_secagg::{Terms, ThreatModel};
/// let terms = Terms::new(6_400_000, 1 << 20, ThreatModel::HonestButCurious)?.with_clients(100, 1000)?;
/// assert_eq!((terms.min_survivors(), terms.max_clients()), (100, 1000));
/// # Ok::<(), undertone_secagg::SecAggError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    threat_model: ThreatModel,
    length: u64,
    modulus: u64,
    min_survivors: u32,
    max_clients: u32,
}

impl Terms {
    /// Terms for sums of `length` elements modulo `modulus`, for 2 to [`MAX_CLIENTS`] clients of which 2 must survive; see
    /// [`with_clients`](Self::with_clients) for narrower bounds.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] names the argument outside its range.
    pub fn new(length: u64, modulus: u64, threat_model: ThreatModel) -> Result<Self> {
        let holds = (1..=MAX_LENGTH).contains(&length);
        ensure(holds, "the vector's length", "1 to 2^36", length)?;
        let holds = (2..=MAX_MODULUS).contains(&modulus);
        ensure(holds, "the modulus", "2 to 2^62", modulus)?;
        Ok(Self {
            threat_model,
            length,
            modulus,
            min_survivors: 2,
            max_clients: MAX_CLIENTS,
        })
    }

    /// Sets a floor on the clients in the sum, below which nothing is released, and a cap, above which nobody is admitted.
    ///
    /// The cap is the number that the modulus was sized for: more clients could wrap around.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] where not `2 <= min_survivors <= max_clients <= MAX_CLIENTS`.
    pub fn with_clients(mut self, min_survivors: u32, max_clients: u32) -> Result<Self> {
        let holds = (2..=MAX_CLIENTS).contains(&max_clients);
        ensure(holds, "the cap on clients", "2 to 2^20", max_clients)?;
        // PRIVACY: the sum of one client's vector is that vector.
        let holds = (2..=max_clients).contains(&min_survivors);
        let expected = "2 to the cap on clients";
        ensure(holds, "the floor of survivors", expected, min_survivors)?;
        self.min_survivors = min_survivors;
        self.max_clients = max_clients;
        Ok(self)
    }

    /// The trust that clients put in the server.
    #[must_use]
    pub fn threat_model(&self) -> ThreatModel {
        self.threat_model
    }

    /// Number of elements of a vector.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The modulus of the sum.
    #[must_use]
    pub fn modulus(&self) -> u64 {
        self.modulus
    }

    /// Minimum number of clients in a sum that is released.
    #[must_use]
    pub fn min_survivors(&self) -> u32 {
        self.min_survivors
    }

    /// Maximum number of clients in a sum.
    #[must_use]
    pub fn max_clients(&self) -> u32 {
        self.max_clients
    }
}

/// A regular graph of clients, and the number of neighbours that open a secret.
///
/// ```
/// use undertone_secagg::Topology;
/// let full = Topology::full(100, 67)?;
/// assert_eq!(full.neighbours(), 99);
/// assert!(Topology::new(101, 7, 4).is_err(), "no graph has an odd number of odd vertices");
/// # Ok::<(), undertone_secagg::SecAggError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Topology {
    clients: u32,
    neighbours: u32,
    threshold: u32,
}

impl Topology {
    /// A graph of `clients` (n) vertices of degree `neighbours` (k), of which `threshold` (t) together open a secret.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] where not `2 <= n <= MAX_CLIENTS`, `1 <= k < n`, `1 <= t <= k`;
    /// [`SecAggError::OddGraph`] where n and k are both odd.
    pub fn new(clients: u32, neighbours: u32, threshold: u32) -> Result<Self> {
        let holds = (2..=MAX_CLIENTS).contains(&clients);
        ensure(holds, "the number of clients", "2 to 2^20", clients)?;
        let holds = (1..clients).contains(&neighbours);
        let expected = "1 to one less than the clients";
        ensure(holds, "the number of neighbours", expected, neighbours)?;
        let holds = (1..=neighbours).contains(&threshold);
        ensure(holds, "the threshold", "1 to the number of neighbours", threshold)?;
        if clients % 2 == 1 && neighbours % 2 == 1 {
            return Err(SecAggError::OddGraph { clients, neighbours });
        }
        Ok(Self {
            clients,
            neighbours,
            threshold,
        })
    }

    /// The full graph of Bonawitz et al. 2017, in which all clients are neighbours.
    ///
    /// # Errors
    /// As [`Topology::new`].
    pub fn full(clients: u32, threshold: u32) -> Result<Self> {
        Self::new(clients, clients.saturating_sub(1), threshold)
    }

    /// Number of clients, n.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// Number of neighbours per client, k.
    #[must_use]
    pub fn neighbours(&self) -> u32 {
        self.neighbours
    }

    /// Number of shares that open a secret, t.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }
}

/// All parameters of a running session: its terms, and the graph over the clients that joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Params {
    terms: Terms,
    topology: Topology,
}

impl Params {
    /// The parameters of a session with these terms over this graph.
    ///
    /// # Errors
    /// [`SecAggError::TooMany`] above the cap on clients, [`SecAggError::TooFew`] below the floor of survivors;
    /// [`SecAggError::Setting`] in an active session where not `2 t > k`.
    pub fn new(terms: Terms, topology: Topology) -> Result<Self> {
        if topology.clients > terms.max_clients {
            return Err(SecAggError::TooMany {
                max: terms.max_clients,
            });
        }
        at_least("the roster", terms.min_survivors, topology.clients)?;
        // PRIVACY: with 2 t <= k one half of a client's neighbours could open its self mask and the other half its mask key.
        let holds = terms.threat_model != ThreatModel::Active || 2 * topology.threshold > topology.neighbours;
        let (name, expected) = (
            "the threshold of an active session",
            "more than half the number of neighbours",
        );
        ensure(holds, name, expected, topology.threshold)?;
        Ok(Self { terms, topology })
    }

    /// The terms that were agreed before anybody joined.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The graph.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parameters for 30 to 1,000 clients.
    pub(crate) fn params(threat_model: ThreatModel, n: u32, k: u32, t: u32) -> Result<Params> {
        let terms = Terms::new(10, 1 << 20, threat_model)?.with_clients(30, 1000)?;
        Params::new(terms, Topology::new(n, k, t)?)
    }

    #[test]
    fn ranges_are_refused_by_name() {
        let plain = ThreatModel::HonestButCurious;
        for (result, name) in [
            (Terms::new(0, 2, plain).map(drop), "length"),
            (Terms::new(MAX_LENGTH + 1, 2, plain).map(drop), "length"),
            (Terms::new(1, 1, plain).map(drop), "modulus"),
            (Terms::new(1, MAX_MODULUS + 1, plain).map(drop), "modulus"),
            (
                Terms::new(1, 2, plain)
                    .and_then(|t| t.with_clients(1, 5))
                    .map(drop),
                "floor",
            ),
            (
                Terms::new(1, 2, plain)
                    .and_then(|t| t.with_clients(6, 5))
                    .map(drop),
                "floor",
            ),
            (
                Terms::new(1, 2, plain)
                    .and_then(|t| t.with_clients(2, MAX_CLIENTS + 1))
                    .map(drop),
                "cap",
            ),
            (Topology::new(1, 0, 1).map(drop), "clients"),
            (Topology::new(10, 10, 1).map(drop), "neighbours"),
            (Topology::new(10, 0, 1).map(drop), "neighbours"),
            (Topology::new(10, 4, 0).map(drop), "threshold"),
            (Topology::new(10, 4, 5).map(drop), "threshold"),
            (Topology::new(7, 3, 2).map(drop), "even"),
            (params(plain, 29, 12, 7).map(drop), "roster"),
            (params(plain, 1001, 12, 7).map(drop), "admits"),
            (params(ThreatModel::Active, 50, 12, 6).map(drop), "active"),
        ] {
            let error = result.expect_err(name).to_string();
            assert!(error.contains(name), "{error} does not name {name}");
        }
        assert!(params(ThreatModel::Active, 50, 12, 7).is_ok());
    }
}
