//! The bytes of a service: uploads on their way, blobs, and the state of a head, at rest and between threads.

pub mod blobs;
pub mod head_state;
pub(crate) mod pipe;
pub mod spool;
