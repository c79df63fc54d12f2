//! Figure 2: RmsLoss away from the gap that mechanisms were made for.

use undertone_accounting::participation::Participation;
use undertone_mechanisms::{Objective, Strategy, TreeFull, TreeLayout};

use super::contenders::{Contender, ROUNDS, STAND_IN, at, banded, blt, rms_curves, schema};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "blt-figure-2",
    title: "RmsLoss over the gap for 2 and for 5 participations, mechanisms made for gap 400 and 2000 rounds",
    source: "[BLT] Figure 2",
    recipe: "BLTs of 4 buffers of least RmsLoss (mean) and MaxLoss (max); banded matrices of 200, 400 and 800 bands; \
             TreeAgg-Full with its exact sensitivity",
    body,
};

const BUFFERS: usize = 4;
const GAP: u64 = 400;

/// Gaps of the panel for 2 participations, and of the one for 5.
const LEFT: [u64; 22] = [
    10, 25, 50, 100, 150, 200, 250, 300, 350, 390, 400, 450, 500, 600, 700, 750, 800, 900, 999, 1000, 1500,
    1999,
];
const RIGHT: [u64; 13] = [10, 25, 50, 100, 150, 200, 250, 300, 350, 390, 400, 450, 499];

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let mut contenders = Vec::new();
    for most in [2, 5] {
        for (objective, name) in [(Objective::RmsLoss, "mean"), (Objective::MaxLoss, "max")] {
            let found = blt(ROUNDS, schema(GAP, most)?, objective, BUFFERS)?;
            contenders.push(Contender {
                method: "BLT",
                setting: format!("k={most}, {name}"),
                strategy: Strategy::Blt(found.best.strategy),
            });
        }
    }
    for bands in [200, 400, 800] {
        let (method, strategy) = banded(conditions, ROUNDS, bands)?;
        contenders.push(Contender {
            method,
            setting: format!("{bands} bands"),
            strategy,
        });
    }
    let tree = TreeFull::new(ROUNDS, TreeLayout::CompleteNodes)?;
    contenders.push(Contender {
        method: "TreeAgg-Full",
        setting: String::new(),
        strategy: Strategy::TreeFull(tree),
    });
    let left = panel(
        "RmsLoss for 2 participations, made for a gap of 400",
        &contenders,
        &LEFT,
        2,
    )?;
    let right = panel(
        "RmsLoss for 5 participations, made for a gap of 400",
        &contenders,
        &RIGHT,
        5,
    )?;
    Ok(Body {
        statements: vec![
            crossings(&left, conditions.slow()),
            competitive(&left, &right),
            below_the_tree(&[&left, &right]),
        ],
        notes: if conditions.slow() {
            Vec::new()
        } else {
            vec![STAND_IN]
        },
        figures: vec![left, right],
        ..Body::default()
    })
}

fn panel(
    title: &'static str,
    contenders: &[Contender],
    gaps: &[u64],
    most: u64,
) -> Result<Figure, ReproduceError> {
    let schemas: Vec<Participation> = gaps
        .iter()
        .map(|gap| schema(*gap, most))
        .collect::<Result<_, _>>()?;
    Ok(Figure {
        title,
        x_label: "gap",
        y_label: "RmsLoss",
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        x: gaps.iter().map(|gap| *gap as f64).collect(),
        curves: rms_curves(contenders, ROUNDS, &schemas)?,
    })
}

fn curve<'a>(figure: &'a Figure, method: &str, setting: &str) -> Option<&'a Curve> {
    let mut curves = figure.curves.iter();
    curves.find(|curve| curve.method.contains(method) && curve.setting == setting)
}

/// The gaps at which the BLT made for it is below the 400 bands.
fn crossings(left: &Figure, slow: bool) -> Statement {
    let pair = curve(left, "BLT", "k=2, mean").zip(curve(left, "Band", "400 bands"));
    let below: Vec<bool> = pair.map_or_else(Vec::new, |(blt, bands)| {
        let pairs = blt.y.iter().zip(&bands.y);
        pairs.map(|(blt, bands)| blt < bands).collect()
    });
    let wins = |wanted: bool| {
        let gaps = left.x.iter().zip(&below).filter(|(_, below)| **below == wanted);
        gaps.map(|(gap, _)| gap.to_string()).collect::<Vec<_>>()
    };
    let at = |gap: f64| {
        let place = left.x.iter().position(|x| *x == gap);
        place.and_then(|place| below.get(place).copied())
    };
    Statement {
        says: "with 2 participations, BLT(k=2, mean) beats BandMF(400) for gaps below 390 or above 700, and not between",
        found: format!(
            "the {} is lower at the gaps {}",
            if slow {
                "BandMF"
            } else {
                "matrix that stands for it"
            },
            wins(false).join(", ")
        ),
        holds: at(350.0) == Some(true) && at(400.0) == Some(false) && at(800.0) == Some(true),
    }
}

fn competitive(left: &Figure, right: &Figure) -> Statement {
    let ratio = |figure: &Figure, setting: &str| {
        let pair = curve(figure, "BLT", setting).zip(curve(figure, "Band", "400 bands"));
        pair.map_or(f64::NAN, |(blt, bands)| {
            at(&figure.x, blt, 400.0) / at(&figure.x, bands, 400.0)
        })
    };
    let (two, five) = (ratio(left, "k=2, mean"), ratio(right, "k=5, mean"));
    Statement {
        says: "BLTs perform competitively with BandMF (at gap 400 their RmsLoss is at most 1.05 times that of 400 bands)",
        found: format!("{two:.3} times for 2 participations, {five:.3} times for 5"),
        holds: two < 1.05 && five < 1.05,
    }
}

fn below_the_tree(panels: &[&Figure]) -> Statement {
    let mut worst = 0.0f64;
    for figure in panels {
        let trees = figure
            .curves
            .iter()
            .filter(|curve| curve.method == "TreeAgg-Full");
        for tree in trees {
            for blt in figure.curves.iter().filter(|curve| curve.method == "BLT") {
                for (blt, tree) in blt.y.iter().zip(&tree.y) {
                    worst = worst.max(blt.zip(*tree).map_or(f64::NAN, |(blt, tree)| blt / tree));
                }
            }
        }
    }
    Statement {
        says: "every BLT is below TreeAgg-Full at every gap of both panels",
        found: format!("at most {worst:.3} times it"),
        holds: worst > 0.0 && worst < 1.0,
    }
}
