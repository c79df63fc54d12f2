//! Figure 1: error against privacy, Gaussian and binomial at several scales.

use undertone_accounting::binomial::theorem::{BinomialNoise, Sensitivities};
use undertone_accounting::{Delta, Epsilon, gaussian};

use super::{exact_trials, lemma_1_variance};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "cpsgd-figure-1",
    title: "error over epsilon, Gaussian and binomial at several scales",
    source: "[cpSGD] Figure 1, section 2.2",
    recipe: "squared error per coordinate of the least noise that reaches epsilon: Gaussian by Lemma 1, binomial (p = 1/2) by \
             Theorem 1; L2 and largest-coordinate sensitivity 1, L1 sensitivity sqrt(d)",
    body,
};

/// The caption names neither dimension, delta nor scales: these are ours.
const DIMENSION: u64 = 1000;
const DELTA: f64 = 1e-9;
const EPSILONS: [f64; 9] = [0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0];
/// `1 / s` of the theorem's panel and of the exact one.
const STEPS: [u64; 5] = [1, 8, 64, 512, 4096];
const EXACT_STEPS: [u64; 4] = [1, 4, 16, 64];

const GAUSSIAN: &str = "Gaussian";
const BINOMIAL: &str = "binomial";

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let by_theorem = by_theorem()?;
    let exact = exact()?;
    Ok(Body {
        notes: vec![
            "the caption names no dimension, no delta and no scales: d = 1000, delta = 1e-9 and s from 1 to 1/4096 are ours; the \
             second panel has one dimension, where both mechanisms are accounted exactly",
        ],
        statements: vec![
            approaches(&by_theorem, "Theorem 1 against Lemma 1, d = 1000", 1.05),
            approaches(&exact, "exact values, d = 1", 1.001),
            fixed_variance()?,
        ],
        figures: vec![by_theorem, exact],
        ..Body::default()
    })
}

/// The noise of the first panel, at any number of trials.
fn noise(trials: u64, steps: u64) -> Result<(BinomialNoise, Sensitivities), ReproduceError> {
    let sensitivities = Sensitivities::new((DIMENSION as f64).sqrt(), 1.0, 1.0)?;
    let noise = BinomialNoise::new(DIMENSION, trials, 0.5, (steps as f64).recip())?;
    Ok((noise, sensitivities))
}

fn by_theorem() -> Result<Figure, ReproduceError> {
    let mut curves = vec![Curve {
        method: GAUSSIAN,
        setting: String::new(),
        y: EPSILONS
            .map(|epsilon| Some(lemma_1_variance(1.0, epsilon, DELTA)))
            .to_vec(),
    }];
    for steps in STEPS {
        let error = |epsilon: f64| -> Result<_, ReproduceError> {
            let (any, sensitivities) = noise(1, steps)?;
            let trials = any.trials_for(&sensitivities, Epsilon::new(epsilon)?, Delta::new(DELTA)?)?;
            Ok(Some(
                noise(trials, steps)?.0.mean_squared_error() / DIMENSION as f64,
            ))
        };
        curves.push(binomial(steps, error)?);
    }
    Ok(panel(
        "error over epsilon by Theorem 1 and Lemma 1, d = 1000, delta = 1e-9",
        curves,
    ))
}

fn exact() -> Result<Figure, ReproduceError> {
    let delta = Delta::new(DELTA)?;
    let normal = |epsilon: f64| -> Result<_, ReproduceError> {
        Ok(Some(
            gaussian::noise_multiplier(Epsilon::new(epsilon)?, delta)?
                .get()
                .powi(2),
        ))
    };
    let mut curves = vec![Curve {
        method: GAUSSIAN,
        setting: String::new(),
        y: EPSILONS.into_iter().map(normal).collect::<Result<_, _>>()?,
    }];
    for steps in EXACT_STEPS {
        let error = |epsilon: f64| {
            let trials = exact_trials(steps, epsilon, delta)? as f64;
            Ok(Some(0.25 * trials / (steps * steps) as f64))
        };
        curves.push(binomial(steps, error)?);
    }
    Ok(panel("error over epsilon, exact, d = 1, delta = 1e-9", curves))
}

fn binomial(
    steps: u64,
    error: impl Fn(f64) -> Result<Option<f64>, ReproduceError>,
) -> Result<Curve, ReproduceError> {
    Ok(Curve {
        method: BINOMIAL,
        setting: if steps == 1 {
            "s = 1".to_owned()
        } else {
            format!("s = 1/{steps}")
        },
        y: EPSILONS.into_iter().map(error).collect::<Result<_, _>>()?,
    })
}

fn panel(title: &'static str, curves: Vec<Curve>) -> Figure {
    Figure {
        title,
        x_label: "epsilon",
        y_label: "squared error per coordinate",
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        x: EPSILONS.to_vec(),
        curves,
    }
}

/// A binomial curve over the Gaussian's, at every epsilon.
fn ratios<'a>(figure: &'a Figure, curve: &'a Curve) -> impl Iterator<Item = f64> + 'a {
    let gaussian = figure.curves.first().map_or(&[][..], |curve| &curve.y);
    let pairs = gaussian.iter().zip(&curve.y);
    pairs.map(|(gaussian, binomial)| {
        binomial
            .zip(*gaussian)
            .map_or(f64::NAN, |(binomial, gaussian)| binomial / gaussian)
    })
}

/// Every smaller scale lies closer to the Gaussian at every epsilon, the smallest within `limit` of it, none below.
fn approaches(figure: &Figure, what: &str, limit: f64) -> Statement {
    let excess: Vec<Vec<f64>> = figure.curves[1..]
        .iter()
        .map(|curve| ratios(figure, curve).collect())
        .collect();
    let falls = excess
        .windows(2)
        .all(|pair| pair[0].iter().zip(&pair[1]).all(|(coarse, fine)| fine < coarse));
    let worst: Vec<f64> = excess
        .iter()
        .map(|curve| curve.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        .collect();
    let least = excess.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let shown: Vec<String> = worst.iter().map(|ratio| format!("{ratio:.4}")).collect();
    Statement {
        says: "as the scale is reduced the binomial's trade-off approaches the Gaussian's (closer with every scale, at every \
               epsilon, and never below)",
        found: format!(
            "{what}: error over the Gaussian's at most {} from the largest scale down, at least {least:.4}",
            shown.join(", ")
        ),
        holds: falls && least >= 1.0 - 1e-9 && worst.last().is_some_and(|last| *last <= limit),
    }
}

/// Equal variance, ever finer steps: `s <= sigma / (c sqrt(d))` costs a factor `1 + O(1/c)`.
fn fixed_variance() -> Result<Statement, ReproduceError> {
    let sigma = lemma_1_variance(1.0, 1.0, DELTA).sqrt();
    let mut found = Vec::new();
    for c in [1.0, 10.0, 100.0, 1000.0] {
        // As fine as that at least, by a whole number of steps.
        let steps = (c * (DIMENSION as f64).sqrt() / sigma).ceil();
        let trials = (4.0 * (steps * sigma).powi(2)).ceil();
        let (noise, sensitivities) = noise(trials as u64, steps as u64)?;
        let excess = noise.epsilon(&sensitivities, Delta::new(DELTA)?)?.get() - 1.0;
        found.push((steps * sigma / (DIMENSION as f64).sqrt(), excess));
    }
    let shown: Vec<String> = found
        .iter()
        .map(|(c, excess)| format!("{excess:.2e} at c = {c:.1}"))
        .collect();
    let first = found.first().map_or(f64::NAN, |(c, excess)| c * excess);
    Ok(Statement {
        says: "with s <= sigma / (c sqrt(d)) epsilon is the Gaussian's times 1 + O(1/c) (the excess times c \
               rises by no more than rounding, from c = 1 on)",
        found: format!("excess {}", shown.join(", ")),
        holds: found
            .iter()
            .all(|(c, excess)| *excess > 0.0 && c * excess <= first * 1.001),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_can_fail() {
        let curve = |y: [f64; 2]| Curve {
            method: "",
            setting: String::new(),
            y: y.map(Some).to_vec(),
        };
        let figure = |coarse, fine| panel("", vec![curve([1.0, 2.0]), curve(coarse), curve(fine)]);
        assert!(approaches(&figure([2.0, 4.0], [1.01, 2.02]), "", 1.02).holds);
        // Not closer, not close enough, below the Gaussian, without a value.
        for (coarse, fine) in [
            ([2.0, 4.0], [2.0, 2.01]),
            ([2.0, 4.0], [1.5, 2.1]),
            ([2.0, 4.0], [0.9, 2.0]),
            ([2.0, 4.0], [f64::NAN, 2.0]),
        ] {
            assert!(
                !approaches(&figure(coarse, fine), "", 1.02).holds,
                "{coarse:?} {fine:?}"
            );
        }
    }

    #[test]
    fn lemma_1_variance_equals_one_point_by_hand() {
        // Lemma 1 at epsilon 1, delta 1e-9: 2 ln(1.25e9) = 41.892.
        assert!((lemma_1_variance(1.0, 1.0, 1e-9) - 41.892_819).abs() < 1e-5);
    }
}
