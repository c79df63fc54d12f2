//! Files and streams of Arrow.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("arrow_stream", bytes));
