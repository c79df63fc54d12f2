mod groups;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const LIMITS: PhaseLimits = PhaseLimits {
    lobby: 60,
    keys: 20,
    shares: 20,
    upload: 120,
    unmask: 20,
};

const UNTIL: Deadlines = Deadlines {
    select: 600,
    report: 1200,
    attempt: 3600,
};

fn id(number: u8) -> SessionId {
    SessionId([number; 16])
}

fn plain(target: u32, goal: u32, floor: u32) -> (Attempt, Vec<Effect>) {
    Attempt::new(Settings::plain(target, goal, floor, UNTIL).unwrap(), 0)
}

fn groups(target: u32, group: u32, least: u32, floor: u32) -> Attempt {
    Attempt::new(
        Settings::groups(target, group, least, floor, LIMITS, UNTIL).unwrap(),
        0,
    )
    .0
}

fn slot(attempt: &mut Attempt, now: Millis, number: u8) -> Vec<Effect> {
    let shard = attempt.place(u64::from(number) << 59).unwrap_or(0);
    let session = id(number);
    attempt.on(now, Event::Slot { session, shard })
}

fn join(attempt: &mut Attempt, now: Millis, number: u8, shard: u32) -> Vec<Effect> {
    let session = id(number);
    attempt.on(now, Event::Slot { session, shard });
    attempt.on(now, Event::Ready(session))
}

#[test]
fn sessions_are_over_selected_upwards() {
    assert_eq!(over_selected(1000, 1.3).unwrap(), 1300);
    assert_eq!(over_selected(7, 1.3).unwrap(), 10);
    assert_eq!(over_selected(7, 1.0).unwrap(), 7);
    for factor in [0.99, 10.1, f64::NAN] {
        assert!(over_selected(7, factor).is_err(), "{factor}");
    }
    assert!(over_selected(u32::MAX, 1.3).is_err());
}

#[test]
fn settings_that_allow_no_release_are_refused() {
    assert!(Settings::plain(10, 11, 1, UNTIL).is_err());
    assert!(Settings::plain(10, 8, 9, UNTIL).is_err());
    assert!(Settings::plain(10, 8, 0, UNTIL).is_err());
    let groups = |target, group, least, floor| Settings::groups(target, group, least, floor, LIMITS, UNTIL);
    assert!(groups(10, 5, 1, 5).is_err() && groups(10, 5, 6, 5).is_err() && groups(10, 5, 3, 11).is_err());
    // Eleven sessions in three groups leave three for the smallest.
    assert_eq!(
        groups(11, 5, 4, 5).unwrap_err().to_string(),
        "the number of sessions must be at least 4 in each of 3 groups, got 11"
    );
    let settings = groups(11, 5, 3, 5).unwrap();
    let places: Vec<u32> = (0..4).map(|shard| settings.places(shard)).collect();
    assert_eq!(places, [4, 4, 3, 0]);
}

#[test]
fn a_lost_slot_is_given_again_until_the_target_is_reached() {
    let (mut attempt, effects) = plain(3, 2, 1);
    assert_eq!(effects, [Effect::OfferSlots(3), Effect::WakeAt(600)]);
    assert_eq!(slot(&mut attempt, 1, 1), []);
    assert_eq!(slot(&mut attempt, 1, 2), []);
    assert_eq!(attempt.free(), 1);
    let lost = attempt.on(2, Event::Lost(id(1), LostAt::Assigned));
    assert_eq!(lost, [Effect::OfferSlots(2)]);
    // A session is lost once, and never comes back.
    assert_eq!(attempt.on(2, Event::Lost(id(1), LostAt::Assigned)), []);
    assert_eq!(slot(&mut attempt, 3, 1), []);
    slot(&mut attempt, 3, 3);
    assert_eq!(attempt.state(), AttemptState::Selecting);
    let full = slot(&mut attempt, 3, 4);
    assert_eq!(full, [Effect::CloseSelection, Effect::WakeAt(1200)]);
    assert_eq!((attempt.state(), attempt.free()), (AttemptState::Reporting, 0));
    // After the selection a lost slot stays lost.
    assert_eq!(attempt.on(4, Event::Lost(id(3), LostAt::Assigned)), []);
    assert_eq!((attempt.counts().open, attempt.counts().lost), (2, 2));
}

#[test]
fn a_plain_attempt_releases_at_its_goal() {
    let (mut attempt, _) = plain(4, 2, 1);
    (1..=3).for_each(|number| drop(slot(&mut attempt, 1, number)));
    assert_eq!(attempt.on(5, Event::Reported(id(1))), []);
    // The same report again does not count twice, nor does a report of a stranger.
    assert_eq!(attempt.on(5, Event::Reported(id(1))), []);
    assert_eq!(attempt.on(5, Event::Reported(id(9))), []);
    assert!(attempt.awaits(id(2)) && !attempt.awaits(id(1)));
    let release = attempt.on(6, Event::Reported(id(2)));
    assert_eq!(release, [Effect::CloseSelection, Effect::Release]);
    assert!(!attempt.awaits(id(3)), "a later report is late");
    assert_eq!(attempt.on(7, Event::Reported(id(3))), []);
    assert_eq!(attempt.on(9999, Event::Tick), []);
    assert_eq!(attempt.state(), AttemptState::Releasing);
}

#[test]
fn a_plain_attempt_releases_at_the_deadline_with_at_least_the_floor() {
    for (reports, effect) in [(3, Effect::Release), (2, Effect::Abandon(AbandonReason::Few))] {
        let (mut attempt, _) = plain(6, 5, 3);
        (1..=6).for_each(|number| drop(slot(&mut attempt, 1, number)));
        (1..=reports).for_each(|number| drop(attempt.on(2, Event::Reported(id(number)))));
        assert_eq!(attempt.on(1199, Event::Tick), []);
        assert_eq!(attempt.on(1200, Event::Tick), [effect]);
    }
}

#[test]
fn nobody_waits_for_a_deadline_that_changes_nothing() {
    let (mut attempt, _) = plain(3, 3, 2);
    (1..=3).for_each(|number| drop(slot(&mut attempt, 1, number)));
    attempt.on(2, Event::Reported(id(1)));
    attempt.on(2, Event::Reported(id(2)));
    let last = attempt.on(3, Event::Lost(id(3), LostAt::Uploading));
    assert_eq!(last, [Effect::Release]);
    let (mut attempt, _) = plain(3, 3, 2);
    (1..=3).for_each(|number| drop(slot(&mut attempt, 1, number)));
    attempt.on(2, Event::Lost(id(1), LostAt::Assigned));
    let hopeless = attempt.on(2, Event::Lost(id(2), LostAt::Assigned));
    assert_eq!(hopeless, [Effect::Abandon(AbandonReason::Few)]);
}

#[test]
fn the_select_deadline_goes_on_with_enough_for_the_floor() {
    let (mut attempt, _) = plain(6, 5, 3);
    (1..=3).for_each(|number| drop(slot(&mut attempt, 1, number)));
    let closed = attempt.on(600, Event::Tick);
    assert_eq!(closed, [Effect::CloseSelection, Effect::WakeAt(1200)]);
    let (mut attempt, _) = plain(6, 5, 3);
    (1..=2).for_each(|number| drop(slot(&mut attempt, 1, number)));
    assert_eq!(
        attempt.on(600, Event::Tick),
        [Effect::Abandon(AbandonReason::Few)]
    );
}

#[test]
fn a_lobby_closes_when_it_is_full_or_has_waited_with_the_minimum() {
    // Two groups of three places with a minimum of two.
    let mut attempt = groups(6, 3, 2, 2);
    assert_eq!(join(&mut attempt, 1, 1, 0), []);
    // The time of the lobby runs from its minimum on.
    assert_eq!(join(&mut attempt, 10, 2, 0), [Effect::WakeAt(70)]);
    join(&mut attempt, 11, 3, 1);
    join(&mut attempt, 11, 4, 1);
    assert_eq!(join(&mut attempt, 12, 5, 1), [Effect::CloseLobby(1)]);
    let closed = attempt.on(70, Event::Tick);
    // With no lobby open, the selection has nothing to offer.
    assert_eq!(
        closed,
        [
            Effect::CloseLobby(0),
            Effect::CloseSelection,
            Effect::WakeAt(1200)
        ]
    );
}

#[test]
fn a_lobby_waits_for_nobody_after_the_selection() {
    let mut attempt = groups(3, 3, 2, 2);
    join(&mut attempt, 1, 1, 0);
    slot(&mut attempt, 1, 2);
    slot(&mut attempt, 1, 3);
    assert_eq!(attempt.state(), AttemptState::Reporting);
    assert_eq!(attempt.on(2, Event::Ready(id(2))), [Effect::WakeAt(62)]);
    let closed = attempt.on(3, Event::Lost(id(3), LostAt::Assigned));
    assert_eq!(closed, [Effect::CloseLobby(0), Effect::WakeAt(1200)]);
}

#[test]
fn a_device_that_missed_its_lobby_is_lost() {
    let mut attempt = groups(9, 3, 2, 2);
    join(&mut attempt, 1, 1, 0);
    join(&mut attempt, 1, 2, 0);
    let session = id(3);
    attempt.on(1, Event::Slot { session, shard: 0 });
    join(&mut attempt, 1, 4, 1);
    let closed = attempt.on(61, Event::Tick);
    assert_eq!(closed[0], Effect::CloseLobby(0));
    assert!(attempt.awaits(session));
    let phase = Phase::Keys;
    attempt.on(62, Event::GroupEntered { shard: 0, phase });
    assert!(!attempt.awaits(session) && attempt.awaits(id(2)) && attempt.awaits(id(4)));
    assert_eq!((attempt.counts().open, attempt.counts().lost), (3, 1));
}

#[test]
fn a_failed_group_fails_alone() {
    for (least, floor, end) in [
        (2, 2, Effect::Release),
        (2, 3, Effect::Abandon(AbandonReason::Few)),
    ] {
        let mut attempt = groups(6, 3, least, floor);
        (1..=3).for_each(|number| drop(join(&mut attempt, 1, number, 0)));
        (4..=6).for_each(|number| drop(join(&mut attempt, 1, number, 1)));
        for (shard, phase) in [
            (0, Phase::Keys),
            (0, Phase::Shares),
            (0, Phase::Inputs),
            (1, Phase::Keys),
        ] {
            attempt.on(2, Event::GroupEntered { shard, phase });
        }
        attempt.on(3, Event::Reported(id(1)));
        attempt.on(3, Event::Reported(id(2)));
        let entered = attempt.on(
            3,
            Event::GroupEntered {
                shard: 0,
                phase: Phase::Unmask,
            },
        );
        assert_eq!(
            entered,
            [] as [Effect; 0],
            "the roll-call of the other group ends first"
        );
        let failed = attempt.on(
            4,
            Event::GroupFailed {
                shard: 1,
                at: Phase::Keys,
            },
        );
        if let Effect::Abandon(_) = end {
            assert_eq!(failed, [end], "two devices cannot reach a floor of three");
            continue;
        }
        assert_eq!(failed, [Effect::WakeAt(23)]);
        let summed = attempt.on(
            5,
            Event::GroupSummed {
                shard: 0,
                included: 2,
            },
        );
        assert_eq!(summed, [end]);
        assert_eq!(attempt.counts().summed, 2);
    }
}

#[test]
fn phases_close_at_their_limits() {
    let mut attempt = groups(2, 2, 2, 2);
    join(&mut attempt, 1, 1, 0);
    join(&mut attempt, 1, 2, 0);
    let mut now = 5;
    for (phase, limit) in [
        (Phase::Keys, 20),
        (Phase::Shares, 20),
        (Phase::Inputs, 120),
        (Phase::Signatures, 20),
    ] {
        let shard = 0;
        let entered = attempt.on(now, Event::GroupEntered { shard, phase });
        assert_eq!(entered, [Effect::WakeAt(now + limit)], "{phase:?}");
        assert_eq!(attempt.on(now + limit - 1, Event::Tick), [], "{phase:?}");
        let closed = attempt.on(now + limit, Event::Tick);
        assert_eq!(
            closed,
            [Effect::ClosePhase { shard, phase }, Effect::WakeAt(1200)],
            "{phase:?}"
        );
        if phase == Phase::Inputs {
            attempt.on(now + limit, Event::Reported(id(1)));
            attempt.on(now + limit, Event::Reported(id(2)));
        }
        now += limit;
    }
    let failed = attempt.on(
        now,
        Event::GroupFailed {
            shard: 0,
            at: Phase::Unmask,
        },
    );
    assert_eq!(failed, [Effect::Abandon(AbandonReason::Protocol)]);
}

#[test]
fn a_sum_of_more_devices_than_reported_is_a_failure() {
    let mut attempt = groups(2, 2, 2, 2);
    join(&mut attempt, 1, 1, 0);
    join(&mut attempt, 1, 2, 0);
    attempt.on(2, Event::Reported(id(1)));
    let wrong = attempt.on(
        3,
        Event::GroupSummed {
            shard: 0,
            included: 2,
        },
    );
    assert_eq!(wrong, [Effect::Abandon(AbandonReason::Few)]);
}

#[test]
fn places_are_drawn_over_the_free_ones() {
    let mut attempt = groups(11, 5, 3, 5);
    let mut counts = [0u32; 3];
    for step in 0..1100u64 {
        counts[attempt.place(step * (u64::MAX / 1100)).unwrap() as usize] += 1;
    }
    // Free places are 4, 4 and 3.
    assert!(
        counts[0].abs_diff(400) <= 1 && counts[1].abs_diff(400) <= 1,
        "{counts:?}"
    );
    (0..4).for_each(|number| drop(join(&mut attempt, 1, number, 0)));
    assert!(
        (0..64).all(|bit| attempt.place(1 << bit) != Some(0)),
        "group 0 is full"
    );
    assert_eq!(attempt.place(u64::MAX), Some(2));
}

#[derive(Debug, Clone)]
enum Op {
    Advance(Millis),
    FollowWake,
    Event(Event),
}

fn phases() -> impl Strategy<Value = Phase> {
    prop::sample::select(vec![
        Phase::Lobby,
        Phase::Keys,
        Phase::Shares,
        Phase::Inputs,
        Phase::Signatures,
        Phase::Unmask,
        Phase::Summed,
        Phase::Failed,
    ])
}

fn ops() -> impl Strategy<Value = Op> {
    let session = || (0..24u8).prop_map(id);
    let shard = || 0..4u32;
    let lost = prop_oneof![Just(LostAt::Assigned), Just(LostAt::Uploading)];
    let event = prop_oneof![
        2 => Just(Event::Tick),
        30 => (session(), shard()).prop_map(|(session, shard)| Event::Slot { session, shard }),
        14 => session().prop_map(Event::Ready),
        6 => (session(), lost).prop_map(|(session, at)| Event::Lost(session, at)),
        14 => session().prop_map(Event::Reported),
        6 => (shard(), phases()).prop_map(|(shard, phase)| Event::GroupEntered { shard, phase }),
        4 => (shard(), 0..8u32).prop_map(|(shard, included)| Event::GroupSummed { shard, included }),
        1 => (shard(), phases()).prop_map(|(shard, at)| Event::GroupFailed { shard, at }),
    ];
    prop_oneof![
        8 => (0..200u64).prop_map(Op::Advance),
        4 => Just(Op::FollowWake),
        80 => event.prop_map(Op::Event),
    ]
}

fn all_settings() -> impl Strategy<Value = Settings> {
    let until = (0..800u64, 0..1500u64, 0..3000u64).prop_map(|(select, report, attempt)| Deadlines {
        select,
        report,
        attempt,
    });
    let plain = (1..20u32, 0..20u32, 0..20u32, until.clone()).prop_map(|(target, goal, floor, until)| {
        let goal = 1 + goal % target;
        Settings::plain(target, goal, 1 + floor % goal, until).unwrap()
    });
    let groups = (4..20u32, 1..4u32, 0..20u32, until).prop_map(|(target, groups, floor, until)| {
        let group = target.div_ceil(groups).max(2);
        let floor = 1 + floor % target;
        Settings::groups(target, group, 2 + floor % 3, floor, LIMITS, until)
            .or_else(|_| Settings::groups(target, target, 2, floor, LIMITS, until))
            .unwrap()
    });
    prop_oneof![plain, groups]
}

/// The observations of a list of operations so far.
#[derive(Default)]
struct Watch {
    now: Millis,
    wake: Option<Millis>,
    offered: u32,
    releases: u32,
    ends: u32,
    slotted: BTreeSet<SessionId>,
    reported: BTreeSet<SessionId>,
}

impl Watch {
    fn feed(&mut self, attempt: &mut Attempt, event: Event) -> Result<(), TestCaseError> {
        let before = attempt.state();
        let awaited = matches!(event, Event::Reported(session) if attempt.awaits(session));
        let (reported, free) = (attempt.counts().reported, attempt.free());
        if let Event::Slot { session, .. } = event {
            self.slotted.insert(session);
            self.offered = self.offered.saturating_sub(u32::from(free > 0));
        }
        let effects = attempt.on(self.now, event);
        let (settings, counts) = (*attempt.settings(), attempt.counts());
        prop_assert!(counts.open + counts.reported <= settings.target());
        prop_assert!(counts.assigned as usize <= self.slotted.len());
        prop_assert_eq!(counts.assigned, counts.open + counts.reported + counts.lost);
        if let Event::Reported(session) = event {
            if awaited {
                prop_assert!(self.reported.insert(session), "a session reported twice");
            } else {
                prop_assert_eq!(counts.reported, reported, "a report nobody awaited counted");
            }
        }
        prop_assert!(counts.reported as usize <= self.reported.len());
        for effect in &effects {
            match effect {
                Effect::Release => {
                    let included = match settings.mode() {
                        Mode::Plain { .. } => counts.reported,
                        Mode::Groups { .. } => counts.summed,
                    };
                    prop_assert!(included >= settings.floor() && included <= counts.reported);
                    prop_assert_eq!(attempt.state(), AttemptState::Releasing);
                    self.releases += 1;
                }
                Effect::Abandon(_) => self.ends += 1,
                Effect::WakeAt(at) => self.wake = Some(*at),
                Effect::OfferSlots(free) => self.offered = *free,
                Effect::CloseSelection => prop_assert_eq!(before, AttemptState::Selecting),
                Effect::CloseLobby(_) | Effect::ClosePhase { .. } => {}
            }
        }
        if matches!(before, AttemptState::Releasing | AttemptState::Abandoned) {
            prop_assert!(effects.is_empty(), "an effect after the end: {:?}", effects);
            prop_assert_eq!(attempt.state(), before);
        }
        prop_assert!(self.releases + self.ends <= 1);
        if attempt.state() == AttemptState::Selecting {
            // The caller who follows the offers knows the number of free places; a slot for a full group is its mistake.
            prop_assert!(self.offered <= attempt.free());
        }
        Ok(())
    }

    fn run(mut self, settings: Settings, ops: Vec<Op>) -> Result<(), TestCaseError> {
        let (mut attempt, effects) = Attempt::new(settings, 0);
        for effect in effects {
            match effect {
                Effect::WakeAt(at) => self.wake = Some(at),
                Effect::OfferSlots(free) => self.offered = free,
                Effect::Abandon(_) => self.ends += 1,
                _ => {}
            }
        }
        for op in ops {
            let event = match op {
                Op::Advance(time) => {
                    self.now += time;
                    Event::Tick
                }
                Op::FollowWake => {
                    self.now = self.wake.unwrap_or_default().max(self.now);
                    Event::Tick
                }
                Op::Event(event) => event,
            };
            self.feed(&mut attempt, event)?;
        }
        // A caller that only follows the wake-ups ends the attempt.
        for _ in 0..100 {
            let running = matches!(attempt.state(), AttemptState::Selecting | AttemptState::Reporting);
            if !running {
                break;
            }
            let wake = self.wake.unwrap_or_default();
            prop_assert!(wake <= settings.attempt_until().max(self.now));
            self.now = wake.max(self.now);
            self.feed(&mut attempt, Event::Tick)?;
        }
        match attempt.state() {
            AttemptState::Releasing => prop_assert_eq!((self.releases, self.ends), (1, 0)),
            AttemptState::Abandoned => prop_assert_eq!((self.releases, self.ends), (0, 1)),
            state => prop_assert!(false, "the attempt stands at {:?} after its deadline", state),
        }
        Ok(())
    }
}

fn run_lists(cases: u32) {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    });
    let lists = (all_settings(), prop::collection::vec(ops(), 0..150));
    runner
        .run(&lists, |(settings, ops)| Watch::default().run(settings, ops))
        .unwrap();
}

#[test]
fn no_list_of_operations_breaks_an_attempt() {
    run_lists(256);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "takes minutes: 100,000 lists"]
    fn no_list_of_operations_breaks_an_attempt_in_many_lists() {
        run_lists(100_000);
    }
}
