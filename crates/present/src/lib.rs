#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "charts")]
pub mod chart;
#[cfg(feature = "charts")]
pub mod curves;
pub mod numbers;
mod scale;
#[cfg(feature = "tables")]
pub mod table;
pub mod terminal;

pub use scale::Scale;

/// The colours of reports and of the dashboard, light and dark, as a style sheet.
pub const PALETTE: &str = include_str!("palette.css");
