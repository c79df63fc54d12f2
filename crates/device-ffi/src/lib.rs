#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod device;
mod host;
mod types;

pub use device::{Device, Predictor};
pub use host::{Host, KeyFailure, Keys};
pub use types::{
    Condition, End, Evaluation, Failure, Model, Outcome, Participation, Prediction, Progress, Stage, State,
    Verdict,
};

uniffi::setup_scaffolding!();
