//! Example-level sampling: the examples of each user that a run can read, and those that a round reads.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::participation::ParticipationKey;
use undertone_mechanisms::draws;

/// An example by its user and its place among that user's examples.
pub type Example = (usize, usize);

/// Sampled examples whose gradients are computed and added up together, in single precision.
pub type Microbatch = Vec<Example>;

/// The examples that a run can read, `D_sub`: at most `group_size` per user, chosen once.
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

/// The number of kept examples, `|D_sub|`, of users with these numbers of examples.
#[must_use]
pub fn count(examples: &[u32], group_size: u32) -> u64 {
    let kept = |&examples: &u32| u64::from(examples.min(group_size));
    examples.iter().map(kept).sum()
}

/// The places of at most `group_size` of a user's `available` examples, ascending: the draw of user-level sampling, which `order`, the
/// secret of the user in a round, decides.
#[must_use]
pub fn drawn(available: usize, group_size: usize, order: [u8; 32]) -> Vec<usize> {
    match available <= group_size {
        true => (0..available).collect(),
        false => draws::fixed_size(available, group_size, &mut ChaCha20Rng::from_seed(order)),
    }
}

impl KeptExamples {
    /// The choice that the key makes among users with these numbers of examples.
    #[must_use]
    pub fn new(examples: &[u32], group_size: u32, key: &ParticipationKey) -> Self {
        let group_size = group_size as usize;
        let mut starts = vec![0];
        for &available in examples {
            starts.push(starts[starts.len() - 1] + (available as usize).min(group_size) as u64);
        }
        let available = examples.to_vec();
        Self {
            group_size,
            starts,
            available,
            key: key.clone(),
        }
    }

    /// The kept examples of a user, ascending: all of its examples if there are at most `group_size`.
    #[must_use]
    pub fn of(&self, user: usize) -> Vec<usize> {
        self.choice(user, user as u64)
    }

    fn choice(&self, user: usize, label: u64) -> Vec<usize> {
        let available = self.available[user] as usize;
        if available <= self.group_size {
            return (0..available).collect();
        }
        draws::fixed_size(available, self.group_size, &mut self.key.examples_of(label))
    }

    /// A Poisson sample: every kept example independently with probability `p`, ordered by user.
    #[must_use]
    pub fn sample(&self, p: f64, generator: &mut impl Rng) -> Vec<Example> {
        let total = self.starts[self.starts.len() - 1];
        let mut kept: Option<(usize, Vec<usize>)> = None;
        draws::poisson(total as usize, p, generator)
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

    /// A sample, ordered by user, as microbatches of at most `size` examples: one ends where it is full, and before every
    /// example that the key picks for it, one in `2 size`.
    ///
    /// # Guarantee
    /// One user's examples change no microbatch but those they stand in and those behind them up to the next example that the
    /// key picked, whatever the size of the sample. All others hold the same examples, and their sums in single precision
    /// have the same bits, with the user and without. What the key picks is independent from user to user.
    #[must_use]
    pub fn microbatches(&self, sampled: &[Example], size: usize) -> Vec<Microbatch> {
        // PRIVACY: cut by position alone, one more user would regroup the examples of everybody behind, and a bound on what
        // one user moves would have to cover the roundings of the whole sum.
        cut(sampled, size, |&(user, example)| {
            self.key.begins_microbatch(user as u64, example as u64, size)
        })
    }
}

fn cut(sampled: &[Example], size: usize, begins: impl Fn(&Example) -> bool) -> Vec<Microbatch> {
    let mut microbatches: Vec<Microbatch> = Vec::new();
    for example in sampled {
        match microbatches.last_mut() {
            Some(last) if last.len() < size && !begins(example) => last.push(*example),
            _ => microbatches.push(vec![*example]),
        }
    }
    microbatches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::participation::ParticipationKey;

    const SIZE: usize = 16;

    fn begins(key: &ParticipationKey, user: usize, example: usize) -> bool {
        key.begins_microbatch(user as u64, example as u64, SIZE)
    }

    /// False-alarm rate below 1e-6: of 200 users who join one after the other none moves more than 45 microbatches. Each
    /// moves those up to the next example that the key picks, which is 600 examples away with probability
    /// `(31/32)^600 < 6e-9`; 603 examples without such a one are 38 microbatches, and the three of the user begin at most three more.
    #[test]
    fn a_user_who_joins_leaves_the_microbatches_of_others_as_they_are() {
        let key = ParticipationKey::from_bytes([7; 32]);
        let others: Vec<Example> = (0..5000).map(|user| (user, user % 3)).collect();
        let cut = |sampled: &[Example]| cut(sampled, SIZE, |&(user, example)| begins(&key, user, example));
        let without = cut(&others);
        assert!(
            without
                .iter()
                .all(|microbatch| (1..=SIZE).contains(&microbatch.len()))
        );
        assert_eq!(without.concat(), others);
        // Fewer than one in three is not full.
        assert!(
            without.len() < others.len().div_ceil(SIZE) * 3 / 2,
            "{}",
            without.len()
        );
        for place in (0..5000).step_by(25) {
            // A name that no other user has, at any place in the order.
            let joined = [(10_000 + place, 0), (10_000 + place, 5), (10_000 + place, 9)];
            let sampled = [&others[..place], &joined, &others[place..]].concat();
            let with = cut(&sampled);
            assert_eq!(with.concat(), sampled);
            let first = with.iter().zip(&without).take_while(|(a, b)| a == b).count();
            let last = with
                .iter()
                .rev()
                .zip(without.iter().rev())
                .take_while(|(a, b)| a == b)
                .count();
            let moved = (with.len() - last).saturating_sub(first);
            assert!(moved <= 45, "{place}: {moved} of {}", with.len());
        }
    }

    #[test]
    fn microbatches_of_one_hold_one_example_each() {
        let sampled: Vec<Example> = (0..50).map(|user| (user, 0)).collect();
        assert_eq!(cut(&sampled, 1, |_| false).len(), 50);
        assert!(cut(&[], 4, |_| true).is_empty());
    }
}
