//! Fleets whose devices trust a service and have its invitations.

use std::sync::Arc;

use undertone_device::PolicyFloors;
use undertone_fleet::{Enrolment, FleetClock, FleetConfig, VirtualClock};
use undertone_service::identity::Identity;
use undertone_service::keys::Keys;

use crate::START;
use crate::keys::{invitation, setup};

/// The evidence that devices show when they enrol: an invitation by these keys, or nothing where the identity level is `dev`.
pub fn evidence(keys: Keys, identity: Identity) -> Enrolment {
    match identity {
        Identity::Dev => Enrolment::SelfAsserted,
        Identity::Certificate | Identity::Attested => {
            Enrolment::Invitations(Arc::new(move |_, name| invitation(&keys, name)))
        }
    }
}

/// The settings of a fleet of so many invited devices that trust these keys.
pub fn fleet_config(keys: Keys, floors: PolicyFloors, devices: usize) -> FleetConfig {
    let setup = setup(&keys, floors);
    FleetConfig {
        enrolment: evidence(keys, Identity::Certificate),
        ..FleetConfig::new(setup, devices)
    }
}

/// A clock that begins at [`START`] and moves by half a second. `follow` hears of every new time.
pub fn fleet_clock(follow: impl Fn(u64) + Send + Sync + 'static) -> Arc<dyn FleetClock> {
    Arc::new(VirtualClock::at(START).with_step(500).followed_by(follow))
}

/// The texts of so many users: eight examples each.
pub fn users(number: usize) -> Vec<Vec<Vec<u32>>> {
    let example = |user: u32, place: u32| vec![3 + (user + place) % 8, 4, 5, 1];
    (0..number as u32)
        .map(|user| (0..8).map(|place| example(user, place)).collect())
        .collect()
}
