//! Files of a run directory, under `verify` and `report`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("run_directory", bytes));
