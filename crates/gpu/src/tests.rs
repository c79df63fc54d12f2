//! The engine on the emulator against the models of the processor, and the independence of units.

mod independence;
mod products;

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use undertone_aggregation::{Clipping, MicrobatchOutcome, NonFinite};
use undertone_gpu_sum::{Emulator, GpuError, Machine, Span, Word};
use undertone_local::{
    CohortText, CpuEngine, Engine, LocalError, LocalOutcome, LocalTask, UpdateSink, UserBatches, Work,
};
use undertone_models::{ModelSpec, SequenceModel};
use undertone_settings::UserSettings;
use undertone_text::SpecialIds;

use crate::call::{Call, Kernel, count, product};
use crate::{Capacity, GpuEngine, Trainer, TrainingMemory};

const IDS: usize = 61;

fn specs() -> Vec<ModelSpec> {
    [
        r#"{"family":"dplm","embed":6,"hidden":9}"#,
        r#"{"family":"dplm","embed":7,"hidden":5,"unit_norm":false}"#,
        r#"{"family":"stackoverflow","embed":6,"hidden":11}"#,
        r#"{"family":"cifg","cells":9,"embedding":6,"projection":5}"#,
        r#"{"family":"cifg","cells":12,"embedding":6,"projection":6,"tied":true}"#,
    ]
    .into_iter()
    .map(|text| serde_json::from_str(text).unwrap())
    .collect()
}

fn settings(keys: &str) -> UserSettings {
    let text = format!(r#"{{"clip_every_step": false, {keys}}}"#);
    serde_json::from_str(&text).unwrap()
}

/// The examples of each user, by place.
struct Cohort(Vec<Vec<Vec<u32>>>);

impl CohortText for Cohort {
    fn order(&self, place: usize) -> [u8; 32] {
        // The seed belongs to the user's text and not to its place, so that users can be moved.
        let sum: u32 = self.0[place].concat().iter().sum();
        [(sum % 251) as u8; 32]
    }

    fn examples(&self, place: usize) -> Vec<&[u32]> {
        self.0[place].iter().map(|example| &example[..]).collect()
    }

    fn example(&self, place: usize, example: usize) -> &[u32] {
        &self.0[place][example]
    }
}

/// Users of different sizes, one of them without text.
fn cohort() -> Cohort {
    let mut next = 5u32;
    let mut draw = |below: u32| {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next / 7 % below
    };
    let users = [7, 1, 0, 12, 4, 2, 9].map(|examples| {
        let example = |_| {
            let length = 1 + draw(6);
            (0..length).map(|_| 3 + draw(IDS as u32 - 3)).collect()
        };
        (0..examples).map(example).collect()
    });
    Cohort(users.into())
}

#[derive(Default)]
struct Kept(Mutex<BTreeMap<usize, (Vec<f32>, LocalOutcome)>>);

impl UpdateSink for Kept {
    fn accept(&self, place: usize, update: &[f32], outcome: LocalOutcome) -> Result<(), LocalError> {
        let earlier = self.0.lock().unwrap().insert(place, (update.to_vec(), outcome));
        assert!(earlier.is_none(), "place {place} came twice");
        Ok(())
    }

    fn accept_microbatch(&self, _: usize, _: &[f32], _: MicrobatchOutcome) -> Result<(), LocalError> {
        panic!("no microbatch was asked for")
    }
}

/// A model with random parameters.
struct World {
    spec: ModelSpec,
    model: Box<dyn SequenceModel>,
    theta: Vec<f32>,
    clipping: Clipping,
    non_finite: NonFinite,
}

fn capacity(users: usize, longest: usize, max_examples: usize) -> Capacity {
    Capacity {
        users,
        longest,
        max_examples,
    }
}

impl World {
    fn new(spec: ModelSpec) -> Self {
        let model = spec.build(IDS).unwrap();
        let theta = model.initial_params(3);
        Self {
            spec,
            theta,
            model,
            clipping: Clipping::Flat { clip_norm: 0.5 },
            non_finite: NonFinite::Zero,
        }
    }

    fn task<'a>(&'a self, settings: &'a UserSettings) -> LocalTask<'a> {
        LocalTask {
            round: 0,
            theta: &self.theta,
            layout: self.model.layout(),
            clipping: &self.clipping,
            estimate: None,
            special: SpecialIds::WORDS,
            settings,
            non_finite: self.non_finite,
        }
    }

    fn engine<M: Trainer + Clone>(&self, machine: M, settings: &UserSettings, slots: usize) -> GpuEngine<M> {
        let capacity = capacity(slots, 6, 12);
        GpuEngine::new(machine, &self.spec, self.model.as_ref(), settings, capacity).unwrap()
    }

    /// The updates of some users of a cohort.
    fn updates(
        &self,
        engine: &mut dyn Engine,
        settings: &UserSettings,
        cohort: &Cohort,
        places: &[usize],
    ) -> BTreeMap<usize, (Vec<f32>, LocalOutcome)> {
        let sink = Kept::default();
        let work = Work::Users { text: cohort, places };
        engine.train(&self.task(settings), &work, &sink).unwrap();
        sink.0.into_inner().unwrap()
    }

    fn on_processor(
        &self,
        settings: &UserSettings,
        cohort: &Cohort,
        places: &[usize],
    ) -> BTreeMap<usize, (Vec<f32>, LocalOutcome)> {
        let mut engine = CpuEngine::new(self.model.as_ref(), settings, 1, 6, 12);
        self.updates(&mut engine, settings, cohort, places)
    }
}

fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |top, value| top.max(value.abs()))
}

const EVERYONE: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];

/// One step of a large learning rate is a gradient, and the rounding of the parameters does not hide it.
#[test]
fn a_gradient_is_that_of_the_model_in_double_precision_to_1e_5() {
    for spec in specs() {
        let world = World::new(spec);
        let rate = 256.0;
        let settings = settings(r#""batch_size": 100, "learning_rate": 256.0"#);
        let cohort = cohort();
        let updates = world.updates(
            &mut world.engine(Emulator::default(), &settings, 3),
            &settings,
            &cohort,
            &EVERYONE,
        );
        let wide: Vec<f64> = world.theta.iter().copied().map(f64::from).collect();
        let mut worker = world.model.check_worker(12, 72);
        for place in EVERYONE {
            let batches = UserBatches::new(&cohort.examples(place), cohort.order(place), &settings);
            let steps: Vec<_> = batches.into_steps(&settings, SpecialIds::WORDS).collect();
            let (update, outcome) = &updates[&place];
            let Some((batch, _)) = steps.first() else {
                assert!(update.iter().all(|&value| value == 0.0) && outcome.tokens == 0);
                continue;
            };
            let mut gradient = vec![0.0; wide.len()];
            let stats = worker.gradient(&wide, &batch.batch(), &mut gradient).unwrap();
            assert_eq!(outcome.tokens, stats.targets as u64);
            assert!(
                (outcome.loss_sum - stats.loss_sum).abs() < 1e-5 * stats.loss_sum,
                "{:?}",
                world.spec
            );
            for tensor in world.model.layout().tensors() {
                let range = world.model.layout().range(&tensor.name).unwrap();
                let scale = largest(gradient[range.clone()].iter().copied());
                let differ = |i: usize| gradient[i] + f64::from(update[i]) / rate;
                let difference = largest(range.clone().map(differ));
                assert!(
                    difference <= 1e-5 * scale,
                    "{:?} {}: {difference:e} of {scale:e}",
                    world.spec,
                    tensor.name
                );
                assert!(scale > 0.0, "{}", tensor.name);
            }
        }
    }
}

#[test]
fn several_steps_give_the_updates_of_the_processor() {
    for spec in specs() {
        for keys in [
            r#""batch_size": 3, "learning_rate": 0.5, "epochs": 2"#,
            r#""batch_size": 2, "learning_rate": 0.3, "batching": "stream", "unroll": 4"#,
            r#""batch_size": 4, "learning_rate": 0.5, "max_steps": 2, "weight_cap": 10, "max_examples": 9"#,
        ] {
            let (world, settings, cohort) = (World::new(spec.clone()), settings(keys), cohort());
            let expected = world.on_processor(&settings, &cohort, &EVERYONE);
            let mut engine = world.engine(Emulator::default(), &settings, 4);
            let got = world.updates(&mut engine, &settings, &cohort, &EVERYONE);
            for place in EVERYONE {
                let ((update, outcome), (expected, of_processor)) = (&got[&place], &expected[&place]);
                assert_eq!(outcome.weight, of_processor.weight);
                assert_eq!(
                    (outcome.examples, outcome.tokens),
                    (of_processor.examples, of_processor.tokens)
                );
                assert!((outcome.loss_sum - of_processor.loss_sum).abs() <= 1e-5 * of_processor.loss_sum);
                let scale = largest(expected.iter().copied().map(f64::from));
                let differences = update.iter().zip(expected).map(|(a, b)| f64::from(a - b));
                let difference = largest(differences);
                // Two computations in single precision, whose parameters are rounded at each step.
                assert!(
                    difference <= 1e-5 * scale + 2e-7,
                    "{spec:?} {keys} {place}: {difference:e} of {scale:e}"
                );
            }
        }
    }
}

#[test]
fn projection_after_every_step_gives_the_updates_of_the_processor() {
    for (spec, clipping) in specs().into_iter().flat_map(|spec| {
        let groups = spec.build(IDS).unwrap().layout().groups().len();
        [
            (spec.clone(), Clipping::Flat { clip_norm: 0.05 }),
            (spec, Clipping::per_layer_equal(0.05, groups)),
        ]
    }) {
        let world = World {
            clipping: clipping.clone(),
            ..World::new(spec.clone())
        };
        let settings = UserSettings {
            clip_every_step: true,
            ..settings(r#""batch_size": 3, "learning_rate": 0.5"#)
        };
        let cohort = cohort();
        let expected = world.on_processor(&settings, &cohort, &EVERYONE);
        let mut engine = world.engine(Emulator::default(), &settings, 4);
        let got = world.updates(&mut engine, &settings, &cohort, &EVERYONE);
        for place in EVERYONE {
            let ((update, outcome), (expected, of_processor)) = (&got[&place], &expected[&place]);
            let (report, of_processor) = (outcome.projected.unwrap(), of_processor.projected.unwrap());
            assert_eq!(
                report.clipped, of_processor.clipped,
                "{spec:?} {clipping:?} {place}"
            );
            assert!((report.norm - of_processor.norm).abs() <= 1e-5 * of_processor.norm + 1e-9);
            let differences = update.iter().zip(expected).map(|(a, b)| f64::from(a - b));
            let difference = largest(differences);
            assert!(
                difference <= 1e-6,
                "{spec:?} {clipping:?} {place}: {difference:e}"
            );
        }
    }
}

#[test]
fn users_whose_numbers_leave_their_range_count_as_zero_and_keep_their_weight() {
    for spec in specs() {
        let mut world = World::new(spec);
        // The second user's text alone reads this token.
        let (token, cohort) = (
            60,
            Cohort(vec![vec![vec![5, 6, 7]; 4], vec![vec![60, 60, 60]; 4]]),
        );
        let embedding = world.model.layout().range("embedding").unwrap().start;
        let width = world.model.layout().tensors()[0].shape[1];
        world.theta[embedding + token * width] = f32::NAN;
        let settings = settings(r#""batch_size": 2, "learning_rate": 0.5, "weight_cap": 8"#);
        let tied = world.model.layout().range("out").is_none();
        let mut engine = world.engine(Emulator::default(), &settings, 2);
        let updates = world.updates(&mut engine, &settings, &cohort, &[0, 1]);
        // A tied embedding is the output matrix, too, so the first user reads the token there.
        for (place, discarded) in [(0, tied), (1, true)] {
            let (update, outcome) = &updates[&place];
            assert_eq!(outcome.discarded, discarded, "{:?} {place}", world.spec);
            assert_eq!(outcome.weight, 0.5);
            if discarded {
                assert!(update.iter().all(|&value| value == 0.0));
                assert_eq!((outcome.tokens, outcome.loss_sum), (0, 0.0));
            }
        }
        world.non_finite = NonFinite::Refuse;
        let work = Work::Users {
            text: &cohort,
            places: &[1],
        };
        let error = engine
            .train(&world.task(&settings), &work, &Kept::default())
            .unwrap_err();
        assert_eq!(error.place, 1);
        assert!(error.to_string().contains("loss"), "{error}");
    }
}

#[test]
fn what_the_engine_does_not_know_is_an_error_that_names_the_key() {
    let world = World::new(specs().remove(0));
    let refused = |spec: &str, keys: &str| {
        let spec: ModelSpec = serde_json::from_str(spec).unwrap();
        let model = spec.build(IDS).unwrap();
        let settings: UserSettings = serde_json::from_str(keys).unwrap();
        let capacity = capacity(2, 6, 12);
        let engine = GpuEngine::new(Emulator::default(), &spec, model.as_ref(), &settings, capacity);
        engine.err().unwrap().to_string()
    };
    for (spec, family) in [
        (
            r#"{"family":"transformer","layers":1,"width":4,"heads":1}"#,
            "transformer",
        ),
        (
            r#"{"family":"llama","layers":1,"width":4,"heads":1,"inner":4}"#,
            "llama",
        ),
    ] {
        assert_eq!(
            refused(spec, r#"{"algorithm": "fedavg", "learning_rate": 0.5}"#),
            format!("model.family: expected `dplm`, `stackoverflow` or `cifg` on a GPU, got {family}")
        );
    }
    assert_eq!(
        refused(r#"{"family":"cifg"}"#, r#"{"algorithm": "uls", "group_size": 4}"#),
        "user_update.algorithm: expected `fedavg` on a GPU, got uls"
    );
    // More text than the engine took memory for, and a token outside the vocabulary.
    let settings = settings(r#""batch_size": 2, "learning_rate": 0.5"#);
    let mut engine = world.engine(Emulator::default(), &settings, 2);
    for (cohort, message) in [
        (
            Cohort(vec![vec![vec![5; 9]; 2]]),
            "rows of a batch: expected at most 12, got 18",
        ),
        (
            Cohort(vec![vec![vec![5, 61, 7]]]),
            "a token: expected below 61, got 61",
        ),
    ] {
        let work = Work::Users {
            text: &cohort,
            places: &[0],
        };
        let error = engine
            .train(&world.task(&settings), &work, &Kept::default())
            .unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

proptest! {
    /// A slot's words depend on its own batch alone, but for the places of its lists.
    #[test]
    fn the_words_of_a_slot_do_not_depend_on_other_slots(
        users in prop::collection::vec(prop::collection::vec(prop::collection::vec(3..61u32, 1..7), 1..5), 1..6),
        chosen in 0..6usize,
        place in 0..6usize,
    ) {
        use crate::call::header;
        use crate::{frame::{Extents, Frame}, table::Table};
        let extents = Extents { slots: 6, sequences: 4, steps: 6, groups: 1 };
        let frame = Frame::new(extents, 1, IDS as u32, 1);
        let chosen = chosen % users.len();
        let settings = settings(r#""batch_size": 4, "learning_rate": 0.5"#);
        let batch = |user: usize| {
            let examples: Vec<&[u32]> = users[user].iter().map(|example| &example[..]).collect();
            let batches = UserBatches::new(&examples, [1; 32], &settings);
            batches.into_steps(&settings, SpecialIds::WORDS).next().unwrap().0
        };
        let lists = |table: &Table, slot: usize| -> Vec<Vec<u32>> {
            let words = table.words();
            let header = &words[slot * header::WORDS..][..header::WORDS];
            let rows = header[header::ROWS] as usize;
            let list = |word: usize, len: usize| words[header[word] as usize..][..len].to_vec();
            vec![
                header[..header::INPUT_IDS].to_vec(),
                list(header::INPUT_IDS, rows),
                list(header::TARGET_IDS, rows),
                list(header::PREVIOUS, rows),
                list(header::CHAINS, 2 * rows),
                list(header::STARTS, header[header::STEPS] as usize + 1),
                list(header::LASTS, header[header::SEQUENCES] as usize),
            ]
        };
        let mut alone = Table::new(IDS as u32);
        alone.begin(1);
        alone.give(0, &batch(chosen).batch(), false, &frame).unwrap();
        let mut together = Table::new(IDS as u32);
        together.begin(6);
        for slot in 0..6 {
            let user = if slot == place { chosen } else { slot % users.len() };
            together.give(slot, &batch(user).batch(), false, &frame).unwrap();
        }
        prop_assert_eq!(lists(&alone, 0), lists(&together, place));
        prop_assert!(together.words().len() <= Table::max_words(&frame, 6));
    }
}
