//! The code of GPUs calls a GPU a GPU.

use std::collections::BTreeSet;

use undertone_gates::{Finding, devices};

use super::{parsed, read, root, shown};

/// Names of others, and of the devices of people, with the reason of each. There are at most twelve.
const KNOWN: [(&str, &str); 2] = [
    ("DeviceRepr", "the trait of cudarc for the arguments of a kernel"),
    ("device_count", "the function of cudarc that counts GPUs"),
];

/// The code of GPUs: folders and files.
const PLACES: [&str; 10] = [
    "crates/gpu/src",
    "crates/gpu-sum/src",
    "crates/aggregation/src",
    "crates/local/src",
    "crates/run/src/engine.rs",
    "crates/run/src/session.rs",
    "crates/run/src/session",
    "crates/run/src/source/local.rs",
    "python/src/session.rs",
    "python/src/session",
];

#[test]
fn one_word_for_a_gpu() {
    let sources: Vec<_> = PLACES
        .iter()
        .flat_map(|place| {
            let place = root().join(place);
            match place.is_dir() {
                true => parsed(&place),
                false => vec![undertone_gates::Source::parse(&place, &read(&place))],
            }
        })
        .collect();
    let names = KNOWN.map(|(name, _)| name);
    let all = |known: &[&str]| -> Vec<Finding> {
        let each = sources.iter().flat_map(|source| devices(source, known));
        each.collect()
    };
    let found = all(&names);
    assert!(found.is_empty(), "{}", shown(&found));
    let used: BTreeSet<String> = all(&[]).into_iter().map(|finding| finding.what).collect();
    for (name, why) in KNOWN {
        assert!(used.contains(name), "{name} ({why}) is no exception any more");
    }
    assert!(KNOWN.len() <= 12, "{} exceptions, at most 12", KNOWN.len());
}
