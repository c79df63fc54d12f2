//! Units that are counted one by one, parts of the sum of a GPU, and the check of a norm.

use std::sync::Arc;

use super::*;
use crate::layout::ParamLayout;

fn sum(clip_norm: f64) -> BoundedSum {
    let tensors = vec![("w".into(), vec![2]), ("b".into(), vec![1])];
    let layout = Arc::new(ParamLayout::with_tensor_groups(tensors).unwrap());
    let clipping = Clipping::PerLayer {
        clip_norms: vec![clip_norm, 1.0],
    };
    BoundedSum::new(Bound::new(layout, clipping, NonFinite::Zero))
}

/// The norms of values `2^e` in each group.
fn norms(exponent: u32) -> Vec<Limbs> {
    let largest = (127 + exponent) << 23;
    let square = |values: u64| {
        let halvings = exponent.saturating_sub(21);
        let power = 2 * (40 + exponent - halvings);
        let mut sums = [0; 4];
        sums[power as usize / 32] = values << (power % 32);
        Limbs { largest, sums }
    };
    vec![square(2), square(1)]
}

#[test]
fn parts_of_a_sum_are_the_whole_sum_and_come_with_the_weight_once() {
    let (whole, parts) = (sum(8.0), sum(8.0));
    let factor = whole.factor(&norms(1), 1.0).unwrap();
    let mut units = GpuUnits::none(whole.bound());
    units.count(&factor).unwrap();
    units.count(&factor).unwrap();
    let values = [5i64 << 40, -(3 << 40), 1 << 40];
    let gpu = GpuSum::new(values.to_vec());
    whole.merge_gpu(&gpu, &[factor.clone(), factor]).unwrap();
    for (first, end) in [(0, 1), (1, 3), (3, 3)] {
        let part = GpuSum::new(values[first..end].to_vec());
        parts.merge_part(first, &part, &units).unwrap();
    }
    let average = |sum: BoundedSum| {
        let average = sum
            .into_raw()
            .unwrap()
            .average(undertone_mechanisms::Denominator::ObservedWeight);
        let average = undertone_mechanisms::NonPrivate.privatize(0, average.unwrap());
        average.unwrap().into_values()
    };
    assert_eq!(average(whole), [2.5, -1.5, 0.5]);
    assert_eq!(average(parts), [2.5, -1.5, 0.5]);
}

#[test]
fn a_part_is_checked_by_the_groups_that_it_lies_in() {
    let sum = sum(8.0);
    let mut units = GpuUnits::none(sum.bound());
    units.count(&sum.factor(&norms(1), 1.0).unwrap()).unwrap();
    let merge = |first, values: &[i64]| {
        let merged = sum.merge_part(first, &GpuSum::new(values.to_vec()), &units);
        merged.map_err(|error| error.to_string())
    };
    // Group 0 reaches at most ceil(sqrt 8), and group 1 is clipped to 1.
    assert_eq!(merge(1, &[2 << 40, 1 << 40]), Ok(()));
    for (first, values, index) in [
        (0, vec![3 << 40, 0, 0], 0),
        (1, vec![0, (1 << 40) + 1], 2),
        (2, vec![i64::MIN], 2),
    ] {
        let error = merge(first, &values).unwrap_err();
        assert!(
            error.contains(&format!("sum at index {index} is larger")),
            "{error}"
        );
    }
    for (first, values) in [(2, vec![0, 0]), (4, vec![0]), (usize::MAX, vec![0])] {
        let error = merge(first, &values).unwrap_err();
        assert!(error.contains("part of a sum"), "{error}");
    }
    let other = BoundedSum::new(Bound::new(
        sum.bound.layout.clone(),
        Clipping::Flat { clip_norm: 1.0 },
        NonFinite::Zero,
    ));
    assert!(other.merge_part(0, &GpuSum::new(vec![0; 3]), &units).is_err());
}

#[test]
fn units_that_could_leave_the_range_together_are_not_counted() {
    let sum = sum(f64::from(1 << 20));
    let mut units = GpuUnits::none(sum.bound());
    let factor = sum.factor(&norms(90), 1.0).unwrap();
    let mut counted = 0;
    let error = loop {
        match units.count(&factor) {
            Ok(()) => counted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((counted, units.units()), (4, 4));
    assert!(
        matches!(error, AggregationError::SumOverflow { index: 0, .. }),
        "{error}"
    );
    let before = units.clone();
    assert!(units.count(&factor).is_err());
    assert_eq!(units, before);
}

#[test]
fn the_norms_of_an_update_are_computed_again() {
    let sum = sum(1.0);
    sum.check_norms(&norms(3), &[8.0, -8.0, 8.0]).unwrap();
    let wrong = sum.check_norms(&norms(3), &[8.0, -8.0, 8.000_001]);
    assert!(
        matches!(wrong, Err(AggregationError::GpuNorm { .. })),
        "{wrong:?}"
    );
    assert!(sum.check_norms(&norms(3)[..1], &[8.0, -8.0, 8.0]).is_err());
    assert!(sum.check_norms(&norms(3), &[8.0, -8.0]).is_err());
}
