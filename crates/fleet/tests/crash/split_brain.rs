//! Two leaders of one task: the lock of the data folder, and the fence where two processes share a store all the same.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use undertone_fleet::{Fleet, FleetConfig};
use undertone_service::ServiceError;
use undertone_service::identity::Identity;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service_testing::{START, fleet_clock, users};
use undertone_store::{ManualClock, Release, StoreError};

use super::agreement::{check, check_inside};
use super::hooks::Hook;
use super::inside::{Inside, hooked};
use super::outside::{ChildClock, Outside, ToChild, listed};
use super::task::{Size, Template, data, fleet_config};

/// Longer than a lease.
const PAST_THE_LEASE: u64 = 31_000;

/// A leader that stands still at an act, while its lease ends and another process takes over.
struct Stopped {
    act: &'static str,
    after: bool,
    state: Mutex<Stop>,
}

struct Stop {
    clock: ManualClock,
    /// The process that takes over, once.
    other: Option<Arc<Service>>,
    releases: Vec<Release>,
}

impl Stopped {
    fn stand_still(&self) {
        let taken = {
            let mut state = self.state.lock().unwrap();
            // The first round has no past that could be shown.
            let late = state.releases.len() > 1 || matches!(self.act, "reserve" | "stage_model");
            match late {
                true => state.other.take().map(|other| (other, state.clock.clone())),
                false => None,
            }
        };
        if let Some((other, clock)) = taken {
            clock.advance(PAST_THE_LEASE);
            other.tick().unwrap();
            other.tick().unwrap();
        }
    }
}

impl Hook for Stopped {
    fn release(&self, release: &Release) {
        self.state.lock().unwrap().releases.push(release.clone());
    }

    fn before(&self, act: &'static str) -> Result<(), String> {
        if act == self.act && !self.after {
            self.stand_still();
        }
        Ok(())
    }

    fn after(&self, act: &'static str) -> Result<(), String> {
        if act == self.act && self.after {
            self.stand_still();
        }
        Ok(())
    }
}

/// A leader stands still at this act past its lease, and goes on under another leader. Returns whether its release was refused.
fn takes_over(act: &'static str, after: bool) -> bool {
    let size = Size::default();
    let template = Template::new(size);
    let folder = template.copy();
    let inside = Inside::new(folder.path());
    let Shared {
        store,
        blobs,
        witness,
        ..
    } = inside.shared("first");
    let shared = |process: &str| Shared {
        store: store.clone(),
        blobs: blobs.clone(),
        keys: undertone_service::keys::Keys::open(&data(folder.path())).unwrap(),
        process: process.to_owned(),
        witness: witness.clone(),
    };
    let other = Arc::new(Service::new(shared("second"), Identity::Certificate).unwrap());
    let stopped = Arc::new(Stopped {
        act,
        after,
        state: Mutex::new(Stop {
            clock: inside.clock.clone(),
            other: Some(other.clone()),
            releases: Vec::new(),
        }),
    });
    let first = inside.serve(hooked(shared("first"), stopped.clone()));
    let fleet = inside.fleet(60, 1);
    fleet.enrol().unwrap();
    let (mut ticks, mut error) = (0, None);
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(ticks < 20_000, "{act}: the task does not end");
            let ticked = inside.tick(template.task);
            let over = stopped.state.lock().unwrap().other.is_none();
            if over && error.is_none() {
                // The first process goes on where it stood, and then tries to lead again.
                error = Some(ticked);
                for _ in 0..3 {
                    first.tick().unwrap();
                }
                assert!(first.room(template.task).is_none(), "{act}: two leaders");
                inside.switch_to(other.clone());
            }
            inside.is_over(template.task)
        })
        .unwrap();
    let seen = inside.seen();
    let errors = error.unwrap_or_else(|| panic!("{act} was not reached"));
    let fenced = errors
        .iter()
        .any(|error| error.contains("is void: the last lease has fence"));
    // Nothing of a release that was refused is visible: neither its line nor its files.
    let lines: BTreeSet<Vec<u8>> = store.ledger(template.task, 0).unwrap().into_iter().collect();
    let releases = std::mem::take(&mut stopped.state.lock().unwrap().releases);
    for release in releases.iter().filter(|release| !lines.contains(&release.line)) {
        for service in [&first, &other] {
            assert!(service.blob(&release.model).is_err());
            assert!(service.blob(&release.state.unwrap()).is_err());
        }
        assert!(blobs.get(&release.model, 0).is_err() && blobs.get(&release.state.unwrap(), 0).is_err());
    }
    inside.put_away();
    drop((first, other, stopped, store, blobs));
    check_inside(folder.path(), template.task, size, &seen, &fleet);
    fenced
}

#[test]
#[ignore = "slow"]
fn a_leader_that_stood_still_past_its_lease_is_refused_at_reserve_or_commit() {
    for (act, after) in [
        ("reserve", false),
        ("reserve", true),
        ("stage_model", false),
        ("stage_state", true),
        ("commit_release", false),
    ] {
        assert!(takes_over(act, after), "{act}: the old leader was not refused");
    }
}

#[test]
#[ignore = "slow"]
fn a_leader_that_stood_still_after_its_commit_publishes_what_the_other_published() {
    for (act, after) in [
        ("commit_release", true),
        ("create_head", false),
        ("create_head", true),
        ("publish", false),
        ("sweep_staged", false),
        ("published", false),
        ("published", true),
    ] {
        takes_over(act, after);
    }
}

/// A second process on the folder of one that stands still is refused outright: the lock ends with the process, not with its lease.
#[test]
#[ignore = "slow"]
fn a_stopped_process_keeps_its_data_folder_and_goes_on() {
    let size = Size::default();
    let template = Template::new(size);
    let folder = template.copy();
    let outside = Outside::new(folder.path(), ChildClock::Virtual, listed(Vec::new()), 1, 1);
    let now = Arc::new(std::sync::atomic::AtomicU64::new(START));
    let clock = {
        let (outside, now) = (outside.clone(), now.clone());
        fleet_clock(move |time| {
            now.store(time, std::sync::atomic::Ordering::SeqCst);
            outside.at(time);
        })
    };
    let config = FleetConfig {
        clock,
        max_pause_ms: 20_000,
        ..fleet_config(folder.path(), 60)
    };
    let fleet = Fleet::new(config, users(60), ToChild(outside.clone())).unwrap();
    fleet.enrol().unwrap();
    let (mut ticks, mut stopped) = (0, false);
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(ticks < 20_000, "the task does not end: {}", outside.log());
            if !stopped && outside.assignments() > 20 {
                stopped = true;
                outside.stand_still(|| {
                    let witness = super::task::witness(folder.path());
                    let refused = undertone_service::data_folder::open(&data(folder.path()), Some(&witness));
                    let error = refused.err().unwrap();
                    assert!(
                        matches!(error, ServiceError::Store(StoreError::Locked { .. })),
                        "{error}"
                    );
                    let text = error.to_string();
                    assert!(
                        text.contains("service.sqlite is in use by another process"),
                        "{text}"
                    );
                });
                // Its lease has ended when it goes on.
                outside.at(now.load(std::sync::atomic::Ordering::SeqCst) + PAST_THE_LEASE);
            }
            outside.tick()
        })
        .unwrap();
    assert!(stopped);
    assert_eq!(outside.lives(), (1, 0));
    let seen = outside.end();
    check(folder.path(), template.task, size, &seen, &fleet);
}
