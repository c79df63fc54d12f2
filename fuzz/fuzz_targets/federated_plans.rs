//! Signed plans, as a device reads them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = undertone_hostile::federated::fuzz("federated_plans", bytes);
});
