//! Clipping, weighting, summing and averaging of user updates over one flat parameter vector. What leaves is a
//! [`RawSum`](undertone_mechanisms::RawSum) and its sensitivity, which is what a mechanism needs.
//!
//! ```
//! use undertone_aggregation::{Clipping, Estimator, FixedPointSum, ParamLayout, user_weight};
//!
//! let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![2, 2]), ("b".into(), vec![2])])?;
//! let clipping = Clipping::Flat { clip_norm: 1.0 };
//! let sum = FixedPointSum::new(layout.len());
//! for (mut update, examples) in [([3.0f32, 0.0, 0.0, 0.0, 4.0, 0.0], 10), ([0.1; 6], 50)] {
//!     clipping.clip(&layout, &mut update)?;
//!     sum.add(&update, user_weight(examples, 20.0))?;
//! }
//! let estimator = Estimator::FixedDenominator { expected_weight: 2.0 };
//! let average = estimator.apply(sum.into_raw()?)?; // secret until a mechanism adds noise
//! assert_eq!(clipping.bound().and_then(|bound| estimator.sensitivity(bound)), Some(0.5));
//! # Ok::<(), undertone_aggregation::AggregationError>(())
//! ```
//!
//! It adds no noise and does no accounting; it draws no random numbers and does no I/O. Adaptive clipping and encodings
//! for secure aggregation are not here yet.
//!
//! Paper: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018
//! (\[DPLM\]), section 2.2 and Lemma 1.

mod clip;
pub mod encoding;
mod error;
mod estimator;
mod hadamard;
mod layout;
mod modular;
pub mod pack;
mod rotation;
mod sum;
mod weight;

pub use clip::{ClipReport, Clipping};
pub use encoding::{
    Cohort, Decoded, Encoder, Encoding, EncodingKind, Levels, MeanSquaredError, RoundEncoding, Sensitivity,
};
pub use error::{AggregationError, Result};
pub use estimator::Estimator;
pub use hadamard::{Transformable, walsh_hadamard};
pub use layout::{Block, ClipGroup, ParamLayout, TensorSpec};
pub use modular::{Lane, Lanes, ModularVec, Modulus};
pub use rotation::Rotation;
pub use sum::{FixedPointSum, SUM_LIMIT, UPDATE_LIMIT};
pub use weight::user_weight;
