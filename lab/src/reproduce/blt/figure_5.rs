//! Figure 5: robustness to the number of rounds.

use undertone_mechanisms::{Objective, Strategy};

use super::contenders::{STAND_IN, at, banded, blt, fitting, losses, relative};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "blt-figure-5",
    title: "RmsLoss over the rounds that are run, mechanisms made for 800 and 2000 rounds at gap 400",
    source: "[BLT] Figure 5",
    recipe: "BLTs of 1, 2 and 5 buffers of least RmsLoss; banded matrices of 400 bands, up to the rounds they were made for; \
             as many participations as fit",
    body,
};

const GAP: u64 = 400;
const MADE_FOR: [usize; 2] = [800, 2000];
const LONGEST: usize = 2000;

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let mut rounds: Vec<usize> = (1..=40).map(|i| 50 * i).collect();
    // Where another participation begins to fit.
    rounds.extend((1..5).map(|i| GAP as usize * i + 1));
    rounds.sort_unstable();
    let mut curves = Vec::new();
    let mut one_buffer = None;
    for made_for in MADE_FOR {
        for buffers in [1, 2, 5] {
            let found = blt(made_for, fitting(made_for, GAP)?, Objective::RmsLoss, buffers)?;
            let setting = format!("n={made_for}, {buffers} buffers");
            let curve = curve("BLT", setting, &Strategy::Blt(found.best.strategy), &rounds)?;
            if buffers > 1 {
                curves.push(curve);
            } else if made_for == LONGEST {
                one_buffer = Some(curve);
            }
        }
    }
    for made_for in MADE_FOR {
        let (method, strategy) = banded(conditions, made_for, GAP as usize)?;
        curves.push(curve(method, format!("n={made_for}"), &strategy, &rounds)?);
    }
    let x: Vec<f64> = rounds.iter().map(|rounds| *rounds as f64).collect();
    let of = |setting: &str| curves.iter().find(|curve| curve.setting == setting).cloned();
    let (Some(unit), Some(two), Some(short)) = (
        of("n=2000, 5 buffers"),
        of("n=2000, 2 buffers"),
        of("n=800, 5 buffers"),
    ) else {
        return Ok(Body::default());
    };
    let statements = vec![
        small(
            "BLTs of 2 and of 5 buffers perform almost equivalently (within a fiftieth at every length)",
            spread(&two, &unit),
            0.02,
        ),
        small(
            "BLTs are not particularly sensitive to the rounds they were made for (n=800 within a thirtieth of n=2000 at every \
             length)",
            spread(&short, &unit),
            1.0 / 30.0,
        ),
        one_is_not_enough(one_buffer.as_ref().map_or(f64::NAN, |one| {
            at(&x, one, LONGEST as f64) / at(&x, &unit, LONGEST as f64)
        })),
    ];
    let figure = |title, y_label, curves| Figure {
        title,
        x_label: "rounds",
        y_label,
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        x: x.clone(),
        curves,
    };
    Ok(Body {
        statements,
        notes: if conditions.slow() {
            Vec::new()
        } else {
            vec![STAND_IN]
        },
        figures: vec![
            figure(
                "RmsLoss over rounds at gap 400, in units of the BLT of 5 buffers for n=2000",
                "relative RmsLoss",
                relative(&curves, &unit),
            ),
            figure("RmsLoss over rounds at gap 400", "RmsLoss", curves),
        ],
        ..Body::default()
    })
}

fn curve(
    method: &'static str,
    setting: String,
    strategy: &Strategy,
    lengths: &[usize],
) -> Result<Curve, ReproduceError> {
    let value = |rounds: &usize| {
        if strategy.rounds().is_some_and(|most| *rounds > most) {
            return Ok(None);
        }
        let losses = losses(strategy, *rounds, &fitting(*rounds, GAP)?)?;
        Ok(Some(losses.rms_loss))
    };
    Ok(Curve {
        method,
        setting,
        y: lengths.iter().map(value).collect::<Result<_, ReproduceError>>()?,
    })
}

/// Largest relative distance of two curves.
fn spread(one: &Curve, other: &Curve) -> f64 {
    let pairs = one.y.iter().zip(&other.y);
    let distance = pairs.map(|(one, other)| one.zip(*other).map_or(f64::NAN, |(a, b)| (a / b - 1.0).abs()));
    distance.fold(
        0.0,
        |most, next| if next.is_nan() { next } else { most.max(next) },
    )
}

fn small(says: &'static str, spread: f64, most: f64) -> Statement {
    Statement {
        says,
        found: format!("at most {:.2} % apart", 100.0 * spread),
        holds: spread <= most,
    }
}

fn one_is_not_enough(ratio: f64) -> Statement {
    Statement {
        says: "one buffer is not sufficient (relative RmsLoss above 1.07 at 2000 rounds)",
        found: format!("{ratio:.3}"),
        holds: ratio > 1.07,
    }
}
