//! The mechanisms that tables and figures compare, and their losses for runs other than they were made for.

use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::optimize::blt::{BltOptima, BltOptimizer};
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{Losses, NormalisedToeplitz, Objective, Strategy, Workload};

use crate::reproduce::{Conditions, Curve, ReproduceError};

/// Rounds of Figures 2, 3, 4 and 6.
pub(super) const ROUNDS: usize = 2000;

/// The note that stands for BandMF unless slow work is allowed.
pub(super) const STAND_IN: &str = "BandMF takes minutes and runs with --slow: the optimal banded Toeplitz matrix of as many \
                                   bands, its columns normalised, stands for it (its RmsLoss is about two hundredths higher)";

/// A mechanism with a place in the legend.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    pub(super) method: &'static str,
    pub(super) setting: String,
    pub(super) strategy: Strategy,
}

pub(super) fn schema(gap: u64, most: u64) -> Result<Participation, ReproduceError> {
    Ok(Participation::at_least(Gap::new(gap)?, most)?)
}

/// The participation of a user who takes part as often as the rounds and the gap allow.
pub(super) fn fitting(rounds: usize, gap: u64) -> Result<Participation, ReproduceError> {
    schema(gap, Gap::new(gap)?.fitting(rounds as u64))
}

/// The best BLTs of exactly so many buffers.
pub(super) fn blt(
    rounds: usize,
    participation: Participation,
    objective: Objective,
    buffers: usize,
) -> Result<BltOptima, ReproduceError> {
    let optimizer = BltOptimizer::new(rounds, participation)?.objective(objective);
    Ok(optimizer.buffers(buffers)?.optimize()?)
}

/// BandMF for RmsLoss, or [what stands for it](STAND_IN), with its name.
pub(super) fn banded(
    conditions: &Conditions<'_>,
    rounds: usize,
    bands: usize,
) -> Result<(&'static str, Strategy), ReproduceError> {
    let problem = Problem::new(rounds, fitting(rounds, bands as u64)?);
    Ok(if conditions.slow() {
        ("BandMF", Strategy::Banded(optimize::banded(&problem, bands)?.0))
    } else {
        let (strategy, _) = optimize::banded_toeplitz(&problem, bands)?;
        let strategy = NormalisedToeplitz::new(rounds, strategy.coefficients().to_vec())?;
        ("normalised BandToep", Strategy::NormalisedToeplitz(strategy))
    })
}

/// Losses of prefix sums in a run that the strategy need not be made for.
pub(super) fn losses(
    strategy: &Strategy,
    rounds: usize,
    participation: &Participation,
) -> Result<Losses, ReproduceError> {
    let errors = strategy.errors(rounds, &Workload::prefix_sum())?;
    let certified = strategy.squared_sensitivity(rounds, participation)?;
    Ok(errors.losses(certified.squared))
}

/// Losses of prefix sums under several schemas.
pub(super) fn losses_over(
    strategy: &Strategy,
    rounds: usize,
    schemas: &[Participation],
) -> Result<Vec<Losses>, ReproduceError> {
    let errors = strategy.errors(rounds, &Workload::prefix_sum())?;
    let losses = schemas.iter().map(|participation| {
        let certified = strategy.squared_sensitivity(rounds, participation)?;
        Ok(errors.losses(certified.squared))
    });
    losses.collect()
}

/// RmsLoss of each contender under each schema.
pub(super) fn rms_curves(
    contenders: &[Contender],
    rounds: usize,
    schemas: &[Participation],
) -> Result<Vec<Curve>, ReproduceError> {
    let curves = contenders.iter().map(|contender| {
        let losses = losses_over(&contender.strategy, rounds, schemas)?;
        Ok(Curve {
            method: contender.method,
            setting: contender.setting.clone(),
            y: losses.iter().map(|losses| Some(losses.rms_loss)).collect(),
        })
    });
    curves.collect()
}

/// The curves divided by one of them, which must have a value wherever they have.
pub(super) fn relative(curves: &[Curve], to: &Curve) -> Vec<Curve> {
    let divided = curves.iter().map(|curve| Curve {
        method: curve.method,
        setting: curve.setting.clone(),
        y: curve
            .y
            .iter()
            .zip(&to.y)
            .map(|(y, unit)| Some((*y)? / (*unit)?))
            .collect(),
    });
    divided.collect()
}

/// The value of a curve at one of the abscissae.
pub(super) fn at(x: &[f64], curve: &Curve, place: f64) -> f64 {
    let found = x.iter().position(|x| *x == place);
    found.and_then(|at| curve.y[at]).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use undertone_mechanisms::Blt;

    use super::*;

    /// Rounds, gap, most participations (0: as often as fits), MaxLoss, RmsLoss of an independent implementation.
    fn check(theta: &[f64], omega: &[f64], want: &[(usize, u64, u64, f64, f64)]) {
        let strategy = Strategy::Blt(Blt::new(theta, omega).unwrap());
        for (rounds, gap, most, max_loss, rms_loss) in want {
            let participation = match most {
                0 => fitting(*rounds, *gap),
                most => schema(*gap, *most),
            };
            let losses = losses(&strategy, *rounds, &participation.unwrap()).unwrap();
            let close = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() < 1e-8;
            assert!(
                close(losses.max_loss, *max_loss) && close(losses.rms_loss, *rms_loss),
                "{rounds} {gap} {most}: {losses:?}"
            );
        }
    }

    #[test]
    fn losses_match_an_independent_implementation() {
        check(
            &[0.995857872367798, 0.8289465855316053],
            &[0.1181772802840637, 0.3309405236146731],
            &[
                (2000, 10, 5, 15.569993857321787, 13.607977528682518),
                (2000, 499, 5, 8.596739002176514, 7.513441060643371),
                (2000, 390, 2, 5.792267984453104, 5.062368893323578),
                (2000, 1, 3, 10.820783488271509, 9.457227787016352),
                (2000, 998, 3, 6.061923997128302, 5.298044834790483),
                (2000, 999, 3, 5.9631264255635665, 5.211697007934463),
                (2000, 1, 0, 2663.4566308078547, 2327.8273782754177),
                (2000, 250, 0, 13.421488729016968, 11.730211244755402),
                (399, 400, 0, 3.0384032699069903, 2.897130227109977),
                (401, 400, 0, 3.4727809050014566, 3.3109004337413),
                (1601, 400, 0, 8.283373906429857, 7.364750058724459),
            ],
        );
        check(
            &[
                0.9999999999999873,
                0.9944691471323642,
                0.9058934667999422,
                0.5100965916019525,
            ],
            &[
                0.007390221399160198,
                0.10187151936343972,
                0.1842225303182079,
                0.2056278397387818,
            ],
            &[
                (2000, 390, 5, 9.466004138700447, 8.55696299379281),
                (2000, 1500, 2, 5.307389101207954, 4.797708881937022),
                (2000, 2000, 0, 3.67977753072269, 3.326400421382784),
                (1200, 400, 0, 6.431824383451995, 5.852330957918997),
            ],
        );
    }

    #[test]
    fn what_stands_for_banded_matrices_is_close_to_them() {
        let clock = || 0.0;
        let quick = Conditions::new(&clock);
        let (rounds, bands) = (128, 16);
        let schema = fitting(rounds, bands as u64).unwrap();
        let loss = |conditions: Conditions<'_>, name| {
            let (method, strategy) = banded(&conditions, rounds, bands).unwrap();
            assert_eq!(method, name);
            losses(&strategy, rounds, &schema).unwrap().rms_loss
        };
        let ratio = loss(quick, "normalised BandToep") / loss(quick.with_slow(true), "BandMF");
        assert!((1.0..1.03).contains(&ratio), "{ratio}");
    }

    #[test]
    fn curves_are_divided_by_the_reference_curve() {
        let curve = |y: [Option<f64>; 2]| Curve {
            method: "",
            setting: String::new(),
            y: y.to_vec(),
        };
        let (a, b) = (curve([Some(3.0), None]), curve([Some(2.0), Some(4.0)]));
        let divided = relative(&[a, b.clone()], &b);
        assert_eq!(divided[0].y, [Some(1.5), None]);
        assert_eq!(divided[1].y, [Some(1.0), Some(1.0)]);
        assert_eq!(at(&[7.0, 8.0], &b, 8.0), 4.0);
        assert!(at(&[7.0, 8.0], &b, 9.0).is_nan());
    }
}
