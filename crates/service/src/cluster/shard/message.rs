//! The messages between a leader and the processes of its shards.

use serde::{Deserialize, Serialize};
use undertone_aggregation::{AggregationError, Bound, Clipping, NonFinite};
use undertone_coordinator::participation::ParticipantId;
use undertone_store::{SessionId, TaskId};
use zeroize::Zeroizing;

use crate::attempt::plain::PlainResult;
use crate::attempt::session::Contributor;
use crate::identity::{hex, unhex};

/// The first bytes of a partial sum.
const MAGIC: &[u8; 16] = b"undertone-part1\n";

/// Bytes of a session with its pseudonym.
const PAIR: usize = 24;

/// A shard to open. Numbers that sums depend on travel by their bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opening {
    task: String,
    pub(crate) attempt: u64,
    pub(crate) fence: u64,
    pub(crate) leader: String,
    /// The end of the attempt, by the clock of the store.
    pub(crate) until: u64,
    pub(crate) goal: u32,
    pub(crate) with_bits: bool,
    pub(crate) upload_bytes: u64,
    per_layer: bool,
    clip_norms: Vec<u64>,
    zero_out: bool,
}

/// The parts of an opening that do not follow from the bound.
pub(crate) struct Terms<'a> {
    pub(crate) task: TaskId,
    pub(crate) attempt: u64,
    pub(crate) fence: u64,
    pub(crate) leader: &'a str,
    pub(crate) until: u64,
    pub(crate) goal: u32,
    pub(crate) with_bits: bool,
}

impl Opening {
    pub(crate) fn new(terms: &Terms<'_>, bound: &Bound) -> Self {
        let (per_layer, clip_norms) = match bound.clipping() {
            Clipping::None => (false, Vec::new()),
            Clipping::Flat { clip_norm } => (false, vec![clip_norm.to_bits()]),
            Clipping::PerLayer { clip_norms } => {
                (true, clip_norms.iter().map(|norm| norm.to_bits()).collect())
            }
        };
        Self {
            task: hex(&terms.task.0),
            attempt: terms.attempt,
            fence: terms.fence,
            leader: terms.leader.to_owned(),
            until: terms.until,
            goal: terms.goal,
            with_bits: terms.with_bits,
            upload_bytes: 4 * bound.layout().len() as u64,
            per_layer,
            clip_norms,
            zero_out: bound.non_finite() == NonFinite::Zero,
        }
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        Some(TaskId(unhex(&self.task)?.try_into().ok()?))
    }

    pub(super) fn clipping(&self) -> Clipping {
        let norms = self.clip_norms.iter().map(|bits| f64::from_bits(*bits));
        match (self.per_layer, &self.clip_norms[..]) {
            (true, _) => Clipping::PerLayer {
                clip_norms: norms.collect(),
            },
            (false, [norm, ..]) => Clipping::Flat {
                clip_norm: f64::from_bits(*norm),
            },
            (false, []) => Clipping::None,
        }
    }

    pub(super) fn non_finite(&self) -> NonFinite {
        match self.zero_out {
            true => NonFinite::Zero,
            false => NonFinite::Refuse,
        }
    }
}

/// A partial sum without noise, with the sessions that are in it.
///
/// PRIVACY: it has no `Debug` and is wiped on drop. It travels between processes over mutual TLS alone, and is never written to a file.
pub(crate) struct Partial {
    pub(crate) included: Vec<Contributor>,
    sum: Zeroizing<Vec<u8>>,
    bits: Option<Zeroizing<Vec<u8>>>,
}

impl Partial {
    /// The bytes of a sealed sum.
    pub(super) fn write(
        attempt: u64,
        fence: u64,
        mut result: PlainResult,
    ) -> Result<Zeroizing<Vec<u8>>, AggregationError> {
        let length = result.sum.bound().layout().len();
        let room = MAGIC.len() + 24 + PAIR * result.included.len() + 8 * (length + 4);
        let mut out = Zeroizing::new(Vec::with_capacity(room));
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&attempt.to_le_bytes());
        out.extend_from_slice(&fence.to_le_bytes());
        out.extend_from_slice(&(result.included.len() as u32).to_le_bytes());
        out.extend_from_slice(&u32::from(result.bits.is_some()).to_le_bytes());
        for Contributor { session, user } in &result.included {
            out.extend_from_slice(&session.0);
            out.extend_from_slice(&user.get().to_le_bytes());
        }
        let mut append = |values: &mut [i64]| {
            for value in values {
                out.extend_from_slice(&value.to_le_bytes());
            }
            Ok::<(), AggregationError>(())
        };
        result.sum.combine(1, &mut append)?;
        if let Some(bits) = &mut result.bits {
            bits.combine(1, &mut append)?;
        }
        Ok(out)
    }

    /// Reads a partial sum of this attempt and fence, over updates of `length` values; `None` for other bytes.
    pub(crate) fn read(
        bytes: &[u8],
        attempt: u64,
        fence: u64,
        length: usize,
        with_bits: bool,
    ) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (of_attempt, rest) = rest.split_first_chunk::<8>()?;
        let (of_fence, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (has_bits, rest) = rest.split_first_chunk::<4>()?;
        let right = u64::from_le_bytes(*of_attempt) == attempt
            && u64::from_le_bytes(*of_fence) == fence
            && u32::from_le_bytes(*has_bits) == u32::from(with_bits);
        let (pairs, rest) = rest.split_at_checked(PAIR.checked_mul(u32::from_le_bytes(*count) as usize)?)?;
        let (sum, rest) = rest.split_at_checked(8 * (length + 1))?;
        let (bits, rest) = rest.split_at_checked(if with_bits { 16 } else { 0 })?;
        if !right || !rest.is_empty() {
            return None;
        }
        let (pairs, _) = pairs.as_chunks::<PAIR>();
        let pair = |pair: &[u8; PAIR]| {
            let (session, user) = pair.split_first_chunk::<16>()?;
            Some(Contributor {
                session: SessionId(*session),
                user: ParticipantId::new(u64::from_le_bytes(user.try_into().ok()?)),
            })
        };
        Some(Self {
            included: pairs.iter().map(pair).collect::<Option<_>>()?,
            sum: Zeroizing::new(sum.to_vec()),
            bits: with_bits.then(|| Zeroizing::new(bits.to_vec())),
        })
    }

    /// Adds partial sums to that of the leader.
    pub(crate) fn merge(result: &mut PlainResult, parts: Vec<Self>) -> Result<(), AggregationError> {
        let sums: Vec<&[u8]> = parts.iter().map(|part| part.sum.as_slice()).collect();
        result.sum.combine(1, adder(sums))?;
        if let Some(bits) = &mut result.bits {
            let sums = parts.iter().filter_map(|part| part.bits.as_ref());
            bits.combine(1, adder(sums.map(|bits| bits.as_slice()).collect()))?;
        }
        for part in parts {
            result.included.extend(&part.included);
        }
        Ok(())
    }
}

/// Adds the values of several sums, in the order in which they were written.
fn adder(mut sums: Vec<&[u8]>) -> impl FnMut(&mut [i64]) -> Result<(), AggregationError> {
    move |values: &mut [i64]| {
        for sum in &mut sums {
            // The length was checked when the sum was read.
            let (here, rest) = sum.split_at(8 * values.len());
            *sum = rest;
            let (added, _) = here.as_chunks::<8>();
            for (value, added) in values.iter_mut().zip(added) {
                // Goal times clip norm lies below the range of a sum, whichever shards it is spread over.
                let sum = value.checked_add(i64::from_le_bytes(*added));
                *value = sum.ok_or(AggregationError::Poisoned)?;
            }
        }
        Ok(())
    }
}
