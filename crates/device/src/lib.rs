#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Device`], [`DeviceConfig`], [`DeviceSettings`] | the device as an app embeds it, and its settings from JSON |
//! | [`ExampleStore`], [`Example`], [`ExampleCaps`] | the texts of the person |
//! | [`KeyStore`], [`FileKeyStore`], [`MemoryKeyStore`] | keys, and counters that only grow |
//! | [`PolicyFloors`], [`Limits`], [`Neighbours`] | the demands of a device |
//! | [`Memory`], [`Participation`], [`Row`], [`eligible`] | what a device remembers, and what it decides from that |
//! | [`TaskPlan`], [`PlanChecks`] | plans and rounds, compared with the floors |
//! | [`Conditions`], [`AlwaysMet`], [`Stop`] | when a device may work |
//! | [`Machine`], [`Event`], [`Action`] | one session without sockets, clocks or entropy |
//! | [`Transport`], [`Request`], [`Reply`], `HttpTransport` | the way to the service; `HttpTransport` needs the feature `http` |
//! | [`Job`], [`Trained`] | local training |
//! | [`Predictor`], [`Prediction`], [`HeldModel`] | predictions of a model that the device holds |
//! | [`Status`], [`Finding`] | what a person or a developer asks of a device |
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod certificates;
mod conditions;
mod database;
mod describe;
mod device;
mod doctor;
mod driver;
mod eligibility;
mod encoding;
mod error;
mod examples;
mod floors;
mod held;
#[cfg(feature = "http")]
mod http;
mod job;
mod keystore;
mod machine;
mod memory;
mod participation;
mod plan;
mod predict;
mod rates;
mod settings;
mod shared;
#[cfg(feature = "simulation")]
mod simulation;
mod stage;
mod watch;
mod wire;

pub use certificates::{Issuers, check_certificate, check_session_certificate, enrolment_body};
pub use conditions::{AlwaysMet, Conditions, Stop, Unmet};
pub use describe::verdict_name;
pub use device::{Device, DeviceConfig, Status};
pub use doctor::{Diagnosis, Finding, Subject};
pub use driver::{Clock, NetworkLost, SystemClock, Transport};
pub use eligibility::{Ineligible, eligible};
pub use error::{DeviceError, Refusal, Result};
pub use examples::{Example, ExampleCaps, ExampleStore};
pub use floors::{Limits, Neighbours, PolicyFloors};
pub use held::HeldModel;
#[cfg(feature = "http")]
pub use http::HttpTransport;
pub use job::{Job, JobError, Trained};
pub use keystore::{Counter, FileKeyStore, KeyStore, MemoryKeyStore, SecretKey};
pub use machine::{Action, Ended, Event, Machine, Outcome, Setup};
pub use memory::{Memory, Participation, Progress, Row, StockedKey};
pub use plan::{ClipPolicy, PlanChecks, Planned, Purpose, SecAggPolicy, SumPolicy, TaskPlan};
pub use predict::{Evaluation, Prediction, Predictor};
pub use settings::{DeviceSettings, FloorSettings, KeyList, NeighbourKind, SecAggFloors, ServiceKeys, key};
pub use shared::Shared;
pub use stage::Stage;
#[cfg(feature = "simulation")]
pub use undertone_aggregation::UserSeeds;
pub use undertone_aggregation::Wiped;
pub use watch::Watch;
pub use wire::{Bytes, Method, Reply, Request};
