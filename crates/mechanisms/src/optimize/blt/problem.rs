//! The loss of a chain of decays, and its gradient.

use super::closed_form;
use super::columns::Columns;
use super::interlaced::{Interlaced, SIZE};
use super::recursion::Iterates;

/// The kind of a problem: the matrix, and the way its error is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The BLT itself under prefix sums: closed forms, in time that does not depend on the rounds.
    PrefixSum,
    /// The BLT itself under any workload.
    Workload,
    /// The column-normalised form of the BLT under any workload.
    Normalised,
}

/// A loss to minimise.
pub(super) struct Problem {
    pub(super) rounds: usize,
    pub(super) gap: usize,
    /// Participations that fit.
    pub(super) max_par: usize,
    pub(super) kind: Kind,
    pub(super) iterates: Iterates,
}

impl Problem {
    /// Logarithm of the loss at the chain's arguments; writes its gradient.
    pub(super) fn value(&self, arguments: &[f64], gradient: &mut [f64]) -> f64 {
        let chain = Interlaced::new(arguments);
        let (of_error, of_sensitivity) = (chain.residues(0), chain.residues(1));
        let (mut by_error, mut by_sensitivity, mut by_log) = ([0.0; SIZE], [0.0; SIZE], [0.0; SIZE]);
        let value = match self.kind {
            Kind::PrefixSum => {
                closed_form::error(
                    &chain,
                    &of_error,
                    self.rounds,
                    self.iterates.objective,
                    &mut by_error,
                    &mut by_log,
                ) + self.plain_sensitivity(&chain, &of_sensitivity, &mut by_sensitivity, &mut by_log)
            }
            Kind::Workload => {
                let ones = vec![1.0; self.rounds];
                let mut by_scale = vec![0.0; self.rounds];
                self.iterates.error(
                    &chain,
                    &of_error,
                    &ones,
                    &mut by_error,
                    &mut by_log,
                    &mut by_scale,
                ) + self.plain_sensitivity(&chain, &of_sensitivity, &mut by_sensitivity, &mut by_log)
            }
            Kind::Normalised => {
                let columns = Columns::new(&chain, &of_sensitivity, self.rounds);
                let mut by_norm = vec![0.0; self.rounds];
                self.iterates.error(
                    &chain,
                    &of_error,
                    columns.norms(),
                    &mut by_error,
                    &mut by_log,
                    &mut by_norm,
                ) + columns.sensitivity(
                    &chain,
                    &of_sensitivity,
                    (self.gap, self.max_par),
                    by_norm,
                    &mut by_sensitivity,
                    &mut by_log,
                )
            }
        };
        chain.pull_back(0, &by_error, &mut by_log);
        chain.pull_back(1, &by_sensitivity, &mut by_log);
        chain.by_argument(&by_log, gradient);
        value
    }

    fn plain_sensitivity(
        &self,
        chain: &Interlaced,
        residues: &[f64; SIZE],
        by_residue: &mut [f64; SIZE],
        by_log: &mut [f64; SIZE],
    ) -> f64 {
        let run = (self.rounds, self.gap, self.max_par);
        closed_form::sensitivity(chain, residues, run, by_residue, by_log)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::loss::Objective;
    use crate::strategy::Strategy;
    use crate::strategy::blt::Blt;
    use crate::strategy::normalised_blt::NormalisedBlt;
    use crate::testing::at_least;
    use crate::workload::Workload;

    /// The loss as the strategy itself states it, and the gradient by differences.
    fn check(
        kind: Kind,
        objective: Objective,
        workload: &Workload,
        run: (usize, usize, usize),
        arguments: &[f64],
    ) {
        let (rounds, gap, max_par) = run;
        let problem = Problem {
            rounds,
            gap: if max_par == 1 { rounds } else { gap },
            max_par,
            kind,
            iterates: Iterates::new(workload, rounds, objective).unwrap(),
        };
        let mut gradient = vec![0.0; arguments.len()];
        let value = problem.value(arguments, &mut gradient);

        let (complements, scales) = Interlaced::new(arguments).parameters();
        let blt = Blt::from_complements(complements, scales).unwrap();
        let strategy = if kind == Kind::Normalised {
            Strategy::NormalisedBlt(NormalisedBlt::new(blt, rounds).unwrap())
        } else {
            Strategy::Blt(blt)
        };
        let schema = at_least(gap as u64, max_par as u64);
        let certified = strategy.squared_sensitivity(rounds, &schema).unwrap();
        assert!(certified.exact);
        let want = strategy
            .errors(rounds, workload)
            .unwrap()
            .losses(certified.squared)
            .get(objective);
        assert!(
            (value.exp() / want - 1.0).abs() < 1e-10,
            "{kind:?} {run:?}: {} {want}",
            value.exp()
        );

        let mut unused = gradient.clone();
        for m in 0..arguments.len() {
            let mut at = |step: f64| {
                let mut moved = arguments.to_vec();
                moved[m] += step;
                problem.value(&moved, &mut unused)
            };
            // Fourth order, so that the step may be large; small where another iterate may become the worst.
            let smooth = kind == Kind::PrefixSum || objective == Objective::RmsLoss;
            let (h, tolerance) = if smooth { (1e-3, 1e-8) } else { (1e-6, 1e-7) };
            let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            assert!(
                (gradient[m] - slope).abs() < tolerance * (1.0 + slope.abs()),
                "{kind:?} {objective:?} {run:?} {m}: {} {slope}",
                gradient[m]
            );
        }
    }

    const CHAINS: [&[f64]; 3] = [
        &[-4.0, -2.0],
        &[-6.0, -3.0, -1.0, 0.5],
        &[-12.0, -5.0, -3.0, 0.3, -15.0, 1.0, 2.5, -0.5],
    ];

    #[test]
    fn losses_and_gradients_of_prefix_sums() {
        for objective in [Objective::MaxLoss, Objective::RmsLoss] {
            for run in [
                (50, 1, 1),
                (50, 7, 3),
                (50, 1, 50),
                (50, 2, 25),
                (51, 10, 6),
                (1, 1, 1),
                (800, 100, 8),
            ] {
                for chain in CHAINS {
                    check(Kind::PrefixSum, objective, &Workload::prefix_sum(), run, chain);
                }
            }
        }
    }

    #[test]
    fn losses_and_gradients_of_any_workload() {
        let rates: Vec<f64> = (0..60).map(|t| 1.2 + (0.3 * f64::from(t)).sin()).collect();
        let momentum = Workload::momentum(0.8).unwrap();
        let scheduled = momentum.clone().with_learning_rates(rates).unwrap();
        for objective in [Objective::MaxLoss, Objective::RmsLoss] {
            for workload in [Workload::prefix_sum(), momentum.clone(), scheduled.clone()] {
                for run in [(60, 7, 3), (60, 1, 1), (50, 10, 5)] {
                    for chain in CHAINS {
                        check(Kind::Workload, objective, &workload, run, chain);
                        check(Kind::Normalised, objective, &workload, run, chain);
                    }
                }
            }
        }
    }
}
