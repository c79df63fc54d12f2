//! Updates, sums and plain arithmetic for the tests.
use std::sync::Arc;

use proptest::prelude::*;
use undertone_aggregation::{
    Added, AggregationError, Block, Bound, BoundedSum, ClipGroup, Clipping, NonFinite, ParamLayout,
};
use undertone_gpu_sum::{Machine, UnitSlots};

/// Any update at all: every bit pattern, ordinary values, subnormals, the largest floats, and the ends of the grid.
pub(crate) fn hostile(len: usize) -> impl Strategy<Value = Vec<f32>> {
    let wild = any::<u32>().prop_map(f32::from_bits).boxed();
    let finite = any::<u32>()
        .prop_map(f32::from_bits)
        .prop_map(|value| if value.is_finite() { value } else { 1.0 });
    let tame = (-2.0..2.0f32).boxed();
    let edge = prop::sample::select(vec![
        0.0f32,
        -0.0,
        1e-45,
        -1e-40,
        f32::MIN_POSITIVE,
        9.094_947e-13,
        -4_194_303.8,
        4_194_304.0,
        f32::MAX,
        -f32::MAX,
    ]);
    let broken = prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, -3.0]);
    prop_oneof![
        4 => prop::collection::vec(tame.clone(), len),
        2 => prop::collection::vec(prop_oneof![8 => tame.clone(), 1 => edge.clone()], len),
        2 => prop::collection::vec(finite, len),
        1 => prop::collection::vec(edge, len),
        1 => prop::collection::vec(prop_oneof![8 => tame, 1 => broken], len),
        1 => prop::collection::vec(wild, len),
    ]
}

pub(crate) fn weights(number: usize) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![Just(1.0), Just(0.0), 0.0..=1.0f64], number)
}

pub(crate) fn bound(len: usize, clipping: Clipping) -> Bound {
    let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![len])]).expect("a layout");
    Bound::new(Arc::new(layout), clipping, NonFinite::Zero)
}

/// Three groups over 26 values: two that alternate in rows, and one of two blocks.
pub(crate) fn layers(clip_norms: Vec<f64>) -> Bound {
    let rows = |offset, cols| Block {
        offset,
        rows: 4,
        row_stride: 5,
        cols,
    };
    let group = |name: &str, blocks: Vec<Block>| ClipGroup {
        name: name.into(),
        blocks,
    };
    let ends = vec![Block::contiguous(20..23), Block::contiguous(23..26)];
    let groups = vec![
        group("a", vec![rows(0, 2)]),
        group("b", vec![rows(2, 3)]),
        group("c", ends),
    ];
    let tensors = vec![("m".into(), vec![4, 5]), ("b".into(), vec![6])];
    let layout = ParamLayout::new(tensors, groups).expect("a layout");
    Bound::new(
        Arc::new(layout),
        Clipping::PerLayer { clip_norms },
        NonFinite::Zero,
    )
}

/// The sum over slots of a machine, with idle slots that hold NaN. Every unit is audited.
pub(crate) fn on_gpu<M: Machine>(
    bound: &Bound,
    machine: M,
    updates: &[Vec<f32>],
    weights: &[f64],
    idle: usize,
) -> (BoundedSum, Vec<Added>) {
    let mut slots = UnitSlots::new(machine, bound, updates.len() + idle + 1).expect("slots");
    for slot in 0..slots.slots() {
        let nothing = vec![f32::NAN; bound.layout().len()];
        slots
            .write(slot, updates.get(slot).unwrap_or(&nothing))
            .expect("a slot");
    }
    slots.set_units(updates.len()).expect("enough slots");
    let sum = BoundedSum::new(bound.clone());
    let audited: Vec<usize> = (0..updates.len()).collect();
    let added = sum.add_on_gpu(&mut slots, weights, &audited).expect("a sum");
    (sum, added)
}

/// The weight and the values of a sum, in steps: what the processes of a run exchange.
pub(crate) fn steps(mut sum: BoundedSum) -> Vec<i64> {
    let mut steps = Vec::new();
    sum.combine(1, |values| {
        steps.extend_from_slice(values);
        Ok::<(), AggregationError>(())
    })
    .expect("a whole sum");
    steps
}

/// `number^2` in two words of 128 bits, the lower first.
pub(crate) fn square(number: u128) -> [u128; 2] {
    let (high, low) = (number >> 64, number & u128::from(u64::MAX));
    let cross = high * low;
    let (sum, carry) = (low * low).overflowing_add(cross << 65);
    [sum, high * high + (cross >> 63) + u128::from(carry)]
}

/// The rule line by line for up to eight values, whose squares fit 128 bits: the integers that it adds. The limit is `L`, and the
/// weight is in steps of `2^-28`.
pub(crate) fn plain(update: &[f32], limit: u128, weight: u128) -> Vec<i64> {
    if update.iter().any(|value| !value.is_finite()) {
        return vec![0; update.len()];
    }
    let scaled = |halvings: i32| -> Vec<f64> {
        let q = |&g: &f32| (f64::from(g) * 2f64.powi(40 - halvings)).trunc();
        update.iter().map(q).collect()
    };
    let fits = |q: &Vec<f64>| q.iter().all(|q| q.abs() < 2f64.powi(62));
    let q: Vec<i64> = (0..)
        .map(scaled)
        .find(fits)
        .expect("a power of two")
        .into_iter()
        .map(|q| q as i64)
        .collect();
    let norm: u128 = q.iter().map(|q| u128::from(q.unsigned_abs()).pow(2)).sum();
    // The least root whose square is not below the norm.
    let (mut low, mut high) = (0u128, 1 << 64);
    while low < high {
        let middle = low.midpoint(high);
        let [below, above] = square(middle);
        if above > 0 || below >= norm {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let share = match low {
        0 => 1 << 30,
        root => (limit << 30) / root,
    };
    let f = weight * share.min(1 << 30) / (1 << 28);
    q.iter()
        .map(|&q| (i128::from(q) * f as i128 / (1 << 30)) as i64)
        .collect()
}
