//! Checkpoints, states of noise and ledgers, under `train --resume`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_hostile::fuzz("checkpoint", bytes));
