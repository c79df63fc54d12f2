//! Invented texts and updates that attack the bound of a sum, from in front of the clipping.

use undertone_aggregation::{Encoding, ModularVec};
use undertone_coordinator::head::{Opened, RunHead};
use undertone_coordinator::source::{Gathered, RoundSum};
use undertone_coordinator::task::TaskConfig;
use undertone_data::Partition;
use undertone_local::LocalWorker;
use undertone_mechanisms::NoiseKey;
use undertone_models::SequenceModel;
use undertone_settings::{Algorithm, UserSettings};
use undertone_text::SpecialIds;

use super::sums::steps;
use crate::error::{Result, RunError};
use crate::source::task_of;

/// Refuses the runs in which an update cannot be invented.
pub(super) fn check(task: &TaskConfig) -> Result<()> {
    let Some(aggregation) = &task.aggregation else {
        return Ok(());
    };
    if task.encoding_is_noisy() {
        let expected = "an encoding without noise of the clients, or the natural battery";
        return Err(RunError::value(
            "aggregation.encoding",
            expected,
            "one with noise",
        ));
    }
    if aggregation
        .dropout
        .fractions()
        .iter()
        .any(|(_, fraction)| *fraction > 0.0)
    {
        let expected = "fractions of 0, or the natural battery";
        return Err(RunError::value("aggregation.dropout", expected, "some"));
    }
    Ok(())
}

/// The attacks, one after another.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// One value that is no number, beside values of 1.
    NotANumber,
    /// An infinite value.
    Infinite,
    /// The smallest values that there are.
    Subnormal,
    /// `3e38` in one coordinate.
    Huge,
    /// One unit in the last place above the clip norm.
    JustAbove,
    /// One unit in the last place below it.
    JustBelow,
    /// All coordinates equal, three quarters of a step of the sum above a whole step.
    WorstRounding,
    /// The sum of all others with the other sign.
    Negated,
    /// A text of one token.
    OneToken,
    /// The longest text.
    Longest,
    /// One sentence again and again.
    Repeated,
    /// A text whose training leaves the range of numbers.
    Overflow,
}

const ATTACKS: [Attack; 12] = [
    Attack::NotANumber,
    Attack::Overflow,
    Attack::WorstRounding,
    Attack::Infinite,
    Attack::Huge,
    Attack::JustAbove,
    Attack::JustBelow,
    Attack::Negated,
    Attack::Subnormal,
    Attack::OneToken,
    Attack::Longest,
    Attack::Repeated,
];

/// Sentences of the invented text that repeats one.
const REPEATS: usize = 40;

/// The maker of the attacks of a replay.
pub(super) struct Adversary<'a> {
    settings: UserSettings,
    special: SpecialIds,
    longest: Vec<&'a [u32]>,
}

/// An invented contribution, before anything bounds it.
pub(super) struct Invented {
    update: Vec<f32>,
    weight: f64,
}

impl<'a> Adversary<'a> {
    pub(super) fn new(task: &TaskConfig, text: &Partition<'a>) -> Self {
        let longest = text.users().max_by_key(undertone_data::User::num_tokens);
        Self {
            settings: task.user_update.clone(),
            special: text.special(),
            longest: longest.map_or_else(Vec::new, |user| user.examples().collect()),
        }
    }

    /// The attack with this number. `others` is the sum of everybody else.
    pub(super) fn update(
        &mut self,
        number: u64,
        model: &dyn SequenceModel,
        head: &RunHead,
        opened: &Opened,
        others: &mut Gathered,
    ) -> Result<Invented> {
        let len = opened.bound().layout().len();
        let norm = opened.plan().clipping.bound().unwrap_or(1.0);
        let one = |value: f32| {
            let mut update = vec![0.0f32; len];
            update[len / 2] = value;
            update
        };
        let attack = ATTACKS[(number as usize).saturating_sub(1) % ATTACKS.len()];
        let update = match attack {
            Attack::NotANumber => {
                let mut update = vec![1.0; len];
                update[len / 2] = f32::NAN;
                update
            }
            Attack::Infinite => one(f32::INFINITY),
            Attack::Subnormal => vec![f32::from_bits(1); len],
            Attack::Huge => one(3e38),
            Attack::JustAbove => one((norm as f32).next_up()),
            Attack::JustBelow => one((norm as f32).next_down().next_down()),
            Attack::WorstRounding => vec![worst_rounding(norm, len); len],
            Attack::Negated => match &mut others.sum {
                RoundSum::Users { sum, .. } | RoundSum::Examples(sum) => {
                    let steps = steps(sum)?;
                    steps
                        .iter()
                        .skip(1)
                        .map(|&step| -(step as f64 * f64::exp2(-40.0)) as f32)
                        .collect()
                }
                _ => one(-(norm as f32)),
            },
            Attack::OneToken | Attack::Longest | Attack::Repeated | Attack::Overflow => {
                return self.trained(attack, model, head, opened);
            }
        };
        Ok(Invented { update, weight: 1.0 })
    }

    /// The update of local training on an invented text.
    fn trained(
        &self,
        attack: Attack,
        model: &dyn SequenceModel,
        head: &RunHead,
        opened: &Opened,
    ) -> Result<Invented> {
        let mut settings = self.settings.clone();
        if let Attack::Overflow = attack {
            settings.learning_rate = Some(1e30);
            settings.clip_every_step = false;
        }
        let sentence = self.longest.first().copied().unwrap_or(&[]);
        let token = &sentence[..sentence.len().min(1)];
        let examples: Vec<&[u32]> = match attack {
            Attack::OneToken => vec![token],
            Attack::Repeated => vec![sentence; REPEATS],
            _ => self.longest.clone(),
        };
        let longest = self
            .longest
            .iter()
            .map(|example| example.len())
            .max()
            .unwrap_or(0);
        let mut worker = LocalWorker::new(model, &settings, longest, examples.len().max(REPEATS));
        let task = task_of(opened, head.parameters(), &settings, self.special);
        let weight = match settings.algorithm {
            Algorithm::Els => {
                // One example with all of the text.
                worker.train_examples(&examples[..1], &task)?;
                1.0
            }
            _ => worker.train(&examples, [7; 32], &task)?.weight,
        };
        Ok(Invented {
            update: worker.into_update(),
            weight,
        })
    }
}

impl Invented {
    /// Adds the contribution as that of the user with this key: bounded, encoded where the run encodes, and counted.
    pub(super) fn add(
        &self,
        sum: &mut RoundSum,
        opened: &Opened,
        encoding: Option<&Encoding>,
        key: &NoiseKey,
    ) -> Result<()> {
        match (sum, encoding) {
            (RoundSum::Users { sum, bits }, _) => {
                let added = sum.add(&self.update, self.weight)?;
                if let (Some(bits), Some(estimate)) = (bits, opened.estimate()) {
                    let below = added.report().norm <= estimate;
                    bits.add(&[if below { 0.5 } else { -0.5 }], 1.0)?;
                }
            }
            (RoundSum::Examples(sum), _) => drop(sum.add(&self.update, 1.0)?),
            (
                RoundSum::Modular {
                    residues, rotations, ..
                },
                Some(encoding),
            ) => {
                let round = encoding.for_round(rotations, opened.round())?;
                let mut encoder = round.encoder();
                let mut encoded = |update: &[f32], weight: f64| -> Result<ModularVec> {
                    let mut vector = encoding.zeros();
                    encoder.encode(update, weight, key, &mut vector)?;
                    Ok(vector)
                };
                let silent = encoded(&vec![0.0; self.update.len()], 1.0)?;
                let mut update = self.update.clone();
                opened.bound().enforce(&mut update)?;
                // The slot holds the encoding of zeros.
                residues.sub(&silent)?;
                residues.add(&encoded(&update, self.weight)?)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// A value just below `norm / sqrt(len)` and three quarters of a step of the sum above a whole step, where single precision has one.
fn worst_rounding(norm: f64, len: usize) -> f32 {
    let steps = (norm / (len as f64).sqrt() * f64::exp2(40.0)).floor();
    ((steps + 0.75) * f64::exp2(-40.0)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_rounding_is_exact_in_single_precision_and_within_the_norm_when_truncated() {
        let (norm, len) = (1e-4, 1000);
        let value = f64::from(worst_rounding(norm, len)) * f64::exp2(40.0);
        assert_eq!(value.fract(), 0.75);
        let limit = norm * f64::exp2(40.0);
        assert!(value.floor() * (len as f64).sqrt() <= limit);
        assert!((value.floor() + 1.0) * (len as f64).sqrt() > limit);
    }
}
