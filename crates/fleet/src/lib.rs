#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Fleet`], [`FleetConfig`], [`RunEnd`] | many devices, and how a run of them ended |
//! | [`Enrolment`], [`SubjectNames`], [`UserExamples`], [`Updates`] | who the devices are, their text, and what they compute |
//! | [`Availability`], [`Trace`], [`FleetClock`], [`VirtualClock`] | when devices are awake, and the clock |
//! | [`Faults`], [`Vanish`], [`Point`], [`Malice`], [`Malicious`] | failures and attacks |
//! | [`Transports`], [`OverHttp`], [`InProcess`], [`Proxy`], [`Conduct`] | ways to a service |
//! | [`Kill`], [`Doom`], [`FailPoint`], [`Launch`] | a process that dies |
//! | [`Statistics`], [`Tally`], [`RoundTally`], [`Remembered`] | what happened, and what the devices remember |
#![forbid(unsafe_code)]

mod availability;
mod clock;
mod config;
mod enrol;
mod error;
mod examples;
mod faults;
mod fleet;
mod in_process;
mod kill;
mod malice;
mod places;
mod proxy;
mod queue;
mod seeds;
mod session;
mod simulated;
mod statistics;
mod steps;
mod transport;

pub use availability::{Always, Availability, Trace};
pub use clock::{FleetClock, MachineClock, VirtualClock};
pub use config::{Enrolment, FleetConfig, InvitationOf, SeedsOf, SubjectNames, Updates};
pub use error::{FleetError, Result};
pub use examples::UserExamples;
pub use faults::{Faults, Point, Vanish};
pub use fleet::{Fleet, RunEnd};
pub use in_process::InProcess;
pub use kill::{Doom, FailPoint, Kill, Launch};
pub use malice::{Malice, Malicious};
pub use proxy::{Conduct, Proxy};
pub use simulated::Remembered;
pub use statistics::{RoundTally, Statistics, Tally};
pub use transport::{OverHttp, Transports};
