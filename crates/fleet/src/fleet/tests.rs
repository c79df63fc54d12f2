mod fake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fake::{CLIP, Fake, LIFE, START, Terms, dim, hex, setup};
use undertone_coordinator::random::Randomness;
use undertone_protocol::Digest32;

use super::*;
use crate::availability::{Availability, Trace};
use crate::clock::{FleetClock, VirtualClock};
use crate::config::{Enrolment, SubjectNames, Updates};
use crate::faults::{Faults, Point, Vanish};
use crate::malice::{Malice, Malicious};

/// Every subject takes part once, and the round never ends.
const ONCE: Terms = Terms {
    min_sep: 1,
    max_part: 1,
    goal: usize::MAX,
};

/// Users with seven short examples each, which differ from user to user.
fn users(number: u32) -> Vec<Vec<Vec<u32>>> {
    let example = |user: u32, place: u32| vec![3 + (user + place) % 6, 3 + user % 5, 3 + place % 6, 2];
    (0..number)
        .map(|user| (0..7).map(|place| example(user, place)).collect())
        .collect()
}

fn config(clock: &VirtualClock, devices: usize) -> FleetConfig {
    FleetConfig {
        clock: Arc::new(clock.clone()),
        updates: Updates::Synthetic,
        workers: 2,
        max_pause_ms: 60_000,
        ..FleetConfig::new(setup(), devices)
    }
}

/// An enrolled fleet and its service.
fn fleet(terms: Terms, devices: usize, change: impl FnOnce(&mut FleetConfig)) -> (Fleet<'static>, Fake) {
    let clock = VirtualClock::at(START);
    let fake = Fake::new(&clock, terms);
    let mut config = config(&clock, devices);
    change(&mut config);
    let fleet = Fleet::new(config, users(devices as u32), fake.clone()).unwrap();
    fleet.enrol().unwrap();
    (fleet, fake)
}

fn norm(values: &[f32]) -> f64 {
    values
        .iter()
        .map(|&value| f64::from(value).powi(2))
        .sum::<f64>()
        .sqrt()
}

/// The committed bytes of each subject.
fn updates(fake: &Fake) -> BTreeMap<Digest32, Vec<u8>> {
    let state = fake.lock();
    let included = state.included();
    let updates: BTreeMap<_, _> = included
        .iter()
        .map(|upload| (upload.subject, upload.bytes.clone()))
        .collect();
    assert_eq!(updates.len(), included.len(), "no subject is counted twice");
    updates
}

#[test]
fn every_device_trains_on_its_user_and_reports_once() {
    let (fleet, fake) = fleet(ONCE, 6, |config| config.updates = Updates::Train);
    let end = fleet
        .run_until(|| fleet.statistics().total.ended("included") == 6)
        .unwrap();
    assert_eq!(end, RunEnd::Done);
    let sent = updates(&fake);
    assert_eq!(sent.len(), 6);
    assert_eq!(sent.values().collect::<BTreeSet<_>>().len(), 6, "users differ");
    for upload in fake.lock().included() {
        let norm = norm(&upload.values());
        assert!(norm > 1e-4 && norm <= CLIP, "{norm}");
    }
    let remembered = fleet.participations();
    let devices: Vec<usize> = remembered.iter().map(|row| row.device).collect();
    assert_eq!(devices, [0, 1, 2, 3, 4, 5]);
    let statistics = fleet.statistics();
    let round = &statistics.rounds[0];
    assert_eq!((round.round, round.task.len(), round.tally.trainings), (0, 64, 6));
    assert!(round.tally.up_bytes >= 6 * 4 * dim() as u64);
    assert!(round.tally.training_seconds > 0.0);
}

#[test]
fn lost_repeated_and_late_messages_lead_to_the_same_updates() {
    let run = |faults: Faults| {
        let (fleet, fake) = fleet(ONCE, 12, |config| config.faults = faults);
        let done = || fleet.statistics().total.ended("included") == 12;
        assert_eq!(fleet.run_until(done).unwrap(), RunEnd::Done);
        let rows = fleet.participations();
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.device, row.participation.round, row.participation.progress))
            .collect();
        (updates(&fake), rows, fleet.statistics().total)
    };
    let (clean, remembered, tally) = run(Faults::default());
    assert!(tally.faults.is_empty());
    let faults = Faults {
        lost_before: 0.1,
        lost_after: 0.15,
        duplicate: 0.2,
        delay: 0.2,
        max_delay_ms: 3000,
        vanish: Vec::new(),
    };
    let (faulty, also_remembered, tally) = run(faults);
    assert_eq!(faulty, clean);
    assert_eq!(also_remembered, remembered);
    for fault in ["lost_before", "lost_after", "duplicate", "delay"] {
        assert!(tally.faults[fault] > 10, "{fault}: {tally:?}");
    }
}

#[test]
fn one_thread_under_a_virtual_clock_repeats_itself_by_seed() {
    let run = |seed| {
        let (fleet, fake) = fleet(ONCE, 8, |config| {
            config.seed = seed;
            config.workers = 1;
            config.start_spread_ms = 5000;
            config.faults = Faults {
                lost_after: 0.3,
                vanish: vec![Vanish {
                    at: Point::AfterJoin,
                    probability: 0.3,
                    returns_after_ms: None,
                }],
                ..Faults::default()
            };
        });
        let ended = || {
            let total = fleet.statistics().total;
            total.ended("included") + total.ended("vanished_after_join") == 8
        };
        fleet.run_until(ended).unwrap();
        let log = fake.lock().log.clone();
        (log, fleet.statistics().total.ends, fleet.participations())
    };
    let (first, other) = (run(5), run(6));
    assert!(first == run(5), "a seed gives one run");
    assert!(
        first.0 != other.0 && first.1 != other.1,
        "{:?} {:?}",
        first.1,
        other.1
    );
}

#[test]
fn many_device_keys_of_one_subject_take_part_as_one() {
    let terms = Terms {
        min_sep: 2,
        max_part: 3,
        goal: 2,
    };
    let clock = VirtualClock::at(START);
    let fake = Fake::new(&clock, terms);
    let config = FleetConfig {
        subjects: 4,
        // One thread, so that no session overlaps with another, and subjects in no order.
        workers: 1,
        start_spread_ms: 10_000,
        ..config(&clock, 40)
    };
    let fleet = Fleet::new(config, users(4), fake.clone()).unwrap();
    fleet.enrol().unwrap();
    assert_eq!(fleet.device_keys().into_iter().collect::<BTreeSet<_>>().len(), 40);
    assert_eq!(
        fleet.subject_names().into_iter().collect::<BTreeSet<_>>().len(),
        4
    );
    fleet.run_until(|| fake.lock().round >= 5).unwrap();
    let mut rounds: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for row in fleet.participations() {
        rounds
            .entry(row.subject)
            .or_default()
            .push(row.participation.round);
    }
    for (subject, mut rounds) in rounds {
        rounds.sort_unstable();
        let apart = rounds.windows(2).all(|pair| pair[1] >= pair[0] + 2);
        assert!(apart && rounds.len() <= 3, "subject {subject}: {rounds:?}");
    }
    let state = fake.lock();
    assert!(state.refusals["CODE_TOO_SOON"] > 0, "the other keys tried");
    assert!((0..5).all(|round| state.subjects(round).len() == 2));
}

#[test]
fn devices_vanish_at_the_named_point_and_remember_what_they_sent() {
    for (at, joins, bytes, committed) in [
        (Point::BeforeJoin, 0, 0, 0),
        (Point::AfterJoin, 4, 0, 0),
        (Point::MidUpload, 4, 512, 0),
        (Point::AfterCommit, 4, 4 * dim(), 4),
    ] {
        let vanish = Vanish {
            at,
            probability: 1.0,
            returns_after_ms: None,
        };
        let (fleet, fake) = fleet(ONCE, 4, |config| config.faults.vanish.push(vanish));
        assert_eq!(fleet.run_until(|| false).unwrap(), RunEnd::NobodyLeft, "{at:?}");
        let name = format!("vanished_{}", at.name());
        assert_eq!(fleet.statistics().total.ends, BTreeMap::from([(name, 4)]));
        let state = fake.lock();
        let found = state.log.iter().filter(|(_, target)| target.ends_with("/join"));
        assert_eq!(found.count(), joins, "{at:?}");
        assert!(
            state.uploads.values().all(|upload| upload.bytes.len() == bytes),
            "{at:?}"
        );
        assert_eq!(state.included().len(), committed);
        assert_eq!(
            fleet.participations().len(),
            4,
            "the row is written before the first byte"
        );
    }
}

#[test]
fn a_plain_session_has_no_point_of_unmasking_and_a_device_may_return() {
    let twice = Terms { max_part: 2, ..ONCE };
    let (fleet, fake) = fleet(twice, 1, |config| {
        config.faults.vanish = vec![Vanish {
            at: Point::BeforeUnmask,
            probability: 1.0,
            returns_after_ms: None,
        }];
    });
    fleet
        .run_until(|| fleet.statistics().total.ended("included") == 1)
        .unwrap();
    drop((fleet, fake));
    let (fleet, fake) = self::fleet(ONCE, 1, |config| {
        config.faults.vanish = vec![Vanish {
            at: Point::BeforeJoin,
            probability: 1.0,
            returns_after_ms: Some(9_000),
        }];
    });
    fleet
        .run_until(|| fleet.statistics().total.sessions >= 3)
        .unwrap();
    let ends = fleet.statistics().total.ends;
    assert_eq!(
        ends["vanished_before_join"], 1,
        "its own memory bars it afterwards"
    );
    assert!(ends["not_eligible"] >= 2 && fake.lock().included().is_empty());
}

#[test]
fn malicious_devices_meet_the_refusal_of_their_kind() {
    for (kind, refusal) in [
        (Malice::OverNorm, Some("CODE_NORM")),
        (Malice::Nan, Some("CODE_NORM")),
        (Malice::Residues, Some("CODE_NORM")),
        (Malice::WrongLength, Some("CODE_RANGE")),
        (Malice::ReplayedCertificate, Some("CODE_BAD_SIGNATURE")),
        (Malice::Inflated, None),
    ] {
        let (fleet, fake) = fleet(ONCE, 3, |config| {
            config.malicious = vec![Malicious { fraction: 1.0, kind }];
        });
        fleet
            .run_until(|| fleet.statistics().total.sessions >= 3)
            .unwrap();
        assert!(fleet.participations().iter().all(|row| row.malice == Some(kind)));
        let state = fake.lock();
        match refusal {
            Some(code) => {
                assert!(state.refusals[code] >= 3, "{kind:?}: {:?}", state.refusals);
                assert!(state.included().is_empty());
            }
            None => {
                let norms: Vec<f64> = state
                    .included()
                    .iter()
                    .map(|upload| norm(&upload.values()))
                    .collect();
                assert_eq!(norms.len(), 3);
                assert!(
                    norms.iter().all(|norm| (norm / CLIP - 1.9).abs() < 1e-3),
                    "{norms:?}"
                );
            }
        }
    }
}

#[test]
fn some_devices_share_the_subject_of_the_device_before() {
    let (fleet, fake) = fleet(ONCE, 60, |config| {
        config.malicious = vec![Malicious {
            fraction: 0.5,
            kind: Malice::SharedSubject,
        }];
    });
    let state = fake.lock();
    assert_eq!(state.enrolled.len(), 60);
    let subjects: BTreeSet<Digest32> = state.enrolled.values().copied().collect();
    assert!((30..58).contains(&subjects.len()), "{}", subjects.len());
    assert_eq!(
        fleet.subject_names().into_iter().collect::<BTreeSet<_>>(),
        subjects
    );
}

#[test]
fn one_hot_updates_show_each_subject_once() {
    let (fleet, fake) = fleet(ONCE, 5, |config| config.updates = Updates::OneHot);
    fleet
        .run_until(|| fleet.statistics().total.ended("included") == 5)
        .unwrap();
    let mut sum = vec![0.0; dim()];
    for upload in fake.lock().included() {
        let values = upload.values();
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    let expected: Vec<f32> = (0..dim())
        .map(|place| if place < 5 { CLIP as f32 } else { 0.0 })
        .collect();
    assert_eq!(sum, expected);
}

#[test]
fn given_seeds_decide_the_update_and_drawn_ones_differ() {
    let run = |seed, given: bool| {
        let (fleet, fake) = fleet(ONCE, 3, |config| {
            config.seed = seed;
            config.updates = Updates::Train;
            config.subject_names = SubjectNames::Number;
            if given {
                let simulation = Randomness::seeded(3);
                config.seeds_of = Some(Arc::new(move |round, user| simulation.user_seeds(round, user)));
            }
        });
        fleet
            .run_until(|| fleet.statistics().total.ended("included") == 3)
            .unwrap();
        updates(&fake)
    };
    assert_eq!(run(1, true), run(2, true));
    assert_ne!(run(1, false), run(2, false));
    assert!(
        run(1, true)
            .keys()
            .all(|name| name[8..] == [0; 24] && name[0] < 3)
    );
}

#[test]
fn devices_that_are_never_available_do_nothing() {
    let (fleet, _) = fleet(ONCE, 2, |config| {
        let trace = Trace::new(3_600_000, vec![vec![], vec![(0, 3_600_000)]]).unwrap();
        config.availability = Arc::new(trace);
    });
    fleet
        .run_until(|| fleet.statistics().total.sessions >= 2)
        .unwrap();
    assert!(fleet.participations().iter().all(|row| row.device == 1));
    assert_eq!(fleet.participations().len(), 1);
}

#[test]
fn a_session_stops_when_its_device_becomes_unavailable() {
    struct AtStart;
    impl Availability for AtStart {
        fn next(&self, _: usize, at_ms: u64) -> Option<u64> {
            (at_ms <= START).then_some(START)
        }
    }
    let (fleet, fake) = fleet(ONCE, 2, |config| {
        config.availability = Arc::new(AtStart);
        config.faults = Faults {
            delay: 1.0,
            max_delay_ms: 1000,
            ..Faults::default()
        };
    });
    assert_eq!(fleet.run_until(|| false).unwrap(), RunEnd::NobodyLeft);
    assert_eq!(fleet.statistics().total.ended("stopped"), 2);
    assert!(fleet.participations().is_empty() && fake.lock().uploads.is_empty());
}

#[test]
fn paused_sessions_go_on_with_the_next_run() {
    let (fleet, fake) = fleet(ONCE, 20, |config| {
        config.faults = Faults {
            delay: 0.5,
            max_delay_ms: 2000,
            ..Faults::default()
        };
    });
    fleet.run_until(|| fake.lock().log.len() > 60).unwrap();
    let before = fleet.statistics().total.sessions;
    assert!(before < 20, "sessions are under way");
    fleet
        .run_until(|| fleet.statistics().total.ended("included") == 20)
        .unwrap();
    assert_eq!(updates(&fake).len(), 20);
}

#[test]
fn enrolment_by_invitation_names_the_device_that_is_refused() {
    let clock = VirtualClock::at(START);
    let fake = Fake::new(&clock, ONCE);
    let invited = |refused: usize| FleetConfig {
        enrolment: Enrolment::Invitations(Arc::new(move |subject, name| match subject == refused {
            true => "refused".to_owned(),
            false => hex(name),
        })),
        workers: 1,
        ..config(&clock, 4)
    };
    let fleet = Fleet::new(invited(2), users(4), fake.clone()).unwrap();
    match fleet.enrol() {
        Err(FleetError::Enrolment { device: 2, reason }) => assert!(reason.contains("not invited")),
        other => panic!("{other:?}"),
    }
    assert_eq!(fleet.enrolled(), 2);
    let fleet = Fleet::new(invited(9), users(4), fake.clone()).unwrap();
    fleet.enrol().unwrap();
    assert_eq!(fleet.enrolled(), 4);
    let subjects: BTreeSet<Digest32> = fake.lock().enrolled.values().copied().collect();
    assert_eq!(subjects, fleet.subject_names().into_iter().collect());
}

#[test]
fn the_clock_of_the_machine_wakes_devices_in_time() {
    let clock = VirtualClock::at(START);
    let fake = Fake::new(&clock, ONCE);
    let config = FleetConfig {
        clock: Arc::new(crate::clock::MachineClock),
        max_pause_ms: 15,
        ..config(&clock, 6)
    };
    // The board of this service is years old, so that each session ends at once.
    let fleet = Fleet::new(config, users(6), fake).unwrap();
    let started = Instant::now();
    fleet
        .run_until(|| fleet.statistics().total.ended("clock") >= 18)
        .unwrap();
    assert!(
        started.elapsed() >= Duration::from_millis(30),
        "three sessions, two pauses"
    );
}

#[test]
fn a_certificate_that_has_ended_is_renewed() {
    struct Later;
    impl Availability for Later {
        fn next(&self, _: usize, at_ms: u64) -> Option<u64> {
            Some(at_ms.max(START + LIFE + 1))
        }
    }
    let (fleet, fake) = fleet(ONCE, 3, |config| config.availability = Arc::new(Later));
    fleet
        .run_until(|| fleet.statistics().total.ended("included") == 3)
        .unwrap();
    assert_eq!(fleet.statistics().total.ended("not_enrolled"), 3);
    let enrolments = |target: &String| target.ends_with("/enrol");
    let log = fake.lock().log.clone();
    assert_eq!(log.iter().filter(|(_, target)| enrolments(target)).count(), 6);
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let clock = VirtualClock::at(START);
    let try_new = |change: fn(&mut FleetConfig)| {
        let mut config = config(&clock, 3);
        change(&mut config);
        let fleet = Fleet::new(config, users(3), Fake::new(&clock, ONCE));
        fleet.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(try_new(|_| ()), "");
    assert!(try_new(|config| config.devices = 0).contains("devices"));
    assert!(try_new(|config| config.workers = 0).contains("workers"));
    assert!(try_new(|config| config.subjects = 4).contains("subjects must be at most 3"));
    assert!(try_new(|config| config.faults.lost_after = 2.0).contains("lost_after"));
    assert!(
        try_new(|config| {
            let half = Malicious {
                fraction: 0.6,
                kind: Malice::Nan,
            };
            config.malicious = vec![half, half];
        })
        .contains("malicious")
    );
}

#[test]
fn a_connection_that_cannot_be_made_ends_the_run() {
    let clock = VirtualClock::at(START);
    let tried = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&tried);
    let none = move |_: usize| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(FleetError::value("the address", "one", "none"))
    };
    let fleet = Fleet::new(config(&clock, 2), users(2), none).unwrap();
    assert!(fleet.enrol().is_err());
    assert!(fleet.run_until(|| false).is_err());
    assert!(tried.load(Ordering::SeqCst) >= 2);
    assert_eq!(clock.now_ms(), START);
}
