//! The engine: users in slots, local steps side by side, and the updates handed to a sink where they lie.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::{cast_slice, cast_slice_mut};
use undertone_aggregation::{AggregationError, Bound, ClipReport, NonFinite};
use undertone_gpu_sum::{GpuError, UnitSlots};
use undertone_local::{
    CohortText, Engine, EngineError, EngineTimes, LocalError, LocalOutcome, LocalTask, Steps, UpdateSink,
    UserBatches, Work,
};
use undertone_models::{ModelError, ModelSpec, PackedBatch, SequenceModel, StateMode};
use undertone_settings::{Algorithm, Batching, UserSettings};

use crate::call::Kernel;
use crate::check::{check, unusable};
use crate::frame::{Extents, Frame, Launch};
use crate::machine::{Trainer, TrainingMemory};
use crate::projection::Projection;
use crate::recurrent::{Recurrent, Shape};
use crate::table::Table;

/// The largest number of users that are trained at once: a grid of CUDA has no more rows.
pub const MAX_SLOTS: usize = undertone_settings::EngineConfig::MAX_USERS;

/// The users that an engine has memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of users that are trained at once.
    pub users: usize,
    /// Tokens of the longest example.
    pub longest: usize,
    /// Examples of the user with most of them.
    pub max_examples: usize,
}

/// An engine that trains many users at once in the memory of a GPU: FedAvg of the recurrent word models.
///
/// Each user has a slot with parameters and activations of its own. The update of a user has the same bits in any slot, beside any
/// users, and on any machine that rounds by IEEE 754, because every value is computed by one thread from that user's text and the
/// parameters of the round, in a fixed order. The sink bounds the updates where they lie.
///
/// # Example
/// ```
/// use undertone_gpu_sum::Emulator;
/// use undertone_gpu::{Capacity, GpuEngine};
/// use undertone_settings::UserSettings;
/// use undertone_models::ModelSpec;
///
/// let spec = ModelSpec::Cifg { cells: 8, embedding: 4, projection: 4, tied: true };
/// let model = spec.build(50)?;
/// let settings: UserSettings = serde_json::from_str(r#"{"batch_size": 8, "learning_rate": 0.5}"#)?;
/// // 16 users at once, none with more than 20 examples or with an example of more than 12 tokens.
/// let capacity = Capacity { users: 16, longest: 12, max_examples: 20 };
/// let engine = GpuEngine::new(Emulator::default(), &spec, model.as_ref(), &settings, capacity)?;
/// assert!(engine.bytes() < 4_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it reaches text and updates"
)]
pub struct GpuEngine<M: Trainer> {
    machine: M,
    program: Recurrent,
    slots: usize,
    table: Table,
    memory: M::Memory<u32>,
    words: M::Memory<u32>,
    /// The slots of the last round, with the blocks of its clip groups.
    units: Option<UnitSlots<M>>,
    groups: usize,
}

/// A user in its slot.
struct Student<'a, 's> {
    steps: Steps<'a, 's>,
    next: Option<(PackedBatch, StateMode)>,
    outcome: LocalOutcome,
    failed: Option<LocalError>,
}

impl<M: Trainer + Clone> GpuEngine<M> {
    /// Takes memory for so many users.
    ///
    /// # Errors
    /// A model or an algorithm that this engine does not know; a workspace that is too large to address; the machine has no room.
    pub fn new(
        machine: M,
        spec: &ModelSpec,
        model: &dyn SequenceModel,
        settings: &UserSettings,
        capacity: Capacity,
    ) -> Result<Self, LocalError> {
        check(spec, settings)?;
        let Capacity {
            users,
            longest,
            max_examples,
        } = capacity;
        let slots = users.clamp(1, MAX_SLOTS);
        let batch = settings.batch_shape(longest, max_examples);
        // More clip groups than a layout has are not possible, and one is the least.
        let groups = model.layout().groups().len().max(1);
        let fits = |number: usize| u32::try_from(number).ok().filter(|&number| number < 1 << 30);
        let rows = batch.sequences.checked_mul(batch.steps).and_then(fits);
        let (Some(_), Some(sequences), Some(steps)) = (rows, fits(batch.sequences), fits(batch.steps)) else {
            let got = format!("{} sequences of {} tokens", batch.sequences, batch.steps);
            return Err(unusable(
                "user_update.batch_size",
                "fewer than 2^30 tokens per batch",
                &got,
            ));
        };
        let extents = Extents {
            slots: slots as u32,
            sequences,
            steps,
            groups: groups as u32,
        };
        let program = Recurrent::new(Shape::new(spec, model.layout())?, extents);
        let frame = *program.frame();
        let floats = frame.behind.saturating_add(frame.shared);
        // Distances between arrays of a slot are words.
        let (true, Ok(floats)) = (frame.slot < 1 << 32, usize::try_from(floats)) else {
            let expected = "fewer than 2^32 activations and gradients per user";
            return Err(unusable(
                "user_update.batch_size",
                expected,
                &frame.slot.to_string(),
            ));
        };
        let of_gpu = |error: GpuError| LocalError::from(AggregationError::from(error));
        Ok(Self {
            memory: machine.zeros::<u32>(floats).map_err(of_gpu)?,
            words: machine
                .zeros::<u32>(Table::max_words(&frame, slots))
                .map_err(of_gpu)?,
            table: Table::new(frame.vocab),
            program,
            machine,
            slots,
            units: None,
            groups,
        })
    }

    fn frame(&self) -> &Frame {
        self.program.frame()
    }

    /// Bytes of the GPU's memory: parameters and activations of all slots, and the sum.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let slots = self.slots as u64;
        let frame = self.frame();
        let parameters = frame.parameters as u64;
        4 * (slots * parameters + frame.behind + frame.shared)
            + 8 * parameters
            + 4 * Table::max_words(frame, self.slots) as u64
    }

    /// Trains users side by side and hands their updates to the sink.
    fn group(
        &mut self,
        task: &LocalTask<'_>,
        text: &dyn CohortText,
        places: &[usize],
        units: &mut UnitSlots<M>,
        sink: &dyn UpdateSink,
    ) -> Result<Duration, EngineError> {
        let of_first = |source: LocalError| EngineError {
            place: places[0],
            source,
        };
        let of_gpu = |error: GpuError| of_first(AggregationError::from(error).into());
        let mut students: Vec<Student<'_, '_>> = places
            .iter()
            .map(|&place| Student::new(task, &text.examples(place), text.order(place)))
            .collect();
        let carries = task.settings.batching == Batching::Stream;
        let learning_rate = task.settings.learning_rate() as f32;
        let projection = match task.settings.clip_every_step {
            true => Projection::new(task, self.groups).map_err(of_first)?,
            false => None,
        };
        units.set_units(places.len()).map_err(of_gpu)?;
        self.table.begin(places.len());
        self.launch(units, [self.whole(Kernel::Begin)]).map_err(of_gpu)?;
        while students.iter().any(|student| student.next.is_some()) {
            self.table.begin(places.len());
            for (slot, student) in students.iter().enumerate() {
                if let Some((batch, mode)) = &student.next {
                    let carried = *mode == StateMode::Carry;
                    let given = self
                        .table
                        .give(slot, &batch.batch(), carried, self.program.frame());
                    given.map_err(|error| EngineError {
                        place: places[slot],
                        source: AggregationError::from(error).into(),
                    })?;
                }
            }
            let (rows, steps) = (self.table.rows(), self.table.steps());
            let calls = self.program.step(rows, steps, learning_rate, carries);
            self.launch(units, calls).map_err(of_gpu)?;
            let statistics = self.statistics(places.len()).map_err(of_gpu)?;
            let of_slot = self.frame().statistics.col as usize;
            for (student, statistics) in students.iter_mut().zip(statistics.chunks(of_slot)) {
                student.count(statistics);
            }
            if let Some(projection) = &projection {
                let reports = self.project(projection, units, places.len()).map_err(of_gpu)?;
                for (student, report) in students.iter_mut().zip(reports) {
                    student.projected(report);
                }
            }
            students.iter_mut().for_each(Student::advance);
        }
        let mut outcomes = Vec::with_capacity(places.len());
        self.table.begin(places.len());
        for (slot, student) in students.into_iter().enumerate() {
            let outcome = student.finish(task.non_finite).map_err(|source| EngineError {
                place: places[slot],
                source,
            })?;
            if outcome.discarded {
                self.table.discard(slot);
            }
            outcomes.push(outcome);
        }
        self.launch(units, [self.whole(Kernel::Finish)]).map_err(of_gpu)?;
        let started = Instant::now();
        sink.accept_on_gpu(places, &outcomes, units).map_err(of_first)?;
        Ok(started.elapsed())
    }

    /// A call over all parameters of each slot.
    fn whole(&self, kernel: Kernel) -> Launch {
        let frame = self.frame();
        (kernel, frame.parameters as u64, frame.call())
    }

    /// Runs kernels with the present table.
    fn launch(
        &mut self,
        units: &mut UnitSlots<M>,
        calls: impl IntoIterator<Item = Launch>,
    ) -> Result<(), GpuError> {
        let slots = self.table.slots() as u32;
        self.machine
            .write::<u32>(&mut self.words, 0, self.table.words())?;
        let (machine, parameters) = units.values_mut();
        for (kernel, threads, call) in calls {
            let memory = TrainingMemory {
                parameters: &mut *parameters,
                room: &mut self.memory,
                table: &self.words,
            };
            machine.run(kernel, threads, slots, &call, memory)?;
        }
        Ok(())
    }

    /// Reads floats behind the workspaces of the slots.
    fn shared(&self, at: u64, into: &mut [f32]) -> Result<(), GpuError> {
        let at = self.frame().behind + at;
        self.machine
            .read::<u32>(&self.memory, at as usize, cast_slice_mut(into))
    }

    fn statistics(&self, slots: usize) -> Result<Vec<f32>, GpuError> {
        let array = self.frame().statistics;
        let mut numbers = vec![0.0; slots * array.col as usize];
        self.shared(array.at, &mut numbers)?;
        Ok(numbers)
    }

    /// Moves parameters that are too far from those of the round back to the bound.
    fn project(
        &mut self,
        projection: &Projection,
        units: &mut UnitSlots<M>,
        slots: usize,
    ) -> Result<Vec<ClipReport>, GpuError> {
        let frame = *self.frame();
        self.launch(units, projection.distances(&frame))?;
        let (distances, factors) = (frame.distances, frame.factors);
        let mut numbers = vec![0.0f64; slots * distances.col as usize / 2];
        let at = frame.behind + distances.at;
        self.machine
            .read::<u32>(&self.memory, at as usize, cast_slice_mut(&mut numbers))?;
        let (reports, scales) = projection.measure(&numbers, slots, &distances, &factors);
        let at = frame.behind + factors.at;
        self.machine
            .write::<u32>(&mut self.memory, at as usize, cast_slice(&scales))?;
        self.launch(units, projection.calls(&frame))?;
        Ok(reports)
    }

    /// The slots for updates under the bound of a round.
    fn units(&mut self, bound: &Bound) -> Result<UnitSlots<M>, GpuError> {
        match self.units.take() {
            Some(units) if units.fits(bound) => Ok(units),
            _ => UnitSlots::new(self.machine.clone(), bound, self.slots),
        }
    }
}

impl<M: Trainer + Clone> Engine for GpuEngine<M> {
    fn train(
        &mut self,
        task: &LocalTask<'_>,
        work: &Work<'_>,
        sink: &dyn UpdateSink,
    ) -> Result<EngineTimes, EngineError> {
        let &Work::Users { text, places } = work else {
            let name = task.settings.algorithm.name();
            let source = unusable("user_update.algorithm", "`fedavg`", name);
            return Err(EngineError { place: 0, source });
        };
        let Some(&place) = places.first() else {
            return Ok(EngineTimes::default());
        };
        let of_set_up = |error: GpuError| EngineError {
            place,
            source: AggregationError::from(error).into(),
        };
        let expected = self.frame().parameters;
        let of_round = |source: LocalError| EngineError { place, source };
        if task.theta.len() != expected {
            let wrong = AggregationError::Length {
                what: "parameters of the round",
                expected,
                got: task.theta.len(),
            };
            return Err(of_round(wrong.into()));
        }
        if task.settings.algorithm != Algorithm::FedAvg {
            let name = task.settings.algorithm.name();
            return Err(of_round(unusable("user_update.algorithm", "`fedavg`", name)));
        }
        let bound = Bound::new(
            Arc::new(task.layout.clone()),
            task.clipping.clone(),
            task.non_finite,
        );
        let mut units = self.units(&bound).map_err(of_set_up)?;
        let at = self.frame().behind as usize;
        self.machine
            .write::<u32>(&mut self.memory, at, cast_slice(task.theta))
            .map_err(of_set_up)?;
        let mut times = EngineTimes::default();
        for places in places.chunks(self.slots) {
            times.sink += self.group(task, text, places, &mut units, sink)?;
        }
        let started = Instant::now();
        sink.end_on_gpu(&mut units).map_err(of_round)?;
        times.sink += started.elapsed();
        self.units = Some(units);
        Ok(times)
    }
}

impl<M: Trainer> Drop for GpuEngine<M> {
    fn drop(&mut self) {
        // PRIVACY: text, activations and gradients. Nothing can be done about a machine that has failed.
        drop(self.machine.clear::<u32>(&mut self.memory));
        drop(self.machine.clear::<u32>(&mut self.words));
    }
}

impl<'a, 's> Student<'a, 's> {
    fn new(task: &LocalTask<'s>, examples: &[&'a [u32]], order: [u8; 32]) -> Self {
        let batches = UserBatches::new(examples, order, task.settings);
        let outcome = LocalOutcome {
            weight: batches.weight(task.settings),
            examples: batches.examples().len(),
            tokens: 0,
            loss_sum: 0.0,
            projected: task.settings.clip_every_step.then_some(ClipReport {
                norm: 0.0,
                clipped: false,
            }),
            discarded: false,
        };
        let mut steps = batches.into_steps(task.settings, task.special);
        Self {
            next: steps.next(),
            steps,
            outcome,
            failed: None,
        }
    }

    /// Adds up the loss of the present batch from the largest logit, the sum of exponentials and the target's logit of each row. They are 0, 1 and 0 for
    /// a row without a target.
    fn count(&mut self, statistics: &[f32]) {
        let Some((batch, _)) = &self.next else { return };
        let (batch, mut loss) = (batch.batch(), 0.0);
        for row in &statistics.as_chunks::<3>().0[..batch.rows()] {
            let [largest, sum, logit] = row.map(f64::from);
            loss += largest + sum.ln() - logit;
        }
        if !loss.is_finite() {
            let targets = batch.targets_count();
            self.failed
                .get_or_insert(ModelError::NonFiniteLoss { loss, targets }.into());
        }
        self.outcome.tokens += batch.targets_count() as u64;
        self.outcome.loss_sum += loss;
    }

    fn projected(&mut self, report: ClipReport) {
        if self.next.is_none() {
            return;
        }
        if !report.norm.is_finite() {
            self.failed.get_or_insert(AggregationError::NotFiniteOnGpu.into());
        }
        self.outcome.projected = Some(report);
    }

    fn advance(&mut self) {
        // The training of a user whose numbers left their range has ended.
        self.next = match self.failed {
            Some(_) => None,
            None => self.steps.next(),
        };
    }

    fn finish(self, non_finite: NonFinite) -> Result<LocalOutcome, LocalError> {
        match self.failed {
            None => Ok(self.outcome),
            Some(error) if non_finite == NonFinite::Refuse => Err(error),
            // PRIVACY: a map of this user's data alone. The update is the zero vector, and the weight stays.
            Some(_) => Ok(LocalOutcome {
                tokens: 0,
                loss_sum: 0.0,
                projected: None,
                discarded: true,
                ..self.outcome
            }),
        }
    }
}
