//! A comparison of a machine with the emulator, before the machine trains anybody.

use std::sync::Mutex;

use undertone_aggregation::{AggregationError, Clipping, MicrobatchOutcome, NonFinite};
use undertone_gpu_sum::{Emulator, GpuError};
use undertone_local::{CohortText, Engine, LocalError, LocalOutcome, LocalTask, UpdateSink, Work};
use undertone_models::ModelSpec;
use undertone_settings::{Algorithm, Batching, UserSettings};
use undertone_text::SpecialIds;

use crate::engine::{Capacity, GpuEngine};
use crate::machine::Trainer;

/// Ids of the test's models.
const IDS: usize = 150;

/// Users of different sizes, with more words than a part of the softmax and more rows than one thread computes.
struct Cohort(Vec<Vec<Vec<u32>>>);

impl CohortText for Cohort {
    fn order(&self, place: usize) -> [u8; 32] {
        [place as u8; 32]
    }

    fn examples(&self, place: usize) -> Vec<&[u32]> {
        self.0[place].iter().map(|example| &example[..]).collect()
    }

    fn example(&self, place: usize, example: usize) -> &[u32] {
        &self.0[place][example]
    }
}

impl Cohort {
    fn new() -> Self {
        let word = |number: u32| 3 + number.wrapping_mul(2_654_435_761) % (IDS as u32 - 3);
        let user = |user: u32| {
            let example = |example: u32| {
                (0..=(user + example) % 7)
                    .map(|i| word(97 * user + 13 * example + i))
                    .collect()
            };
            (0..=3 * user).map(example).collect()
        };
        Self((0..5).map(user).collect())
    }
}

/// The bits of updates, in the order of their delivery.
#[derive(Default)]
struct Bits(Mutex<Vec<u32>>);

impl UpdateSink for Bits {
    fn accept(&self, _: usize, update: &[f32], _: LocalOutcome) -> Result<(), LocalError> {
        if let Ok(mut bits) = self.0.lock() {
            bits.extend(update.iter().map(|value| value.to_bits()));
        }
        Ok(())
    }

    fn accept_microbatch(&self, number: usize, _: &[f32], _: MicrobatchOutcome) -> Result<(), LocalError> {
        Err(LocalError::Delivery {
            place: number,
            pieces: 0,
        })
    }
}

/// The bits of the updates that a machine gives for a small model of a family.
fn bits<M: Trainer + Clone>(
    machine: M,
    spec: &ModelSpec,
    settings: &UserSettings,
) -> Result<Vec<u32>, LocalError> {
    let model = spec.build(IDS)?;
    let cohort = Cohort::new();
    let max_examples = cohort.0.iter().map(Vec::len).max().unwrap_or(0);
    let capacity = Capacity {
        users: 3,
        longest: 7,
        max_examples,
    };
    let mut engine = GpuEngine::new(machine, spec, model.as_ref(), settings, capacity)?;
    let theta = model.initial_params(1);
    let task = LocalTask {
        round: 0,
        theta: &theta,
        layout: model.layout(),
        clipping: &Clipping::Flat { clip_norm: 0.25 },
        estimate: None,
        special: SpecialIds::WORDS,
        settings,
        non_finite: NonFinite::Refuse,
    };
    let places: Vec<usize> = (0..cohort.0.len()).collect();
    let work = Work::Users {
        text: &cohort,
        places: &places,
    };
    let sink = Bits::default();
    engine.train(&task, &work, &sink).map_err(|error| error.source)?;
    Ok(sink.0.into_inner().unwrap_or_default())
}

/// Trains a few invented users on a machine and on the emulator. Each update must have the same bits.
///
/// # Errors
/// [`GpuError::SelfTest`] in an [`AggregationError::Gpu`] for a bit that differs; the errors of the machine.
///
/// # Example
/// ```
/// undertone_gpu::self_test(&undertone_gpu_sum::Emulator::new(4, 32, 1)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn self_test<M: Trainer + Clone>(machine: &M) -> Result<(), LocalError> {
    let settings = UserSettings {
        algorithm: Algorithm::FedAvg,
        batching: Batching::Sentences,
        batch_size: Some(12),
        group_size: None,
        unroll: 10,
        epochs: 2,
        learning_rate: Some(0.5),
        max_steps: None,
        clip_every_step: true,
        max_examples: None,
        weight_cap: None,
    };
    let families = [
        ModelSpec::Dplm {
            embed: 10,
            hidden: 13,
            unit_norm: true,
        },
        ModelSpec::StackOverflow { embed: 9, hidden: 17 },
        ModelSpec::Cifg {
            cells: 12,
            embedding: 8,
            projection: 8,
            tied: false,
        },
    ];
    for spec in families {
        let expected = bits(Emulator::default(), &spec, &settings)?;
        if bits(machine.clone(), &spec, &settings)? != expected {
            let kernel = "local training";
            return Err(AggregationError::from(GpuError::SelfTest { kernel }).into());
        }
    }
    Ok(())
}
