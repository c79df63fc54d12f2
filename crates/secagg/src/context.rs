//! The context of a session, and the digest that ties every key, mask, share and signature to it.

use sha2::{Digest, Sha256};

use crate::bytes::{Reader, Writer};
use crate::error::{Result, SecAggError};
use crate::terms::{Params, SUITE, Terms, ThreatModel, Topology};

/// Version of the protocol and of every message's encoding.
pub const PROTOCOL_VERSION: u8 = 1;

/// A digest of SHA-256.
pub type Digest32 = [u8; 32];

/// One attempt to sum one cohort's vectors. A client agrees to it before it makes any key.
///
/// PRIVACY: a client fills in the digests of the plan it ran and of the model it trained from itself. A server that hands
/// different models to different clients then runs different sessions, whose masks do not cancel
/// (Pasquini et al., "Eluding Secure Aggregation", CCS 2022).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Identifier of the run.
    pub run: Digest32,
    /// Round of the run.
    pub round: u64,
    /// Attempt at this round: keys and masks of one attempt never serve another.
    pub attempt: u32,
    /// Shard of this attempt's cohort.
    pub shard: u32,
    /// Digest of the signed policy and plan.
    pub plan_digest: Digest32,
    /// Digest of the model that the client trained from.
    pub model_digest: Digest32,
    /// Vector, floor, cap and threat model.
    pub terms: Terms,
}

impl Context {
    /// Digest of everything in the context, the version and the suite.
    #[must_use]
    pub fn digest(&self) -> Digest32 {
        let mut writer = Writer::new(256);
        writer
            .u8(PROTOCOL_VERSION)
            .bytes(&self.run)
            .u64(self.round)
            .u32(self.attempt)
            .u32(self.shard);
        writer.bytes(&self.plan_digest).bytes(&self.model_digest);
        write_terms(&self.terms, &mut writer);
        labelled("context", &[&writer.finish()])
    }

    /// The session of this context over the roster with root `roster_root`.
    #[must_use]
    pub fn session(&self, topology: &Topology, roster_root: &Digest32) -> SessionId {
        let mut writer = Writer::new(12);
        write_topology(topology, &mut writer);
        SessionId(labelled(
            "session",
            &[&self.digest(), &writer.finish(), roster_root],
        ))
    }
}

/// The digest that names a session; everything cryptographic in it depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub(crate) Digest32);

impl SessionId {
    /// Bytes of the digest.
    #[must_use]
    pub fn as_bytes(&self) -> &Digest32 {
        &self.0
    }

    pub(crate) fn check(&self, other: &Self, message: &'static str) -> Result<()> {
        if self == other {
            Ok(())
        } else {
            Err(SecAggError::Session { message })
        }
    }
}

/// SHA-256 of a label and parts, each with its length in front: no two lists of parts give the same input.
pub(crate) fn labelled(label: &str, parts: &[&[u8]]) -> Digest32 {
    let mut hash = Sha256::new();
    for part in [b"undertone/secagg/1".as_slice(), label.as_bytes()]
        .iter()
        .chain(parts)
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

pub(crate) const PARAMS_BYTES: usize = 1 + 1 + 8 + 8 + 4 + 4 + 12;

fn write_terms(terms: &Terms, writer: &mut Writer) {
    writer
        .u8(SUITE)
        .u8(terms.threat_model() as u8)
        .u64(terms.length())
        .u64(terms.modulus());
    writer.u32(terms.min_survivors()).u32(terms.max_clients());
}

fn write_topology(topology: &Topology, writer: &mut Writer) {
    writer
        .u32(topology.clients())
        .u32(topology.neighbours())
        .u32(topology.threshold());
}

pub(crate) fn write_params(params: &Params, writer: &mut Writer) {
    write_terms(params.terms(), writer);
    write_topology(params.topology(), writer);
}

pub(crate) fn read_params(reader: &mut Reader<'_>) -> Result<Params> {
    if reader.u8()? != SUITE {
        return reader.refuse("names an unknown suite");
    }
    let Some(threat_model) = ThreatModel::from_id(reader.u8()?) else {
        return reader.refuse("names an unknown threat model");
    };
    let terms =
        Terms::new(reader.u64()?, reader.u64()?, threat_model)?.with_clients(reader.u32()?, reader.u32()?)?;
    Params::new(terms, Topology::new(reader.u32()?, reader.u32()?, reader.u32()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context {
            run: [1; 32],
            round: 2,
            attempt: 3,
            shard: 4,
            plan_digest: [5; 32],
            model_digest: [6; 32],
            terms: Terms::new(7, 8, ThreatModel::Active).unwrap(),
        }
    }

    #[test]
    fn every_field_changes_the_session() {
        let base = context();
        let terms = |length, modulus, threat_model| Terms::new(length, modulus, threat_model).unwrap();
        let contexts = [
            base,
            Context { run: [0; 32], ..base },
            Context { round: 0, ..base },
            Context { attempt: 0, ..base },
            Context { shard: 0, ..base },
            Context {
                plan_digest: [0; 32],
                ..base
            },
            Context {
                model_digest: [0; 32],
                ..base
            },
            Context {
                terms: terms(8, 8, ThreatModel::Active),
                ..base
            },
            Context {
                terms: terms(7, 9, ThreatModel::Active),
                ..base
            },
            Context {
                terms: terms(7, 8, ThreatModel::HonestButCurious),
                ..base
            },
            Context {
                terms: base.terms.with_clients(3, 1 << 20).unwrap(),
                ..base
            },
            Context {
                terms: base.terms.with_clients(2, 100).unwrap(),
                ..base
            },
        ];
        let graphs = [(10, 4, 3), (12, 4, 3), (10, 5, 3), (10, 4, 4)];
        let mut seen = std::collections::BTreeSet::new();
        for context in contexts {
            for (n, k, t) in graphs {
                for root in [[0; 32], [1; 32]] {
                    seen.insert(context.session(&Topology::new(n, k, t).unwrap(), &root).0);
                }
            }
        }
        assert_eq!(seen.len(), contexts.len() * graphs.len() * 2);
    }

    #[test]
    fn parameters_are_written_one_way() {
        let params = Params::new(context().terms, Topology::new(10, 4, 3).unwrap()).unwrap();
        let mut writer = Writer::new(0);
        write_params(&params, &mut writer);
        let bytes = writer.finish();
        assert_eq!(bytes.len(), PARAMS_BYTES);
        assert_eq!(read_params(&mut Reader::new("test", &bytes)), Ok(params));
        for place in [0, 1] {
            let mut other = bytes.clone();
            other[place] = 9;
            assert!(read_params(&mut Reader::new("test", &other)).is_err());
        }
    }

    #[test]
    fn labels_and_parts_do_not_run_together() {
        assert_ne!(labelled("a", &[b"bc"]), labelled("ab", &[b"c"]));
        assert_ne!(labelled("a", &[b"b", b"c"]), labelled("a", &[b"bc", b""]));
    }
}
