#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`numbers`] | numbers for people, and bounds that are never rounded down |
//! | [`terminal`] | text from files, made safe for a terminal |
//! | [`csv`] | lines of comma-separated values |
//! | [`table`] | tables as text, with the feature `tables` |
//! | [`chart`] | charts of a report as SVG, with the feature `charts` |
//! | [`curves`] | curves on linear and logarithmic axes as SVG, with the feature `charts` |
//!
//! [`place`] names a place in a text, [`Scale`] the scale of an axis, and [`PALETTE`] holds the colours as a style sheet.
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "charts")]
pub mod chart;
pub mod csv;
#[cfg(feature = "charts")]
pub mod curves;
pub mod numbers;
mod place;
mod scale;
#[cfg(feature = "tables")]
pub mod table;
pub mod terminal;

pub use place::place;
pub use scale::Scale;

/// The colours of reports and of the dashboard, light and dark, as a style sheet.
pub const PALETTE: &str = include_str!("palette.css");
