//! A seeded simulation and a service with the same cohorts give the same bytes of the model after every round, and the same ledger.
//!
//! The simulation is a run of `undertone train` with fixed-size cohorts under a participation schema. The service has a task with the
//! same tables and the same seed, and a fleet whose devices are the users of the corpus. In each round exactly the simulated cohort
//! checks in, and each device trains with the seeds that the simulation gives its user.
//!
//! Lines of the two ledgers differ in `sampling` and `mode`, in the digest of the line before, and in the salt of the pseudonyms, so
//! participants are compared as users.

mod compare;
mod service;
mod simulation;

use compare::Both;
use simulation::Case;

const BLT: &str = "{ kind = \"blt\", buffers = 3 }";
const TREE: &str = "{ kind = \"tree\" }";

fn case(mechanism: &'static str, secure: bool) -> Case {
    Case {
        mechanism,
        secure,
        every_step: true,
    }
}

#[test]
#[ignore = "slow"]
fn plain_sums_under_blt_noise_give_the_bytes_of_the_simulation() {
    Both::new(&case(BLT, false)).assert_same();
}

#[test]
#[ignore = "slow"]
fn plain_sums_under_tree_noise_give_the_bytes_of_the_simulation() {
    Both::new(&case(TREE, false)).assert_same();
}

#[test]
#[ignore = "slow"]
fn secure_sums_under_blt_noise_give_the_bytes_of_the_simulation() {
    Both::new(&case(BLT, true)).assert_same();
}

#[test]
#[ignore = "slow"]
fn secure_sums_under_tree_noise_give_the_bytes_of_the_simulation() {
    Both::new(&case(TREE, true)).assert_same();
}

/// A device clips in `f32` before it encodes, and a simulated user does so too.
#[test]
#[ignore = "slow"]
fn secure_sums_of_updates_that_are_clipped_once_give_the_bytes_of_the_simulation() {
    let once = Case {
        every_step: false,
        ..case(TREE, true)
    };
    Both::new(&once).assert_same();
}

/// The one difference: a device clips an update in `f32` before it uploads it, and the sum of a simulation clips in integers of 2^-40.
/// Where local training stays within the clip norm in each step, neither has anything left to clip.
#[test]
#[ignore = "slow"]
fn plain_sums_of_updates_that_are_clipped_once_differ_by_the_rounding_of_uploads_alone() {
    let once = Case {
        every_step: false,
        ..case(TREE, false)
    };
    let both = Both::new(&once);
    both.assert_ledgers(|mut entry| {
        entry.parameters_sha256 = None;
        entry
    });
    let distance = |(served, simulated): (&[f32], &[f32])| {
        let pairs = served.iter().zip(simulated);
        let distances = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
        distances.fold(0.0, f64::max)
    };
    let distances: Vec<f64> = both.parameters().map(distance).collect();
    assert_eq!(distances[0], 0.0);
    // One rounding of an update is below 2^-25 of the clip norm. Later rounds train from parameters that differ already.
    assert!(distances[1] > 0.0 && distances[1] < 1e-7, "{distances:?}");
    assert!(distances.iter().all(|&distance| distance < 1e-5), "{distances:?}");
}
