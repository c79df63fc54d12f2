//! The examples per step: each epoch is a new shuffle of all examples of all users.

use undertone_data::Partition;

use crate::error::{Result, RunError};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_mechanisms::draws;

/// The examples of a partition in the order of training.
///
/// An epoch's order depends on the seed and the epoch alone, so a step reads the same examples after any resume.
#[derive(Debug)]
pub(super) struct ExampleOrder<'a> {
    users: &'a Partition<'a>,
    batch_size: usize,
    /// User and example, in the order of the corpus.
    examples: Vec<(u32, u32)>,
    /// The epoch that `shuffled` belongs to.
    epoch: Option<u64>,
    shuffled: Vec<(u32, u32)>,
}

/// The batch of one step.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    /// The examples, in their order of the epoch.
    pub(super) examples: Vec<&'a [u32]>,
    /// Number of users that the examples come from.
    pub(super) users: usize,
}

impl<'a> ExampleOrder<'a> {
    pub(super) fn new(users: &'a Partition<'a>, batch_size: usize) -> Result<Self> {
        let mut examples = Vec::with_capacity(users.num_examples());
        for (index, user) in users.users().enumerate() {
            for (number, example) in user.examples().enumerate() {
                if !example.is_empty() {
                    examples.push((index as u32, number as u32));
                }
            }
        }
        if examples.is_empty() {
            let hint = "loosen `data.min_tokens` or `data.min_examples`, or check `data.split`";
            return Err(RunError::EmptyPartition { split: "train", hint });
        }
        Ok(Self {
            users,
            batch_size,
            examples,
            epoch: None,
            shuffled: Vec::new(),
        })
    }

    /// The examples of a step, from 0. The last batch of an epoch may be smaller.
    pub(super) fn batch(&mut self, step: u64, randomness: &Randomness) -> Batch<'a> {
        let steps_per_epoch = self.examples.len().div_ceil(self.batch_size) as u64;
        let (epoch, place) = (step / steps_per_epoch, step % steps_per_epoch);
        if self.epoch != Some(epoch) {
            self.shuffled.clone_from(&self.examples);
            draws::shuffle(
                &mut self.shuffled,
                &mut randomness.generator(Purpose::ExampleOrder, epoch, 0),
            );
            self.epoch = Some(epoch);
        }
        let first = place as usize * self.batch_size;
        let chosen = &self.shuffled[first..self.shuffled.len().min(first + self.batch_size)];
        let mut users: Vec<u32> = chosen.iter().map(|&(user, _)| user).collect();
        users.sort_unstable();
        users.dedup();
        Batch {
            examples: chosen
                .iter()
                .map(|&(user, example)| self.users.user(user as usize).example(example as usize))
                .collect(),
            users: users.len(),
        }
    }
}
