//! Times at which a device must not train, and trainings that end early.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use undertone_device::{AlwaysMet, Clock, Conditions, Ended, Ineligible, Method, NetworkLost, Stop, Unmet};
use undertone_protocol::{SumMode, Verdict};

use crate::device::lab::{Enroller, Lab, Wire, add_texts, copy, run_with};
use crate::harness::{START, Service, TASK, TIMER_S, plan};

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
    let (_, Ineligible::PlanBackoff { until_ms }) = reasons[0] else {
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
