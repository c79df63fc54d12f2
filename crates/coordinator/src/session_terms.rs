//! The names of secure sums.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use undertone_secagg::{Context, Digest32, Terms};

use crate::error::{CoordinatorError, Result};
use crate::identity::digest_of;

/// The names of the secure sums of a run, and the terms that their clients agree on.
///
/// # Guarantee
/// No two sums have the same name: neither in two runs of one configuration, nor where a resumed run makes a round again. The name
/// of the run holds fresh entropy of this process, and the attempt counts the sums that the process made.
#[derive(Debug)]
pub struct SessionTerms {
    run: Digest32,
    plan: Digest32,
    sums: AtomicU32,
}

impl SessionTerms {
    /// The names of one process for a run with this digest of its configuration. `fresh` is entropy of the operating system.
    #[must_use]
    pub fn new(config_digest: &str, fresh: &[u8; 32]) -> Self {
        Self {
            run: digest(&[b"undertone run\0", fresh, config_digest.as_bytes()]),
            plan: digest(&[b"undertone plan\0", config_digest.as_bytes()]),
            sums: AtomicU32::new(0),
        }
    }

    /// The context of the next sum.
    pub fn next(&self, round: u64, parameters: &[f32], terms: Terms) -> Context {
        Context {
            run: self.run,
            round,
            attempt: self.sums.fetch_add(1, Ordering::Relaxed),
            shard: 0,
            plan_digest: self.plan,
            model_digest: digest(&[digest_of(parameters).as_bytes()]),
            terms,
        }
    }
}

/// The names of the secure sums of a task of the service, for one process that leads it.
///
/// # Guarantee
/// No two sums have the same name. The name of the run holds fresh entropy of this process, so two processes never share one. Within
/// a process each shard of an attempt is named once, and no attempt before the last one is named again.
#[derive(Debug)]
pub struct TaskSessionTerms {
    run: Digest32,
    plan: Digest32,
    named: Mutex<Named>,
}

/// The names that were given: those of the last attempt.
#[derive(Debug, Default)]
struct Named {
    attempt: (u64, u32),
    shards: BTreeSet<u32>,
}

impl TaskSessionTerms {
    /// The names of one process for the task with this identifier and this digest of its signed plan. `fresh` is entropy of the
    /// operating system.
    #[must_use]
    pub fn new(task: &Digest32, plan: Digest32, fresh: &[u8; 32]) -> Self {
        Self {
            run: digest(&[b"undertone task run\0", fresh, task]),
            plan,
            named: Mutex::default(),
        }
    }

    /// The identifier of the run in each context, which devices learn with their round.
    #[must_use]
    pub fn run(&self) -> Digest32 {
        self.run
    }

    /// The context of the sum of a shard. `attempt` is the number of the attempt within its round, and `model` the digest of the
    /// model that its devices train from.
    ///
    /// # Errors
    /// [`CoordinatorError::ForeignRound`] for a shard that has its name already, and for an attempt before the last one.
    pub fn next(
        &self,
        round: u64,
        attempt: u32,
        shard: u32,
        model: Digest32,
        terms: Terms,
    ) -> Result<Context> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if (round, attempt) > named.attempt {
            *named = Named {
                attempt: (round, attempt),
                shards: BTreeSet::new(),
            };
        }
        if (round, attempt) != named.attempt || !named.shards.insert(shard) {
            let (last_round, last_attempt) = named.attempt;
            return Err(CoordinatorError::ForeignRound {
                expected: format!(
                    "a new shard of round {last_round}, attempt {last_attempt}, or a later attempt"
                ),
                got: format!("round {round}, attempt {attempt}, shard {shard}"),
            });
        }
        Ok(Context {
            run: self.run,
            round,
            attempt,
            shard,
            plan_digest: self.plan,
            model_digest: model,
            terms,
        })
    }
}

fn digest(parts: &[&[u8]]) -> Digest32 {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use undertone_secagg::ThreatModel;

    use super::*;

    #[test]
    fn no_two_sums_of_any_runs_of_one_configuration_have_the_same_name() {
        let terms = Terms::new(2, 1000, ThreatModel::HonestButCurious).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for process in 0..3 {
            // Each start of a process, a resumed one too, makes its own.
            let names = SessionTerms::new("a configuration", &[process; 32]);
            for round in [1, 2, 2, 1] {
                let context = names.next(round, &[1.0, 2.0], terms);
                assert!(seen.insert(context.digest()), "round {round} twice");
                assert_ne!(context.run, context.plan_digest);
            }
        }
        assert_eq!(seen.len(), 12);
    }

    #[test]
    fn no_two_sums_of_a_task_have_the_same_name() {
        let terms = Terms::new(2, 1000, ThreatModel::HonestButCurious).unwrap();
        let mut seen = BTreeSet::new();
        for (task, process) in [(1, 1), (1, 2), (2, 1)] {
            let names = TaskSessionTerms::new(&[task; 32], [9; 32], &[process; 32]);
            for (round, attempt, shard) in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 0, 7)] {
                let context = names.next(round, attempt, shard, [3; 32], terms).unwrap();
                assert!(
                    seen.insert(context.digest()),
                    "round {round}, attempt {attempt}, shard {shard} twice"
                );
                assert_eq!((context.run, context.plan_digest), (names.run(), [9; 32]));
            }
            // The last shard again, an attempt before, a round before: none gets a name.
            for (round, attempt, shard) in [(1, 0, 7), (0, 1, 3), (0, 9, 0)] {
                let refused = names.next(round, attempt, shard, [4; 32], terms).unwrap_err();
                assert!(
                    refused.to_string().contains("a new shard of round 1, attempt 0"),
                    "{refused}"
                );
            }
        }
        assert_eq!(seen.len(), 15);
    }
}
