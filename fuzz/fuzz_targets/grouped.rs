//! Folders of text grouped by user.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("grouped", bytes));
