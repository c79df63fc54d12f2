//! Attempts at a round: selection of devices, their reports, and the decision to release or to abandon.
//!
//! | state | left when |
//! |---|---|
//! | selecting | open and reported sessions reach the target, or nothing can join any more: reporting. The goal is reached: releasing. At the select deadline: reporting with enough sessions for the floor, else abandoned |
//! | reporting | plain: the goal is reached, or the deadline or the last session with at least the floor: releasing. Groups: every group is done, and the included reach the floor: releasing. Else abandoned |
//! | releasing | never: the transaction of the release decides, and the store keeps its outcome |
//! | abandoned | never |
//!
//! Reasons depend on counts, time and messages of the protocol, never on the value of an update.

pub(crate) mod group;
mod groups;
pub(crate) mod plain;
pub(crate) mod refusal;
pub(crate) mod session;
mod settings;

use std::collections::BTreeMap;

use undertone_store::{AbandonReason, AttemptState, Millis, SessionId};

use group::Phase;
use groups::Groups;
use session::LostAt;
pub(crate) use settings::{Deadlines, Mode, PhaseLimits, Settings, SettingsError, over_selected};

/// Something that happened to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Time has passed.
    Tick,
    /// A device was admitted.
    Slot {
        /// The session of the device.
        session: SessionId,
        /// The group of the device; 0 in a plain attempt.
        shard: u32,
    },
    /// A device has joined a sum, with its update encoded.
    Ready(SessionId),
    /// A session was lost.
    Lost(SessionId, LostAt),
    /// The update of a device was accepted.
    Reported(SessionId),
    /// The process that held the sum of the session was lost, with the report where there was one.
    SumLost(SessionId),
    /// A group has entered a phase. Sessions that have not joined when its lobby closes are lost: their places are given again.
    GroupEntered {
        /// The group.
        shard: u32,
        /// The phase.
        phase: Phase,
    },
    /// A group has its sum.
    GroupSummed {
        /// The group.
        shard: u32,
        /// Number of devices in it. A number below the floor of a group, or above its reports, counts as a failure.
        included: u32,
    },
    /// A group has failed.
    GroupFailed {
        /// The group.
        shard: u32,
        /// The phase in which it failed.
        at: Phase,
    },
}

/// Something to do for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// This many devices may be admitted from now on. The number replaces the one before.
    OfferSlots(u32),
    /// No more devices are admitted.
    CloseSelection,
    /// The lobby of this group closes.
    CloseLobby(u32),
    /// The phase of this group closes, if the group still stands in it.
    ClosePhase {
        /// The group.
        shard: u32,
        /// The phase.
        phase: Phase,
    },
    /// The machine wants a [`Event::Tick`] at this time, instead of the one before.
    WakeAt(Millis),
    /// The sums are to be sealed and released. Groups that are not done are aborted.
    Release,
    /// The attempt has ended without a release. Its sums and groups are aborted.
    Abandon(AbandonReason),
}

/// Numbers of sessions of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Sessions that were ever assigned.
    pub assigned: u32,
    /// Sessions that have joined a sum.
    pub ready: u32,
    /// Sessions that are assigned, not lost, and have not reported.
    pub open: u32,
    /// Sessions whose updates were accepted, less those of failed groups.
    pub reported: u32,
    /// Sessions in the sums of groups that are done.
    pub summed: u32,
    /// Sessions that were lost.
    pub lost: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Open { ready: bool },
    Reported,
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    shard: u32,
    place: Place,
}

/// One attempt at a round. It has no clock, and asks for its wake-ups.
///
/// # Guarantee
/// At most [`Settings::target`] sessions are open or reported at one time, and a session counts once. [`Effect::Release`] comes at
/// most once, and only with at least [`Settings::floor`] reports. The attempt ends once, and has no effect after its end. From the
/// attempt's deadline on it is releasing or has ended.
#[derive(Debug)]
pub(crate) struct Attempt {
    settings: Settings,
    state: AttemptState,
    slots: BTreeMap<SessionId, Slot>,
    counts: Counts,
    groups: Groups,
    /// Free places as the caller knows them.
    offered: u32,
    wake: Option<Millis>,
}

impl Attempt {
    /// An attempt that selects devices from `now` on, with its first effects.
    #[must_use]
    pub(crate) fn new(settings: Settings, now: Millis) -> (Self, Vec<Effect>) {
        let mut attempt = Self {
            groups: Groups::new(&settings),
            settings,
            state: AttemptState::Selecting,
            slots: BTreeMap::new(),
            counts: Counts::default(),
            offered: 0,
            wake: None,
        };
        let effects = attempt.on(now, Event::Tick);
        (attempt, effects)
    }

    /// The state of the attempt.
    #[must_use]
    pub(crate) fn state(&self) -> AttemptState {
        self.state
    }

    /// The settings of the attempt.
    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The numbers of the attempt's sessions.
    #[must_use]
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of devices that may be admitted now.
    #[must_use]
    pub(crate) fn free(&self) -> u32 {
        if self.state != AttemptState::Selecting {
            return 0;
        }
        let taken = self.counts.open.saturating_add(self.counts.reported);
        let free = self.settings.target().saturating_sub(taken);
        match self.settings.mode() {
            Mode::Plain { .. } => free,
            Mode::Groups { .. } => free.min(self.groups.free()),
        }
    }

    /// The group of the next device: uniform over the free places for a uniform `draw`, so that nobody chooses the neighbours of a
    /// device. `None` where no place is free; 0 in a plain attempt.
    #[must_use]
    pub(crate) fn place(&self, draw: u64) -> Option<u32> {
        match (self.free(), self.settings.mode()) {
            (0, _) => None,
            (_, Mode::Plain { .. }) => Some(0),
            (_, Mode::Groups { .. }) => self.groups.place(draw),
        }
    }

    /// `true` if a report of this session would be counted now.
    #[must_use]
    pub(crate) fn awaits(&self, session: SessionId) -> bool {
        let running = matches!(self.state, AttemptState::Selecting | AttemptState::Reporting);
        let slot = self.slots.get(&session);
        running && slot.is_some_and(|slot| matches!(slot.place, Place::Open { .. }))
    }

    /// Takes an event, and says what to do. Events about sessions and groups that are unknown or done change nothing.
    pub(crate) fn on(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match self.state {
            // Once the release has begun, the outcome is that of its transaction.
            AttemptState::Releasing | AttemptState::Committed | AttemptState::Abandoned => {}
            AttemptState::Selecting | AttemptState::Reporting => {
                self.take(now, event);
                self.step(now, &mut effects);
                self.offer(&mut effects);
                self.arm(now, &mut effects);
            }
        }
        effects
    }

    fn is_running(&self) -> bool {
        matches!(self.state, AttemptState::Selecting | AttemptState::Reporting)
    }

    /// Counts an event.
    fn take(&mut self, now: Millis, event: Event) {
        match event {
            Event::Tick => {}
            Event::Slot { session, shard } => self.take_slot(session, shard),
            Event::Ready(session) => self.take_ready(now, session),
            Event::Lost(session, _) => self.lose(session, false),
            Event::SumLost(session) => self.lose(session, true),
            Event::Reported(session) => self.take_report(now, session),
            Event::GroupEntered { shard, phase } => {
                if self.groups.enter(now, shard, phase, &self.settings) {
                    self.end_sessions(shard, |place| matches!(place, Place::Open { ready: false }));
                }
            }
            Event::GroupSummed { shard, included } => {
                let summed = self.groups.sum(shard, included);
                if summed {
                    self.counts.summed += included;
                } else if !self.groups.fail(shard, Phase::Summed) {
                    return;
                }
                self.end_sessions(shard, |place| !summed || place != Place::Reported);
            }
            Event::GroupFailed { shard, at } => {
                if self.groups.fail(shard, at) {
                    self.end_sessions(shard, |_| true);
                }
            }
        }
    }

    fn take_slot(&mut self, session: SessionId, shard: u32) {
        let plain = matches!(self.settings.mode(), Mode::Plain { .. });
        let fits = if plain {
            shard == 0
        } else {
            self.groups.has_place(shard)
        };
        if self.free() == 0 || !fits || self.slots.contains_key(&session) {
            return;
        }
        let place = Place::Open { ready: false };
        self.slots.insert(session, Slot { shard, place });
        self.groups.assign(shard);
        self.counts.assigned += 1;
        self.counts.open += 1;
        self.offered = self.offered.saturating_sub(1);
    }

    fn take_ready(&mut self, now: Millis, session: SessionId) {
        let Some(slot) = self.slots.get_mut(&session) else {
            return;
        };
        if let Place::Open { ready } = &mut slot.place
            && !*ready
        {
            *ready = true;
            self.counts.ready += 1;
            self.groups.ready(now, slot.shard);
        }
    }

    fn take_report(&mut self, now: Millis, session: SessionId) {
        self.take_ready(now, session);
        let Some(slot) = self.slots.get_mut(&session) else {
            return;
        };
        if matches!(slot.place, Place::Open { .. }) {
            slot.place = Place::Reported;
            self.groups.report(slot.shard);
            self.counts.open -= 1;
            self.counts.reported += 1;
        }
    }

    /// Loses a session; one that has reported only with its whole group, since its update is in the sum.
    fn lose(&mut self, session: SessionId, reported_too: bool) {
        let Some(slot) = self.slots.get_mut(&session) else {
            return;
        };
        match slot.place {
            Place::Open { ready } => {
                self.counts.open -= 1;
                self.groups.lose(slot.shard, ready);
            }
            Place::Reported if reported_too => self.counts.reported -= 1,
            Place::Reported | Place::Lost => return,
        }
        slot.place = Place::Lost;
        self.counts.lost += 1;
    }

    /// Loses the sessions of a group whose places are these.
    fn end_sessions(&mut self, shard: u32, ends: impl Fn(Place) -> bool) {
        let of_group: Vec<SessionId> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.shard == shard && ends(slot.place))
            .map(|(session, _)| *session)
            .collect();
        for session in of_group {
            self.lose(session, true);
        }
    }

    /// Moves on as counts and time allow.
    fn step(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.is_running() && now >= self.settings.attempt_until() {
            return self.conclude(AbandonReason::Deadline, effects);
        }
        match self.settings.mode() {
            Mode::Plain { goal } => self.step_plain(now, goal, effects),
            Mode::Groups { .. } => self.step_groups(now, effects),
        }
    }

    fn step_plain(&mut self, now: Millis, goal: u32, effects: &mut Vec<Effect>) {
        if !self.is_running() {
            return;
        }
        let alive = self.counts.open + self.counts.reported;
        if self.counts.reported >= goal || now >= self.settings.report_until() {
            return self.conclude(AbandonReason::Few, effects);
        }
        if alive >= self.settings.target() || now >= self.settings.select_until() {
            self.end_selection(effects);
        }
        // Nobody else comes: waiting for the deadline would change nothing.
        let settled =
            self.counts.open == 0 || self.counts.open + self.counts.reported < self.settings.floor();
        if self.state == AttemptState::Reporting && settled {
            self.conclude(AbandonReason::Few, effects);
        }
    }

    fn step_groups(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if !self.is_running() {
            return;
        }
        self.close_groups(now, effects);
        if self.state == AttemptState::Selecting {
            let alive = self.counts.open + self.counts.reported;
            let full = alive >= self.settings.target() || self.groups.open_lobbies() == 0;
            if full || now >= self.settings.select_until().min(self.settings.report_until()) {
                self.end_selection(effects);
                self.close_groups(now, effects);
            }
        }
        let reporting = self.state == AttemptState::Reporting;
        if reporting && (self.groups.all_done() || self.groups.reachable() < self.settings.floor()) {
            self.conclude(self.groups.why_few(), effects);
        }
    }

    fn close_groups(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.is_running() {
            let selecting = self.state == AttemptState::Selecting;
            self.groups.close_due(now, selecting, &self.settings, effects);
        }
    }

    /// Ends the selection: reporting with enough sessions for the floor, else abandoned.
    fn end_selection(&mut self, effects: &mut Vec<Effect>) {
        if self.state != AttemptState::Selecting {
            return;
        }
        if self.counts.open + self.counts.reported >= self.settings.floor() {
            self.state = AttemptState::Reporting;
            effects.push(Effect::CloseSelection);
        } else {
            self.abandon(AbandonReason::Few, effects);
        }
    }

    /// Releases with at least the floor, else abandons.
    fn conclude(&mut self, reason: AbandonReason, effects: &mut Vec<Effect>) {
        let included = match self.settings.mode() {
            Mode::Plain { .. } => self.counts.reported,
            Mode::Groups { .. } => self.counts.summed,
        };
        if included < self.settings.floor() {
            return self.abandon(reason, effects);
        }
        if self.state == AttemptState::Selecting {
            effects.push(Effect::CloseSelection);
        }
        self.state = AttemptState::Releasing;
        effects.push(Effect::Release);
    }

    fn abandon(&mut self, reason: AbandonReason, effects: &mut Vec<Effect>) {
        self.state = AttemptState::Abandoned;
        effects.push(Effect::Abandon(reason));
    }

    fn offer(&mut self, effects: &mut Vec<Effect>) {
        let free = self.free();
        if self.state == AttemptState::Selecting && free != self.offered {
            self.offered = free;
            effects.push(Effect::OfferSlots(free));
        }
    }

    /// Asks for the next wake-up, where it is another one than before.
    fn arm(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if !self.is_running() {
            return;
        }
        let settings = &self.settings;
        let mut next = settings.attempt_until().min(settings.report_until());
        if next <= now {
            next = settings.attempt_until();
        }
        if self.state == AttemptState::Selecting {
            next = next.min(settings.select_until());
        }
        if let Some(group) = self.groups.wake_at(settings) {
            next = next.min(group);
        }
        if self.wake != Some(next) {
            self.wake = Some(next);
            effects.push(Effect::WakeAt(next));
        }
    }
}

#[cfg(test)]
mod tests;
