//! Figure 6: BLTs beside banded Toeplitz matrices.

use undertone_accounting::participation::Participation;
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{BandedToeplitz, Objective, Strategy};

use super::contenders::{Contender, ROUNDS, STAND_IN, at, banded, blt, relative, rms_curves, schema};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "blt-figure-6",
    title: "RmsLoss over the gap for 5 participations in 2000 rounds, mechanisms made for gap 400",
    source: "[BLT] Figure 6",
    recipe: "BLTs of least RmsLoss and of least MaxLoss, 4 buffers; BandToep of least RmsLoss, BandFHU and BandMF of 400 \
             bands; in units of the first",
    body,
};

const GAP: u64 = 400;
const MOST: u64 = 5;
const BUFFERS: usize = 4;
const GAPS: [u64; 14] = [10, 25, 50, 100, 150, 200, 250, 300, 350, 390, 400, 425, 450, 499];

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let target = schema(GAP, MOST)?;
    let mut contenders = Vec::new();
    let mut add = |method, setting: &str, strategy| {
        contenders.push(Contender {
            method,
            setting: setting.to_owned(),
            strategy,
        });
    };
    let mean = blt(ROUNDS, target, Objective::RmsLoss, BUFFERS)?.best.strategy;
    add("BLT", "mean", Strategy::Blt(mean));
    let max = blt(ROUNDS, target, Objective::MaxLoss, BUFFERS)?.best.strategy;
    add("BLT", "max", Strategy::Blt(max));
    let bands = GAP as usize;
    let (toeplitz, _) = optimize::banded_toeplitz(&Problem::new(ROUNDS, target), bands)?;
    add("banded", "BandToep", Strategy::BandedToeplitz(toeplitz));
    let fhu = BandedToeplitz::fhu(bands)?;
    add("banded", "BandFHU", Strategy::BandedToeplitz(fhu));
    let (name, strategy) = banded(conditions, ROUNDS, bands)?;
    add("banded", name, strategy);

    let schemas: Vec<Participation> = GAPS
        .iter()
        .map(|gap| schema(*gap, MOST))
        .collect::<Result<_, _>>()?;
    let curves = rms_curves(&contenders, ROUNDS, &schemas)?;
    let x: Vec<f64> = GAPS.iter().map(|gap| *gap as f64).collect();
    let divided = relative(&curves, &curves[0]);
    let statements = [
        (
            "BandToep",
            "BLTs are comparable to BandToep or better (never more than a twentieth above it)",
        ),
        (
            "BandFHU",
            "BLTs are comparable to BandFHU or better (never more than a twentieth above it)",
        ),
    ];
    let statements = statements.map(|(name, says)| {
        let other = divided.iter().find(|curve| curve.setting == name);
        let least = other.map_or(f64::NAN, |curve| {
            curve.y.iter().flatten().copied().fold(f64::INFINITY, f64::min)
        });
        let own = other.map_or(f64::NAN, |curve| at(&x, curve, GAP as f64));
        Statement {
            says,
            found: format!(
                "{name} has at least {least:.3} times the RmsLoss of the BLT, {own:.3} times at gap 400"
            ),
            holds: least > 1.0 / 1.05,
        }
    });
    Ok(Body {
        statements: statements.to_vec(),
        notes: if conditions.slow() {
            Vec::new()
        } else {
            vec![STAND_IN]
        },
        figures: vec![Figure {
            title: "RmsLoss for 5 participations, in units of the BLT of least RmsLoss",
            x_label: "gap",
            y_label: "relative RmsLoss",
            x_scale: Scale::Linear,
            y_scale: Scale::Linear,
            x,
            curves: divided,
        }],
        ..Body::default()
    })
}
