//! Packs one user's examples into batches: sentences side by side, or parallel streams with carried state.

use undertone_models::{IGNORE, PackedBatch, StateMode};
use undertone_text::SpecialIds;

/// Packs sequences of inputs and their targets.
fn pack(sequences: &[(Vec<u32>, &[u32])]) -> PackedBatch {
    let pairs: Vec<(&[u32], &[u32])> = sequences
        .iter()
        .map(|(inputs, targets)| (&inputs[..], *targets))
        .collect();
    let mut batch = PackedBatch::default();
    batch.pack(&pairs);
    batch
}

/// The inputs of a sentence: BOS first; its last target has no successor.
fn inputs(sentence: &[u32], bos: u32) -> impl Iterator<Item = u32> {
    std::iter::once(bos)
        .chain(sentence.iter().copied())
        .take(sentence.len())
}

/// Sentences in the given order, `batch_size` per batch, each from the zero state and `bos`.
#[must_use]
pub fn sentences(examples: &[&[u32]], batch_size: usize, bos: u32) -> Vec<PackedBatch> {
    let pairs = |chunk: &[&[u32]]| {
        pack(
            &chunk
                .iter()
                .map(|&sentence| (inputs(sentence, bos).collect(), sentence))
                .collect::<Vec<_>>(),
        )
    };
    examples.chunks(batch_size).map(pairs).collect()
}

/// The text cut into at most `batch_size` parallel streams that advance `unroll` tokens per batch; the state of the second
/// batch and later ones is carried from the batch before.
///
/// Between two sentences the last token of the first is an input without a target, then comes BOS: the state knows that a
/// sentence ended. A text too short to give every stream `unroll` tokens gets fewer streams.
///
/// # Source
/// \[DPLM\] section 3: batches of 8, unroll of 10 tokens, 1600 tokens per user.
#[must_use]
pub fn streams(
    examples: &[&[u32]],
    batch_size: usize,
    unroll: usize,
    special: SpecialIds,
) -> Vec<(PackedBatch, StateMode)> {
    let (mut read, mut predict) = (Vec::new(), Vec::new());
    for (index, sentence) in examples.iter().enumerate() {
        if index > 0 {
            read.push(examples[index - 1].last().copied().unwrap_or(special.eos));
            predict.push(IGNORE);
        }
        read.extend(inputs(sentence, special.bos));
        predict.extend_from_slice(sentence);
    }
    let count = batch_size.min(read.len() / unroll).max(1);
    let length = read.len().div_ceil(count).max(1);
    let window = |from: usize| {
        let tracks = read.chunks(length).zip(predict.chunks(length));
        let part = |track: &[u32]| {
            track
                .get(from..track.len().min(from + unroll))
                .unwrap_or(&[])
                .to_vec()
        };
        let cut: Vec<_> = tracks
            .map(|(read, predict)| (part(read), part(predict)))
            .collect();
        pack(
            &cut.iter()
                .map(|(read, predict)| (read.clone(), &predict[..]))
                .collect::<Vec<_>>(),
        )
    };
    (0..length)
        .step_by(unroll)
        .map(|from| {
            (
                window(from),
                if from == 0 {
                    StateMode::Zero
                } else {
                    StateMode::Carry
                },
            )
        })
        // A window in which every target is masked (the gap between two sentences) would be a step without a loss.
        .filter(|(batch, _)| batch.batch().targets.iter().any(|&target| target != IGNORE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: SpecialIds = SpecialIds::WORDS;

    #[test]
    fn sentences_are_packed_longest_first() {
        let examples: [&[u32]; 3] = [&[5, 6], &[7, 8, 9], &[4]];
        let batches = sentences(&examples, 2, IDS.bos);
        assert_eq!(batches.len(), 2);
        let first = batches[0].batch();
        assert_eq!(first.active, [2, 2, 1]);
        assert_eq!(first.inputs, [IDS.bos, IDS.bos, 7, 5, 8]);
        assert_eq!(first.targets, [7, 5, 8, 6, 9]);
        assert_eq!(batches[1].batch().targets, [4]);
    }

    #[test]
    fn streams_cover_every_target_once() {
        let examples: [&[u32]; 4] = [&[10, 11, 12, 2], &[13, 14, 2], &[15, 16, 17, 18, 2], &[19, 20]];
        let mut expected: Vec<u32> = examples.concat();
        expected.sort_unstable();
        for batch_size in 1..6 {
            for unroll in 1..8 {
                let windows = streams(&examples, batch_size, unroll, IDS);
                let targets = windows
                    .iter()
                    .flat_map(|(batch, _)| batch.batch().targets.iter().copied());
                let mut seen: Vec<u32> = targets.filter(|&target| target != IGNORE).collect();
                seen.sort_unstable();
                assert_eq!(seen, expected, "batch_size {batch_size}, unroll {unroll}");
            }
        }
    }

    #[test]
    fn only_the_first_window_starts_from_the_zero_state() {
        let long: Vec<u32> = (3..103).collect();
        let windows = streams(&[&long], 2, 10, IDS);
        assert_eq!(windows.len(), 5);
        assert!(
            windows
                .iter()
                .enumerate()
                .all(|(i, (_, mode))| (*mode == StateMode::Zero) == (i == 0))
        );
        assert!(windows.iter().all(|(batch, _)| batch.batch().active == [2; 10]));
    }
}
