//! The norms of the users' averaged gradients, by group size.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use undertone_data::Partition;
use undertone_models::{SequenceModel, SequenceWeights, SequenceWorker};

use undertone_coordinator::random::{Purpose, Randomness};
use undertone_local::batch;
use undertone_local::on_threads;
use undertone_mechanisms::draws;
use undertone_run::longest_example;
use undertone_run::{Result, RunError};

/// Number of examples whose gradients are summed at once.
const CHUNK: usize = 16;

/// Estimates of `L(G)` at given parameters.
///
/// `L(G)` is the median, over some users, of the norm of the average gradient of at most `G` of the user's examples; a
/// longer group of a user begins with the shorter one, so that ratios of estimates do not carry the noise of another draw.
///
/// # Guarantee
/// PRIVACY: none. The estimates are exact functions of the users' text, as in the paper. For a guarantee that covers them,
/// take them on public text.
///
/// # Source
/// \[UserDP\] equation 8; section 6 for the median.
pub struct Probe<'a> {
    users: &'a Partition<'a>,
    parameters: &'a [f32],
    randomness: &'a Randomness,
    chosen: Vec<usize>,
    workers: Vec<Worker>,
    known: BTreeMap<u64, f64>,
}

impl std::fmt::Debug for Probe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe")
            .field("users", &self.chosen.len())
            .finish_non_exhaustive()
    }
}

/// The model and sums of one thread.
struct Worker {
    model: Box<dyn SequenceWorker>,
    part: Vec<f32>,
    total: Vec<f32>,
}

impl<'a> Probe<'a> {
    /// A probe of at most `count` users, drawn at random.
    ///
    /// # Errors
    /// [`RunError::EmptyPartition`] without users.
    pub fn new(
        model: &dyn SequenceModel,
        parameters: &'a [f32],
        users: &'a Partition<'a>,
        count: usize,
        randomness: &'a Randomness,
        threads: usize,
    ) -> Result<Self> {
        if users.num_users() == 0 {
            let hint = "loosen `data.min_tokens` or `data.min_examples`, or check `data.split`";
            return Err(RunError::EmptyPartition { split: "train", hint });
        }
        let mut generator = randomness.generator(Purpose::Advice, 0, 0);
        let count = count.clamp(1, users.num_users());
        let chosen = draws::fixed_size(users.num_users(), count, &mut generator);
        let rows = CHUNK * longest_example(users);
        let dim = parameters.len();
        let worker = || Worker {
            model: model.worker(CHUNK, rows),
            part: vec![0.0; dim],
            total: vec![0.0; dim],
        };
        Ok(Self {
            users,
            parameters,
            randomness,
            chosen,
            workers: (0..threads.max(1)).map(|_| worker()).collect(),
            known: BTreeMap::new(),
        })
    }

    /// Number of probed users.
    #[must_use]
    pub fn num_users(&self) -> usize {
        self.chosen.len()
    }

    /// `L(group_size)`; `on_user` is called as often as [`num_users`](Self::num_users), from several threads, if it was not
    /// known yet.
    ///
    /// # Errors
    /// From the model, naming the user.
    pub fn median_norm(&mut self, group_size: u64, on_user: &(dyn Fn() + Sync)) -> Result<f64> {
        if let Some(known) = self.known.get(&group_size) {
            return Ok(*known);
        }
        let max = usize::try_from(group_size).unwrap_or(usize::MAX);
        let next = AtomicUsize::new(0);
        let (users, parameters) = (self.users, self.parameters);
        let (randomness, chosen) = (self.randomness, &self.chosen);
        let work = |worker: &mut Worker| -> Result<Vec<f64>> {
            let mut norms = Vec::new();
            while let Some(&user) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                let text = users.user(user);
                let mut examples: Vec<&[u32]> = text.examples().collect();
                draws::shuffle(
                    &mut examples,
                    &mut randomness.generator(Purpose::LocalOrder, 0, user as u64),
                );
                examples.truncate(max);
                let norm = worker.norm(parameters, &examples, users.special().bos);
                norms.push(norm.map_err(|source| RunError::UserUpdate {
                    round: 0,
                    user,
                    source: Box::new(source),
                })?);
                on_user();
            }
            Ok(norms)
        };
        let mut norms = on_threads(&mut self.workers, work)?.concat();
        norms.sort_by(f64::total_cmp);
        let median = median_of(&norms);
        self.known.insert(group_size, median);
        Ok(median)
    }
}

/// The median of sorted values: the middle one, or the mean of the two.
fn median_of(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle), middle.checked_sub(1)) {
        (0, Some(upper), Some(below)) => 0.5 * (sorted[below] + upper),
        (_, Some(middle), _) => *middle,
        _ => f64::NAN,
    }
}

impl Worker {
    /// The norm of the average of the gradients of the examples, each from `bos` and that of its mean loss.
    fn norm(&mut self, parameters: &[f32], examples: &[&[u32]], bos: u32) -> Result<f64> {
        self.total.fill(0.0);
        let weights = [1.0; CHUNK];
        for batch in batch::sentences(examples, CHUNK, bos) {
            let batch = batch.batch();
            let weights = SequenceWeights::Fixed(&weights[..batch.sequences()]);
            self.model
                .weighted_gradient(parameters, &batch, weights, &mut self.part, &mut [])?;
            for (total, part) in self.total.iter_mut().zip(&self.part) {
                *total += part;
            }
        }
        let squares = self.total.iter().map(|value| f64::from(*value).powi(2));
        Ok(squares.sum::<f64>().sqrt() / examples.len().max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median_of(&[1.0, 2.0, 7.0]), 2.0);
        assert_eq!(median_of(&[1.0, 2.0, 3.0, 7.0]), 2.5);
        assert!(median_of(&[]).is_nan());
    }
}
