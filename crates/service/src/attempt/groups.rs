//! The groups of an attempt as its machine sees them: counts and deadlines.

use undertone_store::{AbandonReason, Millis};

use super::group::Phase;
use super::{Effect, Mode, Settings};

#[derive(Debug)]
struct View {
    phase: Phase,
    places: u32,
    /// Sessions that are not lost.
    members: u32,
    /// Sessions that have joined, and are not lost.
    ready: u32,
    reported: u32,
    /// The time at which the lobby had the minimum.
    enough_since: Option<Millis>,
    /// The end of the phase; `None` where its closing was asked for.
    until: Option<Millis>,
    /// `true` once the lobby was asked to close.
    closed: bool,
    included: u32,
}

impl View {
    fn in_lobby(&self) -> bool {
        self.phase == Phase::Lobby
    }

    fn takes(&self) -> bool {
        self.in_lobby() && !self.closed && self.members < self.places
    }

    fn is_done(&self) -> bool {
        self.phase.is_end()
    }
}

/// The groups; none in a plain attempt.
#[derive(Debug)]
pub(super) struct Groups {
    views: Vec<View>,
    group_min: u32,
    failed_to_open: bool,
}

impl Groups {
    pub(super) fn new(settings: &Settings) -> Self {
        let (groups, group_min) = match settings.mode() {
            Mode::Plain { .. } => (0, 0),
            Mode::Groups {
                groups, group_min, ..
            } => (groups, group_min),
        };
        let view = |shard| View {
            phase: Phase::Lobby,
            places: settings.places(shard),
            members: 0,
            ready: 0,
            reported: 0,
            enough_since: None,
            until: None,
            closed: false,
            included: 0,
        };
        Self {
            views: (0..groups).map(view).collect(),
            group_min,
            failed_to_open: false,
        }
    }

    fn view(&mut self, shard: u32) -> Option<&mut View> {
        self.views.get_mut(shard as usize).filter(|view| !view.is_done())
    }

    pub(super) fn has_place(&self, shard: u32) -> bool {
        self.views.get(shard as usize).is_some_and(View::takes)
    }

    /// Free places in open lobbies.
    pub(super) fn free(&self) -> u32 {
        let open = self.views.iter().filter(|view| view.takes());
        open.map(|view| view.places - view.members).sum()
    }

    pub(super) fn open_lobbies(&self) -> usize {
        let open = |view: &&View| view.in_lobby() && !view.closed;
        self.views.iter().filter(open).count()
    }

    /// A group, drawn uniformly over the free places.
    pub(super) fn place(&self, draw: u64) -> Option<u32> {
        let free = self.free();
        // The high half of the product is uniform up to 2^-32.
        let mut left = ((u128::from(draw) * u128::from(free)) >> 64) as u32;
        for (shard, view) in (0..).zip(&self.views) {
            let here = if view.takes() {
                view.places - view.members
            } else {
                0
            };
            if left < here {
                return Some(shard);
            }
            left -= here;
        }
        None
    }

    pub(super) fn assign(&mut self, shard: u32) {
        if let Some(view) = self.view(shard) {
            view.members += 1;
        }
    }

    pub(super) fn ready(&mut self, now: Millis, shard: u32) {
        let group_min = self.group_min;
        if let Some(view) = self.view(shard) {
            view.ready += 1;
            if view.ready >= group_min && view.enough_since.is_none() {
                view.enough_since = Some(now);
            }
        }
    }

    pub(super) fn report(&mut self, shard: u32) {
        if let Some(view) = self.view(shard) {
            view.reported += 1;
        }
    }

    pub(super) fn lose(&mut self, shard: u32, was_ready: bool) {
        let group_min = self.group_min;
        if let Some(view) = self.view(shard) {
            view.members -= 1;
            view.ready -= u32::from(was_ready);
            if view.ready < group_min {
                view.enough_since = None;
            }
        }
    }

    /// Notes a later phase, and arms its deadline. Returns `true` if the group has left its lobby.
    pub(super) fn enter(&mut self, now: Millis, shard: u32, phase: Phase, settings: &Settings) -> bool {
        let Mode::Groups { limits, .. } = settings.mode() else {
            return false;
        };
        let limit = match phase {
            Phase::Keys => limits.keys,
            Phase::Shares => limits.shares,
            Phase::Inputs => limits.upload,
            Phase::Signatures | Phase::Unmask => limits.unmask,
            Phase::Lobby | Phase::Summed | Phase::Failed => return false,
        };
        let Some(view) = self.view(shard).filter(|view| phase > view.phase) else {
            return false;
        };
        let left = view.in_lobby();
        view.phase = phase;
        view.closed = true;
        view.until = Some(now.saturating_add(limit));
        left
    }

    /// Notes the sum of a group. Returns `false` for a group that is done, or a sum below its floor.
    pub(super) fn sum(&mut self, shard: u32, included: u32) -> bool {
        let group_min = self.group_min;
        let Some(view) = self
            .view(shard)
            .filter(|view| (group_min..=view.reported).contains(&included))
        else {
            return false;
        };
        view.phase = Phase::Summed;
        view.included = included;
        true
    }

    /// Notes the failure of a group. Returns `false` for a group that is done.
    pub(super) fn fail(&mut self, shard: u32, at: Phase) -> bool {
        let Some(view) = self.view(shard) else {
            return false;
        };
        view.phase = Phase::Failed;
        self.failed_to_open |= at == Phase::Unmask;
        true
    }

    pub(super) fn all_done(&self) -> bool {
        self.views.iter().all(View::is_done)
    }

    /// The max number of devices that can still be in sums, if nobody else joins.
    pub(super) fn reachable(&self) -> u32 {
        let reachable = |view: &View| match view.phase {
            Phase::Summed => view.included,
            Phase::Failed => 0,
            Phase::Signatures | Phase::Unmask => view.reported,
            _ if view.members < self.group_min => 0,
            _ => view.members,
        };
        self.views.iter().map(reachable).sum()
    }

    /// The reason for too few devices in sums: a group all of whose members had reported did not open, or devices were missing.
    pub(super) fn why_few(&self) -> AbandonReason {
        match self.failed_to_open {
            true => AbandonReason::Protocol,
            false => AbandonReason::Few,
        }
    }

    /// Asks for the closing of lobbies and phases whose time has come.
    pub(super) fn close_due(
        &mut self,
        now: Millis,
        selecting: bool,
        settings: &Settings,
        effects: &mut Vec<Effect>,
    ) {
        let Mode::Groups { limits, .. } = settings.mode() else {
            return;
        };
        let over = now >= settings.report_until();
        for (shard, view) in (0..).zip(&mut self.views) {
            if view.in_lobby() && !view.closed {
                let waited = |since: Millis| now >= since.saturating_add(limits.lobby);
                let nobody_else = !selecting && view.ready == view.members;
                let full = view.ready >= view.places;
                if full || nobody_else || over || view.enough_since.is_some_and(waited) {
                    view.closed = true;
                    effects.push(Effect::CloseLobby(shard));
                }
            } else if view.until.is_some_and(|until| now >= until) && !view.is_done() {
                view.until = None;
                let phase = view.phase;
                effects.push(Effect::ClosePhase { shard, phase });
            }
        }
    }

    /// The next deadline of a group.
    pub(super) fn wake_at(&self, settings: &Settings) -> Option<Millis> {
        let Mode::Groups { limits, .. } = settings.mode() else {
            return None;
        };
        let due = |view: &View| match view.phase {
            Phase::Lobby if view.closed => None,
            Phase::Lobby => view.enough_since.map(|since| since.saturating_add(limits.lobby)),
            _ if view.is_done() => None,
            _ => view.until,
        };
        self.views.iter().filter_map(due).min()
    }
}
