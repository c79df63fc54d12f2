//! The device as an app embeds it: its files, its driver and its keys.

mod clocks;
mod enrolment;
mod lab;
mod participation;
mod waiting;
