//! A GPU that computes something else than its kernels say, and inputs that do not fit.

use undertone_aggregation::{
    AggregationError, Bound, BoundedSum, Clipping, Factor, GpuPart, GpuSum, Limbs, NonFinite,
};
use undertone_gpu_sum::{Emulator, Machine, Span, UnitSlots};

use crate::common::{bound, steps};

/// Changes what a GPU delivers.
struct Faulty<'a> {
    slots: &'a mut UnitSlots<Emulator>,
    norm: fn(&mut Vec<Limbs>),
    /// Replaces the factors by those of a unit of half this norm, so that its sum is twice as long.
    doubled: bool,
    sums: usize,
}

impl GpuPart for Faulty<'_> {
    fn units(&self) -> usize {
        self.slots.units()
    }

    fn parameters(&self) -> usize {
        self.slots.parameters()
    }

    fn norms(&mut self) -> Result<Vec<Limbs>, AggregationError> {
        let mut norms = self.slots.norms()?;
        (self.norm)(&mut norms);
        Ok(norms)
    }

    fn update(&mut self, unit: usize, into: &mut [f32]) -> Result<(), AggregationError> {
        self.slots.update(unit, into)
    }

    fn add(&mut self, factors: &[Factor]) -> Result<(), AggregationError> {
        self.sums += 1;
        if self.doubled {
            self.slots.add(factors)?;
        }
        Ok(self.slots.add(factors)?)
    }

    fn take(&mut self) -> Result<GpuSum, AggregationError> {
        Ok(self.slots.take()?)
    }
}

fn flat(clip_norm: f64) -> Bound {
    bound(3, Clipping::Flat { clip_norm })
}

fn slots(bound: &Bound, updates: &[[f32; 3]]) -> UnitSlots<Emulator> {
    let mut slots = UnitSlots::new(Emulator::default(), bound, updates.len()).expect("slots");
    for (slot, update) in updates.iter().enumerate() {
        slots.write(slot, update).expect("a slot");
    }
    slots
}

/// The error of adding two units on a GPU with this fault, and the sums that the GPU was asked for.
fn refused(norm: fn(&mut Vec<Limbs>), doubled: bool, audited: &[usize]) -> (Option<AggregationError>, usize) {
    let bound = flat(1.0);
    let mut slots = slots(&bound, &[[3.0, 4.0, 0.0], [0.1, 0.2, -2.0]]);
    let mut part = Faulty {
        slots: &mut slots,
        norm,
        doubled,
        sums: 0,
    };
    let sum = BoundedSum::new(bound);
    let error = sum.add_on_gpu(&mut part, &[1.0, 1.0], audited).err();
    let sums = part.sums;
    if error.is_some() {
        assert_eq!(steps(sum), [0; 4], "nothing is added after an error");
    }
    (error, sums)
}

#[test]
fn the_audit_finds_a_wrong_norm_before_anything_is_added() {
    let faults: [fn(&mut Vec<Limbs>); 4] = [
        |norms| norms[1].sums[0] ^= 1,
        |norms| norms[1].sums[2] = 0,
        |norms| norms[1].largest -= 1 << 23,
        |norms| norms[1].largest = f32::NAN.to_bits(),
    ];
    for fault in faults {
        assert_eq!(
            refused(fault, false, &[0, 1]),
            (Some(AggregationError::GpuNorm { unit: 1 }), 0)
        );
        // The unit that is not audited is trusted: this is the assumption of the design.
        let (error, _) = refused(fault, false, &[0]);
        assert!(
            !matches!(error, Some(AggregationError::GpuNorm { .. })),
            "{error:?}"
        );
    }
    assert_eq!(refused(|_| (), false, &[0, 1]), (None, 1));
}

#[test]
fn norms_that_no_values_have_are_refused_without_an_audit() {
    let faults: [fn(&mut Vec<Limbs>); 3] = [
        |norms| norms[1].sums = [u64::MAX; 4],
        |norms| norms[1].sums[3] = 3 << 28,
        |norms| norms[1].largest = u32::MAX,
    ];
    for fault in faults {
        assert_eq!(
            refused(fault, false, &[]),
            (Some(AggregationError::GpuNorm { unit: 1 }), 0)
        );
    }
    let (error, _) = refused(|norms| norms.truncate(1), false, &[]);
    assert_eq!(
        error.unwrap().to_string(),
        "norms of the GPU: expected 2 values, got 1"
    );
}

#[test]
fn a_sum_that_its_units_cannot_make_is_refused() {
    // Place 2 holds -2 of a unit alone, whose norm is a little above 2: twice of it is more than both units can reach.
    let bound = flat(8.0);
    let mut slots = slots(&bound, &[[0.0, 0.0, 0.1], [0.1, 0.2, -2.0]]);
    let mut part = Faulty {
        slots: &mut slots,
        norm: |_| (),
        doubled: true,
        sums: 0,
    };
    let sum = BoundedSum::new(bound);
    let error = sum.add_on_gpu(&mut part, &[1.0, 1.0], &[]).unwrap_err();
    assert_eq!(error, AggregationError::GpuSum { index: 2 });
    assert_eq!(steps(sum), [0; 4]);
    // The smallest excess counts: one step above what the units of a group can reach.
    let sum = BoundedSum::new(flat(1.0));
    let norm = Limbs {
        largest: 2f32.to_bits(),
        sums: [0, 0, 1 << 18, 0],
    };
    let factors = [sum.factor(&[norm], 1.0).unwrap()];
    let (step, most) = (1i64, 1i64 << 40);
    for (value, holds) in [
        (most, true),
        (-most, true),
        (most + step, false),
        (i64::MIN, false),
    ] {
        let merged = sum.merge_gpu(&GpuSum::new(vec![0, value, 0]), &factors);
        assert_eq!(merged.is_ok(), holds, "{value}");
    }
}

#[test]
fn units_that_could_leave_the_range_are_refused_before_the_gpu_adds() {
    let bound = flat(4e6);
    let mut slots = slots(&bound, &[[3e6, 0.0, 0.0]; 3]);
    let mut part = Faulty {
        slots: &mut slots,
        norm: |_| (),
        doubled: false,
        sums: 0,
    };
    let error = BoundedSum::new(bound)
        .add_on_gpu(&mut part, &[1.0; 3], &[])
        .unwrap_err();
    assert!(
        matches!(error, AggregationError::SumOverflow { index: 0, .. }),
        "{error}"
    );
    assert_eq!(part.sums, 0);
}

#[test]
fn values_that_are_not_finite_count_as_zero_or_give_the_error_of_the_processor() {
    let updates = [[1.0, f32::NAN, 0.0], [f32::INFINITY, 1.0, 2.0], [0.5, 0.25, 0.0]];
    let bound = flat(1.0);
    let sum = BoundedSum::new(bound.clone());
    let added = sum
        .add_on_gpu(&mut slots(&bound, &updates), &[0.5; 3], &[0, 1, 2])
        .unwrap();
    assert!(added[0].report() == added[1].report() && added[0].report().norm == 0.0);
    // The weights of all three, and the values of the last.
    let half = 1i64 << 39;
    assert_eq!(steps(sum), [3 * half, half / 2, half / 4, 0]);

    let layout = bound.layout().clone().into();
    let refuse = Bound::new(layout, bound.clipping().clone(), NonFinite::Refuse);
    let sum = BoundedSum::new(refuse.clone());
    let error = sum
        .add_on_gpu(&mut slots(&refuse, &updates), &[0.5; 3], &[])
        .unwrap_err();
    assert_eq!(error, sum.add(&updates[0], 0.5).unwrap_err());
    assert_eq!(error.to_string(), "update: value at index 1 is not finite");
    assert_eq!(steps(sum), [0; 4]);
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let bound = flat(1.0);
    let mut slots = slots(&bound, &[[1.0, 2.0, 3.0]; 2]);
    let sum = BoundedSum::new(bound.clone());
    let check = |result: Result<(), String>, expected: &str| {
        let error = result.unwrap_err();
        assert!(error.contains(expected), "{error} instead of {expected}");
    };
    let mut add = |weights: &[f64], audited: &[usize]| {
        let added = sum.add_on_gpu(&mut slots, weights, audited);
        added.map(drop).map_err(|error| error.to_string())
    };
    check(
        add(&[1.0], &[]),
        "weights of the GPU's units: expected 2 values, got 1",
    );
    check(add(&[1.0, 1.5], &[]), "weight must be between 0 and 1, got 1.5");
    check(
        add(&[1.0, f64::NAN], &[]),
        "weight must be between 0 and 1, got NaN",
    );
    check(
        add(&[1.0, 1.0], &[2]),
        "audited must be below the number of units, got 2",
    );
    let mut other = UnitSlots::new(Emulator::default(), &self::bound(4, Clipping::None), 2).unwrap();
    let added = sum.add_on_gpu(&mut other, &[1.0; 2], &[]);
    check(
        added.map(drop).map_err(|e| e.to_string()),
        "values of the GPU's updates: expected 3 values, got 4",
    );

    let text = |error: undertone_gpu_sum::GpuError| error.to_string();
    check(
        slots.write(2, &[0.0; 3]).map_err(text),
        "slot: expected below 2, got 2",
    );
    check(
        slots.write(0, &[0.0; 4]).map_err(text),
        "values of an update: expected 3, got 4",
    );
    check(
        slots.set_units(3).map_err(text),
        "units: expected at most 2, one per slot, got 3",
    );
    check(
        slots.add(&[]).map_err(text),
        "factors: expected 2, one per unit, got 0",
    );
    let make = |slots| UnitSlots::new(Emulator::default(), &bound, slots).map(drop);
    check(make(0).map_err(text), "slots: expected from 1 to 65535, got 0");
    check(
        make(65_536).map_err(text),
        "slots: expected from 1 to 65535, got 65536",
    );
    let grid = |blocks, threads, stride| Emulator::new(blocks, threads, stride).map(drop).map_err(text);
    check(grid(0, 1, 1), "blocks: expected at least 1");
    check(grid(4, 3, 1), "threads: expected a power of two");
    check(grid(4, 512, 1), "threads: expected a power of two");
    check(grid(4, 1, 2), "without a common divisor with the 4 blocks");
    // No values: no factors, and nothing to add.
    slots.set_units(0).unwrap();
    assert!(sum.add_on_gpu(&mut slots, &[], &[]).unwrap().is_empty());
    let none = BoundedSum::new(self::bound(3, Clipping::None));
    let norm = Limbs {
        largest: 0,
        sums: [0; 4],
    };
    let refused = none
        .factor(&[norm], 1.0)
        .map(drop)
        .map_err(|error| error.to_string());
    check(refused, "clip_norm must be set");
}

#[test]
fn a_span_beyond_its_memory_is_refused_by_every_kernel() {
    let machine = Emulator::default();
    let span = Span {
        slot_len: 10,
        offset: 2,
        cols: 4,
        row_stride: 4,
        count: 8,
        slots: 2,
        groups: 1,
        group: 0,
        unused: 0,
    };
    let values = |len| machine.zeros::<u32>(len).unwrap();
    let words = |len| machine.zeros::<u64>(len).unwrap();
    let all = |span: Span, len: usize, groups: usize, sum: usize| {
        [
            machine.largest(span, &values(len), &mut values(groups)).is_ok(),
            machine
                .squares(span, &values(len), &values(groups), &mut words(4 * groups))
                .is_ok(),
            machine
                .add_bounded(span, &values(len), &values(2 * groups), &mut words(sum))
                .is_ok(),
        ]
    };
    assert_eq!(all(span, 20, 2, 10), [true; 3]);
    assert_eq!(all(span, 19, 2, 10), [false; 3]);
    assert_eq!(all(span, 20, 1, 10), [false; 3]);
    assert_eq!(all(span, 20, 2, 9), [true, true, false]);
    for broken in [
        Span { offset: 3, ..span },
        Span {
            row_stride: 5,
            ..span
        },
        Span {
            row_stride: 3,
            ..span
        },
        Span { cols: 3, ..span },
        Span { cols: 0, ..span },
        Span { group: 1, ..span },
        Span {
            offset: u64::MAX,
            ..span
        },
        Span {
            row_stride: u64::MAX,
            ..span
        },
    ] {
        assert_eq!(all(broken, 20, 2, 10), [false; 3], "{broken:?}");
    }
}
