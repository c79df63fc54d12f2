//! The weights of other programs from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod gguf;
mod huggingface;
