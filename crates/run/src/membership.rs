//! Losses of a final model on people who were trained on and on people who were not, for attacks on the model.
//!
//! PRIVACY: losses are exact statistics of users. They are for those who run the training, and no part of any release.

use std::path::Path;

use undertone_coordinator::random::{Purpose, Randomness};
use undertone_data::{EosTargets, Partition, Split};
use undertone_mechanisms::draws;

use crate::driver::Finished;
use crate::error::{Result, RunError};
use crate::evaluate::{BATCH, EvaluationSet};
use crate::observer::Silent;

/// The mean loss per token of each user, on all of the user's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Losses {
    /// Users of the training partition. Some of them may not have taken part in any round.
    pub members: Vec<f64>,
    /// Held-out users of the same filters and split.
    pub others: Vec<f64>,
    /// Median number of tokens of a member and of a held-out user.
    pub median_tokens: (usize, usize),
}

/// The losses of the model of a finished run, for at most `most` users on each side: members chosen by a fixed seed, and the first
/// held-out users in the order of evaluations.
///
/// Relative paths of the data settings start at `base`, by default at the folder where they started when the run was made.
///
/// # Errors
/// [`RunError::EmptyPartition`] without held-out users; [`RunError`] for a run that is not finished, and from the model.
pub fn losses(run_dir: &Path, base: Option<&Path>, most: usize) -> Result<Losses> {
    let finished = Finished::open(run_dir, base, &Silent)?;
    let train = finished
        .corpus
        .partition(Split::Train)
        .holding_back(finished.holdback)?;
    let mut others = Vec::new();
    let all = train.num_users();
    let mut generator = Randomness::seeded(0).generator(Purpose::Attack, 0, 0);
    let chosen = draws::fixed_size(all, most.min(all), &mut generator);
    let (members, of_members) = losses_of(&finished, &train, &chosen)?;
    let mut of_others = 0;
    for split in [Split::Validation, Split::Test] {
        let partition = finished.corpus.partition(split);
        if partition.num_users() > 0 && others.is_empty() {
            // Held-out users stand in the order of a hash, so the first ones are as good as random.
            let chosen: Vec<usize> = (0..partition.num_users().min(most)).collect();
            (others, of_others) = losses_of(&finished, &partition, &chosen)?;
        }
    }
    if others.is_empty() {
        let hint =
            "give `data.split` a share of users: an attack compares people who were trained on with others";
        return Err(RunError::EmptyPartition {
            split: "validation",
            hint,
        });
    }
    Ok(Losses {
        members,
        others,
        median_tokens: (of_members, of_others),
    })
}

/// The losses of chosen users of a partition, and their median number of tokens.
fn losses_of(finished: &Finished, partition: &Partition<'_>, chosen: &[usize]) -> Result<(Vec<f64>, usize)> {
    let examples = || chosen.iter().flat_map(|&user| partition.user(user).examples());
    let longest = examples().map(<[u32]>::len).max().unwrap_or(0);
    let mut worker = finished.model.worker(BATCH, BATCH * longest);
    let mut losses = Vec::with_capacity(chosen.len());
    let mut tokens: Vec<usize> = Vec::with_capacity(chosen.len());
    for &user in chosen {
        let user = partition.user(user);
        let set = EvaluationSet::of_user(user.examples(), partition.special());
        let (_, loss) = set.measure(worker.as_mut(), &finished.parameters, EosTargets::Included)?;
        losses.push(loss);
        tokens.push(user.num_tokens());
    }
    tokens.sort_unstable();
    Ok((losses, tokens.get(tokens.len() / 2).copied().unwrap_or(0)))
}
