//! The sum of a plain attempt: single updates, each checked, clipped and added once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use undertone_aggregation::{
    AggregationError, Bound, BoundedSum, Clipping, Measured, NonFinite, ParamLayout, Values,
};
use undertone_coordinator::participation::ParticipantId;
use undertone_store::SessionId;

use super::refusal::Refusal;
use super::session::{Accepted, Contributor};

/// Values of a sum stay below this limit, so that no addition overflows.
const SUM_LIMIT: f64 = 4_194_304.0;

/// An upload with what its device says of it.
#[derive(Clone, Copy)]
// PRIVACY: no `Debug`: it holds an update, which must not be printable.
pub(crate) struct Report<'a> {
    /// The session.
    pub session: SessionId,
    /// The pseudonym of its subject in the task.
    pub user: ParticipantId,
    /// The update, as little-endian `f32` values.
    pub bytes: &'a [u8],
    /// The weight, which must be 1.
    pub weight: f64,
    /// `true` if the update was no longer than the estimate; `None` without adaptive clipping.
    pub below: Option<bool>,
}

/// The sum of an attempt with those who are in it.
// PRIVACY: no `Debug`: a sum without noise must not be printable.
pub(crate) struct PlainResult {
    /// The sum of the updates.
    pub sum: BoundedSum,
    /// The sum of the bits, each less one half; `None` without adaptive clipping.
    pub bits: Option<BoundedSum>,
    /// The sessions in it, ascending.
    pub included: Vec<Contributor>,
}

/// The answer that a session keeps.
#[derive(Clone)]
enum Answer {
    /// The update is being added.
    Pending,
    /// The update is in the sum.
    Included(ParticipantId),
    /// The update was refused for good. Nearly no session is here, and the others need less memory with the reason apart.
    Refused(Box<Refusal>),
}

#[derive(Default)]
struct Ledger {
    answers: BTreeMap<SessionId, Answer>,
    users: BTreeSet<ParticipantId>,
    /// Updates that are in the sum or being added.
    taken: usize,
}

struct Open {
    sum: BoundedSum,
    bits: Option<BoundedSum>,
    ledger: Mutex<Ledger>,
}

/// The accumulator of a plain attempt. Several threads may commit at once.
///
/// # Guarantee
/// A session and a subject are in the sum at most once, each with weight 1 and by at most the bound. At most `goal` updates are in
/// it. [`seal`](Self::seal) gives the sum once, and nothing is added after it.
// PRIVACY: no `Debug`: a sum without noise must not be printable.
pub(crate) struct PlainSum {
    open: RwLock<Option<Open>>,
    length: usize,
    goal: usize,
    /// The norm above which an update is refused.
    longest: f64,
    with_bits: bool,
}

impl PlainSum {
    /// An empty sum for updates under `bound`, of at most `goal` devices. `with_bits` asks for the bits of adaptive clipping.
    ///
    /// # Errors
    /// [`AggregationError::Setting`] where `goal` updates of the clip norm would leave the range of the sum.
    pub(crate) fn new(bound: Bound, goal: u32, with_bits: bool) -> Result<Self, AggregationError> {
        let length = bound.layout().len();
        let room = SUM_LIMIT / f64::from(goal.max(2));
        let longest = match bound.clipping().bound() {
            Some(norm) if norm < room => 2.0 * norm,
            Some(norm) => {
                return Err(AggregationError::Setting {
                    name: "the goal times the clip norm",
                    expected: "below 2^22",
                    got: norm * f64::from(goal),
                });
            }
            None => room,
        };
        Ok(Self {
            length,
            goal: goal as usize,
            longest,
            with_bits,
            open: RwLock::new(Some(Open {
                sum: BoundedSum::new(bound),
                bits: with_bits.then(bits).transpose()?,
                ledger: Mutex::default(),
            })),
        })
    }

    /// The exact number of bytes of an upload.
    #[must_use]
    pub(crate) fn upload_bytes(&self) -> u64 {
        4 * self.length as u64
    }

    /// Checks an update and adds it. The first commit of a session counts, and any later one gets its answer.
    ///
    /// # Errors
    /// [`Refusal::Range`] for another length than [`upload_bytes`](Self::upload_bytes), another weight than 1, or a bit where none is
    /// asked for; the session may try again. [`Refusal::Norm`] for an update that is not finite or longer than twice the clip norm;
    /// its session is over. [`Refusal::Late`] after the goal. [`Refusal::Conflict`] for a subject that is in the sum by another
    /// session. [`Refusal::Busy`] while another thread adds the update of this session. [`Refusal::Gone`] after the seal.
    pub(crate) fn commit(&self, report: &Report<'_>) -> Result<Accepted, Refusal> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = open.as_ref().ok_or(Refusal::Gone)?;
        if let Some(answer) = lock(&open.ledger).answers.get(&report.session) {
            return first(answer);
        }
        // The norm costs a pass over the update, so it is computed without the lock.
        let values = Values::read(report.bytes);
        let update = self.check(report, &open.sum, &values);
        let mut ledger = lock(&open.ledger);
        if let Some(answer) = ledger.answers.get(&report.session) {
            return first(answer);
        }
        let update = match update {
            Err(refusal @ Refusal::Norm) => {
                let answer = Answer::Refused(Box::new(refusal.clone()));
                ledger.answers.insert(report.session, answer);
                return Err(refusal);
            }
            update => update?,
        };
        if ledger.users.contains(&report.user) {
            return Err(Refusal::Conflict(
                "the subject is in the sum by another session".to_owned(),
            ));
        }
        if ledger.taken >= self.goal {
            ledger
                .answers
                .insert(report.session, Answer::Refused(Box::new(Refusal::Late)));
            return Err(Refusal::Late);
        }
        ledger.taken += 1;
        ledger.users.insert(report.user);
        ledger.answers.insert(report.session, Answer::Pending);
        drop(ledger);
        let added = open.add(update, report.below);
        let answer = match &added {
            Ok(()) => Answer::Included(report.user),
            // The sum is lost with the addition: the release will refuse it.
            Err(_) => Answer::Refused(Box::new(Refusal::Gone)),
        };
        lock(&open.ledger).answers.insert(report.session, answer);
        added.map(|()| Accepted::Now).map_err(|_| Refusal::Gone)
    }

    /// Ends the summation, once, and waits for additions that have begun.
    ///
    /// # Errors
    /// [`Refusal::Gone`] after the first call.
    pub(crate) fn seal(&self) -> Result<PlainResult, Refusal> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let Open { sum, bits, ledger } = open.take().ok_or(Refusal::Gone)?;
        let ledger = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
        let included = ledger
            .answers
            .into_iter()
            .filter_map(|(session, answer)| match answer {
                Answer::Included(user) => Some(Contributor { session, user }),
                Answer::Pending | Answer::Refused(_) => None,
            })
            .collect();
        Ok(PlainResult { sum, bits, included })
    }

    /// Ends the summation without a sum.
    pub(crate) fn abort(&self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The update of a report that may be added.
    fn check<'a>(
        &self,
        report: &Report<'_>,
        sum: &'a BoundedSum,
        values: &'a [f32],
    ) -> Result<Measured<'a>, Refusal> {
        let (expected, got) = (self.upload_bytes(), report.bytes.len());
        if got as u64 != expected {
            return Err(Refusal::range("the number of bytes", expected, got));
        }
        if report.weight != 1.0 {
            return Err(Refusal::range("the weight", 1, report.weight));
        }
        if report.below.is_some() != self.with_bits {
            let expected = if self.with_bits { "there" } else { "absent" };
            let got = if self.with_bits { "absent" } else { "there" };
            return Err(Refusal::range("the bit of adaptive clipping", expected, got));
        }
        // An update that is not finite has no norm, or is an error, as the bound of the sum says.
        let update = sum.measure(values, report.weight).map_err(|_| Refusal::Norm)?;
        match update.norm() {
            Some(norm) if norm <= self.longest => Ok(update),
            _ => Err(Refusal::Norm),
        }
    }
}

impl Open {
    fn add(&self, update: Measured<'_>, below: Option<bool>) -> Result<(), AggregationError> {
        update.add()?;
        if let (Some(bits), Some(below)) = (&self.bits, below) {
            bits.add(&[if below { 0.5 } else { -0.5 }], 1.0)?;
        }
        Ok(())
    }
}

/// An empty sum of bits, each less one half.
fn bits() -> Result<BoundedSum, AggregationError> {
    let bit = ParamLayout::with_tensor_groups(vec![("bit".into(), vec![1])])?;
    // PRIVACY: a bit less one half moves the sum of bits by one half.
    let half = Clipping::Flat { clip_norm: 0.5 };
    Ok(BoundedSum::new(Bound::new(
        Arc::new(bit),
        half,
        NonFinite::Refuse,
    )))
}

fn first(answer: &Answer) -> Result<Accepted, Refusal> {
    match answer {
        Answer::Pending => Err(Refusal::Busy),
        Answer::Included(_) => Ok(Accepted::Before),
        Answer::Refused(refusal) => Err((**refusal).clone()),
    }
}

/// The ledger of a thread that panicked is whole: its changes are single insertions.
fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
