//! The update of an evaluation: three bounded rates of one user.

use undertone_local::batch;
use undertone_models::{ModelError, SequenceWorker, StateMode};
use undertone_text::SpecialIds;

/// Number of sentences that are measured at once.
pub(crate) const BATCH: usize = 16;

/// Counts of one user's predictions.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) targets: u64,
    pub(crate) known: u64,
    pub(crate) right: u64,
    pub(crate) loss: f64,
}

impl Counts {
    /// Counts one prediction. Candidates are the words, as on a keyboard, which offers neither an unknown word nor an end of sentence.
    fn row(&mut self, target: u32, logits: &[f32], log_normalizer: f32, special: SpecialIds) {
        if target == special.eos {
            return;
        }
        let Some(&score) = logits.get(target as usize) else {
            return;
        };
        self.targets += 1;
        self.loss += f64::from(log_normalizer) - f64::from(score);
        if Some(target) == special.unk {
            return;
        }
        self.known += 1;
        // Of equal scores the lower id comes first.
        let beaten = (0..).zip(logits).any(|(id, &other)| {
            special.is_candidate(id, false) && (other > score || (other == score && id < target))
        });
        self.right += u64::from(!beaten);
    }
}

/// `(top-1 rate, capped mean loss / cap, in-vocabulary top-1 rate) / sqrt 3`.
///
/// # Guarantee
/// Each coordinate is in `[0, 1 / sqrt 3]`, so the norm is at most 1 up to rounding. A loss that is not finite counts as the cap, and a
/// user without a target of a kind has rate 0 for it.
pub(crate) fn rates(
    worker: &mut dyn SequenceWorker,
    parameters: &[f32],
    examples: Vec<&[u32]>,
    special: SpecialIds,
    loss_cap: f64,
) -> Result<[f32; 3], ModelError> {
    let counts = measure(worker, parameters, examples, special)?;
    let rate = |right: u64, of: u64| right as f64 / of.max(1) as f64;
    let mean = counts.loss / counts.targets.max(1) as f64;
    // Written so that a mean that is no number counts as the cap.
    let loss = if mean < loss_cap { mean.max(0.0) } else { loss_cap };
    let values = [
        rate(counts.right, counts.targets),
        loss / loss_cap,
        rate(counts.right, counts.known),
    ];
    Ok(values.map(|value| (value / 3f64.sqrt()) as f32))
}

/// The counts of a model's predictions of these examples.
pub(crate) fn measure(
    worker: &mut dyn SequenceWorker,
    parameters: &[f32],
    mut examples: Vec<&[u32]>,
    special: SpecialIds,
) -> Result<Counts, ModelError> {
    examples.sort_by_key(|example| example.len());
    let mut counts = Counts::default();
    for packed in batch::sentences(&examples, BATCH, special.bos) {
        let batch = packed.batch();
        let measured = worker.evaluate(
            parameters,
            &batch,
            StateMode::Zero,
            &mut |row, logits, normalizer| {
                counts.row(batch.targets[row], logits, normalizer, special);
            },
        );
        match measured {
            // PRIVACY: whether a device reports must not depend on one person's text.
            Err(ModelError::NonFiniteLoss { .. }) => counts.loss = f64::INFINITY,
            other => other?,
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use undertone_models::ModelSpec;

    use super::*;

    #[test]
    fn candidates_are_words_and_unknown_targets_are_mistakes() {
        let special = SpecialIds::WORDS;
        let mut counts = Counts::default();
        // Ids 0 to 2 are special and score highest.
        let logits = [9.0, 9.0, 9.0, 1.0, 2.0, 2.0];
        counts.row(4, &logits, 0.0, special);
        assert_eq!((counts.targets, counts.known, counts.right), (1, 1, 1));
        counts.row(5, &logits, 0.0, special);
        assert_eq!((counts.targets, counts.known, counts.right), (2, 2, 1), "a tie");
        counts.row(0, &logits, 0.0, special);
        assert_eq!((counts.targets, counts.known, counts.right), (3, 2, 1), "unknown");
        counts.row(special.eos, &logits, 0.0, special);
        assert_eq!(counts.targets, 3, "an end of sentence is no target");
    }

    #[test]
    fn the_update_has_norm_1_at_most_for_any_parameters() {
        let spec = ModelSpec::Dplm {
            embed: 4,
            hidden: 5,
            unit_norm: false,
        };
        let model = spec.build(9).unwrap();
        let mut worker = model.worker(BATCH, BATCH * 4);
        let examples: Vec<&[u32]> = vec![&[3, 4, 2], &[5, 0, 7, 2], &[3, 3]];
        for scale in [0.0, 1.0, 1e3, 1e30, f32::INFINITY] {
            let parameters: Vec<f32> = model
                .initial_params(3)
                .iter()
                .map(|value| value * scale)
                .collect();
            let rates = rates(
                worker.as_mut(),
                &parameters,
                examples.clone(),
                SpecialIds::WORDS,
                8.0,
            );
            let rates = rates.unwrap();
            let square: f64 = rates.iter().map(|&rate| f64::from(rate).powi(2)).sum();
            assert!(square <= 1.0 + 1e-6, "{scale}: {rates:?}");
            assert!(rates.iter().all(|rate| (0.0..=0.578).contains(rate)));
        }
    }

    #[test]
    fn a_user_without_text_has_rates_of_zero() {
        let spec = ModelSpec::Dplm {
            embed: 4,
            hidden: 5,
            unit_norm: false,
        };
        let model = spec.build(9).unwrap();
        let mut worker = model.worker(1, 4);
        let parameters = model.initial_params(3);
        let rates = rates(worker.as_mut(), &parameters, Vec::new(), SpecialIds::WORDS, 8.0).unwrap();
        assert_eq!(rates, [0.0; 3]);
    }
}
