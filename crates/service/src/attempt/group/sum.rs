//! The sums of groups, and the sum of all groups of an attempt.

use std::collections::BTreeSet;

use undertone_aggregation::{AggregationError, ModularVec};
use undertone_store::SessionId;

use crate::attempt::session::Contributor;

/// A false share: the blame lies with the session that gave it, or with the session whose secret it is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Blame {
    /// The session that gave the share.
    pub session: SessionId,
    /// The session whose secret it is a share of.
    pub about: SessionId,
}

/// The sum of a group, with those who are in it.
// PRIVACY: no `Debug`: a sum without noise must not be printable.
pub(crate) struct GroupSum {
    /// The sum, modulo the modulus of the round.
    pub sum: ModularVec,
    /// The sessions in it.
    pub included: Vec<Contributor>,
    /// False shares that were worked around. The sum is right all the same.
    pub culprits: Vec<Blame>,
}

/// Sums that make no sum of an attempt. They are gone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MergeError {
    /// There is no sum.
    #[error("expected a sum of at least one group, got none")]
    Empty,
    /// A subject stands in two sums.
    #[error("a subject stands in the sums of two groups")]
    Duplicate,
    /// The sums are of different lengths or moduli.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
}

impl GroupSum {
    /// The sum of the groups of an attempt.
    ///
    /// # Errors
    /// [`MergeError`] for no group, for a subject in two of them, and for sums of different lengths or moduli.
    pub(crate) fn merge(sums: Vec<Self>) -> Result<Self, MergeError> {
        let mut sums = sums.into_iter();
        let mut all = sums.next().ok_or(MergeError::Empty)?;
        for GroupSum {
            sum,
            included,
            culprits,
        } in sums
        {
            all.sum.add(&sum)?;
            all.included.extend(included);
            all.culprits.extend(culprits);
        }
        // PRIVACY: a subject that is twice in the sum would move it by twice the bound.
        let users: BTreeSet<_> = all.included.iter().map(|contributor| contributor.user).collect();
        match users.len() == all.included.len() {
            true => Ok(all),
            false => Err(MergeError::Duplicate),
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_aggregation::Modulus;
    use undertone_coordinator::participation::ParticipantId;

    use super::*;

    fn sum(modulus: u64, residues: &[u64], users: &[u64]) -> GroupSum {
        let contributor = |user: &u64| Contributor {
            session: SessionId([*user as u8; 16]),
            user: ParticipantId::new(*user),
        };
        GroupSum {
            sum: ModularVec::from_residues(Modulus::new(modulus).unwrap(), residues).unwrap(),
            included: users.iter().map(contributor).collect(),
            culprits: Vec::new(),
        }
    }

    #[test]
    fn sums_of_groups_add_modulo_the_modulus() {
        let all = GroupSum::merge(vec![sum(10, &[7, 1], &[1, 2]), sum(10, &[8, 1], &[3])])
            .unwrap_or_else(|_| panic!());
        assert_eq!(all.sum.iter().collect::<Vec<_>>(), [5, 2]);
        assert_eq!(all.included.len(), 3);
    }

    #[test]
    fn a_subject_in_two_groups_is_refused() {
        let twice = vec![sum(10, &[7], &[1, 2]), sum(10, &[8], &[2])];
        assert_eq!(GroupSum::merge(twice).err(), Some(MergeError::Duplicate));
        assert_eq!(GroupSum::merge(Vec::new()).err(), Some(MergeError::Empty));
        let other = vec![sum(10, &[7], &[1]), sum(11, &[8], &[2])];
        assert!(matches!(
            GroupSum::merge(other).err(),
            Some(MergeError::Aggregation(_))
        ));
    }
}
