//! Run files, pre-training, sweeps and simulations.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("settings", bytes));
