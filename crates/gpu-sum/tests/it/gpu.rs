//! The kernels on a GPU, where there is one. With `UNDERTONE_REQUIRE_GPU` a machine without one fails these tests.

use proptest::prelude::*;
use undertone_aggregation::{BoundedSum, Clipping, GpuPart};
use undertone_gpu_sum::{Cuda, Emulator, UnitSlots};

use crate::common::{bound, hostile, layers, on_gpu, steps, weights};

/// The first GPU, whose kernels have passed their self-test.
fn gpu() -> Option<Cuda> {
    match Cuda::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert!(std::env::var_os("UNDERTONE_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("left out, because {error}");
            None
        }
    }
}

#[test]
fn the_gpu_gives_the_bits_of_the_processor_and_of_the_emulator() {
    let Some(gpu) = gpu() else { return };
    proptest!(ProptestConfig::with_cases(500), |(
        updates in prop::collection::vec(hostile(26), 1..9),
        weights in weights(9),
        norms in prop::collection::vec(-11.0..6.0f64, 3),
    )| {
        let bound = layers(norms.into_iter().map(|power| 10f64.powf(power)).collect());
        let weights = &weights[..updates.len()];
        let host = BoundedSum::new(bound.clone());
        for (update, &weight) in updates.iter().zip(weights) {
            host.add(update, weight).unwrap();
        }
        let host = steps(host);
        prop_assert_eq!(&host, &steps(on_gpu(&bound, gpu.clone(), &updates, weights, 1).0));
        prop_assert_eq!(&host, &steps(on_gpu(&bound, Emulator::default(), &updates, weights, 1).0));
    });
}

/// Large enough for every block of the grid, and for several rounds of its threads.
#[test]
fn long_updates_have_the_same_norms_and_sums_again_and_again() {
    let Some(gpu) = gpu() else { return };
    let len = 3_000_001;
    let update = |seed: u32| -> Vec<f32> {
        (0..len as u32)
            .map(|i| {
                let mixed = (i ^ seed).wrapping_mul(0x9e37_79b1);
                f32::from_bits(mixed & 0x807f_ffff | (87 + mixed % 62) << 23)
            })
            .collect()
    };
    let updates = [update(3), update(1 << 20), vec![2f32.powi(22).next_down(); len]];
    let weights = [1.0, 0.37, 0.5];
    let bound = bound(len, Clipping::Flat { clip_norm: 3.5 });
    let host = BoundedSum::new(bound.clone());
    for (update, weight) in updates.iter().zip(weights) {
        host.add(update, weight).unwrap();
    }
    let host = steps(host);
    for _ in 0..3 {
        assert!(host == steps(on_gpu(&bound, gpu.clone(), &updates, &weights, 1).0));
    }
    let norms = |places: [usize; 3]| {
        let mut slots = UnitSlots::new(gpu.clone(), &bound, 3).unwrap();
        for (slot, place) in places.into_iter().enumerate() {
            slots.write(slot, &updates[place]).unwrap();
        }
        slots.norms().unwrap()
    };
    let [first, second, third] = norms([0, 1, 2])[..] else {
        panic!("three norms")
    };
    assert_eq!(norms([2, 0, 1]), [third, first, second]);
}
