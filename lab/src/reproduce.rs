//! The printed numbers of the papers, recomputed: every check holds what a paper prints, computes the same by
//! the paper's recipe, and puts a tighter value beside it.
//!
//! ```
//! # fn main() -> Result<(), undertone_lab::reproduce::ReproduceError> {
//! use undertone_lab::reproduce::{Conditions, run};
//!
//! // The clock is for checks that time something.
//! let table = run("dplm-text", &Conditions::new(&|| 0.0))?;
//! assert_eq!((table.matched, table.total), (3, 3));
//! assert_eq!(table.rows[0].entries[0].paper, "1.97");
//! # Ok(())
//! # }
//! ```
//!
//! It covers privacy accounting, noise mechanisms, encodings and secure aggregation. Accuracy it covers twice: Figure 2 of cpSGD
//! trains a small network on digits drawn here, where minutes are allowed; Figure 3 of UserDP estimates means. A new table is one file with its data and one
//! line in the list of checks.
//!
//! Papers: McMahan et al., "Learning Differentially Private Recurrent Language Models" (ICLR 2018), Tables 1
//! and 2, section 3, appendix D; Xu et al., "Federated Learning of Gboard Language Models with Differential
//! Privacy" (2023), Tables 1 and 2, Figure 4, Algorithm 2, appendix A; McMahan, Xu, Zhang, "A Hassle-free Algorithm for Strong
//! Differential Privacy in Federated Learning Systems" (2024), Tables 2 to 4, Figures 1 to 6 and 8 to 10; Charles, Ganesh, McKenna, McMahan,
//! Mitchell, Pillutla, Rush, "Fine-Tuning Large Language Models with User-Level Differential Privacy" (2024),
//! Figures 1 to 3, Lemma 1, Algorithm 3; Agarwal, Suresh, Yu, Kumar, McMahan, "cpSGD: Communication-efficient and differentially-private distributed
//! SGD" (NeurIPS 2018), Theorem 1, Figures 1 and 2; parameters of secure aggregation after Bell et al. (CCS 2020).

mod blt;
mod check;
mod conditions;
mod cpsgd;
mod dplm;
mod error;
mod figure;
mod gboard;
mod rounding;
mod secagg;
mod table;
mod userdp;

pub use check::{Check, checks, run};
pub use conditions::Conditions;
pub use error::ReproduceError;
pub use figure::{Curve, Figure, Statement};
pub use rounding::Rounding;
pub use table::{Entry, Row, Table, Tighter};
