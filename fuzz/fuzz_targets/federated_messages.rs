//! Messages of the protocol, certificates, and headers of requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = undertone_hostile::federated::fuzz("federated_messages", bytes);
});
