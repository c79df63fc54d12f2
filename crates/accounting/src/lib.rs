//! Differential-privacy accounting for user-level training: from what a run did to its users (events) to
//! what it guarantees them (epsilon, delta).
//!
//! An [`Event`] names one release together with its sampling scheme, an [`Accountant`] composes events by one
//! [`Recipe`], and a [`Guarantee`] carries the result with the relation it holds under. [`calibrate`] goes
//! the other way: from a target to a noise multiplier, a number of rounds or a sampling probability.
//!
//! ```
//! use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};
//!
//! # fn main() -> Result<(), undertone_accounting::AccountingError> {
//! let round = Event::PoissonGaussian {
//!     sampling_probability: SamplingProbability::new(5000.0 / 763_430.0)?,
//!     noise_multiplier: NoiseMultiplier::new(1.0)?,
//! };
//! let mut accountant = Accountant::new(Recipe::Moments2016);
//! accountant.compose(&round, 5000)?;
//! let guarantee = accountant.guarantee(Delta::new(1e-9)?)?;
//! assert_eq!(format!("{:.3}", guarantee.epsilon.get()), "4.634"); // Table 2, first private row
//! # Ok(())
//! # }
//! ```
//!
//! It reads no file and no clock and draws no random number. It does not add noise, does not know what a
//! model is, and does not check that a run really sampled its users the way the event says.
//!
//! Paper: McMahan et al., "Learning Differentially Private Recurrent Language Models" (ICLR 2018), section 2
//! and Tables 1-2; Mironov, Talwar, Zhang, "Renyi Differential Privacy of the Sampled Gaussian Mechanism"
//! (2019).

#![forbid(unsafe_code)]

pub mod accountant;
pub mod adaptive_clipping;
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
pub mod pld;
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
pub use quantity::{Delta, Epsilon, NoiseMultiplier, Rho, SamplingProbability};
