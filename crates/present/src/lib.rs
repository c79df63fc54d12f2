//! Turns values into text: numbers for people, tables, SVG charts, and text that is safe on a terminal.
//!
//! Nothing here prints, reads a file or knows what a run is. The callers print, and they say what the values mean.
//!
//! ```
//! use undertone_present::numbers::{epsilon_delta, number};
//!
//! assert_eq!(number(12_345.6), "12346");
//! // A bound is rounded up, so that the text never claims more than was computed.
//! assert_eq!(epsilon_delta(4.0374, 1e-5), "(eps = 4.038, delta = 1e-5)");
//! ```

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
