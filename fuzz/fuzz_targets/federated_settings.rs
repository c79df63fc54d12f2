//! Task files, operations and the files of operators.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = undertone_hostile::federated::fuzz("federated_settings", bytes);
});
