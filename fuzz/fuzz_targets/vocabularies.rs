//! Word lists and their privacy records.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("vocabularies", bytes));
