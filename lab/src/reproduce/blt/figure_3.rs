//! Figures 3 and 4: robustness to the gap, for 3 participations and for as many as fit.

use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::{Objective, Strategy};

use super::contenders::{Contender, ROUNDS, STAND_IN, at, banded, blt, relative, rms_curves, schema};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "blt-figure-3",
    title: "RmsLoss over the gap for 3 participations in 2000 rounds",
    source: "[BLT] Figure 3",
    recipe: "BLTs of 4 buffers of least RmsLoss for 3 participations at gaps 200, 400 and 800; banded matrices of as many \
             bands",
    body: three,
};

pub(crate) const AS_MANY_AS_FIT: Check = Check {
    id: "blt-figure-4",
    title: "RmsLoss over the gap for n/gap participations in n = 2000 rounds",
    source: "[BLT] Figure 4",
    recipe: "BLTs of 4 buffers of least RmsLoss for 2000/gap participations at gaps 200, 400 and 1000; banded matrices of as \
             many bands",
    body: as_many_as_fit,
};

const BUFFERS: usize = 4;
const GAPS: [u64; 18] = [
    1, 3, 10, 30, 50, 100, 150, 200, 300, 400, 500, 600, 667, 800, 900, 998, 999, 1000,
];
/// Divisors of the rounds.
const DIVISORS: [u64; 11] = [40, 50, 80, 100, 125, 200, 250, 400, 500, 1000, 2000];

/// Losses as they are, and in units of the BLT for a gap of 400.
struct Panels {
    relative: Figure,
    absolute: Figure,
}

fn three(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let panels = Panels::new(
        conditions,
        &GAPS,
        &[200, 400, 800],
        |_| 3,
        [
            "RmsLoss for 3 participations, in units of the BLT for a gap of 400",
            "RmsLoss for 3 participations",
        ],
    )?;
    let near = panels.ratio("400", 400.0);
    let far = panels.ratio("400", 50.0);
    let (late, before) = (panels.ratio("400", 999.0), panels.ratio("400", 800.0));
    Ok(panels.body(conditions, vec![
        Statement {
            says: "(1) at the gap it was made for, the banded matrix is slightly below the BLT (by less than a tenth)",
            found: format!("{near:.3} times it at gap 400"),
            holds: near < 1.0 && near > 0.9,
        },
        Statement {
            says: "(2) far below n/k the BLT is better",
            found: format!("400 bands: {far:.3} times the BLT at gap 50"),
            holds: far > 1.0,
        },
        Statement {
            says: "(3) the banded matrix is significantly worse at gap 999, where only the last columns of a third \
                   participation count, which are short in a Toeplitz matrix and not in a normalised one (by a tenth more than \
                   at gap 800)",
            found: format!("400 bands: {late:.3} times the BLT at gap 999, {before:.3} times at 800"),
            holds: late > 1.1 * before,
        },
    ]))
}

fn as_many_as_fit(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let most = |gap: Gap| gap.fitting(ROUNDS as u64);
    let panels = Panels::new(
        conditions,
        &DIVISORS,
        &[200, 400, 1000],
        most,
        [
            "RmsLoss for n/gap participations, in units of the BLT for a gap of 400",
            "RmsLoss for n/gap participations",
        ],
    )?;
    let own = [200u64, 400, 1000].map(|gap| panels.ratio(&gap.to_string(), gap as f64));
    let far = [400u64, 1000].map(|gap| panels.ratio(&gap.to_string(), 50.0));
    Ok(panels.body(conditions, vec![
        Statement {
            says: "at the gap of its bands the banded matrix is slightly below the BLT (by less than a tenth)",
            found: format!("{:.3}, {:.3} and {:.3} times it at gaps 200, 400 and 1000", own[0], own[1], own[2]),
            holds: own.iter().all(|ratio| (0.9..1.0).contains(ratio)),
        },
        Statement {
            says: "below its bands it degrades more rapidly than the BLT",
            found: format!("{:.3} times for 400 bands and {:.3} times for 1000 at gap 50", far[0], far[1]),
            holds: far[0] > own[1] && far[1] > own[2],
        },
    ]))
}

impl Panels {
    fn new(
        conditions: &Conditions<'_>,
        gaps: &[u64],
        made_for: &[u64],
        most: impl Fn(Gap) -> u64,
        [relative_title, absolute_title]: [&'static str; 2],
    ) -> Result<Self, ReproduceError> {
        let mut contenders = Vec::new();
        for gap in made_for {
            let participation = schema(*gap, most(Gap::new(*gap)?))?;
            let found = blt(ROUNDS, participation, Objective::RmsLoss, BUFFERS)?;
            contenders.push(Contender {
                method: "BLT",
                setting: gap.to_string(),
                strategy: Strategy::Blt(found.best.strategy),
            });
        }
        for gap in made_for {
            let (method, strategy) = banded(conditions, ROUNDS, *gap as usize)?;
            contenders.push(Contender {
                method,
                setting: gap.to_string(),
                strategy,
            });
        }
        let schemas: Vec<Participation> = gaps
            .iter()
            .map(|gap| schema(*gap, most(Gap::new(*gap)?)))
            .collect::<Result<_, _>>()?;
        let curves = rms_curves(&contenders, ROUNDS, &schemas)?;
        let unit = curves.iter().find(|curve| curve.setting == "400");
        let divided = unit.map_or_else(Vec::new, |unit| relative(&curves, unit));
        let figure = |title, y_label, y_scale, curves| Figure {
            title,
            x_label: "gap",
            y_label,
            x_scale: Scale::Logarithmic,
            y_scale,
            x: gaps.iter().map(|gap| *gap as f64).collect(),
            curves,
        };
        Ok(Self {
            relative: figure(relative_title, "relative RmsLoss", Scale::Linear, divided),
            absolute: figure(absolute_title, "RmsLoss", Scale::Logarithmic, curves),
        })
    }

    /// The banded matrix made for a gap over the BLT made for it, at another gap.
    fn ratio(&self, made_for: &str, gap: f64) -> f64 {
        let value = |blt: bool| {
            let wanted = |curve: &&Curve| curve.setting == made_for && (curve.method == "BLT") == blt;
            let found = self.absolute.curves.iter().find(wanted);
            found.map_or(f64::NAN, |curve| at(&self.absolute.x, curve, gap))
        };
        value(false) / value(true)
    }

    fn body(self, conditions: &Conditions<'_>, statements: Vec<Statement>) -> Body {
        Body {
            statements,
            notes: if conditions.slow() {
                Vec::new()
            } else {
                vec![STAND_IN]
            },
            figures: vec![self.relative, self.absolute],
            ..Body::default()
        }
    }
}
