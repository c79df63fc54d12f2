//! The laboratory of Undertone. [`reproduce`] holds the printed numbers of the papers and what Undertone computes for them.
//!
//! The program `undertone-lab` shows them, compares Undertone with reference numbers of other software, and measures its speed. No
//! crate of the product depends on this one.

#![forbid(unsafe_code)]

pub mod normal;
pub mod reproduce;
