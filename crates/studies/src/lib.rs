#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod advise;
pub mod simulate;
pub mod sweep;
