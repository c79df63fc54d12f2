//! Figure 1: what example-level sampling promises to a user with several examples, accounted for the whole user
//! and by the black-box route from one example.

use undertone_accounting::group::Group;
use undertone_accounting::{Accountant, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability};

use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Rounding, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "userdp-figure-1",
    title: "epsilon of example-level sampling over group sizes, 2000 steps, p = 0.01, delta = 1e-6",
    source: "[UserDP] Figure 1",
    recipe: "loss distribution of N(Binom(G, p), sigma^2) against N(0, sigma^2), 2000 times, upper bound; add-or-remove \
             one user, Poisson sampling of examples",
    body,
};

/// `T`, `p` and `delta` of the caption.
const STEPS: u64 = 2000;
const PROBABILITY: f64 = 0.01;
const DELTA: f64 = 1e-6;
/// The caption names 0.5 and 1; the figure's other noise multipliers and its group sizes are in its legend and on its
/// axis only. These are the reference's.
const NOISE: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const GROUP_SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Largest group size with a lower bound.
const LOWER_UP_TO: u32 = 16;

const OURS: &str = "whole user";
const BLACK_BOX: &str = "black box";

/// Epsilon of an independent implementation, extrapolated from its three lattice distances: noise multiplier, group
/// size, epsilon.
const REFERENCE: [(f64, u32, &str); 19] = [
    (0.5, 1, "20.621"),
    (0.5, 4, "90.531"),
    (0.5, 8, "208.326"),
    (0.5, 16, "516.022"),
    (1.0, 4, "14.535"),
    (1.0, 8, "34.891"),
    (1.0, 16, "90.901"),
    (1.0, 32, "259.136"),
    (2.0, 1, "1.035"),
    (2.0, 2, "2.200"),
    (2.0, 4, "4.768"),
    (2.0, 8, "10.716"),
    (2.0, 16, "25.598"),
    (2.0, 64, "194.088"),
    (4.0, 2, "0.968"),
    (4.0, 8, "4.444"),
    (4.0, 16, "9.947"),
    (4.0, 32, "23.626"),
    (4.0, 64, "61.298"),
];

/// Epsilons of one noise multiplier over the group sizes.
struct Series {
    noise: f64,
    upper: Vec<f64>,
    /// Lower bounds up to group size [`LOWER_UP_TO`]: they take several times as long as upper ones.
    lower: Vec<f64>,
    /// `None` where a record delta below the smallest `f64` would be needed.
    black_box: Vec<Option<f64>>,
}

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let series = NOISE.map(Series::new);
    let [a, b, c, d] = series;
    let series = [a?, b?, c?, d?];
    let rounding = Rounding::Nearest { decimals: 3 };
    let rows = REFERENCE.iter().filter_map(|&(noise, size, epsilon)| {
        let at = series.iter().find(|series| series.noise == noise)?;
        let ours = GROUP_SIZES
            .iter()
            .zip(&at.upper)
            .find(|(known, _)| **known == size)?
            .1;
        Some(Row {
            parameters: vec![noise.to_string(), size.to_string()],
            entries: vec![Entry::new(epsilon, *ours, rounding, None)],
        })
    });
    Ok(Body {
        parameters: vec!["sigma", "G"],
        columns: vec!["epsilon".to_owned()],
        rows: rows.collect(),
        notes: vec![
            "the figure shows curves and no numbers; its noise multipliers besides 0.5 and 1 and its group sizes are not in \
             the text: those here are the reference's",
            "the black box is the strongest of its kind: the record's own loss distribution, at the best record-level \
             (epsilon, delta); where it has no value it needs a record-level delta below 1e-307, at a user-level epsilon of \
             hundreds",
        ],
        reference: Some(
            "an independent loss-distribution accountant (reference family mog_independent: connect-the-dots, three \
             lattice distances, extrapolated); dp-accounting 0.6.0 agrees where it was run with lattice distance 1e-4",
        ),
        statements: vec![
            diverges(&series),
            near_linear(&series),
            exponential(&series),
            outperforms(&series),
            tight(&series),
        ],
        figures: vec![figure(&series)],
    })
}

fn figure(series: &[Series]) -> Figure {
    let curves = series.iter().flat_map(|series| {
        let setting = format!("sigma {}", series.noise);
        [
            Curve {
                method: OURS,
                setting: setting.clone(),
                y: series.upper.iter().copied().map(Some).collect(),
            },
            Curve {
                method: BLACK_BOX,
                setting,
                y: series.black_box.clone(),
            },
        ]
    });
    Figure {
        title: "epsilon of example-level sampling for whole users",
        x_label: "group size (most examples of one user)",
        y_label: "epsilon",
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        x: GROUP_SIZES.iter().copied().map(f64::from).collect(),
        curves: curves.collect(),
    }
}

fn diverges(series: &[Series]) -> Statement {
    let found = series.iter().map(|series| {
        match GROUP_SIZES
            .iter()
            .zip(&series.black_box)
            .find(|(_, epsilon)| epsilon.is_none())
        {
            Some((size, _)) => format!("no value from G = {size} at sigma {}", series.noise),
            None => format!("all values at sigma {}", series.noise),
        }
    });
    Statement {
        says: "for sigma in {0.5, 1} the black-box accountant diverges at large group sizes",
        found: found.collect::<Vec<_>>().join(", "),
        // Once without a value, always without.
        holds: series.iter().filter(|series| series.noise <= 1.0).all(|series| {
            series.black_box.last().is_some_and(Option::is_none)
                && series.black_box.is_sorted_by_key(Option::is_none)
        }),
    }
}

fn near_linear(series: &[Series]) -> Statement {
    let (first, last) = (0, 4);
    let exponents: Vec<(f64, f64)> = series
        .iter()
        .filter(|series| series.noise >= 2.0)
        .map(|series| {
            let growth = (series.upper[last] / series.upper[first]).ln();
            let sizes = f64::from(GROUP_SIZES[last]) / f64::from(GROUP_SIZES[first]);
            (series.noise, growth / sizes.ln())
        })
        .collect();
    let found = exponents
        .iter()
        .map(|(noise, exponent)| format!("{exponent:.2} at sigma {noise}"));
    Statement {
        says: "the whole-user accountant scales near-linearly in G (exponent below 1.2 from G = 1 to 16, sigma 2 and 4)",
        found: format!("exponents {}", found.collect::<Vec<_>>().join(", ")),
        holds: exponents.iter().all(|(_, exponent)| *exponent < 1.2),
    }
}

/// Factors from one group size to the next, as far as both have values.
fn factors(epsilons: &[Option<f64>]) -> Vec<f64> {
    epsilons
        .windows(2)
        .map_while(|pair| Some(pair[1]? / pair[0]?))
        .collect()
}

fn exponential(series: &[Series]) -> Statement {
    let mut found = Vec::new();
    let holds = series.iter().all(|series| {
        let ours = factors(&series.upper.iter().copied().map(Some).collect::<Vec<_>>());
        let theirs = factors(&series.black_box);
        if let Some((theirs, ours)) = theirs.iter().zip(&ours).next_back() {
            found.push(format!("{theirs:.1} against {ours:.1} at sigma {}", series.noise));
        }
        theirs.is_sorted() && theirs.iter().zip(&ours).all(|(theirs, ours)| theirs > ours)
    });
    Statement {
        says: "generic reductions scale exponentially in G (each doubling multiplies epsilon by more than the one before, \
               and by more than the whole-user accountant's)",
        found: format!("last factors {}", found.join(", ")),
        holds,
    }
}

fn outperforms(series: &[Series]) -> Statement {
    let pairs = || {
        series
            .iter()
            .flat_map(|series| series.upper.iter().zip(&series.black_box))
    };
    let ratio = |(ours, theirs): (&f64, &Option<f64>)| Some((*theirs)? / ours);
    let largest = pairs().filter_map(ratio).fold(0.0, f64::max);
    Statement {
        says: "the whole-user accountant is never above the black box",
        found: format!(
            "largest finite ratio {largest:.1}, {} of {} points without a black-box value",
            pairs().filter(|(_, theirs)| theirs.is_none()).count(),
            pairs().count()
        ),
        // At G = 1 the two are one number.
        holds: pairs().filter_map(ratio).all(|ratio| ratio >= 1.0),
    }
}

fn tight(series: &[Series]) -> Statement {
    let gaps = series.iter().flat_map(|series| {
        let bounds = series.lower.iter().zip(&series.upper);
        bounds.map(|(lower, upper)| (upper - lower) / upper)
    });
    let (least, most) = gaps.fold((f64::INFINITY, 0.0f64), |(least, most), gap| {
        (least.min(gap), most.max(gap))
    });
    Statement {
        says: "the accountant is optimal: no smaller epsilon holds (lower bounds up to G = 16 within 1e-3, relative)",
        found: format!("upper and lower bound at most {most:.1e} apart"),
        holds: least >= 0.0 && most < 1e-3,
    }
}

fn accountant(noise: f64, group_size: u32) -> Result<Accountant, ReproduceError> {
    let mut accountant = Accountant::new(Recipe::Pld);
    let step = Event::ExampleLevelSampling {
        group_size,
        sampling_probability: SamplingProbability::new(PROBABILITY)?,
        noise_multiplier: NoiseMultiplier::new(noise)?,
    };
    accountant.compose(&step, STEPS)?;
    Ok(accountant)
}

impl Series {
    fn new(noise: f64) -> Result<Self, ReproduceError> {
        let delta = Delta::new(DELTA)?;
        let record = accountant(noise, 1)?;
        let mut series = Self {
            noise,
            upper: Vec::new(),
            lower: Vec::new(),
            black_box: Vec::new(),
        };
        for group_size in GROUP_SIZES {
            let user = accountant(noise, group_size)?;
            series.upper.push(user.guarantee(delta)?.epsilon.get());
            if group_size <= LOWER_UP_TO {
                series.lower.push(user.lower_bound(delta)?.get());
            }
            let group = Group::new(u64::from(group_size))?;
            series.black_box.push(black_box(&record, group, delta)?);
        }
        Ok(series)
    }
}

/// The group's smallest epsilon, rounded up by at most 1e-4 of it, of a mechanism whose record-level guarantees
/// `record` states.
///
/// `next(e)` is the record-level epsilon at the delta that `K e` asks of a record. It rises, so from below the
/// iteration `e = next(e)` climbs to the smallest `e >= next(e)` and never past it: the group holds `K e` there.
fn black_box(record: &Accountant, group: Group, delta: Delta) -> Result<Option<f64>, ReproduceError> {
    const ACCURACY: f64 = 1e-4;
    let size = group.size() as f64;
    let next = |epsilon: f64| -> Result<Option<f64>, ReproduceError> {
        let (_, log_delta) = group.record_target(Epsilon::new(size * epsilon)?, delta);
        if log_delta <= f64::MIN_POSITIVE.ln() {
            return Ok(None);
        }
        let guarantee = record.guarantee(Delta::new(log_delta.exp())?)?;
        Ok(Some(guarantee.epsilon.get()))
    };
    let mut low = record.guarantee(delta)?.epsilon.get();
    let mut step: Option<f64> = None;
    let mut high = loop {
        let Some(reached) = next(low)? else {
            return Ok(None);
        };
        let ahead = reached - low;
        if ahead <= 0.0 {
            return Ok(Some(size * low));
        }
        // Steps shrink like a geometric series: its limit, and a little more, is likely to hold.
        let remaining = match step.map(|before| ahead / before) {
            Some(ratio) if ratio < 0.95 => ahead / (1.0 - ratio),
            _ => ahead,
        };
        let guess = low + 1.02 * remaining + 0.5 * ACCURACY * low;
        match next(guess)? {
            Some(back) if back <= guess => break guess,
            _ => (low, step) = (reached, Some(ahead)),
        }
    };
    while high - low > ACCURACY * high {
        let middle = 0.5 * (low + high);
        match next(middle)? {
            Some(back) if back <= middle => high = middle,
            _ => low = middle,
        }
    }
    Ok(Some(size * high))
}
