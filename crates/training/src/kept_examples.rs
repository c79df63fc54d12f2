//! Example-level sampling: which of a user's examples are ever read, and which of them a round reads.

use rand_core::Rng;
use undertone_data::Partition;

use crate::cohort;
use crate::participation::ParticipationKey;

/// An example by its user and its place among that user's examples.
pub type Example = (usize, usize);

/// The examples that are ever read, `D_sub`: at most `group_size` of each user, chosen once.
///
/// # Guarantee
/// No user has more than `group_size` of them in the whole run: the choice follows from the key of participation, which a
/// resumed run keeps.
///
/// # Source
/// \[UserDP\] Algorithm 1.
#[derive(Debug, Clone)]
pub struct KeptExamples {
    group_size: usize,
    /// The kept examples of user `u` have the numbers `starts[u]..starts[u + 1]`.
    starts: Vec<u64>,
    /// Examples that each user has.
    available: Vec<u32>,
    key: ParticipationKey,
}

/// How many examples are kept, `|D_sub|`.
#[must_use]
pub fn count(users: &Partition<'_>, group_size: u32) -> u64 {
    users
        .users()
        .map(|user| user.num_examples().min(group_size as usize) as u64)
        .sum()
}

impl KeptExamples {
    /// The choice that the key makes.
    #[must_use]
    pub fn new(users: &Partition<'_>, group_size: u32, key: &ParticipationKey) -> Self {
        let group_size = group_size as usize;
        let mut starts = vec![0];
        let mut available = Vec::with_capacity(users.num_users());
        for user in users.users() {
            // More than four thousand million examples of one user are as many as that.
            available.push(u32::try_from(user.num_examples()).unwrap_or(u32::MAX));
            starts.push(starts[starts.len() - 1] + user.num_examples().min(group_size) as u64);
        }
        Self {
            group_size,
            starts,
            available,
            key: key.clone(),
        }
    }

    /// All kept examples of a user, ascending; all that it has, where these are no more than `group_size`.
    #[must_use]
    pub fn of(&self, user: usize) -> Vec<usize> {
        let available = self.available[user] as usize;
        if available <= self.group_size {
            return (0..available).collect();
        }
        cohort::fixed_size(available, self.group_size, &mut self.key.examples_of(user as u64))
    }

    /// A Poisson sample: every kept example independently with probability `p`, ordered by user.
    #[must_use]
    pub fn sample(&self, p: f64, generator: &mut impl Rng) -> Vec<Example> {
        let total = self.starts[self.starts.len() - 1];
        let mut kept: Option<(usize, Vec<usize>)> = None;
        cohort::poisson(total as usize, p, generator)
            .into_iter()
            .map(|number| {
                let number = number as u64;
                let user = self.starts.partition_point(|&start| start <= number) - 1;
                let of_user = match kept.take() {
                    Some((known, of_user)) if known == user => of_user,
                    _ => self.of(user),
                };
                let example = of_user[(number - self.starts[user]) as usize];
                kept = Some((user, of_user));
                (user, example)
            })
            .collect()
    }
}
