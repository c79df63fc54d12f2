//! Figure 2: federated training over quantised and noised gradients, with rotation.

mod channel;
mod digits;
mod network;
mod training;

use undertone_accounting::binomial::theorem::{BinomialNoise, Sensitivities};
use undertone_accounting::{Delta, Epsilon, Event};
use undertone_aggregation::{Encoding, EncodingKind, EncodingSize, Levels};
use undertone_mechanisms::ClientNoise;

use self::channel::{Gaussian, Plain, Rotated};
use self::training::Task;
use super::lemma_1_variance;
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "cpsgd-figure-2",
    title: "accuracy over bits per coordinate: digits, 10,000 clients per round, every client once",
    source: "[cpSGD] Figure 2, Theorem 4, section 5",
    recipe: "k-level quantisation after rotation, X_max of Theorem 4, Bin(m, 1/2) of every client with the least m that reaches \
             epsilon by Theorem 1 (sensitivities of equation 10); delta = 1e-9, epsilon of the whole run; training with --slow",
    body,
};

const DELTA: f64 = 1e-9;
const EPSILONS: [f64; 2] = [4.0, 2.0];
/// The caption's pairs of k and m are in the figure's legend only: these are ours.
const LEVELS: [u64; 3] = [4, 16, 256];

/// One point of the figure before any training.
#[derive(Debug)]
struct Setting {
    levels: u64,
    /// Trials of one client, `m`.
    trials: u64,
    epsilon: f64,
    encoding: Encoding,
}

impl Setting {
    /// The fewest trials that reach epsilon.
    fn new(levels: u64, epsilon: f64, dim: usize) -> Result<Self, ReproduceError> {
        let Task {
            clients, clip_norm, ..
        } = Task::FIGURE;
        let padded = dim.next_power_of_two() as u64;
        let d = padded as f64;
        let x_max = 2.0 * clip_norm * ((2.0 * clients as f64 * d / DELTA).ln() / d).sqrt();
        // Half of delta for the norms of what is sent, half for Theorem 1.
        let half = Delta::new(0.5 * DELTA)?;
        let norms = Sensitivities::of_quantization(padded, levels, clip_norm, x_max, half)?;
        let one = BinomialNoise::new(padded, 1, 0.5, 1.0)?;
        let trials = one
            .trials_for(&norms, Epsilon::new(epsilon)?, half)?
            .div_ceil(clients);
        let size = EncodingSize {
            dim,
            clip_norm,
            min_clients: clients,
            max_clients: clients,
        };
        let kind = EncodingKind::Binomial(Levels {
            levels,
            trials,
            success_probability: (1, 2),
            x_max: Some(x_max),
            rotate: true,
            delta: DELTA,
        });
        Ok(Self {
            levels,
            trials,
            epsilon,
            encoding: Encoding::new(kind, size)?,
        })
    }

    /// Bits per coordinate in one client's message.
    fn bits(&self) -> f64 {
        self.encoding.client_bits_per_coordinate()
    }

    /// Expected squared error of the mean, rounding and noise, in squared clip norms.
    fn error(&self) -> f64 {
        let EncodingSize {
            dim,
            clip_norm,
            max_clients,
            ..
        } = self.encoding.size();
        dim as f64 * self.encoding.mean_squared_error(max_clients).total() / (clip_norm * clip_norm)
    }

    /// The epsilon that the accountant computes for one round.
    fn guaranteed(&self) -> f64 {
        match self.encoding.client_noise().map(ClientNoise::event) {
            Some(Event::ApproximateDp { epsilon, .. }) => epsilon.get(),
            _ => f64::NAN,
        }
    }
}

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let dim = Task::model().parameters();
    let mut settings = Vec::new();
    for epsilon in EPSILONS {
        for levels in LEVELS {
            settings.push(Setting::new(levels, epsilon, dim)?);
        }
    }
    let mut statements = vec![cheap(&settings), diminishing(&settings, dim)];
    let mut figures = vec![over_bits(
        "squared error of the mean over bits per coordinate",
        "squared error",
        &settings,
        |setting| Ok(Some(setting.error())),
    )?];
    if conditions.slow() {
        let task = Task::FIGURE;
        let plain = task.accuracy(&Plain)?;
        let mut accuracies = Vec::new();
        for setting in &settings {
            accuracies.push(task.accuracy(&Rotated::new(&setting.encoding, task.seed))?);
        }
        let mut gaussian = Vec::new();
        for epsilon in EPSILONS {
            let variance = lemma_1_variance(2.0 * Task::FIGURE.clip_norm, epsilon, DELTA);
            gaussian.push(task.accuracy(&Gaussian::new(variance.sqrt(), task.seed))?);
        }
        statements.extend([
            levels_differ(&settings, &accuracies, plain),
            near_gaussian(&accuracies, &gaussian),
        ]);
        figures.push(accuracy(&settings, &accuracies, &gaussian, plain)?);
    }
    Ok(Body {
        notes: vec![
            "the paper trains on the infinite MNIST data, 25 million pictures of other people's making; here digits are drawn from \
             strokes of our own, deformed anew for every client (8 x 8 pixels, 8,170 parameters, 60 rounds), so that accuracies compare \
             with each other and not with the paper's curves",
            "the pairs of k and m are in the figure's legend and not in the text: k is ours, m the least that reaches epsilon; bits \
             are those of one client's message, log2(k + m): a secure sum of n clients needs log2(n (k - 1 + m) + 1)",
            "(epsilon, 1e-9) holds for one round and for the whole run, since every client takes part once; half of delta is for \
             the norms of what is sent, and a coordinate beyond X_max is cut, which needs no third part",
        ],
        statements,
        figures,
        ..Body::default()
    })
}

fn over_bits(
    title: &'static str,
    y_label: &'static str,
    settings: &[Setting],
    mut value: impl FnMut(&Setting) -> Result<Option<f64>, ReproduceError>,
) -> Result<Figure, ReproduceError> {
    let mut x: Vec<f64> = settings.iter().map(Setting::bits).collect();
    x.sort_by(f64::total_cmp);
    x.dedup();
    let mut curves = Vec::new();
    for epsilon in EPSILONS {
        let mut y = vec![None; x.len()];
        for setting in settings.iter().filter(|setting| setting.epsilon == epsilon) {
            let at = x.iter().position(|bits| *bits == setting.bits());
            if let Some(place) = at.and_then(|at| y.get_mut(at)) {
                *place = value(setting)?;
            }
        }
        curves.push(Curve {
            method: "binomial",
            setting: format!("epsilon {epsilon}"),
            y,
        });
    }
    Ok(Figure {
        title,
        x_label: "bits per coordinate",
        y_label,
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        x,
        curves,
    })
}

fn accuracy(
    settings: &[Setting],
    accuracies: &[f64],
    gaussian: &[f64],
    plain: f64,
) -> Result<Figure, ReproduceError> {
    let mut known = accuracies.iter().copied();
    let title = "accuracy over bits per coordinate";
    let mut figure = over_bits(title, "accuracy", settings, |_| Ok(known.next()))?;
    let flat = vec![Some(plain); figure.x.len()];
    for (epsilon, accuracy) in EPSILONS.into_iter().zip(gaussian) {
        figure.curves.push(Curve {
            method: "Gaussian, 32 bits",
            setting: format!("epsilon {epsilon}"),
            y: vec![Some(*accuracy); figure.x.len()],
        });
    }
    figure.curves.push(Curve {
        method: "without quantisation and noise",
        setting: String::new(),
        y: flat,
    });
    Ok(figure)
}

fn cheap(settings: &[Setting]) -> Statement {
    let least: Vec<String> = EPSILONS
        .iter()
        .filter_map(|epsilon| settings.iter().find(|setting| setting.epsilon == *epsilon))
        .map(|setting| {
            format!(
                "k = {}, m = {}, {:.2} bits at epsilon {}",
                setting.levels,
                setting.trials,
                setting.bits(),
                setting.epsilon
            )
        })
        .collect();
    Statement {
        says: "fewer than 8 bits per coordinate reach epsilon 4 and 2 (and the accountant's epsilon is no larger at any point), where \
               real numbers take 32",
        found: least.join("; "),
        holds: settings
            .iter()
            .all(|setting| setting.guaranteed() <= setting.epsilon)
            && EPSILONS.iter().all(|epsilon| {
                let mut here = settings.iter().filter(|setting| setting.epsilon == *epsilon);
                here.any(|setting| setting.bits() < 8.0)
            }),
    }
}

/// Theorem 4 and Corollary 3: error falls with the number of levels towards the Gaussian's.
fn diminishing(settings: &[Setting], dim: usize) -> Statement {
    let mut found = Vec::new();
    let mut holds = true;
    for epsilon in EPSILONS {
        let gaussian =
            dim as f64 * lemma_1_variance(2.0, epsilon, DELTA) / (Task::FIGURE.clients as f64).powi(2);
        let ratios: Vec<f64> = settings
            .iter()
            .filter(|setting| setting.epsilon == epsilon)
            .map(|setting| setting.error() / gaussian)
            .collect();
        holds &= ratios.is_sorted_by(|a, b| a > b) && ratios.iter().all(|ratio| *ratio > 1.0);
        let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        found.push(format!("{} at epsilon {epsilon}", shown.join(", ")));
    }
    Statement {
        says: "more levels bring the error of the mean down towards the Gaussian's (at every step, never below it)",
        found: format!(
            "over the Gaussian's from the fewest levels on: {}",
            found.join("; ")
        ),
        holds,
    }
}

/// The smallest difference that 10,000 test pictures show: three standard errors at an accuracy of 90 %.
const TELLS_APART: f64 = 0.009;

fn levels_differ(settings: &[Setting], accuracies: &[f64], plain: f64) -> Statement {
    let of = |epsilon: f64| -> Vec<f64> {
        let pairs = settings.iter().zip(accuracies);
        pairs
            .filter(|(setting, _)| setting.epsilon == epsilon)
            .map(|(_, accuracy)| *accuracy)
            .collect()
    };
    let [high, low] = EPSILONS.map(of);
    let rises = |curve: &[f64]| curve.windows(2).all(|pair| pair[1] > pair[0] - TELLS_APART);
    let ordered = high.iter().zip(&low).all(|(high, low)| *high > low - TELLS_APART);
    let best = high.iter().chain(&low).copied().fold(0.0, f64::max);
    let shown = |curve: &[f64]| {
        curve
            .iter()
            .map(|accuracy| format!("{:.1} %", 100.0 * accuracy))
            .collect::<Vec<_>>()
            .join(", ")
    };
    Statement {
        says: "accuracy depends on communication and epsilon (it does not fall with more levels nor with a larger epsilon, as far \
               as 10,000 test pictures tell, and stays below training without both)",
        found: format!(
            "{} at epsilon 4, {} at epsilon 2, {:.1} % without",
            shown(&high),
            shown(&low),
            100.0 * plain
        ),
        holds: rises(&high) && rises(&low) && ordered && best < plain + TELLS_APART,
    }
}

fn near_gaussian(accuracies: &[f64], gaussian: &[f64]) -> Statement {
    let finest = accuracies.chunks(LEVELS.len()).filter_map(|curve| curve.last());
    let gaps: Vec<f64> = gaussian
        .iter()
        .zip(finest)
        .map(|(gaussian, finest)| gaussian - finest)
        .collect();
    let shown: Vec<String> = gaps.iter().map(|gap| format!("{:.1}", 100.0 * gap)).collect();
    Statement {
        says: "with enough levels the accuracy is that of the Gaussian mechanism at full precision (within 2 points)",
        found: format!("{} points below it", shown.join(" and ")),
        holds: gaps.iter().all(|gap| *gap < 0.02),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_point_matches_that_by_hand() {
        let setting = Setting::new(4, 4.0, 8170).unwrap();
        assert_eq!(setting.bits(), ((4 + setting.trials) as f64).log2());
        // One bin is two thirds of X_max; rounding adds a quarter of its square at most, noise m / 4 of them.
        let x_max = 2.0 * ((2.0 * 10_000.0 * 8192.0 / 1e-9f64).ln() / 8192.0).sqrt();
        let bin = 2.0 / 3.0 * x_max;
        let want = 8170.0 * bin * bin * 0.25 * (1 + setting.trials) as f64 / 10_000.0;
        assert!(
            (setting.error() / want - 1.0).abs() < 1e-12,
            "{} {want}",
            setting.error()
        );
        // The fewest trials: one less misses the target.
        assert!(setting.guaranteed() <= 4.0 && setting.guaranteed() > 3.0);
    }

    #[test]
    fn statements_can_fail() {
        let settings: Vec<Setting> = EPSILONS
            .into_iter()
            .flat_map(|epsilon| LEVELS.map(|levels| Setting::new(levels, epsilon, 100).unwrap()))
            .collect();
        assert!(levels_differ(&settings, &[0.7, 0.8, 0.9, 0.6, 0.7, 0.8], 0.92).holds);
        assert!(!levels_differ(&settings, &[0.7, 0.6, 0.9, 0.6, 0.7, 0.8], 0.92).holds);
        assert!(!levels_differ(&settings, &[0.7, 0.8, 0.9, 0.75, 0.8, 0.8], 0.92).holds);
        assert!(!levels_differ(&settings, &[0.7, 0.8, 0.95, 0.6, 0.7, 0.8], 0.92).holds);
        assert!(near_gaussian(&[0.7, 0.8, 0.9, 0.6, 0.7, 0.8], &[0.91, 0.81]).holds);
        assert!(!near_gaussian(&[0.7, 0.8, 0.9, 0.6, 0.7, 0.8], &[0.93, 0.81]).holds);
    }
}
