//! The host's conditions for a session, and its wish to stop one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::stage::Stage;

/// The condition of the host that is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmet {
    /// The device is not charging.
    Charging,
    /// The device is in use.
    Idle,
    /// The network is metered.
    Unmetered,
    /// Storage is short.
    Storage,
    /// The device is too warm.
    Thermal,
}

/// The conditions under which a device may work. They are asked before a session, before each request and during training. They are the
/// host's wishes, the same for all tasks. `eligibility.rs` has what a task demands.
///
/// A condition that a host does not know is met. A device that works on battery overrides [`charging`](Self::charging) with its own rule.
pub trait Conditions {
    /// `true` if the device is charging.
    fn charging(&self) -> bool {
        true
    }

    /// `true` if nobody uses the device.
    fn idle(&self) -> bool {
        true
    }

    /// `true` if the network costs nothing.
    fn unmetered(&self) -> bool {
        true
    }

    /// `true` if there is room for a model.
    fn storage(&self) -> bool {
        true
    }

    /// `true` if the device is cool.
    fn thermal(&self) -> bool {
        true
    }

    /// The charge of the battery, in percent; `None` without one.
    fn battery_percent(&self) -> Option<f32> {
        None
    }

    /// Takes note that a session has reached this stage. A host can show it; nothing depends on it.
    fn reached(&self, _stage: Stage) {}

    /// The first condition that is not met.
    fn unmet(&self) -> Option<Unmet> {
        let conditions = [
            (self.charging(), Unmet::Charging),
            (self.idle(), Unmet::Idle),
            (self.unmetered(), Unmet::Unmetered),
            (self.storage(), Unmet::Storage),
            (self.thermal(), Unmet::Thermal),
        ];
        let unmet = conditions.into_iter().find(|(met, _)| !met);
        unmet.map(|(_, condition)| condition)
    }
}

/// Conditions that are always met: for servers and tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysMet;

impl Conditions for AlwaysMet {}

/// The wish to stop, which any thread may set.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the session: between two batches, or before the next request.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// `true` once the session was asked to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
