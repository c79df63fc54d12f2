//! Figure 10: Toeplitz coefficients of the production BLTs.

use undertone_accounting::sensitivity::production;
use undertone_mechanisms::Blt;

use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "blt-figure-10",
    title: "Toeplitz coefficients of the three production BLTs and of their inverses",
    source: "[BLT] Figure 10, parameters of Appendix A",
    recipe: "C: sums of powers (equation 2); its inverse: Algorithm 3 on the identity",
    body,
};

const ROUNDS: usize = 4000;

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let mut strategy = Vec::new();
    let mut inverse = Vec::new();
    let mut residual = 0.0f64;
    for set in production::all() {
        let blt = Blt::production(set)?;
        let (forward, backward) = (blt.coefficients(ROUNDS), blt.inverse_coefficients(ROUNDS));
        residual = residual.max(distance_to_identity(&forward, &backward));
        strategy.push(curve(set.gap, &forward, 1.0));
        inverse.push(curve(set.gap, &backward, -1.0));
    }
    let figure = |title, y_label, curves| Figure {
        title,
        x_label: "i",
        y_label,
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        x: (1..ROUNDS).map(|i| i as f64).collect(),
        curves,
    };
    let statements = vec![
        Statement {
            says: "the two sets of coefficients are inverse to each other (largest coefficient of their product, without \
                   the leading 1, below 1e-12)",
            found: format!("{residual:.1e}"),
            holds: residual < 1e-12,
        },
        decays(&strategy),
    ];
    Ok(Body {
        notes: vec![
            "c_0 = 1 in all of them; from the first on, those of C are positive and those of the inverse negative: the \
             second panel shows their size",
        ],
        statements,
        figures: vec![
            figure("Toeplitz coefficients of C", "c_i", strategy),
            figure(
                "Toeplitz coefficients of the inverse of C, sign changed",
                "-c_i",
                inverse,
            ),
        ],
        ..Body::default()
    })
}

/// Curve of the coefficients from `c_1` on. A value that is not positive after the change of sign has no place on a logarithmic axis.
fn curve(gap: u64, coefficients: &[f64], sign: f64) -> Curve {
    let values = coefficients.iter().skip(1).map(|entry| sign * entry);
    Curve {
        method: "BLT",
        setting: format!("b={gap}"),
        y: values.map(|value| (value > 1e-8).then_some(value)).collect(),
    }
}

fn decays(curves: &[Curve]) -> Statement {
    let first_below = |curve: &Curve| {
        let below = |value: &Option<f64>| value.is_some_and(|value| value < 0.01);
        curve.y.iter().position(below).map_or(ROUNDS, |at| at + 1)
    };
    let found = curves
        .iter()
        .map(|curve| format!("{} at i = {}", curve.setting, first_below(curve)));
    let first: Vec<usize> = curves.iter().map(first_below).collect();
    Statement {
        says: "coefficients for b = 100 decay faster than for b = 400 and b = 1000 (first one below 0.01)",
        found: found.collect::<Vec<_>>().join(", "),
        holds: matches!(first.as_slice(), [short, others @ ..] if others.iter().all(|other| short < other)),
    }
}

/// The largest coefficient of the product after the leading one, or how far that is from 1.
fn distance_to_identity(forward: &[f64], backward: &[f64]) -> f64 {
    let product = (0..forward.len()).map(|i| {
        let terms = forward[..=i].iter().zip(backward[..=i].iter().rev());
        let sum: f64 = terms.map(|(c, x)| c * x).sum();
        (sum - f64::from(u8::from(i == 0))).abs()
    });
    product.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_at_distance_zero() {
        assert_eq!(distance_to_identity(&[1.0, 0.5, 0.0], &[1.0, -0.5, 0.25]), 0.0);
        assert_eq!(distance_to_identity(&[1.0, 0.5], &[1.0, 0.5]), 1.0);
    }
}
