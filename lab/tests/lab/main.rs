//! The commands of `undertone-lab`, run as a person runs them.

mod audits;
mod binomial;
mod corpora;
mod mean;
mod service;
mod support;
