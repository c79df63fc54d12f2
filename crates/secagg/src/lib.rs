//! Secure aggregation: the server learns the modular sum of the clients' vectors and nothing else of them.
//!
//! Paper: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
//! CCS 2020 (\[SecAgg+\]); with every client every other's neighbour it is Bonawitz et al., CCS 2017 (\[SecAgg\]).

mod error;
pub mod parameters;
mod params;

pub use error::{Result, SecAggError};
pub use params::{Floors, MAX_CLIENTS, MAX_LENGTH, MAX_MODULUS, Params, Setting, Suite, Terms, Topology};
