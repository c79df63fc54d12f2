//! Flat parameters to and from files: safetensors files of this program, and the layouts of other programs.

pub mod gguf;
pub mod gpt2;
pub mod huggingface;
pub mod onnx;
pub mod peft;

pub use crate::tensors::{
    describe, description, description_in_header, foreign_in_header, from_safetensors, tensors_alone,
    to_safetensors,
};
