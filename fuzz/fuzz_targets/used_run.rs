//! Models, configurations and corpus caches, under `eval`, `personalize` and `export`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("used_run", bytes));
