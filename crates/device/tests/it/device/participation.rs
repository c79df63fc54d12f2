//! Rounds a device takes part in, and what they leave on the disk.

use std::cell::Cell;

use undertone_device::{
    AlwaysMet, Clock, Counter, Device, DeviceError, Diagnosis, Ended, FileKeyStore, Ineligible, KeyStore,
    Method, Progress, Stop, Subject,
};
use undertone_protocol::{SumMode, Verdict};

use crate::device::lab::{Lab, Wire, copy, files, run_with};
use crate::harness::{START, Service, TASK, TIMER_S, plan};

/// The board says less than the plan asks for, so that the board alone would let the device in.
#[test]
fn the_doctor_decides_by_the_signed_plan_and_not_by_the_board_alone() {
    let lab = Lab::new();
    let device = lab.ready();
    let answer = |change: fn(&mut Service)| {
        let mut service = Service::new(plan(SumMode::Plain));
        change(&mut service);
        let mut wire = Wire {
            service: &mut service,
            clock: lab.clock.clone(),
            before: Box::new(|_| Ok(())),
        };
        let found = device.examine(&mut wire).unwrap();
        let mut of_tasks = found
            .iter()
            .filter(|finding| matches!(finding.subject, Subject::Task(_)));
        let of_task = of_tasks.next().unwrap_or_else(|| panic!("{found:?}"));
        of_task.condition.clone()
    };
    let may = answer(|_| ());
    assert!(matches!(may, Diagnosis::Good(_)), "{may:?}");
    let few = answer(|service| {
        let mut plan = service.plan.clone();
        (plan.min_examples, plan.max_examples) = (1000, 1000);
        *service = Service::new(plan);
        service.lies.board = Some(Box::new(|board| board.tasks[0].min_examples = 1));
    });
    assert_eq!(few, Diagnosis::Ineligible(Ineligible::TooFewExamples));
    let early = answer(|service| {
        let mut plan = service.plan.clone();
        plan.timer_s *= 100;
        *service = Service::new(plan);
        service.lies.board = Some(Box::new(|board| board.tasks[0].timer_s = 0));
    });
    assert!(
        matches!(early, Diagnosis::Ineligible(Ineligible::TooNew { .. })),
        "{early:?}"
    );
}

#[test]
fn a_device_takes_part_and_its_memory_survives_a_restart() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut service = Service::new(plan(SumMode::Plain));
    let before = device.status().unwrap();
    assert!(before.enrolled && before.training_examples > 2 && before.withheld_examples > 2);
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    drop(device);

    let mut device = lab.open();
    let participations = device.participations().unwrap();
    assert_eq!(participations.len(), 1);
    assert_eq!(participations[0].progress, Progress::Ended(Verdict::Included));
    let status = device.status().unwrap();
    assert_eq!((status.participations, status.session_keys), (1, 0));
    assert!((status.spent_rho - 0.4).abs() < 1e-12 && status.wake_ms > START);
    assert!(
        device.memory().unwrap().window.is_some(),
        "an outage spreads devices over it"
    );
    // The same round once more: its own memory bars the device, before it says anything.
    let asked = service.log.len();
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert!(
        matches!(ended, Ended::NotEligible(ref reasons) if matches!(reasons[0].1, Ineligible::TooSoon { .. })),
        "{ended:?}"
    );
    assert_eq!(service.log.len(), asked + 1);
}

#[test]
fn a_second_session_loads_no_blob_twice() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut service = Service::new(plan(SumMode::Plain));
    run_with(&lab, &mut device, &mut service, |_| Ok(()));
    let blobs = |service: &Service| {
        let paths = service.paths(Method::Get);
        paths.iter().filter(|path| path.starts_with("/v1/blobs/")).count()
    };
    assert_eq!(blobs(&service), 3);
    lab.clock.sleep(2 * TIMER_S * 1000);
    service.round += 3;
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    assert_eq!(blobs(&service), 3);
}

#[test]
fn a_cache_that_cannot_be_written_ends_no_session() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let cache = lab.store().join("cache");
    std::fs::remove_dir(&cache).unwrap();
    std::fs::write(&cache, b"no folder").unwrap();
    let mut service = Service::new(plan(SumMode::Plain));
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
}

/// A store whose counters cannot be raised: the participation cannot be confirmed.
#[test]
fn a_participation_that_cannot_be_counted_sends_nothing() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut service = Service::new(plan(SumMode::Plain));
    let mut wire = Wire {
        service: &mut service,
        clock: lab.clock.clone(),
        // The key store's folder vanishes before the device has trained.
        before: Box::new(|request| {
            if request.target.contains("/v1/blobs/") && lab.keys().exists() {
                std::fs::rename(lab.keys(), lab.folder.path().join("gone")).unwrap();
            }
            Ok(())
        }),
    };
    let failed = device.run(&mut wire, &AlwaysMet, &Stop::default());
    drop(wire);
    assert!(matches!(failed, Err(DeviceError::Io { .. })));
    assert_eq!(service.upload_bytes(), 0);
    assert!(!service.log.iter().any(|(_, path, _)| path.ends_with("/join")));
}

/// A crash leaves the files of that moment. A copy of them, opened as a device, shows what a restart would find.
#[test]
fn the_participation_is_on_the_disk_before_the_first_byte_of_an_update_at_every_interruption() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut service = Service::new(plan(SumMode::Plain));
    service.chunk = 1;
    let requests = Cell::new(0);
    let (store, keys, places) = (lab.store(), lab.keys(), lab.folder.path().join("crashes"));
    let ended = run_with(&lab, &mut device, &mut service, |request| {
        let number = requests.get();
        requests.set(number + 1);
        let place = places.join(number.to_string());
        copy(&store, &place.join("store"));
        copy(&keys, &place.join("keys"));
        std::fs::write(
            place.join("sends"),
            [u8::from(
                request.method == Method::Put
                    || request.method == Method::Head
                    || ["/join", "/commit"]
                        .iter()
                        .any(|end| request.target.ends_with(end)),
            )],
        )
        .unwrap();
        Ok(())
    });
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    let mut sending = 0;
    for number in 0..requests.get() {
        let place = places.join(number.to_string());
        let config = lab.config_of(&place.join("store"), &place.join("keys"));
        let crashed = Device::open(config).unwrap();
        let rows = crashed.participations().unwrap();
        if std::fs::read(place.join("sends")).unwrap() == [1] {
            sending += 1;
            assert_eq!(rows.len(), 1, "request {number}");
            assert_eq!(rows[0].task, TASK);
            // A device that crashed there is barred from the round, and its key store has counted it.
            let mut keystore = FileKeyStore::open(place.join("keys")).unwrap();
            assert_eq!(keystore.counter(Counter::Participations).unwrap(), 1);
        } else {
            assert!(rows.len() <= 1, "request {number}");
        }
        assert_eq!(crashed.memory().unwrap().lost, 0, "request {number}");
    }
    assert_eq!(sending, 4, "join, two chunks and the commit");
}

#[test]
fn no_file_of_a_device_holds_a_text_a_subject_or_a_token_in_clear() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut service = Service::new(plan(SumMode::Plain));
    let (store, keys) = (lab.store(), lab.keys());
    let check = || {
        let mut seen = 0;
        for file in files(&store).into_iter().chain(files(&keys)) {
            let bytes = std::fs::read(&file).unwrap();
            seen += bytes.len();
            let canaries: [&[u8]; 6] = [
                b"zyzzyva",
                b"quagga",
                // Its bytes as UTF-16 would be a copy in clear too.
                b"z\0y\0z\0z\0",
                &[7; 32],
                b"746f6b656e",
                b"an invitation",
            ];
            for canary in canaries {
                assert!(
                    !bytes.windows(canary.len()).any(|window| window == canary),
                    "{} holds {:?}",
                    file.display(),
                    String::from_utf8_lossy(canary)
                );
            }
        }
        assert!(seen > 10_000, "{seen}");
    };
    check();
    let ended = run_with(&lab, &mut device, &mut service, |_| {
        check();
        Ok(())
    });
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    check();
}
