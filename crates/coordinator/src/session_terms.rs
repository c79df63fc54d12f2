//! The names of secure sums.

use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};
use undertone_secagg::{Context, Digest32, Terms};

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
}
