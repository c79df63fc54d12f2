//! Independence of units: an update has the same bits in any slot, beside any users and on any grid.

use super::*;

/// The bits of each update, by the text of its user.
fn bits(
    cohort: &Cohort,
    updates: BTreeMap<usize, (Vec<f32>, LocalOutcome)>,
) -> BTreeMap<Vec<Vec<u32>>, Vec<u32>> {
    let of_user = |(place, (update, _)): (usize, (Vec<f32>, LocalOutcome))| {
        let bits = update.into_iter().map(f32::to_bits).collect();
        (cohort.0[place].clone(), bits)
    };
    updates.into_iter().map(of_user).collect()
}

/// The updates of the same users alone, in other slots, beside others, in other groups, and on other grids.
fn differing_bits<M: Trainer + Clone>(
    world: &World,
    settings: &UserSettings,
    machine: impl Fn(usize) -> M,
) -> usize {
    let cohort = cohort();
    let mut alone = BTreeMap::new();
    for place in EVERYONE {
        let mut engine = world.engine(machine(0), settings, 1);
        alone.extend(bits(
            &cohort,
            world.updates(&mut engine, settings, &cohort, &[place]),
        ));
    }
    let mut differing = 0;
    for (number, order) in [
        [6, 5, 4, 3, 2, 1, 0],
        [3, 0, 6, 1, 5, 2, 4],
        [2, 3, 1, 4, 0, 6, 5],
    ]
    .iter()
    .enumerate()
    {
        for slots in [1, 2, 3, 7, 9] {
            let mut engine = world.engine(machine(number), settings, slots);
            // The second time the memory holds what the first users left there.
            for places in [&order[..], &order[2..5]] {
                let updates = world.updates(&mut engine, settings, &cohort, places);
                for (user, update) in bits(&cohort, updates) {
                    let expected = &alone[&user];
                    differing += update.iter().zip(expected).filter(|(a, b)| a != b).count();
                }
            }
        }
    }
    differing
}

fn grid(number: usize) -> Emulator {
    let (blocks, threads, stride) = [(3, 1, 1), (5, 8, 3), (7, 32, 2)][number % 3];
    Emulator::new(blocks, threads, stride).unwrap()
}

#[test]
#[ignore = "slow"]
fn an_update_has_the_same_bits_in_any_slot_beside_any_users_on_any_grid() {
    for spec in specs() {
        for keys in [
            r#""batch_size": 3, "learning_rate": 0.5, "epochs": 2"#,
            r#""batch_size": 2, "learning_rate": 0.3, "batching": "stream", "unroll": 4, "clip_every_step": true"#,
        ] {
            let keys = keys.to_owned();
            let world = World::new(spec.clone());
            let mut settings = settings(&keys.replace(r#", "clip_every_step": true"#, ""));
            settings.clip_every_step = keys.contains("clip_every_step");
            assert_eq!(differing_bits(&world, &settings, grid), 0, "{spec:?} {keys}");
        }
    }
}

/// A machine that adds up long products in two halves where the launch is large, as a library may choose another kernel for it.
#[derive(Clone)]
struct Halves(Emulator);

impl Machine for Halves {
    type Memory<T: Word> = Vec<T>;

    fn zeros<T: Word>(&self, len: usize) -> Result<Vec<T>, GpuError> {
        self.0.zeros(len)
    }

    fn clear<T: Word>(&self, memory: &mut Vec<T>) -> Result<(), GpuError> {
        self.0.clear(memory)
    }

    fn write<T: Word>(&self, memory: &mut Vec<T>, at: usize, words: &[T]) -> Result<(), GpuError> {
        self.0.write(memory, at, words)
    }

    fn read<T: Word>(&self, memory: &Vec<T>, at: usize, into: &mut [T]) -> Result<(), GpuError> {
        self.0.read(memory, at, into)
    }

    fn largest(&self, span: Span, values: &Vec<u32>, found: &mut Vec<u32>) -> Result<(), GpuError> {
        self.0.largest(span, values, found)
    }

    fn squares(
        &self,
        span: Span,
        values: &Vec<u32>,
        found: &Vec<u32>,
        limbs: &mut Vec<u64>,
    ) -> Result<(), GpuError> {
        self.0.squares(span, values, found, limbs)
    }

    fn add_bounded(
        &self,
        span: Span,
        values: &Vec<u32>,
        factors: &Vec<u32>,
        sum: &mut Vec<u64>,
    ) -> Result<(), GpuError> {
        self.0.add_bounded(span, values, factors, sum)
    }
}

impl Trainer for Halves {
    fn run(
        &self,
        kernel: Kernel,
        threads: u64,
        slots: u32,
        call: &Call,
        memory: TrainingMemory<'_, Self>,
    ) -> Result<(), GpuError> {
        let TrainingMemory {
            parameters,
            room,
            table,
        } = memory;
        let mut run = |call: &Call| {
            let memory = TrainingMemory {
                parameters: &mut *parameters,
                room: &mut *room,
                table,
            };
            self.0.run(kernel, threads, slots, call, memory)
        };
        let splits = kernel.name().starts_with("product")
            && call.mode == product::SET
            && call.depth < count::SEQUENCES;
        if !splits || slots < 3 || call.depth < 8 {
            return run(call);
        }
        let half = call.depth / 2;
        let (mut first, mut second) = (*call, *call);
        first.depth = half;
        second.depth -= half;
        second.a.at += u64::from(half) * u64::from(call.a.col);
        second.b.at += u64::from(half) * u64::from(call.b.row);
        second.mode = product::ADD;
        run(&first)?;
        run(&second)
    }
}

#[test]
fn a_machine_whose_sums_depend_on_the_launch_is_found() {
    let world = World::new(specs().remove(0));
    let settings = settings(r#""batch_size": 3, "learning_rate": 0.5, "epochs": 2"#);
    let differing = differing_bits(&world, &settings, |_| Halves(Emulator::default()));
    assert!(differing > 0);
}
