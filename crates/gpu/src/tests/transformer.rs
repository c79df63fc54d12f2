//! Transformers on the emulator against those of the processor, and the independence of units.

use undertone_local::Algorithm;
use undertone_models::{SequenceWeights, SequenceWorker};

use super::independence::{differing_bits, grid};
use super::*;

/// Architectures that differ in every kernel: positions, norms, gates, shared keys, norms of heads, adapters.
fn specs() -> Vec<ModelSpec> {
    [
        r#"{"family":"transformer","layers":2,"width":12,"heads":3,"context":9}"#,
        r#"{"family":"transformer","layers":1,"width":16,"heads":2,"context":8,"positions":"rotary","feed_forward":3}"#,
        r#"{"family":"llama","layers":2,"width":16,"heads":4,"key_heads":2,"inner":20,"context":8}"#,
        r#"{"family":"llama","layers":1,"width":8,"heads":2,"key_heads":1,"head_width":6,"inner":9,"context":7,"gate":"gelu",
            "biases":["qkv"],"head_norms":true,"scaled_embedding":true,"tied":true,"norm_epsilon":1e-5,"rows":70}"#,
        r#"{"family":"transformer","layers":2,"width":12,"heads":3,"context":9,"lora":{"rank":2,"alpha":3.0}}"#,
        r#"{"family":"llama","layers":1,"width":16,"heads":4,"key_heads":2,"inner":20,"context":8,
            "lora":{"rank":3,"alpha":2.0,"targets":["qkv","down"]}}"#,
    ]
    .into_iter()
    .map(|text| serde_json::from_str(text).unwrap())
    .collect()
}

/// A model with random parameters in every tensor.
fn world(spec: ModelSpec) -> World {
    let transformer = spec.transformer(IDS).unwrap().unwrap();
    let random = |len: usize, seed: u32| -> Vec<f32> {
        let mut state = seed;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24) - 0.5
        };
        (0..len).map(|_| (0.6 * draw()) as f32).collect()
    };
    let model: Box<dyn SequenceModel> = match spec.lora() {
        Some(lora) => {
            let base = random(transformer.layout().len(), 5);
            Box::new(transformer.with_lora(base, lora).unwrap())
        }
        None => Box::new(transformer),
    };
    World {
        spec,
        theta: random(model.layout().len(), 7),
        model,
        clipping: Clipping::Flat { clip_norm: 0.5 },
        non_finite: NonFinite::Zero,
        precision: Precision::F32,
    }
}

fn uls() -> UserSettings {
    serde_json::from_str(r#"{"algorithm": "uls", "group_size": 8, "batch_size": 3}"#).unwrap()
}

/// ULS in double precision: the negative mean of the gradients of a user's examples.
fn exact(world: &World, settings: &UserSettings, cohort: &Cohort, place: usize) -> (Vec<f64>, f64) {
    let wide: Vec<f64> = world.theta.iter().copied().map(f64::from).collect();
    let mut worker: Box<dyn SequenceWorker<f64>> = world.model.check_worker(12, 72);
    let batches = UserBatches::new(&cohort.examples(place), cohort.order(place), settings);
    let weight = -1.0 / batches.examples().len().max(1) as f64;
    let (mut total, mut loss) = (vec![0.0; wide.len()], 0.0);
    for (batch, _) in batches.into_steps(settings, SpecialIds::WORDS) {
        let (mut gradient, count) = (vec![0.0; wide.len()], batch.batch().sequences());
        let weights = vec![weight; count];
        let weights = SequenceWeights::Fixed(&weights);
        let stats = worker.weighted_gradient(
            &wide,
            &batch.batch(),
            weights,
            &mut gradient,
            &mut vec![0.0; count],
        );
        loss += stats.unwrap().loss_sum;
        total
            .iter_mut()
            .zip(&gradient)
            .for_each(|(total, value)| *total += value);
    }
    (total, loss)
}

#[test]
fn the_gradient_of_a_user_is_that_of_double_precision_to_1e_5() {
    for spec in specs() {
        let (world, settings, cohort) = (world(spec), uls(), cohort());
        let mut engine = world.engine(Emulator::default(), &settings, 3);
        let updates = world.updates(&mut engine, &settings, &cohort, &EVERYONE);
        for place in EVERYONE {
            let (expected, loss) = exact(&world, &settings, &cohort, place);
            let (update, outcome) = &updates[&place];
            assert!((outcome.loss_sum - loss).abs() <= 1e-5 * loss, "{:?}", world.spec);
            assert_eq!((outcome.projected, outcome.discarded), (None, false));
            for tensor in world.model.layout().tensors() {
                let range = world.model.layout().range(&tensor.name).unwrap();
                let scale = largest(expected[range.clone()].iter().copied());
                let difference = largest(range.map(|i| expected[i] - f64::from(update[i])));
                assert!(
                    difference <= 1e-5 * scale,
                    "{:?} {} of {place}: {difference:e} of {scale:e}",
                    world.spec,
                    tensor.name
                );
                assert!(scale > 0.0 || outcome.tokens == 0, "{}", tensor.name);
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn several_steps_give_the_updates_of_the_processor() {
    for spec in specs() {
        for keys in [
            r#""batch_size": 3, "learning_rate": 0.1, "epochs": 2, "clip_every_step": false"#,
            r#""batch_size": 4, "learning_rate": 0.1, "max_steps": 2, "max_examples": 9, "clip_every_step": true"#,
        ] {
            let settings: UserSettings = serde_json::from_str(&format!("{{{keys}}}")).unwrap();
            let (world, cohort) = (world(spec.clone()), cohort());
            let expected = world.on_processor(&settings, &cohort, &EVERYONE);
            let mut engine = world.engine(Emulator::default(), &settings, 4);
            let got = world.updates(&mut engine, &settings, &cohort, &EVERYONE);
            for place in EVERYONE {
                let ((update, outcome), (expected, of_processor)) = (&got[&place], &expected[&place]);
                assert_eq!(outcome.tokens, of_processor.tokens);
                assert!((outcome.loss_sum - of_processor.loss_sum).abs() <= 2e-5 * of_processor.loss_sum);
                let scale = largest(expected.iter().copied().map(f64::from));
                let difference = largest(update.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
                // Two computations in single precision, whose parameters are rounded at each step.
                assert!(
                    difference <= 2e-5 * scale + 4e-7,
                    "{spec:?} {keys} {place}: {difference:e} of {scale:e}"
                );
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn an_update_has_the_same_bits_in_any_slot_beside_any_users_on_any_grid() {
    for spec in specs() {
        let mut world = world(spec);
        for (settings, precision) in [
            (uls(), Precision::F32),
            (
                settings(r#""batch_size": 3, "learning_rate": 0.1, "epochs": 2"#),
                Precision::F32,
            ),
            (uls(), Precision::Bf16),
        ] {
            world.precision = precision;
            assert_eq!(differing_bits(&world, &settings, grid), 0, "{:?}", world.spec);
        }
    }
}

/// Factors that are rounded to eight binary digits leave the direction of a gradient almost as it is.
#[test]
fn coarse_products_give_nearly_the_gradient_of_double_precision() {
    for spec in specs() {
        let mut world = world(spec);
        world.precision = Precision::Bf16;
        let (settings, cohort) = (uls(), cohort());
        let mut engine = world.engine(Emulator::default(), &settings, 3);
        let updates = world.updates(&mut engine, &settings, &cohort, &EVERYONE);
        for place in EVERYONE {
            let (expected, loss) = exact(&world, &settings, &cohort, place);
            let (update, outcome) = &updates[&place];
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let got: Vec<f64> = update.iter().copied().map(f64::from).collect();
            let lengths = (dot(&expected, &expected) * dot(&got, &got)).sqrt();
            assert!(
                lengths == 0.0 || dot(&expected, &got) >= 0.999 * lengths,
                "{:?} {place}: {}",
                world.spec,
                dot(&expected, &got) / lengths
            );
            assert!(
                (outcome.loss_sum - loss).abs() <= 0.01 * loss,
                "{} {loss}",
                outcome.loss_sum
            );
            // They are not the products of single precision.
            assert!(lengths == 0.0 || dot(&expected, &got) < (1.0 - 1e-9) * lengths);
        }
    }
}

/// Long sequences have several tiles, several squares of scores and several chunks of logits.
#[test]
#[ignore = "slow"]
fn long_sequences_have_the_gradient_of_double_precision() {
    let spec = r#"{"family":"llama","layers":1,"width":8,"heads":2,"key_heads":1,"head_width":4,"inner":6,"context":150}"#;
    let world = world(serde_json::from_str(spec).unwrap());
    let settings: UserSettings =
        serde_json::from_str(r#"{"algorithm": "uls", "group_size": 20, "batch_size": 20}"#).unwrap();
    let word = |n: usize| 3 + (n * n + 7 * n) as u32 % (IDS as u32 - 3);
    let example = |length: usize| (0..length).map(|i| word(i + length)).collect::<Vec<_>>();
    let cohort = Cohort(vec![
        (0..16).map(|i| example(150 - i)).collect(),
        vec![example(65), example(64), example(1)],
    ]);
    let (spec, model) = (&world.spec, world.model.as_ref());
    let users = capacity(2, 150, 16);
    let mut engine = GpuEngine::new(
        Emulator::default(),
        spec,
        model,
        &settings,
        users,
        world.precision,
    )
    .unwrap();
    let updates = world.updates(&mut engine, &settings, &cohort, &[0, 1]);
    for place in [0, 1] {
        let wide: Vec<f64> = world.theta.iter().copied().map(f64::from).collect();
        let mut worker = world.model.check_worker(16, 16 * 150);
        let batches = UserBatches::new(&cohort.examples(place), cohort.order(place), &settings);
        let count = batches.examples().len();
        let (batch, _) = batches.into_steps(&settings, SpecialIds::WORDS).next().unwrap();
        let (weights, mut expected) = (vec![-1.0 / count as f64; count], vec![0.0; wide.len()]);
        let weights = SequenceWeights::Fixed(&weights);
        worker
            .weighted_gradient(
                &wide,
                &batch.batch(),
                weights,
                &mut expected,
                &mut vec![0.0; count],
            )
            .unwrap();
        for tensor in world.model.layout().tensors() {
            let range = world.model.layout().range(&tensor.name).unwrap();
            let scale = largest(expected[range.clone()].iter().copied());
            let difference = largest(range.map(|i| expected[i] - f64::from(updates[&place].0[i])));
            assert!(
                difference <= 1e-5 * scale,
                "{} of {place}: {difference:e} of {scale:e}",
                tensor.name
            );
        }
    }
}

#[test]
fn a_user_whose_numbers_leave_their_range_counts_as_zero() {
    for spec in specs().into_iter().filter(|spec| spec.lora().is_none()) {
        let mut world = world(spec);
        let cohort = Cohort(vec![vec![vec![5, 6, 7]; 4], vec![vec![60, 60, 60]; 4]]);
        let (embedding, width) = (
            world.model.layout().range("embedding").unwrap().start,
            world.model.layout().tensors()[0].shape[1],
        );
        world.theta[embedding + 60 * width] = f32::NAN;
        let tied = world.model.layout().range("output").is_none();
        for settings in [uls(), settings(r#""batch_size": 2, "learning_rate": 0.1"#)] {
            let mut engine = world.engine(Emulator::default(), &settings, 2);
            let updates = world.updates(&mut engine, &settings, &cohort, &[0, 1]);
            for (place, discarded) in [(0, tied), (1, true)] {
                let (update, outcome) = &updates[&place];
                assert_eq!(outcome.discarded, discarded, "{:?} {place}", world.spec);
                // An update of FedAvg has the vector that is no number, and the sum refuses it.
                let of_gradient = settings.algorithm == Algorithm::Uls;
                assert!(!of_gradient || update.iter().all(|value| value.is_finite()));
                assert!(!discarded || update.iter().all(|&value| value == 0.0));
            }
        }
    }
}

#[test]
fn what_the_engine_does_not_know_is_refused_by_its_key() {
    let spec = specs().remove(0);
    for (keys, key) in [
        (r#""algorithm": "els", "group_size": 4"#, "user_update.algorithm"),
        (
            r#""algorithm": "fedsgd", "batch_size": 4, "learning_rate": 1"#,
            "user_update.algorithm",
        ),
        (
            r#""batching": "stream", "batch_size": 4, "learning_rate": 1"#,
            "user_update.batching",
        ),
    ] {
        let settings: UserSettings = serde_json::from_str(&format!("{{{keys}}}")).unwrap();
        let error = crate::check(&spec, &settings, Precision::F32)
            .unwrap_err()
            .to_string();
        assert!(error.contains(key), "{error}");
    }
    let cifg: ModelSpec = serde_json::from_str(r#"{"family":"cifg"}"#).unwrap();
    let settings = settings(r#""batch_size": 4, "learning_rate": 1"#);
    assert_eq!(
        crate::check(&cifg, &settings, Precision::Bf16)
            .unwrap_err()
            .to_string(),
        "configuration key `engine.precision`: expected `f32` with model.family = `cifg` on a GPU, got bf16"
    );
    assert_eq!(uls().algorithm, Algorithm::Uls);
    crate::check(&spec, &uls(), Precision::F32).unwrap();
}
