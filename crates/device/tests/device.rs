//! The device as an app embeds it: its files, its driver and its keys.

#![allow(clippy::unwrap_used)]

mod harness;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harness::{POPULATION, START, Service, TASK, TIMER_S, floors, plan};
use undertone_device::{
    AlwaysMet, Clock, Conditions, Counter, Device, DeviceConfig, DeviceError, Diagnosis, Ended, Example,
    FileKeyStore, Ineligible, KeyStore, Method, NetworkLost, Progress, Reply, Request, Stop, Subject,
    Transport, Unmet,
};
use undertone_protocol::{Code, Enrol, Enrolled, SumMode, Verdict, limits, read, verify_proof, write};

/// A clock that a test turns, and that sleeping turns too.
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

/// A device in a folder of its own.
struct Lab {
    folder: tempfile::TempDir,
    clock: TestClock,
}

/// A text that must be in no file in clear. Its words are not in the vocabulary.
const CANARY: &str = "zyzzyva quagga. The cat sat. A dog ran. The dog sat. A cat ran.";

impl Lab {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: TestClock(Arc::new(AtomicU64::new(START - 2 * TIMER_S * 1000))),
        }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn keys(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    fn config_of(&self, store: &Path, keys: &Path) -> DeviceConfig {
        let keystore = Box::new(FileKeyStore::open(keys).unwrap());
        let setup = harness::setup(floors());
        let mut config = DeviceConfig::new(store, POPULATION, keystore);
        config.board_keys = setup.board_keys;
        config.trusted_task_keys = setup.task_keys;
        config.issuers = setup.issuers;
        config.floors = setup.floors;
        config.clock = Box::new(self.clock.clone());
        config
    }

    fn open(&self) -> Device {
        Device::open(self.config_of(&self.store(), &self.keys())).unwrap()
    }

    /// An enrolled device with texts, at the time at which it may take part.
    fn ready(&self) -> Device {
        let mut device = self.open();
        self.clock.0.store(START, Ordering::SeqCst);
        add_texts(&device);
        device.enrol(&mut Enroller, "an invitation", None).unwrap();
        device
    }
}

fn add_texts(device: &Device) {
    // Enough texts, so that neither side of the split is empty.
    for number in 0..12 {
        let text = format!("{CANARY} Number {number}.");
        let example = Example {
            text: &text,
            collected_ms: START - 1000,
            expires_ms: START + 1_000_000_000,
        };
        device.examples().add(example).unwrap();
    }
}

/// A service that only enrols.
struct Enroller;

impl Transport for Enroller {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        assert_eq!(request.target, format!("/v1/p/{POPULATION}/enrol"));
        let enrol: Enrol = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
        let key = enrol.device_key.clone().try_into().unwrap();
        let body = undertone_device::enrolment_body(&enrol);
        verify_proof(undertone_protocol::Label::Enrolment, &key, &body, &enrol.proof).unwrap();
        if enrol.invitation != "an invitation" {
            return Ok(harness::refuse(403, Code::BadCertificate));
        }
        Ok(Reply {
            status: 200,
            offset: None,
            body: write(&Enrolled {
                certificate: Some(harness::certificate(&key)),
            }),
        })
    }
}

/// A hook before a request, which may lose it.
type Hook<'a> = Box<dyn FnMut(&Request) -> Result<(), NetworkLost> + 'a>;

/// The service in memory, with a hook before every request.
struct Wire<'a> {
    service: &'a mut Service,
    clock: TestClock,
    before: Hook<'a>,
}

impl Transport for Wire<'_> {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        (self.before)(request)?;
        self.service.now = self.clock.now_ms();
        Ok(self.service.handle(request))
    }
}

fn run_with<'a>(
    lab: &Lab,
    device: &mut Device,
    service: &'a mut Service,
    before: impl FnMut(&Request) -> Result<(), NetworkLost> + 'a,
) -> Ended {
    let mut wire = Wire {
        service,
        clock: lab.clock.clone(),
        before: Box::new(before),
    };
    device.run(&mut wire, &AlwaysMet, &Stop::default()).unwrap().ended
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&file, target).unwrap();
    }
}

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

#[test]
fn a_fresh_install_waits_the_timer_and_a_restored_store_waits_again() {
    let lab = Lab::new();
    lab.clock.0.store(START, Ordering::SeqCst);
    let mut device = lab.open();
    add_texts(&device);
    device.enrol(&mut Enroller, "an invitation", None).unwrap();
    let mut service = Service::new(plan(SumMode::Plain));
    let too_new = |ended: &Ended| matches!(ended, Ended::NotEligible(reasons) if matches!(reasons[0].1, Ineligible::TooNew { .. }));
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert!(too_new(&ended), "{ended:?}");
    drop(device);
    let backup = lab.folder.path().join("backup");
    copy(&lab.store(), &backup);

    lab.clock.sleep(TIMER_S * 1000);
    let mut device = lab.open();
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    drop(device);

    // The backup knows of no participation. The key store does.
    std::fs::remove_dir_all(lab.store()).unwrap();
    copy(&backup, &lab.store());
    lab.clock.sleep(10 * TIMER_S * 1000);
    service.round += 50;
    let mut device = lab.open();
    assert!(device.participations().unwrap().is_empty());
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert!(too_new(&ended), "{ended:?}");
    assert_eq!(device.status().unwrap().participations, 1);
    lab.clock.sleep(TIMER_S * 1000);
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    // Two in all, the forgotten one included: the task allows no third.
    lab.clock.sleep(10 * TIMER_S * 1000);
    service.round += 10;
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::NotEligible(vec![(TASK, Ineligible::TooOften)]));
}

#[test]
fn a_clock_that_was_set_back_bars_the_device_until_it_has_caught_up() {
    let lab = Lab::new();
    let mut device = lab.ready();
    lab.clock.0.store(START + 5_000_000, Ordering::SeqCst);
    let mut service = Service::new(plan(SumMode::Plain));
    service.lies.refusal = Some(Code::NoTask);
    let refused = |ended: &Ended| matches!(ended, Ended::Rejected(Code::NoTask, _));
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert!(refused(&ended), "{ended:?}");
    service.lies.refusal = None;
    lab.clock.0.store(START + 1_000_000, Ordering::SeqCst);
    let asked = service.log.len();
    assert_eq!(
        run_with(&lab, &mut device, &mut service, |_| Ok(())),
        Ended::Clock
    );
    assert_eq!(service.log.len(), asked);
    lab.clock.0.store(START + 5_000_001, Ordering::SeqCst);
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
}

#[test]
fn conditions_that_are_not_met_start_nothing_and_end_a_training() {
    /// Charging ends after this number of looks.
    struct Unplugged(Cell<u32>);
    impl Conditions for Unplugged {
        fn charging(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() > 0
        }
    }
    let mut all = std::collections::BTreeSet::new();
    for looks in [1, 2, 4, 6, 8, 10, 12] {
        let lab = Lab::new();
        let mut device = lab.ready();
        let mut service = Service::new(plan(SumMode::Plain));
        let mut wire = Wire {
            service: &mut service,
            clock: lab.clock.clone(),
            before: Box::new(|_| Ok(())),
        };
        let conditions = Unplugged(Cell::new(looks));
        let outcome = device.run(&mut wire, &conditions, &Stop::default()).unwrap();
        drop(wire);
        match outcome.ended {
            Ended::HostNotReady(Unmet::Charging) => assert!(service.log.is_empty()),
            Ended::Stopped => assert_eq!(service.upload_bytes(), 0),
            other => panic!("{looks}: {other:?}"),
        }
        all.insert(service.log.len());
    }
    assert!(all.len() > 3, "it stopped at {all:?} requests");
}

#[test]
fn a_stop_during_the_training_reports_nothing() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut plan = plan(SumMode::Plain);
    // A training of minutes.
    plan.user_update = r#"{"batch_size": 1, "learning_rate": 0.001, "epochs": 10000000}"#.to_owned();
    let mut service = Service::new(plan);
    let stop = Stop::default();
    let mut wire = Wire {
        service: &mut service,
        clock: lab.clock.clone(),
        before: Box::new(|_| Ok(())),
    };
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            stop.request();
        });
        device.run(&mut wire, &AlwaysMet, &stop).unwrap()
    });
    drop(wire);
    assert_eq!(outcome.ended, Ended::Stopped);
    assert_eq!(service.upload_bytes(), 0);
    assert!(service.paths(Method::Post).last().unwrap().ends_with("/abort"));
    assert!(device.participations().unwrap().is_empty());
}

#[test]
fn a_training_beyond_its_processor_time_reports_nothing_and_is_not_tried_again_for_a_week() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut plan = plan(SumMode::Plain);
    plan.user_update = r#"{"batch_size": 1, "learning_rate": 0.001, "epochs": 10000000}"#.to_owned();
    plan.budget.as_mut().unwrap().cpu_ms = 50;
    let mut service = Service::new(plan);
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::OutOfTime);
    assert_eq!(service.upload_bytes(), 0);
    let used = device.status().unwrap().last_cpu_ms;
    assert!((50..5000).contains(&used), "{used}");
    assert!(device.participations().unwrap().is_empty());
    drop(device);
    let mut device = lab.open();
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    let Ended::NotEligible(reasons) = ended else {
        panic!("{ended:?}");
    };
    let (_, Ineligible::TooDear { until_ms }) = reasons[0] else {
        panic!("{reasons:?}");
    };
    lab.clock.0.store(until_ms, Ordering::SeqCst);
    let ended = run_with(&lab, &mut device, &mut service, |_| Ok(()));
    assert_eq!(ended, Ended::OutOfTime, "it tries again");
}

#[test]
fn a_lost_network_during_the_upload_is_resumed() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let mut service = Service::new(plan(SumMode::Plain));
    service.chunk = 1024;
    let mut lost = 0;
    let ended = run_with(&lab, &mut device, &mut service, |request| {
        let is_put = request.method == Method::Put;
        if is_put && lost < 3 {
            lost += 1;
            return Err(NetworkLost("the cable was cut".to_owned()));
        }
        Ok(())
    });
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    assert!(service.log.iter().any(|(method, ..)| *method == Method::Head));
}

#[test]
fn an_enrolment_needs_an_invitation_and_fits_the_device() {
    let lab = Lab::new();
    let mut device = lab.open();
    assert!(!device.status().unwrap().enrolled);
    let refused = device.enrol(&mut Enroller, "another", None).unwrap_err();
    assert!(
        matches!(
            refused,
            DeviceError::Enrolment {
                code: "CODE_BAD_CERTIFICATE",
                ..
            }
        ),
        "{refused}"
    );
    lab.clock.0.store(START, Ordering::SeqCst);
    device.enrol(&mut Enroller, "an invitation", None).unwrap();
    assert!(device.status().unwrap().enrolled);
    // A certificate for another key is not kept.
    struct OfAnother;
    impl Transport for OfAnother {
        fn send(&mut self, _: &Request) -> Result<Reply, NetworkLost> {
            Ok(Reply {
                status: 200,
                offset: None,
                body: write(&Enrolled {
                    certificate: Some(harness::certificate(&[1; 32])),
                }),
            })
        }
    }
    assert!(device.enrol(&mut OfAnother, "an invitation", None).is_err());
    assert!(device.status().unwrap().enrolled);
}

#[test]
fn a_certificate_is_renewed_by_the_key_of_its_device_before_it_ends() {
    const DAY: u64 = 24 * 3_600_000;
    /// A service that renews for 30 days, and refuses everything else.
    struct Renewer(u64, u32);
    impl Transport for Renewer {
        fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
            if !request.target.ends_with("/enrol") {
                return Ok(harness::refuse(503, Code::Busy));
            }
            let enrol: Enrol = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
            let key = enrol.device_key.clone().try_into().unwrap();
            let body = undertone_device::enrolment_body(&enrol);
            verify_proof(undertone_protocol::Label::Enrolment, &key, &body, &enrol.proof).unwrap();
            assert!(enrol.invitation.is_empty() && enrol.subject.is_empty());
            assert_eq!(enrol.certificate, Some(harness::certificate(&key)));
            self.1 += 1;
            let certificate = harness::certificate_until(&key, self.0 + 30 * DAY);
            let body = write(&Enrolled {
                certificate: Some(certificate),
            });
            Ok(Reply {
                status: 200,
                offset: None,
                body,
            })
        }
    }
    let lab = Lab::new();
    let mut device = lab.open();
    let without = device.renew(&mut Renewer(START, 0)).unwrap_err().to_string();
    assert!(without.contains("enrol with an invitation"), "{without}");
    drop(device);
    let mut device = lab.ready();
    for (day, renewals) in [(15, 0), (25, 1), (40, 0)] {
        let now = START + day * DAY;
        lab.clock.0.store(now, Ordering::SeqCst);
        let mut renewer = Renewer(now, 0);
        device.run(&mut renewer, &AlwaysMet, &Stop::default()).unwrap();
        assert_eq!(renewer.1, renewals, "after {day} days");
        assert!(device.status().unwrap().enrolled, "after {day} days");
    }
}

#[test]
fn a_device_that_is_forgotten_leaves_no_key_and_no_text() {
    let lab = Lab::new();
    let device = lab.ready();
    let public = device.public_key();
    device.forget().unwrap();
    let left: Vec<PathBuf> = files(&lab.store())
        .into_iter()
        .chain(files(&lab.keys()))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    let device = lab.open();
    assert_ne!(device.public_key(), public);
    assert_eq!(device.status().unwrap().training_examples, 0);
}
