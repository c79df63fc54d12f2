//! Figure 1: time to optimise.

use undertone_mechanisms::Objective;
use undertone_mechanisms::optimize::{self, Problem};

use super::contenders::{blt, fitting};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "blt-figure-1",
    title: "seconds to find a mechanism over the rounds, gap 400",
    source: "[BLT] Figure 1",
    recipe: "wall clock of one run, nothing compiled in it; BLTs of 2 and 4 buffers of least RmsLoss, BandToep and BandMF of \
             400 bands; as many participations as fit",
    body,
};

const GAP: u64 = 400;
const LENGTHS: [usize; 8] = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];

/// Most rounds that a matrix with an entry for every round and band is found for: quickly, and where time is allowed.
const BANDED: [usize; 2] = [500, 2000];
const TOEPLITZ: [usize; 2] = [2000, 10_000];

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let slow = usize::from(conditions.slow());
    let bands = GAP as usize;
    let curves = vec![
        curve("BLT, 2 buffers", usize::MAX, |rounds| {
            blt_seconds(conditions, rounds, 2)
        })?,
        curve("BLT, 4 buffers", usize::MAX, |rounds| {
            blt_seconds(conditions, rounds, 4)
        })?,
        curve("BandToep", TOEPLITZ[slow], |rounds| {
            let problem = Problem::new(rounds, fitting(rounds, GAP)?);
            Ok(conditions
                .time(1, || optimize::banded_toeplitz(&problem, bands))?
                .0)
        })?,
        curve("BandMF", BANDED[slow], |rounds| {
            let problem = Problem::new(rounds, fitting(rounds, GAP)?);
            Ok(conditions.time(1, || optimize::banded(&problem, bands))?.0)
        })?,
    ];
    Ok(Body {
        statements: vec![faster(&curves)],
        notes: if conditions.slow() {
            Vec::new()
        } else {
            vec!["BandMF beyond 500 rounds and BandToep beyond 2000 take longer and run with --slow"]
        },
        figures: vec![Figure {
            title: "seconds to find a mechanism, gap 400",
            x_label: "rounds",
            y_label: "seconds",
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            x: LENGTHS.iter().map(|rounds| *rounds as f64).collect(),
            curves,
        }],
        ..Body::default()
    })
}

fn blt_seconds(conditions: &Conditions<'_>, rounds: usize, buffers: usize) -> Result<f64, ReproduceError> {
    let participation = fitting(rounds, GAP)?;
    let timed = conditions.time(1, || blt(rounds, participation, Objective::RmsLoss, buffers))?;
    Ok(timed.0)
}

fn curve(
    name: &str,
    most: usize,
    seconds: impl Fn(usize) -> Result<f64, ReproduceError>,
) -> Result<Curve, ReproduceError> {
    let value = |rounds: &usize| (*rounds <= most).then(|| seconds(*rounds)).transpose();
    Ok(Curve {
        method: "",
        setting: name.to_owned(),
        y: LENGTHS.iter().map(value).collect::<Result<_, _>>()?,
    })
}

fn faster(curves: &[Curve]) -> Statement {
    let largest = |curve: &Curve| curve.y.iter().flatten().count();
    let (blt, banded) = (&curves[1], &curves[3]);
    let pairs = blt
        .y
        .iter()
        .zip(&banded.y)
        .filter_map(|(blt, banded)| blt.zip(*banded));
    let ratios: Vec<f64> = pairs.map(|(blt, banded)| banded / blt).collect();
    let (first, last) = (largest(banded), largest(blt));
    Statement {
        says: "finding a BLT is substantially faster than finding a BandMF matrix, and scales to many more rounds",
        found: format!(
            "BandMF of {} rounds takes {:.0} times as long as the BLT of 4 buffers, which takes {:.2} s at {} rounds",
            LENGTHS[first.saturating_sub(1)],
            ratios.last().copied().unwrap_or(f64::NAN),
            blt.y.iter().flatten().last().copied().unwrap_or(f64::NAN),
            LENGTHS[last.saturating_sub(1)],
        ),
        holds: !ratios.is_empty() && ratios.iter().all(|ratio| *ratio > 1.0),
    }
}
