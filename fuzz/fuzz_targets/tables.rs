//! CSV, JSONL and Parquet.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("tables", bytes));
