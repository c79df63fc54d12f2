//! Sessions whose server sees the update.

use undertone_device::{Ended, Ineligible, Method, Progress, Row};
use undertone_protocol::{Code, RetryWindow, SumMode, Verdict};

use crate::harness::{
    self, CHAIN, Driven, ROUND, START, Service, TASK, TIMER_S, floors, memory, plan, run_one, setup, update,
};

fn service() -> Service {
    Service::new(plan(SumMode::Plain))
}

#[test]
fn a_device_sends_one_clipped_update_and_remembers_it() {
    let mut service = service();
    let mut device = Driven::new(0, floors());
    let ended = run_one(&mut service, &mut device);
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    let upload = service.uploads.values().next().unwrap();
    let update = update(upload);
    assert_eq!(update.len(), harness::dim());
    let square: f64 = update.iter().map(|&value| f64::from(value).powi(2)).sum();
    assert!(
        square > 0.0 && square <= harness::CLIP * harness::CLIP,
        "{square}"
    );
    let memory = device.machine.memory();
    assert_eq!(memory.count(&TASK), 1);
    assert_eq!(memory.last(&TASK).unwrap().0, ROUND);
    assert_eq!(memory.heads[&TASK], (ROUND, CHAIN));
    assert_eq!(
        memory.participations[0].progress,
        Progress::Ended(Verdict::Included)
    );
    assert!((memory.spent[&TASK] - 0.4).abs() < 1e-12);
    // The plan, the vocabulary and the model are offered to the cache.
    let blobs = device
        .rows
        .iter()
        .filter(|row| matches!(row, Row::Blob { .. }))
        .count();
    assert_eq!(blobs, 3);
}

#[test]
fn a_lost_request_or_reply_at_any_step_changes_nothing_of_the_update() {
    let mut honest = service();
    let mut device = Driven::new(0, floors());
    run_one(&mut honest, &mut device);
    let expected = honest.uploads.values().next().unwrap().bytes.clone();
    let requests = device.requests;
    assert!(requests >= 8, "{requests}");
    for number in 0..requests {
        for before in [true, false] {
            let mut service = service();
            service.chunk = 1024;
            let mut device = Driven::new(0, floors());
            device.lose = Some((number, before));
            let ended = run_one(&mut service, &mut device);
            let place = format!("request {number}, lost before the service: {before}");
            assert_eq!(ended, Ended::Reported(Some(Verdict::Included)), "{place}");
            assert_eq!(service.uploads.len(), 1, "{place}");
            let upload = service.uploads.values().next().unwrap();
            assert!(upload.committed.is_some() && upload.bytes == expected, "{place}");
            assert_eq!(device.participations().len(), 1, "{place}");
        }
    }
}

#[test]
fn blobs_and_uploads_in_small_parts_have_the_same_bytes() {
    let mut whole = service();
    run_one(&mut whole, &mut Driven::new(0, floors()));
    let mut parts = service();
    (parts.part, parts.chunk) = (100, 1);
    let mut device = Driven::new(0, floors());
    assert_eq!(
        run_one(&mut parts, &mut device),
        Ended::Reported(Some(Verdict::Included))
    );
    let bytes = |service: &Service| service.uploads.values().next().unwrap().bytes.clone();
    assert!(bytes(&whole) == bytes(&parts));
    assert!(parts.paths(Method::Get).len() > whole.paths(Method::Get).len());
}

#[test]
fn a_session_can_be_stopped_at_every_action_and_never_sends_without_a_row() {
    let actions = {
        let mut device = Driven::new(0, floors());
        run_one(&mut service(), &mut device);
        device.actions
    };
    for stop_at in 0..actions - 1 {
        let mut service = service();
        let mut device = Driven::new(0, floors());
        device.stop_at = Some(stop_at);
        let ended = run_one(&mut service, &mut device);
        assert_eq!(ended, Ended::Stopped, "{stop_at}");
        assert!(
            service.upload_bytes() == 0 || device.has_taken_part(),
            "{stop_at}"
        );
        // A device that knows of its assignment tells the service.
        let told = service
            .paths(Method::Post)
            .iter()
            .any(|path| path.ends_with("/abort"));
        let knows = device.rows.iter().any(|row| matches!(row, Row::Head { .. }));
        assert!(told || !knows, "{stop_at}");
    }
}

#[test]
fn a_second_session_waits_for_timer_and_rounds_and_a_third_is_one_too_many() {
    let mut service = service();
    let mut device = Driven::new(0, floors());
    run_one(&mut service, &mut device);
    let again = |service: &mut Service, memory: undertone_device::Memory| {
        let mut device = Driven::with_memory(0, setup(floors()), memory);
        let ended = run_one(service, &mut device);
        (ended, device.machine.memory().clone(), device.outcome.unwrap())
    };
    let not_eligible = |reason| Ended::NotEligible(vec![(TASK, reason)]);
    let (ended, memory, outcome) = again(&mut service, device.machine.memory().clone());
    let at = memory.last(&TASK).unwrap().1;
    let until_ms = at + TIMER_S * 1000;
    assert_eq!(ended, not_eligible(Ineligible::TooSoon { until_ms }));
    assert!(
        outcome.wake_ms >= until_ms,
        "it sleeps until the timer has run out"
    );
    service.now = until_ms;
    let (ended, memory, _) = again(&mut service, memory);
    assert_eq!(ended, not_eligible(Ineligible::TooFewRounds));
    service.round += 3;
    let (ended, memory, _) = again(&mut service, memory);
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    service.now += TIMER_S * 1000;
    service.round += 3;
    let (ended, memory, _) = again(&mut service, memory);
    assert_eq!(ended, not_eligible(Ineligible::TooOften));
    assert_eq!(memory.count(&TASK), 2);
}

#[test]
fn a_fresh_install_waits_and_a_clock_far_from_that_of_the_board_ends_the_session() {
    let mut fresh = memory(0);
    fresh.trusted_from_ms = START - 1000;
    let mut device = Driven::with_memory(0, setup(floors()), fresh);
    let until_ms = START - 1000 + TIMER_S * 1000;
    assert_eq!(
        run_one(&mut service(), &mut device),
        Ended::NotEligible(vec![(TASK, Ineligible::TooNew { until_ms })])
    );
    for skew in [-301_000i64, 301_000] {
        let mut skewed = service();
        skewed.lies.board = Some(Box::new(move |board| {
            board.issued_ms = board.issued_ms.saturating_add_signed(skew);
        }));
        let mut device = Driven::new(0, floors());
        assert_eq!(run_one(&mut skewed, &mut device), Ended::Clock);
        assert_eq!(device.machine.confirmed_ms(), None);
    }
}

#[test]
fn a_device_that_a_wrong_clock_has_locked_goes_by_the_time_that_the_board_confirms() {
    const YEAR: u64 = 365 * 24 * 3_600_000;
    let mut locked = memory(0);
    locked.latest_ms = START + 12 * YEAR;
    let mut device = Driven::with_memory(0, setup(floors()), locked);
    assert!(matches!(run_one(&mut service(), &mut device), Ended::Reported(_)));
    assert!(
        device
            .machine
            .confirmed_ms()
            .is_some_and(|now| now < START + YEAR)
    );
    assert!(device.machine.memory().latest_ms < START + YEAR);
    // Timers that the wrong clock began start anew under the right one, and none ends early.
    let mut installed = memory(0);
    installed.trusted_from_ms = START + 12 * YEAR;
    let mut device = Driven::with_memory(0, setup(floors()), installed);
    let ended = run_one(&mut service(), &mut device);
    let Ended::NotEligible(reasons) = &ended else {
        panic!("{ended:?}");
    };
    let soon = START + TIMER_S * 1000..START + YEAR;
    assert!(
        matches!(reasons[..], [(TASK, Ineligible::TooNew { until_ms })] if soon.contains(&until_ms)),
        "{ended:?}"
    );
}

#[test]
fn a_refusal_ends_the_session_with_its_window() {
    for code in [Code::TooSoon, Code::Full, Code::NoTask, Code::Revoked, Code::Busy] {
        let mut service = service();
        service.lies.refusal = Some(code);
        let mut device = Driven::new(0, floors());
        let ended = run_one(&mut service, &mut device);
        assert_eq!(
            ended,
            Ended::Rejected(code, "a sentence of the service".to_owned())
        );
        let outcome = device.outcome.unwrap();
        let wait = outcome.wake_ms - service.now;
        assert!((5000..=6000).contains(&wait), "{wait}");
    }
}

#[test]
fn no_server_sends_a_device_away_for_longer_than_a_week() {
    let mut service = service();
    service.lies.board = Some(Box::new(|board| {
        board.tasks.clear();
        board.idle = Some(undertone_protocol::RetryWindow::between(u64::MAX - 5, u64::MAX));
    }));
    let mut device = Driven::new(0, floors());
    assert_eq!(run_one(&mut service, &mut device), Ended::NotEligible(Vec::new()));
    assert!(device.outcome.unwrap().wake_ms <= service.now + 7 * 24 * 3_600_000);
}

#[test]
fn a_device_without_a_valid_certificate_is_told_to_enrol() {
    for change in [
        |memory: &mut undertone_device::Memory| memory.certificate = None,
        |memory: &mut undertone_device::Memory| memory.certificate = Some(harness::certificate(&[9; 32])),
    ] {
        let mut memory = memory(0);
        change(&mut memory);
        let mut device = Driven::with_memory(0, setup(floors()), memory);
        let mut service = service();
        assert_eq!(run_one(&mut service, &mut device), Ended::NotEnrolled);
        assert_eq!(service.paths(Method::Post), Vec::<&str>::new());
    }
}

#[test]
fn a_service_that_is_silent_ends_the_session_after_a_few_tries() {
    let mut service = service();
    let mut device = Driven::new(0, floors());
    // Nothing but the board is ever answered.
    let mut answered = false;
    for _ in 0..10_000 {
        let event = device.event.take().unwrap();
        let action = device.machine.step(service.now, event);
        device.event = Some(match action {
            undertone_device::Action::Http(request) if !answered => {
                answered = true;
                undertone_device::Event::Reply(service.handle(&request))
            }
            undertone_device::Action::Http(_) => undertone_device::Event::NetworkLost,
            undertone_device::Action::SleepUntil(until) => {
                service.now = until;
                undertone_device::Event::Wake
            }
            undertone_device::Action::Done(outcome) => {
                assert_eq!(outcome.ended, Ended::Unreachable);
                assert!(service.now < START + 600_000, "{}", service.now - START);
                return;
            }
            _ => panic!("an action that the board does not lead to"),
        });
    }
    panic!("the session does not end");
}

#[test]
fn a_device_that_reaches_no_service_asks_three_times_and_draws_from_its_last_window_again() {
    let last = RetryWindow::between(5_000_000, 9_000_000);
    for (window, expected) in [
        (Some(last), last),
        (None, RetryWindow::between(900_000, 3_600_000)),
    ] {
        let mut memory = memory(0);
        memory.window = window;
        let mut device = Driven::with_memory(0, setup(floors()), memory);
        let (mut now, mut asked) = (START, 0);
        let outcome = loop {
            let event = device.event.take().unwrap();
            device.event = Some(match device.machine.step(now, event) {
                undertone_device::Action::Http(_) => {
                    asked += 1;
                    undertone_device::Event::NetworkLost
                }
                undertone_device::Action::SleepUntil(until) => {
                    now = until;
                    undertone_device::Event::Wake
                }
                undertone_device::Action::Done(outcome) => break outcome,
                _ => panic!("a board comes first"),
            });
        };
        assert_eq!((outcome.ended, asked), (Ended::Unreachable, 3));
        assert_eq!(outcome.next_window, expected);
        assert!(now - START < 10_000, "most of the time passes between sessions");
        assert!((now + expected.min_ms..=now + expected.max_ms).contains(&outcome.wake_ms));
    }
}

#[test]
fn adaptive_clipping_reports_one_bit() {
    use undertone_protocol::{AdaptiveNorm, ClipRule, clip_rule};
    for (estimate, below) in [(1e-6, false), (1e3, true)] {
        let mut plan = plan(SumMode::Plain);
        plan.clip = Some(ClipRule {
            kind: Some(clip_rule::Kind::Adaptive(AdaptiveNorm {
                initial: 0.5,
                max: 2.0,
            })),
        });
        let mut service = Service::new(plan);
        service.estimate = Some(estimate);
        run_one(&mut service, &mut Driven::new(0, floors()));
        let upload = service.uploads.values().next().unwrap();
        assert_eq!(upload.committed.as_ref().unwrap().below, Some(below));
    }
}

#[test]
fn an_evaluation_sends_three_bounded_rates() {
    let mut service = Service::new(harness::evaluation(SumMode::Plain));
    let mut device = Driven::new(0, floors());
    assert_eq!(
        run_one(&mut service, &mut device),
        Ended::Reported(Some(Verdict::Included))
    );
    let rates = update(service.uploads.values().next().unwrap());
    assert_eq!(rates.len(), 3);
    assert!(rates.iter().all(|rate| (0.0..=0.578).contains(rate)), "{rates:?}");
    assert!(rates[1] > 0.0, "an untrained model has a loss");
}

#[test]
fn a_device_with_too_little_text_for_the_plan_reports_nothing() {
    let mut service = service();
    let mut device = Driven::new(0, floors());
    device.texts.truncate(1);
    device.texts[0] = zeroize::Zeroizing::new("The cat sat.".to_owned());
    assert!(matches!(run_one(&mut service, &mut device), Ended::NotTrained(_)));
    assert!(service.upload_bytes() == 0 && !device.has_taken_part());
}

#[test]
fn an_update_that_is_not_finite_is_sent_as_zeros() {
    let mut plan = plan(SumMode::Plain);
    plan.user_update = r#"{"batch_size": 1, "learning_rate": 1e38, "epochs": 5}"#.to_owned();
    let mut service = Service::new(plan);
    let mut device = Driven::new(0, floors());
    let ended = run_one(&mut service, &mut device);
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    let update = update(service.uploads.values().next().unwrap());
    assert!(update.iter().all(|value| value.to_bits() == 0), "{update:?}");
}

#[test]
fn an_upload_that_is_slower_than_the_plan_allows_is_given_up() {
    for (kbps, given_up) in [(0, false), (1, true)] {
        let mut plan = plan(SumMode::Plain);
        plan.budget.as_mut().unwrap().upload_kbps_min = kbps;
        let mut service = Service::new(plan);
        service.chunk = 256;
        let mut device = Driven::new(0, floors());
        // Each chunk takes a minute.
        while device.outcome.is_none() {
            let puts = service.paths(Method::Put).len();
            device.turn(&mut service);
            let sent = service.paths(Method::Put).len() > puts;
            service.now += if sent { 60_000 } else { 100 };
        }
        let ended = device.outcome.unwrap().ended;
        match given_up {
            true => assert_eq!(ended, Ended::TooSlow),
            false => assert_eq!(ended, Ended::Reported(Some(Verdict::Included))),
        }
    }
}

#[test]
fn blobs_of_the_hosts_cache_are_checked_too() {
    use undertone_device::{Action, Event};
    for honest in [true, false] {
        let mut service = service();
        let mut device = Driven::new(0, floors());
        let mut event = Event::Wake;
        let ended = loop {
            service.now += 100;
            event = match device.machine.step(service.now, event) {
                Action::Done(outcome) => break outcome.ended,
                Action::Http(request) => match request.blob {
                    Some(digest) if honest => Event::Cached(service.blobs[&digest].clone().into()),
                    Some(_) => Event::Cached(b"another blob".to_vec().into()),
                    None => Event::Reply(service.handle(&request)),
                },
                Action::Persist(_) => Event::Persisted,
                Action::Train(job) => {
                    let watch = undertone_device::Watch::new(job.cpu_ms());
                    Event::Trained(job.run(&device.texts, &watch))
                }
                Action::SleepUntil(_) => Event::Wake,
            };
        };
        match honest {
            true => assert_eq!(ended, Ended::Reported(Some(Verdict::Included))),
            false => assert!(matches!(ended, Ended::Refused(_)), "{ended:?}"),
        }
        assert!(
            !service
                .paths(Method::Get)
                .iter()
                .any(|path| path.contains("blobs"))
        );
    }
}

/// Runs a session to its end. `spoils` changes a byte of each blob on its way.
fn session(device: &mut Driven, service: &mut Service, spoils: bool) -> Ended {
    use undertone_device::{Action, Event};
    let mut event = Event::Wake;
    loop {
        service.now += 100;
        event = match device.machine.step(service.now, event) {
            Action::Done(outcome) => break outcome.ended,
            Action::Http(request) => {
                let mut reply = service.handle(&request);
                if spoils && request.blob.is_some() {
                    reply.body[0] ^= 1;
                }
                Event::Reply(reply)
            }
            Action::Persist(_) => Event::Persisted,
            Action::Train(job) => {
                let watch = undertone_device::Watch::new(job.cpu_ms());
                Event::Trained(job.run(&device.texts, &watch))
            }
            Action::SleepUntil(_) => Event::Wake,
        };
    }
}

#[test]
fn devices_of_one_process_load_a_blob_once_and_share_none_that_is_wrong() {
    let shared = std::sync::Arc::new(undertone_device::Shared::new(1 << 20));
    for (number, spoils, loads) in [(0, true, true), (1, false, true), (2, false, false)] {
        let mut service = service();
        let device = Driven::new(number, floors());
        let mut device = Driven {
            machine: device.machine.sharing(shared.clone()),
            ..device
        };
        let ended = session(&mut device, &mut service, spoils);
        match spoils {
            true => assert!(matches!(ended, Ended::Refused(_)), "{ended:?}"),
            false => assert_eq!(ended, Ended::Reported(Some(Verdict::Included))),
        }
        let paths = service.paths(Method::Get);
        assert_eq!(paths.iter().any(|path| path.contains("blobs")), loads, "{number}");
    }
}
