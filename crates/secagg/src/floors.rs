//! What a client insists on, whatever a server proposes.

use crate::error::{Result, SecAggError};
use crate::params::{MAX_CLIENTS, Params, Setting};

/// The least that a client accepts, whatever a server proposes: compiled into the client, never read from a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floors {
    /// Fewest clients in the roster.
    pub min_clients: u32,
    /// Fewest clients in the sum.
    pub min_survivors: u32,
    /// Fewest neighbours, or all where the session has no more clients.
    pub min_neighbours: u32,
    /// Most neighbours: each costs a key agreement and a mask as long as the vector.
    pub max_neighbours: u32,
    /// Share of the neighbours, in percent, that may be corrupt: `t` must exceed it, and in an active session `2 t` must
    /// exceed it together with all the neighbours.
    pub corrupt_percent: u32,
    /// Whether the survivors must sign their set.
    pub active: bool,
}

impl Floors {
    /// What a deployed client insists on.
    pub const COMPILED: Self = Self {
        min_clients: 50,
        min_survivors: 30,
        min_neighbours: 12,
        max_neighbours: 1000,
        corrupt_percent: 25,
        active: false,
    };

    /// Whatever a simulation wants: every valid session is accepted.
    ///
    /// PRIVACY: only where server and clients are one process; a deployed client starts from [`Floors::COMPILED`].
    pub const SIMULATION: Self = Self {
        min_clients: 2,
        min_survivors: 2,
        min_neighbours: 1,
        max_neighbours: MAX_CLIENTS,
        corrupt_percent: 0,
        active: false,
    };

    /// Whether a client with these floors takes part under `params`.
    ///
    /// # Errors
    /// [`SecAggError::Floor`] names the first parameter that is too weak.
    pub fn admit(&self, params: &Params) -> Result<()> {
        let (terms, topology) = (params.terms(), params.topology());
        let (n, k, t) = (topology.clients(), topology.neighbours(), topology.threshold());
        at_least("the number of clients", n.into(), self.min_clients.into())?;
        at_least(
            "the floor of survivors",
            terms.min_survivors().into(),
            self.min_survivors.into(),
        )?;
        at_least(
            "the number of neighbours",
            k.into(),
            self.min_neighbours.min(n - 1).into(),
        )?;
        if k > self.max_neighbours {
            return Err(SecAggError::Floor {
                name: "the number of neighbours",
                expected: "at most",
                demanded: self.max_neighbours.into(),
                got: k.into(),
            });
        }
        // PRIVACY: t corrupt neighbours open a secret without anybody's help; rounded up, never in the server's favour.
        let corrupt = (u64::from(k) * u64::from(self.corrupt_percent)).div_ceil(100);
        at_least("the threshold", t.into(), corrupt + 1)?;
        if self.active && terms.setting() != Setting::Active {
            return Err(SecAggError::Floor {
                name: "the setting (1 honest but curious, 2 active)",
                expected: "at least",
                demanded: Setting::Active as u64,
                got: terms.setting() as u64,
            });
        }
        if terms.setting() == Setting::Active {
            // PRIVACY: a corrupt neighbour gives both kinds of share, an honest one gives one.
            at_least(
                "twice the threshold",
                2 * u64::from(t),
                u64::from(k) + corrupt + 1,
            )?;
        }
        Ok(())
    }
}

fn at_least(name: &'static str, got: u64, demanded: u64) -> Result<()> {
    if got >= demanded {
        Ok(())
    } else {
        Err(SecAggError::Floor {
            name,
            expected: "at least",
            demanded,
            got,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::tests::params;

    #[test]
    fn floors_refuse_what_is_weaker() {
        let compiled = Floors::COMPILED;
        assert!(
            compiled
                .admit(&params(Setting::HonestButCurious, 100, 22, 11).unwrap())
                .is_ok()
        );
        for (n, k, t) in [(49, 22, 11), (100, 10, 6), (100, 22, 6), (100, 22, 1)] {
            assert!(
                compiled
                    .admit(&params(Setting::HonestButCurious, n, k, t).unwrap())
                    .is_err()
            );
        }
        // 2 t > k + ceil(k / 4): 22 neighbours need t >= 15.
        assert!(
            compiled
                .admit(&params(Setting::Active, 100, 22, 14).unwrap())
                .is_err()
        );
        assert!(
            compiled
                .admit(&params(Setting::Active, 100, 22, 15).unwrap())
                .is_ok()
        );
        let active = Floors {
            active: true,
            ..compiled
        };
        assert!(
            active
                .admit(&params(Setting::HonestButCurious, 100, 22, 15).unwrap())
                .is_err()
        );
        let narrow = Floors {
            max_neighbours: 20,
            ..compiled
        };
        assert!(
            narrow
                .admit(&params(Setting::HonestButCurious, 100, 22, 15).unwrap())
                .is_err()
        );
        assert!(
            Floors::SIMULATION
                .admit(&params(Setting::HonestButCurious, 30, 2, 1).unwrap())
                .is_ok()
        );
    }
}
