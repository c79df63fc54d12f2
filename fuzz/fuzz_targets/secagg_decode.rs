//! Every decoder on any bytes: no panic, and what decodes encodes to the same bytes.
//!
//! The kind byte chooses the decoder, so that a corpus of real messages works.

#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone_secagg::message::{
    AdvertiseKeys, Consistency, MaskedInput, MaskedInputRef, Message, RelayedShares, Roster, ShareKeys,
    Survivors, Unmask, UnmaskShares,
};

fn check<M: Message>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert_eq!(message.encode(), bytes);
    }
}

fuzz_target!(|bytes: &[u8]| {
    match bytes.get(1) {
        Some(&AdvertiseKeys::KIND) => check::<AdvertiseKeys>(bytes),
        Some(&Roster::KIND) => check::<Roster>(bytes),
        Some(&ShareKeys::KIND) => check::<ShareKeys>(bytes),
        Some(&RelayedShares::KIND) => check::<RelayedShares>(bytes),
        Some(&MaskedInput::KIND) => {
            check::<MaskedInput>(bytes);
            let (read, decoded) = (MaskedInputRef::decode(bytes), MaskedInput::decode(bytes));
            assert_eq!(
                read.map(|input| input.packed),
                decoded
                    .as_ref()
                    .map(|input| &input.packed[..])
                    .map_err(Clone::clone)
            );
        }
        Some(&Survivors::KIND) => check::<Survivors>(bytes),
        Some(&Consistency::KIND) => check::<Consistency>(bytes),
        Some(&Unmask::KIND) => check::<Unmask>(bytes),
        Some(&UnmaskShares::KIND) => check::<UnmaskShares>(bytes),
        _ => check::<Roster>(bytes),
    }
});
