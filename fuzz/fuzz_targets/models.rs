//! Safetensors that a run starts from, and GPT-2's config.json.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("models", bytes));
