//! Worlds for tests of the service: a store, a task, devices and a clock that the test moves.
//!
//! [`World`] describes a world, and [`World::start`] serves it: `World::new().task(PLAIN).devices(30).start()`. Tests that make a part
//! themselves, such as a store that fails, take the functions of which the builder consists. No package of the product depends on this one.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(
    clippy::must_use_candidate,
    reason = "a test that drops a value does not pass by it"
)]
#![allow(missing_debug_implementations, reason = "a service of a test is not printed")]

mod device;
mod export;
mod fleet;
mod heard;
mod keys;
mod running;
mod task;
mod world;

pub use device::Device;
pub use export::{blob, export, exports, loaded};
pub use fleet::{evidence, fleet_clock, fleet_config, users};
pub use heard::heard;
pub use keys::{certificate, enrolment, floors, keys, setup, shared};
pub use running::Running;
pub use task::{PLAIN, changed, secure};
pub use world::World;

/// The time at which the clock of a world begins, in milliseconds since 1970.
pub const START: u64 = 1_800_000_000_000;

/// The population of every task.
pub const PEOPLE: &str = "people";
