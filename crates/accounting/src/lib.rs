#![doc = include_str!("../README.md")]
//!
//! An [`Accountant`] composes events by one [`Recipe`]. The module [`calibrate`] goes the other way: from a target guarantee to a noise
//! multiplier, a number of rounds or a sampling probability. The crate adds no noise and does not know what a model is.
//!
//! Papers: McMahan et al., "Learning Differentially Private Recurrent Language Models" (ICLR 2018), section 2 and Tables 1-2; Mironov,
//! Talwar, Zhang, "Renyi Differential Privacy of the Sampled Gaussian Mechanism" (2019).

#![forbid(unsafe_code)]

pub mod accountant;
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
mod guarantee;
pub mod moments;
pub mod participation;
pub mod plan;
mod pld;
mod quantity;
pub mod rdp;
mod search;
pub mod sensitivity;
mod special;
pub mod zcdp;

pub use accountant::Accountant;
pub use error::AccountingError;
pub use event::Event;
pub use guarantee::{Adjacency, Guarantee, OptimalOrder, Recipe, Sampling};
pub use pld::grid;
pub use quantity::{Delta, Epsilon, NoiseMultiplier, Rho, SamplingProbability};
