//! Figure 3: mean estimation by example-level and user-level sampling at one compute budget.

mod estimation;

use rayon::prelude::*;

use self::estimation::{Algorithm, Configured, EXAMPLES, Population, Setting, Tuning};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "userdp-figure-3",
    title: "mean estimation by ELS and ULS: 256 users of 16 points in 32 dimensions, 256 steps",
    source: "[UserDP] Figure 3, section 4",
    recipe: "Algorithms 1 and 2 with Poisson sampling, noise calibrated by the loss distribution of Theorems 1 and 2 at \
             delta = 1e-6, the best learning rate and clip norm of a grid by the mean over trials; 128 trials with --slow",
    body,
};

const GROUP_SIZES: [usize; 5] = [1, 2, 4, 8, 16];

/// Trials, and the grid that tunes each method.
struct Effort {
    trials: u64,
    epsilons: &'static [f64],
    budgets: &'static [u32],
    withins: &'static [f64],
    clip_norms: &'static [f32],
    learning_rates: &'static [f32],
}

const QUICK: Effort = Effort {
    trials: 12,
    epsilons: &[0.25, 1.0, 8.0],
    budgets: &[16, 64, 256],
    withins: &[0.5, 1.0, 4.0],
    clip_norms: &[1.0, 4.0],
    learning_rates: &[0.015625, 0.0625, 0.25, 1.0],
};

const SLOW: Effort = Effort {
    trials: 128,
    epsilons: &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0],
    budgets: &[16, 32, 64, 128, 256, 512, 1024],
    withins: &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
    clip_norms: &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0],
    learning_rates: &[
        0.0078125, 0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0,
    ],
};

impl Effort {
    fn tunings(&self) -> Vec<Tuning> {
        let rates = |clip_norm| {
            self.learning_rates.iter().map(move |&learning_rate| Tuning {
                learning_rate,
                clip_norm,
            })
        };
        self.clip_norms.iter().copied().flat_map(rates).collect()
    }
}

/// One algorithm at one setting, at its best tuning.
#[derive(Debug, Clone)]
struct Score {
    algorithm: Algorithm,
    /// Squared error of every trial.
    errors: Vec<f64>,
}

impl Score {
    fn mean(&self) -> f64 {
        mean(&self.errors)
    }

    fn standard_error(&self) -> f64 {
        standard_error(&self.errors)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn standard_error(values: &[f64]) -> f64 {
    let (mean, n) = (mean(values), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

/// All algorithms that a setting's budget allows.
#[derive(Debug, Clone)]
struct Compared {
    setting: Setting,
    els: Score,
    uls: Vec<Score>,
}

impl Compared {
    fn new(setting: Setting, effort: &Effort) -> Result<Self, ReproduceError> {
        let tunings = effort.tunings();
        let mut configured = Vec::new();
        configured.extend(Configured::new(Algorithm::Els, setting)?);
        for group_size in GROUP_SIZES {
            configured.extend(Configured::new(Algorithm::Uls { group_size }, setting)?);
        }
        // Every trial by itself, for all algorithms: they share its population.
        let trials: Vec<Vec<Vec<f64>>> = (0..effort.trials)
            .into_par_iter()
            .map(|trial| {
                let population = Population::draw(setting.within, trial)?;
                let losses = configured.iter().map(|one| population.losses(one, &tunings));
                losses.collect()
            })
            .collect::<Result<_, ReproduceError>>()?;
        let mut scores = configured.iter().enumerate().map(|(which, one)| {
            let of = |tuning: usize| -> Vec<f64> {
                let losses = trials.iter().filter_map(|trial| trial.get(which)?.get(tuning));
                losses.copied().collect()
            };
            let all = (0..tunings.len()).map(of);
            let best = all.min_by(|a, b| mean(a).total_cmp(&mean(b)));
            Score {
                algorithm: one.algorithm,
                errors: best.unwrap_or_default(),
            }
        });
        let els = scores.next().ok_or(ReproduceError::NobodyCame)?;
        Ok(Self {
            setting,
            els,
            uls: scores.collect(),
        })
    }

    fn uls_with(&self, group_size: usize) -> Option<&Score> {
        let wanted = Algorithm::Uls { group_size };
        self.uls.iter().find(|score| score.algorithm == wanted)
    }

    /// The score of the ULS group size with the smallest error.
    fn best_uls(&self) -> &Score {
        let least = |a: &&Score, b: &&Score| a.mean().total_cmp(&b.mean());
        self.uls.iter().min_by(least).unwrap_or(&self.els)
    }

    /// The difference between the errors of ELS and of the best ULS, with its standard error by paired trials.
    fn gain(&self) -> (f64, f64) {
        let pairs = self.els.errors.iter().zip(&self.best_uls().errors);
        let differences: Vec<f64> = pairs.map(|(els, uls)| els - uls).collect();
        (mean(&differences), standard_error(&differences))
    }
}

/// Ratio of two means of paired trials, and its standard error (by the delta method).
fn ratio(above: &[f64], below: &[f64]) -> (f64, f64) {
    let ratio = mean(above) / mean(below);
    let pairs = above.iter().zip(below);
    let differences: Vec<f64> = pairs.map(|(above, below)| above - ratio * below).collect();
    (ratio, standard_error(&differences) / mean(below))
}

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let effort = if conditions.slow() { &SLOW } else { &QUICK };
    let sweep = |settings: Vec<Setting>| -> Result<Vec<Compared>, ReproduceError> {
        settings
            .into_iter()
            .map(|setting| Compared::new(setting, effort))
            .collect()
    };
    let default = Setting::DEFAULT;
    let epsilons = effort.epsilons.iter();
    let epsilons = sweep(epsilons.map(|&epsilon| Setting { epsilon, ..default }).collect())?;
    let budgets = effort.budgets.iter();
    let budgets = sweep(budgets.map(|&budget| Setting { budget, ..default }).collect())?;
    let withins = effort.withins.iter();
    let withins = sweep(withins.map(|&within| Setting { within, ..default }).collect())?;
    let panels = [
        panel(
            ["mean estimation over epsilon", "its standard errors (epsilon)"],
            "epsilon",
            &epsilons,
            |setting| setting.epsilon,
        ),
        panel(
            [
                "mean estimation over the compute budget",
                "its standard errors (budget)",
            ],
            "B (gradients per step)",
            &budgets,
            |setting| f64::from(setting.budget),
        ),
        panel(
            [
                "mean estimation over the within-user deviation",
                "its standard errors (deviation)",
            ],
            "sigma_2",
            &withins,
            |setting| setting.within,
        ),
    ];
    Ok(Body {
        notes: vec![
            "the error is |theta_T - mu|^2, the loss less what no estimate can avoid; theta_0 = 0; the loss of an example is half its \
             squared distance, so that its gradient is theta - x",
            "the paper's learning rates and clip norms are not in the text: each method has the best pair of one grid here, by the mean \
             over the trials it is then shown for; all methods of a trial share the population, all tunings of a method its samples \
             and noise",
            "the gain is a difference of errors; as a factor it ends where epsilon is so small that neither leaves theta_0 by much",
            "fewer trials (12), settings and tunings (8) without --slow; ULS is left out where M = B / G would exceed the 256 users",
        ],
        statements: vec![
            comparable(&[&epsilons, &budgets, &withins]),
            grows(
                "ULS gains more over ELS at a smaller epsilon",
                epsilons.iter().rev(),
            ),
            grows(
                "ULS gains more over ELS at a larger compute budget",
                budgets.iter(),
            ),
            grows(
                "ULS gains more over ELS at a larger within-user variance",
                withins.iter(),
            ),
            groups_help(&epsilons, &budgets, &withins),
        ],
        figures: panels.into_iter().flatten().collect(),
        ..Body::default()
    })
}

/// Errors and, as a figure of its own, their standard errors.
fn panel(
    titles: [&'static str; 2],
    x_label: &'static str,
    sweep: &[Compared],
    x: impl Fn(&Setting) -> f64,
) -> [Figure; 2] {
    let figure = |title, y_label, value: &dyn Fn(&Score) -> f64| {
        let els = Curve {
            method: "ELS",
            setting: String::new(),
            y: sweep.iter().map(|at| Some(value(&at.els))).collect(),
        };
        let uls = GROUP_SIZES.into_iter().map(|group_size| Curve {
            method: "ULS",
            setting: format!("G = {group_size}"),
            y: sweep
                .iter()
                .map(|at| at.uls_with(group_size).map(value))
                .collect(),
        });
        Figure {
            title,
            x_label,
            y_label,
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            x: sweep.iter().map(|at| x(&at.setting)).collect(),
            curves: std::iter::once(els).chain(uls).collect(),
        }
    };
    [
        figure(titles[0], "squared error", &Score::mean),
        figure(titles[1], "standard error", &Score::standard_error),
    ]
}

/// Three standard errors.
const SURE: f64 = 3.0;

fn comparable(sweeps: &[&[Compared]]) -> Statement {
    let ratios: Vec<(f64, f64)> = sweeps
        .iter()
        .flat_map(|sweep| sweep.iter())
        .filter_map(|at| Some(ratio(&at.uls_with(1)?.errors, &at.els.errors)))
        .collect();
    let worst = ratios.iter().map(|(ratio, _)| *ratio).fold(0.0, f64::max);
    let best = ratios
        .iter()
        .map(|(ratio, _)| *ratio)
        .fold(f64::INFINITY, f64::min);
    Statement {
        says: "ULS with G = 1 is comparable to ELS or better at every setting (its error at most 1.1 times that of ELS, less three \
               standard errors)",
        found: format!("{best:.3} to {worst:.3} times at {} settings", ratios.len()),
        holds: !ratios.is_empty() && ratios.iter().all(|(ratio, error)| ratio - SURE * error <= 1.1),
    }
}

/// Along a sweep the gain of the best ULS over ELS ends above where it starts by more than chance, and falls nowhere by more.
fn grows<'a>(says: &'static str, sweep: impl Iterator<Item = &'a Compared>) -> Statement {
    let sweep: Vec<&Compared> = sweep.collect();
    let gains: Vec<(f64, f64)> = sweep.iter().map(|at| at.gain()).collect();
    let shown = sweep.iter().zip(&gains).map(|(at, (gain, error))| {
        let ratio = at.els.mean() / at.best_uls().mean();
        format!("{gain:.3} +- {error:.3} ({ratio:.2} times)")
    });
    let rises = |pair: &[(f64, f64)]| pair[1].0 > pair[0].0 - SURE * pair[1].1.hypot(pair[0].1);
    let ends_higher = matches!(
        (gains.first(), gains.last()),
        (Some(first), Some(last)) if last.0 > first.0 + SURE * last.1.hypot(first.1)
    );
    Statement {
        says,
        found: format!(
            "error of ELS less that of the best ULS: {}",
            shown.collect::<Vec<_>>().join(", ")
        ),
        holds: ends_higher && gains.windows(2).all(rises),
    }
}

/// The cases in which the paper finds that more than one example per user helps.
fn groups_help(epsilons: &[Compared], budgets: &[Compared], withins: &[Compared]) -> Statement {
    let ends = [
        ("smallest epsilon", epsilons.first()),
        ("largest budget", budgets.last()),
        ("largest within-user variance", withins.last()),
    ];
    let mut found = Vec::new();
    let mut holds = true;
    for (name, at) in ends {
        let Some(at) = at else { continue };
        let best = match at.best_uls().algorithm {
            Algorithm::Uls { group_size } => group_size,
            Algorithm::Els => 0,
        };
        found.push(format!("G = {best} at the {name}"));
        holds &= best > 1;
    }
    Statement {
        says: "ULS benefits from G > 1 when the within-user variance or the budget is large, or epsilon small",
        found: format!("best {} (of at most {EXAMPLES})", found.join(", ")),
        holds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(els: f64, uls: [f64; 2]) -> Compared {
        let score = |algorithm, mean: f64| Score {
            algorithm,
            errors: vec![0.99 * mean, 1.01 * mean, mean, mean],
        };
        Compared {
            setting: Setting::DEFAULT,
            els: score(Algorithm::Els, els),
            uls: vec![
                score(Algorithm::Uls { group_size: 1 }, uls[0]),
                score(Algorithm::Uls { group_size: 8 }, uls[1]),
            ],
        }
    }

    #[test]
    fn statements_can_fail() {
        let rising = [
            compared(1.0, [1.0, 1.2]),
            compared(1.2, [1.1, 0.9]),
            compared(2.0, [1.5, 0.7]),
        ];
        assert!(grows("", rising.iter()).holds);
        assert!(!grows("", rising.iter().rev()).holds);
        assert!(comparable(&[&rising]).holds);
        assert!(!comparable(&[&[compared(1.0, [1.3, 0.5])]]).holds);
        assert!(groups_help(&rising[2..], &rising, &rising).holds);
        assert!(!groups_help(&rising[..1], &rising, &rising).holds);
    }

    #[test]
    fn ratios_of_pairs_have_their_standard_errors() {
        // Proportional trials: no doubt about their ratio.
        let (value, error) = ratio(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]);
        assert!((value - 2.0).abs() < 1e-15 && error < 1e-15);
        let (value, error) = ratio(&[1.0, 3.0], &[1.0, 1.0]);
        assert!(
            (value - 2.0).abs() < 1e-15 && (error - 1.0).abs() < 1e-15,
            "{error}"
        );
    }
}
