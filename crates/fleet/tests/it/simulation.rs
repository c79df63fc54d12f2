//! A whole service with real device machines under a virtual clock: participation, drop-outs, faults and malice.
//!
//! The worlds have a store in memory with crash points, rooms as they are served, and machines with the memories of devices. Updates
//! are one-hot by subject, and the noise is seeded, so a released model shows how often each subject is in the sum.

mod checker;
mod dispatch;
mod drop_outs;
mod durable;
mod herd;
mod histories;
mod history;
mod kinds;
mod malice;
mod messages;
mod participation;
mod repro;
mod template;
mod world;
