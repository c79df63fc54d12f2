//! Predictions of the models that a device holds after a session, for every family of models that a task can train.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use undertone_device::{
    AlwaysMet, Clock, Conditions, Device, DeviceConfig, DeviceError, Ended, Example, MemoryKeyStore,
    NetworkLost, Predictor, Reply, Request, Stage, Stop, Transport,
};
use undertone_models::{IGNORE, ModelSpec, PackedBatch, SequenceModel, StateMode, weights};
use undertone_protocol::{Blob, Digest32, Enrol, Enrolled, Plan, SumMode, digest_of, limits, read, write};

use crate::harness::{
    self, POPULATION, ROUND, START, Service, TASK, TIMER_S, WORDS, evaluation, floors, model_bytes, plan,
};

#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

struct Wire<'a>(&'a mut Service, TestClock);

impl Transport for Wire<'_> {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        if request.target.ends_with("/enrol") {
            let enrol: Enrol = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
            let key: Digest32 = enrol.device_key.try_into().unwrap();
            return Ok(Reply {
                status: 200,
                offset: None,
                body: write(&Enrolled {
                    certificate: Some(harness::certificate(&key)),
                }),
            });
        }
        self.0.now = self.1.now_ms();
        Ok(self.0.handle(request))
    }
}

/// The stages of a session, in order.
#[derive(Default)]
struct Stages(Mutex<Vec<Stage>>);

impl Conditions for Stages {
    fn reached(&self, stage: Stage) {
        self.0.lock().unwrap().push(stage);
    }
}

/// An enrolled device with texts, in a folder.
fn device(folder: &tempfile::TempDir, caps: u64) -> (Device, TestClock) {
    let clock = TestClock(Arc::new(AtomicU64::new(START - 2 * TIMER_S * 1000)));
    let setup = harness::setup(floors());
    let mut config = DeviceConfig::new(folder.path(), POPULATION, Box::new(MemoryKeyStore::default()));
    config.board_keys = setup.board_keys;
    config.trusted_task_keys = setup.task_keys;
    config.issuers = setup.issuers;
    config.floors = setup.floors;
    config.clock = Box::new(clock.clone());
    config.cache_bytes = caps;
    let mut device = Device::open(config).unwrap();
    clock.0.store(START, Ordering::SeqCst);
    for number in 0..12 {
        let text = format!("The cat sat. A dog ran. The dog sat. A cat ran. Number {number}.");
        let example = Example {
            text: &text,
            collected_ms: START - 1000,
            expires_ms: START + 1_000_000_000,
        };
        device.examples().add(example).unwrap();
    }
    let mut nobody = Service::new(plan(SumMode::Plain));
    device
        .enrol(&mut Wire(&mut nobody, clock.clone()), "an invitation", None)
        .unwrap();
    (device, clock)
}

/// A service whose task has this model. `frozen` are the parameters that are not trained.
fn service(mut plan: Plan, spec: &str, bytes: Vec<u8>, dim: usize, frozen: Option<Vec<u8>>) -> Service {
    plan.model = spec.to_owned();
    plan.frozen = frozen.as_deref().map(Blob::of);
    if plan.loss_cap == 0.0 {
        plan.aggregation.as_mut().unwrap().length = dim as u64;
    }
    let mut service = Service::new(plan);
    let blob = Blob::of(&bytes);
    service.lies.assignment = Some(Box::new(move |assignment| assignment.model = Some(blob.clone())));
    for bytes in [Some(bytes), frozen].into_iter().flatten() {
        service.blobs.insert(digest_of(&bytes), bytes);
    }
    service
}

const FAMILIES: [&str; 6] = [
    r#"{"family": "dplm", "embed": 4, "hidden": 5}"#,
    r#"{"family": "stackoverflow", "embed": 4, "hidden": 6}"#,
    r#"{"family": "cifg", "cells": 6, "embedding": 4, "projection": 4}"#,
    r#"{"family": "cifg", "cells": 6, "embedding": 4, "projection": 4, "tied": true}"#,
    r#"{"family": "transformer", "layers": 2, "width": 8, "heads": 2, "context": 16}"#,
    r#"{"family": "transformer", "layers": 1, "width": 8, "heads": 2, "context": 16, "positions": "rotary"}"#,
];

/// Parameters that are far from uniform, so that probabilities differ.
fn parameters(model: &dyn SequenceModel) -> Vec<f32> {
    let mut all = model.initial_params(7);
    for (place, value) in all.iter_mut().enumerate() {
        *value += ((place * 37 % 101) as f32 / 101.0 - 0.5) * 0.8;
    }
    all
}

/// The probabilities of the words after these ids, computed in double precision, the most probable first.
fn expected(model: &dyn SequenceModel, parameters: &[f32], ids: &[u32]) -> Vec<(String, f64)> {
    let wide: Vec<f64> = parameters.iter().map(|&value| f64::from(value)).collect();
    let targets = vec![IGNORE; ids.len()];
    let mut packed = PackedBatch::default();
    let batch = packed.pack(&[(ids, &targets)]);
    let words: Vec<&str> = std::str::from_utf8(WORDS).unwrap().lines().collect();
    let mut all = Vec::new();
    let mut worker = model.check_worker(1, ids.len());
    worker
        .evaluate(&wide, &batch, StateMode::Zero, &mut |row, logits, normalizer| {
            if row + 1 == ids.len() {
                all = words
                    .iter()
                    .zip(&logits[3..])
                    .map(|(word, logit)| ((*word).to_owned(), (logit - normalizer).exp()))
                    .collect();
            }
        })
        .unwrap();
    all.sort_by(|a: &(String, f64), b| b.1.total_cmp(&a.1));
    all
}

fn compare(predictor: &Predictor, model: &dyn SequenceModel, parameters: &[f32], text: &str, ids: &[u32]) {
    let got = predictor.predict(text, 3).unwrap();
    let all = expected(model, parameters, ids);
    assert_eq!(got.len(), 3, "{text:?}");
    for (got, (word, probability)) in got.iter().zip(&all) {
        assert_eq!(&got.word, word, "{text:?}: {all:?}");
        assert!(
            (got.probability - probability).abs() < 1e-4,
            "{text:?}: {got:?} {probability}"
        );
    }
    let every = predictor.predict(text, usize::MAX).unwrap();
    assert_eq!(every.len(), 6, "every word of the vocabulary, and no special id");
    assert!(
        every
            .windows(2)
            .all(|pair| pair[0].probability >= pair[1].probability)
    );
    assert!(every.iter().map(|each| each.probability).sum::<f64>() < 1.0 + 1e-6);
    assert!(predictor.predict(text, 0).unwrap().is_empty());
}

fn check_contexts(predictor: &Predictor, model: &dyn SequenceModel, parameters: &[f32]) {
    // Ids: <unk> 0, <bos> 1, <eos> 2, the 3, cat 4, sat 5, a 6, dog 7, ran 8.
    for (text, ids) in [
        ("", &[1][..]),
        ("the", &[1, 3]),
        ("The Cat, sat", &[1, 3, 4, 5]),
        ("the zyzzyva ", &[1, 3, 0]),
        ("A dog ran. The", &[1, 3]),
        ("A dog ran. ", &[1]),
        // The last nine words of a long sentence.
        (
            "the the the cat sat a dog ran the cat sat",
            &[1, 3, 4, 5, 6, 7, 8, 3, 4, 5],
        ),
    ] {
        compare(predictor, model, parameters, text, ids);
    }
    let long = format!("{} the cat", "ä".repeat(200_000));
    compare(predictor, model, parameters, &long, &[1, 0, 3, 4]);
}

#[test]
fn every_family_predicts_the_probabilities_of_its_model() {
    for spec in FAMILIES {
        let model = serde_json::from_str::<ModelSpec>(spec).unwrap().build(9).unwrap();
        let parameters = parameters(model.as_ref());
        let bytes = model.write_params(&parameters, "a test").unwrap();
        let mut service = service(plan(SumMode::Plain), spec, bytes, parameters.len(), None);
        let folder = tempfile::tempdir().unwrap();
        let (mut device, clock) = device(&folder, 256 << 20);
        assert!(matches!(device.predictor(None), Err(DeviceError::NoModel)));
        let stages = Stages::default();
        let outcome = device
            .run(&mut Wire(&mut service, clock.clone()), &stages, &Stop::default())
            .unwrap();
        assert!(
            matches!(outcome.ended, Ended::Reported(_)),
            "{spec}: {:?}",
            outcome.ended
        );
        assert_eq!(
            *stages.0.lock().unwrap(),
            [
                Stage::Board,
                Stage::CheckIn,
                Stage::Loading,
                Stage::Training,
                Stage::Joining,
                Stage::Sending,
                Stage::Waiting,
                Stage::Over
            ]
        );
        let held = device.models().unwrap();
        assert_eq!((held.len(), held[0].task, held[0].round), (1, TASK, ROUND));
        let predictor = device.predictor(Some(&TASK)).unwrap();
        assert_eq!(predictor.model(), &held[0]);
        assert!(matches!(
            device.predictor(Some(&[9; 32])),
            Err(DeviceError::NoModel)
        ));
        drop(device);
        check_contexts(&predictor, model.as_ref(), &parameters);
    }
}

#[test]
fn a_model_with_adapters_predicts_by_its_frozen_parameters_too() {
    let spec = r#"{"family": "transformer", "layers": 1, "width": 8, "heads": 2, "context": 16, "lora": {"rank": 2, "alpha": 4.0}}"#;
    let typed: ModelSpec = serde_json::from_str(spec).unwrap();
    let base = typed.without_lora().build(9).unwrap();
    let frozen = base.write_params(&parameters(base.as_ref()), "a test").unwrap();
    let model = typed.load(9, &frozen).unwrap().model;
    let parameters = parameters(model.as_ref());
    let bytes = weights::to_safetensors(model.layout(), &parameters, "a test").unwrap();
    let mut service = service(plan(SumMode::Plain), spec, bytes, parameters.len(), Some(frozen));
    let folder = tempfile::tempdir().unwrap();
    let (mut device, clock) = device(&folder, 256 << 20);
    let outcome = device
        .run(&mut Wire(&mut service, clock), &AlwaysMet, &Stop::default())
        .unwrap();
    assert!(matches!(outcome.ended, Ended::Reported(_)), "{:?}", outcome.ended);
    check_contexts(&device.predictor(None).unwrap(), model.as_ref(), &parameters);
}

#[test]
fn an_evaluation_counts_as_the_update_of_an_evaluation_task_does() {
    let spec = FAMILIES[0];
    let model = serde_json::from_str::<ModelSpec>(spec).unwrap().build(9).unwrap();
    let parameters = parameters(model.as_ref());
    let bytes = model.write_params(&parameters, "a test").unwrap();
    let mut service = service(evaluation(SumMode::Plain), spec, bytes, parameters.len(), None);
    let folder = tempfile::tempdir().unwrap();
    let (mut device, clock) = device(&folder, 256 << 20);
    assert!(matches!(device.evaluate(None), Err(DeviceError::NoModel)));
    device
        .run(&mut Wire(&mut service, clock), &AlwaysMet, &Stop::default())
        .unwrap();
    let measured = device.evaluate(None).unwrap();
    assert!(
        measured.examples > 2 && measured.words > measured.examples,
        "{measured:?}"
    );
    let sent = &service.uploads.values().next().unwrap().bytes;
    let rate = |place: usize| {
        let bytes = sent[4 * place..4 * place + 4].try_into().unwrap();
        f64::from(f32::from_le_bytes(bytes)) * 3f64.sqrt()
    };
    assert!((measured.top1 - rate(0)).abs() < 1e-6, "{measured:?}");
    assert!((measured.loss - rate(1) * 10.0).abs() < 1e-4, "{measured:?}");
    assert!(
        (measured.in_vocabulary_top1 - rate(2)).abs() < 1e-6,
        "{measured:?}"
    );
}

#[test]
fn a_model_whose_parts_left_the_cache_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    // Room for the plan alone.
    let (mut device, clock) = device(&folder, 1);
    let mut service = Service::new(plan(SumMode::Plain));
    device
        .run(&mut Wire(&mut service, clock), &AlwaysMet, &Stop::default())
        .unwrap();
    assert_eq!(device.models().unwrap().len(), 1);
    assert!(matches!(device.predictor(None), Err(DeviceError::NoModel)));
}

#[test]
fn a_device_predicts_with_the_release_that_the_board_names() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, clock) = device(&folder, 256 << 20);
    let mut service = Service::new(Plan {
        max_part: 3,
        ..plan(SumMode::Plain)
    });
    let took_part = Cell::new(0);
    let mut session = |service: &mut Service| {
        let outcome = device.run(&mut Wire(service, clock.clone()), &AlwaysMet, &Stop::default());
        outcome.unwrap();
        took_part.set(device.participations().unwrap().len());
        let predictor = device.predictor(None).unwrap();
        (predictor.model().round, predictor.predict("the", 9).unwrap())
    };
    let newest = session(&mut service);
    assert_eq!(newest.0, ROUND);
    // An earlier release with other parameters.
    let mut earlier = model_bytes();
    let last = earlier.len() - 4;
    earlier[last..].copy_from_slice(&9f32.to_le_bytes());
    let name = Blob::of(&earlier);
    let pin = |service: &mut Service, pinned: Option<Blob>| {
        service.lies.board = Some(Box::new(move |board| {
            board.tasks[0].pinned.clone_from(&pinned);
            board.tasks[0].pinned_round = 1;
        }));
    };
    // One that does not come changes nothing.
    pin(&mut service, Some(name.clone()));
    assert_eq!(session(&mut service), newest);
    service.blobs.insert(digest_of(&earlier), earlier);
    let pinned = session(&mut service);
    assert_eq!(pinned.0, 1);
    assert_ne!(pinned.1, newest.1);
    assert_eq!(session(&mut service), pinned);
    // Bytes of another digest are no release.
    service.blobs.insert([7; 32], model_bytes());
    pin(
        &mut service,
        Some(Blob {
            sha256: vec![7; 32],
            ..name.clone()
        }),
    );
    assert_eq!(session(&mut service), pinned);
    // A session that trains the newest model leaves the pinned one.
    let later = |service: &mut Service| {
        service.round += 10;
        clock.0.fetch_add(2 * TIMER_S * 1000, Ordering::SeqCst);
    };
    pin(&mut service, Some(name.clone()));
    later(&mut service);
    assert_eq!((session(&mut service), took_part.get()), (pinned, 2));
    // Without a pin the next one brings the newest model.
    pin(&mut service, None);
    session(&mut service);
    later(&mut service);
    let (round, predictions) = session(&mut service);
    assert_eq!((round, took_part.get()), (service.round, 3));
    assert_eq!(predictions, newest.1);
}

#[test]
fn predictions_of_several_threads_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, clock) = device(&folder, 256 << 20);
    let mut service = Service::new(plan(SumMode::Plain));
    device
        .run(&mut Wire(&mut service, clock), &AlwaysMet, &Stop::default())
        .unwrap();
    let predictor = device.predictor(None).unwrap();
    let texts = ["", "the", "the cat", "a dog ran"];
    let alone: Vec<_> = texts
        .iter()
        .map(|text| predictor.predict(text, 4).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    for (text, alone) in texts.iter().zip(&alone) {
                        assert_eq!(&predictor.predict(text, 4).unwrap(), alone);
                    }
                }
            });
        }
    });
}
