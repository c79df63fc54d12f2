//! The sum of a GPU against that of the processor and against plain arithmetic: the same bits, in any grid, order and slot.

use proptest::prelude::*;
use undertone_aggregation::{BoundedSum, Clipping, GpuPart};
use undertone_gpu_sum::{Emulator, UnitSlots};

use crate::common::{bound, hostile, layers, on_gpu, plain, square, steps, weights};

/// Any grid of up to six blocks of up to four threads, in any order of its blocks.
fn grids() -> impl Strategy<Value = Emulator> {
    let stride = |blocks: u32, wish: u32| (wish..).find(|&stride| coprime(blocks, stride)).unwrap_or(1);
    let threads = prop_oneof![5 => Just(1u32), 1 => Just(2), 1 => Just(4)];
    (1..7u32, threads, 1..7u32).prop_map(move |(blocks, threads, wish)| {
        Emulator::new(blocks, threads, stride(blocks, wish)).expect("a grid")
    })
}

fn coprime(a: u32, b: u32) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}

/// Clip norms from a few steps of the grid to beyond the largest value that needs no halving.
fn clip_norms() -> impl Strategy<Value = f64> {
    (-11.0..6.0f64).prop_map(|power| 10f64.powf(power))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_sum_has_the_bits_of_the_processor(
        updates in prop::collection::vec(hostile(37), 1..6),
        weights in weights(6),
        clip_norm in clip_norms(),
        machine in grids(),
        idle in 0..3usize,
    ) {
        let bound = bound(37, Clipping::Flat { clip_norm });
        let weights = &weights[..updates.len()];
        let host = BoundedSum::new(bound.clone());
        let added: Vec<_> = updates.iter().zip(weights).map(|(update, &weight)| host.add(update, weight).unwrap()).collect();
        let (gpu, outcomes) = on_gpu(&bound, machine, &updates, weights, idle);
        prop_assert_eq!(steps(host), steps(gpu));
        for (host, gpu) in added.iter().zip(outcomes) {
            let (host, gpu) = (host.report(), gpu.report());
            prop_assert_eq!(host.clipped, gpu.clipped);
            // The norm of the GPU is that of truncated values.
            let room = 37.0 * 2f64.powi(-40) + host.norm * 2f64.powi(-22);
            prop_assert!((host.norm - gpu.norm).abs() <= room, "{} {}", host.norm, gpu.norm);
        }
    }

    #[test]
    #[ignore = "slow"]
    fn layers_with_strides_have_the_bits_of_the_processor(
        updates in prop::collection::vec(hostile(26), 1..5),
        weights in weights(5),
        norms in prop::collection::vec(clip_norms(), 3),
        machine in grids(),
    ) {
        let bound = layers(norms);
        let weights = &weights[..updates.len()];
        let host = BoundedSum::new(bound.clone());
        for (update, &weight) in updates.iter().zip(weights) {
            host.add(update, weight).unwrap();
        }
        let (gpu, _) = on_gpu(&bound, machine, &updates, weights, 1);
        prop_assert_eq!(steps(host), steps(gpu));
    }

    /// The rule line by line in integers of 128 bits and more, and the bound in exact arithmetic.
    #[test]
    fn one_unit_gives_the_integers_of_the_rule_and_keeps_the_bound(
        update in hostile(8),
        weight in prop_oneof![Just(1.0), 0.0..=1.0f64],
        clip_norm in clip_norms(),
        machine in grids(),
    ) {
        let bound = bound(8, Clipping::Flat { clip_norm });
        let (gpu, _) = on_gpu(&bound, machine, std::slice::from_ref(&update), &[weight], 0);
        let (got, weight) = (steps(gpu), (weight * 2f64.powi(28)) as u128);
        let limit = (clip_norm * 2f64.powi(40)) as u128;
        prop_assert_eq!(&got[1..], &plain(&update, limit, weight)[..]);
        // sum r^2 <= (w L)^2, as sum (2^28 r)^2 <= (2^28 w L)^2.
        let moved = got[1..].iter().fold([0u128; 2], |sum, step| {
            let [low, high] = square(u128::from(step.unsigned_abs()) << 28);
            let (low, carry) = sum[0].overflowing_add(low);
            [low, sum[1] + high + u128::from(carry)]
        });
        let most = square(weight * limit);
        prop_assert!((moved[1], moved[0]) <= (most[1], most[0]), "{moved:?} {most:?}");
    }

    /// Assumption A1 for these kernels: the bits of a unit depend on nothing but its values.
    #[test]
    #[ignore = "slow"]
    fn a_unit_has_the_same_norm_in_any_slot_beside_any_neighbours(
        unit in hostile(26),
        neighbours in prop::collection::vec(hostile(26), 4),
        others in prop::collection::vec(hostile(26), 4),
        (slot, other) in (0..5usize, 0..5usize),
        machine in grids(),
    ) {
        let bound = layers(vec![1.0; 3]);
        let norm = |neighbours: &[Vec<f32>], slot: usize| {
            // The rest of the slots are idle and hold other people's values.
            let mut slots = UnitSlots::new(machine.clone(), &bound, 7).unwrap();
            let mut updates = neighbours.to_vec();
            updates.insert(slot, unit.clone());
            updates.extend_from_slice(&others[..2]);
            for (slot, update) in updates.iter().enumerate() {
                slots.write(slot, update).unwrap();
            }
            slots.set_units(5).unwrap();
            slots.norms().unwrap()[3 * slot..3 * slot + 3].to_vec()
        };
        prop_assert_eq!(norm(&neighbours, slot), norm(&others, other));
    }

    /// One unit more or less changes the sum by its own integers alone.
    #[test]
    #[ignore = "slow"]
    fn a_unit_moves_the_sum_by_its_own_integers_whatever_else_is_there(
        updates in prop::collection::vec(hostile(16), 1..5),
        weights in weights(5),
        clip_norm in clip_norms(),
        (first, second) in (grids(), grids()),
        place in any::<prop::sample::Index>(),
    ) {
        let bound = bound(16, Clipping::Flat { clip_norm });
        let place = place.index(updates.len());
        let all = steps(on_gpu(&bound, first.clone(), &updates, &weights[..updates.len()], 0).0);
        let alone = steps(on_gpu(&bound, second.clone(), &updates[place..=place], &weights[place..=place], 2).0);
        let (mut others, mut of_others) = (updates.clone(), weights[..updates.len()].to_vec());
        others.remove(place);
        of_others.remove(place);
        let rest = steps(on_gpu(&bound, second, &others, &of_others, 1).0);
        for ((all, alone), rest) in all.iter().zip(alone).zip(rest) {
            prop_assert_eq!(*all, alone + rest);
        }
    }
}

/// Several threads of several blocks have values here, so that every path of the reduction runs.
#[test]
#[ignore = "slow"]
fn a_long_update_has_the_bits_of_the_processor_in_blocks_of_many_threads() {
    let len = 70_001;
    let update = |seed: u32| -> Vec<f32> {
        (0..len as u32)
            .map(|i| {
                let mixed = (i ^ seed).wrapping_mul(0x9e37_79b1);
                // Exponents from 2^-40 to 2^21.
                f32::from_bits(mixed & 0x807f_ffff | (87 + mixed % 62) << 23)
            })
            .collect()
    };
    let updates = [
        update(1),
        update(77),
        vec![f32::MAX; len],
        vec![2f32.powi(22).next_down(); len],
    ];
    let weights = [1.0, 0.37, 1.0, 0.5];
    let bound = bound(len, Clipping::Flat { clip_norm: 3.5 });
    let host = BoundedSum::new(bound.clone());
    for (update, weight) in updates.iter().zip(weights) {
        host.add(update, weight).unwrap();
    }
    let host = steps(host);
    for (blocks, threads, stride) in [(1, 1, 1), (7, 1, 3), (4, 32, 3), (1, 256, 1)] {
        let machine = Emulator::new(blocks, threads, stride).unwrap();
        let (gpu, _) = on_gpu(&bound, machine, &updates, &weights, 2);
        assert!(host == steps(gpu), "{blocks} {threads} {stride}");
    }
}

/// The sum stays on the GPU over several parts and is merged once, as a loop over users does it.
#[test]
fn parts_are_added_up_on_the_gpu() {
    let updates: Vec<Vec<f32>> = (1..8).map(|k| vec![k as f32, -0.5, 1e-9 * k as f32]).collect();
    let bound = bound(3, Clipping::Flat { clip_norm: 2.25 });
    let (host, gpu) = (BoundedSum::new(bound.clone()), BoundedSum::new(bound.clone()));
    let mut slots = UnitSlots::new(Emulator::default(), &bound, 2).unwrap();
    let mut factors = Vec::new();
    for part in updates.chunks(2) {
        slots.set_units(part.len()).unwrap();
        let before = factors.len();
        for (slot, update) in part.iter().enumerate() {
            slots.write(slot, update).unwrap();
            host.add(update, 0.75).unwrap();
        }
        let norms = slots.norms().unwrap();
        factors.extend(norms.iter().map(|&norm| gpu.factor(&[norm], 0.75).unwrap()));
        slots.add(&factors[before..]).unwrap();
    }
    let sum = slots.take().unwrap();
    gpu.merge_gpu(&sum, &factors).unwrap();
    assert_eq!(steps(host), steps(gpu));
    // The sum of the machine is zero again.
    let empty = BoundedSum::new(bound);
    empty.merge_gpu(&slots.take().unwrap(), &[]).unwrap();
    assert_eq!(steps(empty), [0; 4]);
}

/// Without clipping the host adds what the GPU holds, with the bits that it always had.
#[test]
fn without_clipping_the_host_adds_the_updates() {
    let updates = [vec![0.3f32, -1e6, 1e-7], vec![1.0, 2.0, 3.0]];
    let bound = bound(3, Clipping::None);
    let host = BoundedSum::new(bound.clone());
    for (update, weight) in updates.iter().zip([0.3, 1.0]) {
        host.add(update, weight).unwrap();
    }
    let (gpu, _) = on_gpu(&bound, Emulator::default(), &updates, &[0.3, 1.0], 0);
    assert_eq!(steps(host), steps(gpu));
}
