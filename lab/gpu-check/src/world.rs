//! Invented users and models.

use std::sync::{Mutex, PoisonError};

use anyhow::bail;
use undertone_aggregation::{
    AggregationError, Bound, BoundedSum, Clipping, GpuPart, GpuUnits, MicrobatchOutcome, NonFinite,
};
use undertone_gpu::{Capacity, GpuEngine, Trainer};
use undertone_local::{
    CohortText, Engine, LocalError, LocalOutcome, LocalTask, UpdateSink, Work, check_units,
};
use undertone_models::{ModelSpec, SequenceModel};
use undertone_settings::{Algorithm, Batching, UserSettings};
use undertone_text::SpecialIds;

use crate::Arguments;

/// A model with its words.
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) spec: ModelSpec,
    pub(crate) model: Box<dyn SequenceModel>,
    pub(crate) theta: Vec<f32>,
    pub(crate) ids: u32,
    pub(crate) clipping: Clipping,
    pub(crate) settings: UserSettings,
}

impl World {
    pub(crate) fn new(
        name: &'static str,
        spec: ModelSpec,
        ids: u32,
        batch_size: usize,
    ) -> anyhow::Result<Self> {
        let model = spec.build(ids as usize)?;
        Ok(Self {
            name,
            theta: model.initial_params(3),
            model,
            spec,
            ids,
            clipping: Clipping::Flat { clip_norm: 0.3 },
            settings: UserSettings {
                algorithm: Algorithm::FedAvg,
                batching: Batching::Sentences,
                batch_size: Some(batch_size),
                group_size: None,
                unroll: 10,
                epochs: 1,
                learning_rate: Some(0.5),
                max_steps: None,
                clip_every_step: false,
                max_examples: None,
                weight_cap: None,
            },
        })
    }

    /// Users of different sizes.
    pub(crate) fn cohort(&self, users: usize) -> Cohort {
        Cohort::uneven(users, 12, 9, self.ids)
    }

    /// The models of the steps that measure time: those of the argument `--model`, or two of them.
    pub(crate) fn measured(arguments: &Arguments) -> anyhow::Result<Vec<Self>> {
        let wanted = arguments.model.as_deref();
        let measured = |name: &str| match wanted {
            Some(wanted) => name == wanted,
            None => ["dplm", "cifg"].contains(&name),
        };
        let mut all = Self::all(arguments.small)?;
        all.retain(|world| measured(world.name));
        if all.is_empty() {
            bail!(
                "--model: expected a model of this program, got {}",
                wanted.unwrap_or_default()
            );
        }
        Ok(all)
    }

    /// The five models that the engine knows: the published sizes, or small ones.
    pub(crate) fn all(small: bool) -> anyhow::Result<Vec<Self>> {
        let (ids, width, hidden, batch) = match small {
            true => (211, 12, 20, 4),
            false => (10_000, 96, 256, 16),
        };
        let cells = if small { 20 } else { 670 };
        [
            (
                "dplm",
                ModelSpec::Dplm {
                    embed: width,
                    hidden,
                    unit_norm: true,
                },
            ),
            (
                "dplm_plain",
                ModelSpec::Dplm {
                    embed: width,
                    hidden,
                    unit_norm: false,
                },
            ),
            (
                "stackoverflow",
                ModelSpec::StackOverflow {
                    embed: width,
                    hidden: cells,
                },
            ),
            (
                "cifg",
                ModelSpec::Cifg {
                    cells,
                    embedding: width,
                    projection: width,
                    tied: false,
                },
            ),
            (
                "cifg_tied",
                ModelSpec::Cifg {
                    cells,
                    embedding: width,
                    projection: width,
                    tied: true,
                },
            ),
        ]
        .into_iter()
        .map(|(name, spec)| Self::new(name, spec, ids, batch))
        .collect()
    }

    pub(crate) fn task(&self) -> LocalTask<'_> {
        LocalTask {
            round: 0,
            theta: &self.theta,
            layout: self.model.layout(),
            clipping: &self.clipping,
            estimate: None,
            special: SpecialIds::WORDS,
            settings: &self.settings,
            non_finite: NonFinite::Zero,
        }
    }

    pub(crate) fn bound(&self) -> Bound {
        let layout = std::sync::Arc::new(self.model.layout().clone());
        Bound::new(layout, self.clipping.clone(), NonFinite::Zero)
    }

    pub(crate) fn engine<M: Trainer + Clone>(
        &self,
        machine: &M,
        cohort: &Cohort,
        slots: usize,
    ) -> Result<GpuEngine<M>, LocalError> {
        let (longest, max_examples) = cohort.sizes();
        let capacity = Capacity {
            users: slots,
            longest,
            max_examples,
        };
        let (model, settings) = (self.model.as_ref(), &self.settings);
        GpuEngine::new(machine.clone(), &self.spec, model, settings, capacity)
    }

    /// Trains users of a cohort into a sink.
    pub(crate) fn train(
        &self,
        engine: &mut dyn Engine,
        cohort: &Cohort,
        places: &[usize],
        sink: &dyn UpdateSink,
    ) -> anyhow::Result<()> {
        let work = Work::Users { text: cohort, places };
        engine.train(&self.task(), &work, sink)?;
        Ok(())
    }
}

/// Users with examples.
pub(crate) struct Cohort(pub(crate) Vec<Vec<Vec<u32>>>);

impl Cohort {
    /// Users of different sizes, with at most so many examples of at most so many tokens.
    pub(crate) fn uneven(users: usize, examples: u32, tokens: u32, ids: u32) -> Self {
        Self::new(users, ids, |draw| 1 + draw % examples, |draw| 1 + draw % tokens)
    }

    /// Users of the same size.
    pub(crate) fn even(users: usize, examples: u32, tokens: u32, ids: u32) -> Self {
        Self::new(users, ids, |_| examples, |_| tokens)
    }

    fn new(users: usize, ids: u32, examples: impl Fn(u32) -> u32, tokens: impl Fn(u32) -> u32) -> Self {
        let mut state = 7u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let mut all = Vec::with_capacity(users);
        for _ in 0..users {
            let count = examples(draw());
            let mut user = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let length = tokens(draw());
                user.push((0..length).map(|_| 3 + draw() % (ids - 3)).collect());
            }
            all.push(user);
        }
        Self(all)
    }

    fn sizes(&self) -> (usize, usize) {
        let longest = self.0.iter().flatten().map(Vec::len).max().unwrap_or(0);
        (longest, self.0.iter().map(Vec::len).max().unwrap_or(0))
    }

    pub(crate) fn places(&self) -> Vec<usize> {
        (0..self.0.len()).collect()
    }
}

impl CohortText for Cohort {
    fn order(&self, place: usize) -> [u8; 32] {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&(place as u64).to_le_bytes());
        seed
    }

    fn examples(&self, place: usize) -> Vec<&[u32]> {
        self.0[place].iter().map(|example| &example[..]).collect()
    }

    fn example(&self, place: usize, example: usize) -> &[u32] {
        &self.0[place][example]
    }
}

/// Keeps the update of each place.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Mutex<Vec<(usize, Vec<f32>, LocalOutcome)>>);

impl Kept {
    pub(crate) fn sorted(self) -> Vec<(usize, Vec<f32>, LocalOutcome)> {
        let mut kept = self.0.into_inner().unwrap_or_default();
        kept.sort_by_key(|(place, ..)| *place);
        kept
    }
}

fn no_microbatches(number: usize) -> Result<(), LocalError> {
    Err(LocalError::Delivery {
        place: number,
        pieces: 0,
    })
}

impl UpdateSink for Kept {
    fn accept(&self, place: usize, update: &[f32], outcome: LocalOutcome) -> Result<(), LocalError> {
        if let Ok(mut kept) = self.0.lock() {
            kept.push((place, update.to_vec(), outcome));
        }
        Ok(())
    }

    fn accept_microbatch(&self, number: usize, _: &[f32], _: MicrobatchOutcome) -> Result<(), LocalError> {
        no_microbatches(number)
    }
}

/// Adds updates up where they lie, or on the host.
pub(crate) struct Sum {
    pub(crate) sum: BoundedSum,
    pub(crate) on_gpu: bool,
    /// The units whose sum a GPU keeps.
    kept: Mutex<GpuUnits>,
}

impl Sum {
    pub(crate) fn new(bound: Bound, on_gpu: bool) -> Self {
        Self {
            on_gpu,
            ..Self::of(BoundedSum::new(bound))
        }
    }

    /// A sum that is complete.
    pub(crate) fn of(sum: BoundedSum) -> Self {
        let kept = Mutex::new(GpuUnits::none(sum.bound()));
        Self {
            sum,
            on_gpu: true,
            kept,
        }
    }

    /// The steps of the sum.
    pub(crate) fn steps(mut self) -> anyhow::Result<Vec<i64>> {
        let mut steps = Vec::new();
        self.sum.combine(1, |values| {
            steps.extend_from_slice(values);
            Ok::<(), AggregationError>(())
        })?;
        Ok(steps)
    }
}

impl UpdateSink for Sum {
    fn accept(&self, _: usize, update: &[f32], outcome: LocalOutcome) -> Result<(), LocalError> {
        self.sum.add(update, outcome.weight)?;
        Ok(())
    }

    fn accept_on_gpu(
        &self,
        places: &[usize],
        outcomes: &[LocalOutcome],
        part: &mut dyn GpuPart,
    ) -> Result<(), LocalError> {
        check_units(places, outcomes, part)?;
        if self.on_gpu {
            let weights: Vec<f64> = outcomes.iter().map(|outcome| outcome.weight).collect();
            // One unit is audited, as in a round of a run.
            let audited: &[usize] = if places.contains(&0) { &[0] } else { &[] };
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            self.sum.keep_on_gpu(part, &weights, audited, &mut kept)?;
            return Ok(());
        }
        let mut update = vec![0.0; part.parameters()];
        for (unit, outcome) in outcomes.iter().enumerate() {
            part.update(unit, &mut update)?;
            self.sum.add(&update, outcome.weight)?;
        }
        Ok(())
    }

    fn end_on_gpu(&self, part: &mut dyn GpuPart) -> Result<(), LocalError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.sum.merge_kept(part, &mut kept)?)
    }

    fn accept_microbatch(&self, number: usize, _: &[f32], _: MicrobatchOutcome) -> Result<(), LocalError> {
        no_microbatches(number)
    }
}
