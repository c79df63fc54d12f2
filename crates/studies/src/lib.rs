#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod advise;
pub mod audit;
pub mod simulate;
pub mod sweep;
