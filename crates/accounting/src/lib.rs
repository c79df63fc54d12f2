#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`Accountant`] | the composition of events |
//! | [`calibrate`] | from a target guarantee to noise, rounds or a sampling probability |
//! | [`participation`] | schemas of how often, and how far apart, one user takes part |
//! | [`sensitivity`] | sensitivities of noise matrices under a schema |
//! | [`adaptive_clipping`] | the split of the noise between the clipped sum and the clipped fraction |
//! | [`distributed`], [`binomial`] | noise to which each client adds a part |
//! | [`group`] | from the guarantee of one record to that of a group of records |
//! | [`gaussian`], [`zcdp`], [`rdp`], [`moments`] | the methods: the exact Gaussian, zCDP, Renyi divergences, the moments of 2016 |
//! | [`grid`], [`discrete`] | losses on a grid, and mechanisms with finitely many outcomes |
//! | [`audit`] | lower bounds on epsilon from attacks, and tests of noise |
//! | [`plan`] | the noise of published production runs |
//!
//! An [`Event`] is one release, a [`Recipe`] is a method, and a [`Guarantee`] is the statement. [`Epsilon`], [`Delta`], [`Rho`],
//! [`NoiseMultiplier`] and [`SamplingProbability`] are numbers that were checked.
//!
//! # Notes
//!
//! An [`Accountant`] composes events by one [`Recipe`]. The module [`calibrate`] goes the other way: from a target guarantee to a noise
//! multiplier, a number of rounds or a sampling probability. The crate adds no noise and does not know what a model is.
//!
//! Papers: McMahan et al., "Learning Differentially Private Recurrent Language Models" (ICLR 2018), section 2 and Tables 1-2; Mironov,
//! Talwar, Zhang, "Renyi Differential Privacy of the Sampled Gaussian Mechanism" (2019).

#![forbid(unsafe_code)]

mod accountant;
pub mod adaptive_clipping;
pub mod audit;
pub mod binomial;
pub mod calibrate;
pub mod discrete;
pub mod distributed;
mod error;
mod event;
pub mod gaussian;
pub mod group;
mod mills;
pub mod moments;
pub mod participation;
pub mod plan;
mod pld;
mod quantity;
pub mod rdp;
mod search;
pub mod sensitivity;
mod special;
mod terms;
pub mod zcdp;

pub use accountant::Accountant;
pub use accountant::guarantee::{Guarantee, OptimalOrder};
pub use error::AccountingError;
pub use event::Event;
pub use pld::grid;
pub use quantity::{Delta, Epsilon, NoiseMultiplier, Rho, SamplingProbability};
pub use terms::{Adjacency, Recipe, Sampling};
