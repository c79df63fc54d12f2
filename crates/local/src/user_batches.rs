//! The examples that a user trains on in one round, and the local steps over them.

use std::collections::VecDeque;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_aggregation::user_weight;
use undertone_mechanisms::draws;
use undertone_models::{PackedBatch, StateMode};
use undertone_text::SpecialIds;

use crate::batch;
use undertone_settings::{Batching, UserSettings};

/// The examples of one user for one round, drawn and ordered by the user's seed.
///
/// Every engine trains on the same examples in the same order, because all of them ask this type.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the text of a user"
)]
pub struct UserBatches<'a> {
    examples: Vec<&'a [u32]>,
    available: usize,
    generator: ChaCha20Rng,
}

impl<'a> UserBatches<'a> {
    /// Draws from all examples of a user, which stand in the order in which they were written.
    #[must_use]
    pub fn new(examples: &[&'a [u32]], order: [u8; 32], settings: &UserSettings) -> Self {
        let mut generator = ChaCha20Rng::from_seed(order);
        let mut examples = examples.to_vec();
        // Streams keep the order in which the text was written; sentences are drawn in random order.
        let available = examples.len();
        let wanted = settings.max_examples_per_round().unwrap_or(available);
        match settings.batching {
            Batching::Sentences => {
                draws::shuffle(&mut examples, &mut generator);
                examples.truncate(wanted);
            }
            Batching::Stream if wanted < available => {
                let chosen = draws::fixed_size(available, wanted, &mut generator);
                examples = chosen.into_iter().map(|j| examples[j]).collect();
            }
            Batching::Stream => {}
        }
        Self {
            examples,
            available,
            generator,
        }
    }

    /// The drawn examples in their order.
    #[must_use]
    pub fn examples(&self) -> &[&'a [u32]] {
        &self.examples
    }

    /// The user's weight `w_k`. It counts all that the user has, as \[DPLM\] Algorithm 1 does; the cap bounds its influence.
    #[must_use]
    pub fn weight(&self, settings: &UserSettings) -> f64 {
        let weight = |cap| user_weight(self.available as u64, cap);
        settings.weight_cap.map_or(1.0, weight)
    }

    /// The batches of the local steps of FedAvg, epoch after epoch.
    ///
    /// # Source
    /// \[DPLM\] Algorithm 1, `UserUpdateFedAvg`.
    #[must_use]
    pub fn into_steps<'s>(self, settings: &'s UserSettings, special: SpecialIds) -> Steps<'a, 's> {
        Steps {
            batches: self,
            settings,
            special,
            epoch: 0,
            ready: VecDeque::new(),
            left: settings.max_steps.unwrap_or(usize::MAX),
        }
    }
}

/// The batches of a user's local steps, each with the state that it starts from.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the text of a user"
)]
pub struct Steps<'a, 's> {
    batches: UserBatches<'a>,
    settings: &'s UserSettings,
    special: SpecialIds,
    epoch: usize,
    ready: VecDeque<(PackedBatch, StateMode)>,
    left: usize,
}

impl Steps<'_, '_> {
    fn batches(&self) -> VecDeque<(PackedBatch, StateMode)> {
        let (examples, size) = (&self.batches.examples, self.settings.batch_size());
        match self.settings.batching {
            Batching::Sentences => batch::sentences(examples, size, self.special.bos)
                .into_iter()
                .map(|batch| (batch, StateMode::Zero))
                .collect(),
            Batching::Stream => batch::streams(examples, size, self.settings.unroll, self.special).into(),
        }
    }
}

impl Iterator for Steps<'_, '_> {
    type Item = (PackedBatch, StateMode);

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 && self.ready.is_empty() && self.epoch < self.settings.epochs {
            if self.epoch > 0 && self.settings.batching == Batching::Sentences {
                draws::shuffle(&mut self.batches.examples, &mut self.batches.generator);
            }
            self.ready = self.batches();
            self.epoch += 1;
        }
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(keys: &str) -> UserSettings {
        let text = format!(r#"{{"batch_size": 2, "learning_rate": 0.5{keys}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn tokens(steps: Steps<'_, '_>) -> Vec<Vec<u32>> {
        steps.map(|(batch, _)| batch.batch().targets.to_vec()).collect()
    }

    #[test]
    fn each_epoch_has_every_example_once_in_an_order_of_its_own() {
        let examples: Vec<[u32; 1]> = (10..30).map(|id| [id]).collect();
        let examples: Vec<&[u32]> = examples.iter().map(|example| &example[..]).collect();
        let settings = settings(r#","epochs": 3"#);
        let batches = UserBatches::new(&examples, [7; 32], &settings);
        let steps = tokens(batches.into_steps(&settings, SpecialIds::WORDS));
        assert_eq!(steps.len(), 30);
        let epochs: Vec<Vec<u32>> = steps.chunks(10).map(<[Vec<u32>]>::concat).collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (10..30).collect::<Vec<_>>());
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
    }

    #[test]
    fn the_limits_on_steps_and_examples_hold() {
        let examples: [&[u32]; 5] = [&[10], &[11], &[12], &[13], &[14]];
        for (keys, steps, targets) in [
            (r#","epochs": 4, "max_steps": 7"#, 7, 12),
            (r#","max_examples": 3"#, 2, 3),
            (r#","max_examples": 3, "batching": "stream", "unroll": 3"#, 2, 3),
        ] {
            let settings = settings(keys);
            let batches = UserBatches::new(&examples, [1; 32], &settings);
            let got = tokens(batches.into_steps(&settings, SpecialIds::WORDS));
            assert_eq!(got.len(), steps, "{keys}");
            let known = |target: &u32| *target != undertone_models::IGNORE;
            assert_eq!(got.concat().into_iter().filter(known).count(), targets, "{keys}");
        }
        let nothing = UserBatches::new(&[], [1; 32], &settings(""));
        assert_eq!(nothing.into_steps(&settings(""), SpecialIds::WORDS).count(), 0);
    }

    #[test]
    fn the_weight_counts_all_that_the_user_has() {
        let examples: [&[u32]; 5] = [&[10], &[11], &[12], &[13], &[14]];
        let capped = settings(r#","max_examples": 2, "weight_cap": 10"#);
        assert_eq!(UserBatches::new(&examples, [1; 32], &capped).weight(&capped), 0.5);
        assert_eq!(UserBatches::new(&examples, [1; 32], &capped).examples().len(), 2);
        let plain = settings("");
        assert_eq!(UserBatches::new(&examples, [1; 32], &plain).weight(&plain), 1.0);
    }
}
