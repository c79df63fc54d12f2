//! The time of each kernel of local training, by the size of its result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use undertone_gpu::{Call, Kernel, Trainer, TrainingMemory};
use undertone_gpu_sum::{GpuError, Machine, Span, Word};

use crate::Arguments;
use crate::world::{Cohort, Sum, World};

/// Launches and seconds by kernel and extent.
type Times = BTreeMap<(&'static str, [u32; 3]), (usize, f64)>;

/// A machine that waits for the end of each kernel of local training and notes its time.
struct Timed<M: Machine> {
    machine: M,
    times: Arc<Mutex<Times>>,
    word: Arc<Mutex<M::Memory<u32>>>,
    waiting: f64,
}

impl<M: Machine> Timed<M> {
    fn new(machine: M) -> Result<Self, GpuError> {
        let mut timed = Self {
            times: Arc::default(),
            word: Arc::new(Mutex::new(machine.zeros::<u32>(1)?)),
            machine,
            waiting: 0.0,
        };
        let mut waits = Vec::new();
        for _ in 0..32 {
            let started = Instant::now();
            timed.wait()?;
            waits.push(started.elapsed().as_secs_f64());
        }
        waits.sort_by(f64::total_cmp);
        timed.waiting = waits[waits.len() / 2];
        Ok(timed)
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Result<(), GpuError> {
        let word = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        self.machine.read::<u32>(&word, 0, &mut [0])
    }

    fn note<T>(
        &self,
        name: &'static str,
        extent: [u32; 3],
        work: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        let started = Instant::now();
        let result = work()?;
        self.wait()?;
        let seconds = (started.elapsed().as_secs_f64() - self.waiting).max(0.0);
        let mut times = self.times();
        let (launches, sum) = times.entry((name, extent)).or_default();
        *launches += 1;
        *sum += seconds;
        Ok(result)
    }
}

impl<M: Machine + Clone> Clone for Timed<M> {
    fn clone(&self) -> Self {
        Self {
            machine: self.machine.clone(),
            times: self.times.clone(),
            word: self.word.clone(),
            waiting: self.waiting,
        }
    }
}

impl<M: Machine> Machine for Timed<M> {
    type Memory<T: Word> = M::Memory<T>;

    fn zeros<T: Word>(&self, len: usize) -> Result<M::Memory<T>, GpuError> {
        self.machine.zeros(len)
    }

    fn clear<T: Word>(&self, memory: &mut M::Memory<T>) -> Result<(), GpuError> {
        self.note("clear", [0; 3], || self.machine.clear(memory))
    }

    fn write<T: Word>(&self, memory: &mut M::Memory<T>, at: usize, words: &[T]) -> Result<(), GpuError> {
        self.note("write", [0; 3], || self.machine.write(memory, at, words))
    }

    fn read<T: Word>(&self, memory: &M::Memory<T>, at: usize, into: &mut [T]) -> Result<(), GpuError> {
        self.note("read", [0; 3], || self.machine.read(memory, at, into))
    }

    fn largest(
        &self,
        span: Span,
        values: &M::Memory<u32>,
        found: &mut M::Memory<u32>,
    ) -> Result<(), GpuError> {
        self.note("largest", [0; 3], || self.machine.largest(span, values, found))
    }

    fn squares(
        &self,
        span: Span,
        values: &M::Memory<u32>,
        found: &M::Memory<u32>,
        limbs: &mut M::Memory<u64>,
    ) -> Result<(), GpuError> {
        self.note("squares", [0; 3], || {
            self.machine.squares(span, values, found, limbs)
        })
    }

    fn add_bounded(
        &self,
        span: Span,
        values: &M::Memory<u32>,
        factors: &M::Memory<u32>,
        sum: &mut M::Memory<u64>,
    ) -> Result<(), GpuError> {
        self.note("add_bounded", [0; 3], || {
            self.machine.add_bounded(span, values, factors, sum)
        })
    }
}

impl<M: Trainer> Trainer for Timed<M> {
    fn run(
        &self,
        kernel: Kernel,
        threads: u64,
        slots: u32,
        call: &Call,
        memory: TrainingMemory<'_, Self>,
    ) -> Result<(), GpuError> {
        self.note(kernel.name(), call.extent(), || {
            self.machine.run(kernel, threads, slots, call, memory.of())
        })
    }
}

/// One round of one model, a line per kernel and extent, the slowest first. Waiting makes the round itself slower than without.
pub(crate) fn run<M: Trainer + Clone>(machine: &M, arguments: &Arguments) -> anyhow::Result<Value> {
    let mut models = serde_json::Map::new();
    for world in World::measured(arguments)? {
        let (users, examples, tokens) = match (arguments.small, world.spec.context().is_some()) {
            (true, _) => (4, 4, 5),
            (false, false) => (128, 32, 20),
            (false, true) => (2, 16, 512),
        };
        let users = arguments.users.unwrap_or(users);
        let timed = Timed::new(machine.clone())?;
        let cohort = Cohort::even(users, examples, tokens, world.ids);
        let mut engine = world.engine(&timed, &cohort, users)?;
        let mut seconds = 0.0;
        // The first round warms up.
        for _ in 0..2 {
            timed.times().clear();
            let sink = Sum::new(world.bound(), true);
            let started = Instant::now();
            world.train(&mut engine, &cohort, &cohort.places(), &sink)?;
            seconds = started.elapsed().as_secs_f64();
        }
        let mut lines: Vec<_> = std::mem::take(&mut *timed.times()).into_iter().collect();
        lines.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
        let noted: f64 = lines.iter().map(|(_, (_, sum))| sum).sum();
        let milliseconds = |seconds: f64| (seconds * 1e5).round() / 100.0;
        for ((name, [rows, cols, depth]), (launches, sum)) in lines.iter().take(24) {
            println!(
                "profile {} {name} {rows} x {cols} x {depth}: {launches} launches, {} ms",
                world.name,
                milliseconds(*sum)
            );
        }
        models.insert(
            world.name.to_owned(),
            json!({"users_at_once": users, "round_ms": milliseconds(seconds), "kernels_and_copies_ms": milliseconds(noted)}),
        );
    }
    Ok(Value::Object(models))
}
