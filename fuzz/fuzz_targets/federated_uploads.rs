//! Chunks of an upload, in any order and with any offset.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = undertone_hostile::federated::fuzz("federated_uploads", bytes);
});
