//! The pictures of a run.

use super::summary::percent;
use super::{ReportError, Result, RunData};
use undertone_present::chart::{self, FIRST, Format, Labels, SECOND, Series, Style, THIRD};
use undertone_present::numbers::{grouped, number, upper_bound};
use undertone_run_directory::metrics::{EvaluationRecord, Histogram, RoundRecord};

/// Number of rounds whose update norms are in one histogram.
const NORM_ROUNDS: usize = 20;

/// Number of bins of that histogram.
const NORM_BINS: usize = 40;

/// One picture of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// File name under `plots/`, without `.svg`.
    pub name: &'static str,
    /// Description of the picture, in a sentence or two.
    pub caption: String,
    /// The SVG document.
    pub svg: String,
}

pub(super) fn all(run: &RunData) -> Result<Vec<Picture>> {
    type Draw = fn(&RunData) -> Drawn;
    let pictures: [(&'static str, Draw); 8] = [
        ("accuracy", accuracy),
        ("epsilon", epsilon),
        ("train-loss", train_loss),
        ("update-norms", update_norms),
        ("clipped-fraction", clipped_fraction),
        ("signal-to-noise", signal_to_noise),
        ("cohort-sizes", cohort_sizes),
        ("user-sizes", user_sizes),
    ];
    let mut drawn = Vec::new();
    for (name, draw) in pictures {
        let Some((caption, svg)) = draw(run) else { continue };
        let picture = name.to_owned();
        let svg = svg.map_err(|message| ReportError::Picture { picture, message })?;
        drawn.push(Picture { name, caption, svg });
    }
    Ok(drawn)
}

/// A caption with its picture; `None` where there is nothing to draw.
type Drawn = Option<(String, Result<String, String>)>;

fn whole(value: f64) -> String {
    if value.abs() >= 1e5 {
        number(value)
    } else {
        format!("{value:.0}")
    }
}

fn fraction(value: f64) -> String {
    format!("{:.0} %", 100.0 * value)
}

fn fine_fraction(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

fn over_rounds(title: &'static str, y_format: Format, from_zero: bool) -> Labels {
    Labels {
        title,
        x: "rounds finished",
        x_format: whole,
        y_format,
        from_zero,
    }
}

fn rounds(run: &RunData, value: impl Fn(&RoundRecord) -> Option<f64>) -> Vec<(f64, f64)> {
    run.rounds
        .iter()
        .filter_map(|round| Some((round.round as f64 + 1.0, value(round)?)))
        .collect()
}

fn accuracy(run: &RunData) -> Drawn {
    let mut series = Vec::new();
    let mut splits: Vec<&str> = run
        .evaluations
        .iter()
        .map(|evaluation| evaluation.split.as_str())
        .collect();
    splits.dedup();
    splits.sort_unstable();
    splits.dedup();
    for (split, colour) in splits.iter().zip([FIRST, THIRD]) {
        let mine = run
            .evaluations
            .iter()
            .filter(|evaluation| evaluation.split == *split);
        let point = |evaluation: &EvaluationRecord| {
            let metrics = evaluation.metrics.on_curve();
            (evaluation.round as f64, metrics.top1)
        };
        series.push(Series::new(
            &format!("top-1 on {split}"),
            Style::Line,
            colour,
            mine.map(point).collect(),
        ));
    }
    let levels = [
        (run.start.unigram_accuracy, "most frequent word", chart::MUTED),
        (run.start.best_accuracy, "best reachable", SECOND),
    ];
    for (value, name, colour) in levels {
        series.extend(value.map(|value| Series::level(format!("{name} {}", percent(value)), colour, value)));
    }
    let caption = format!(
        "Share of next words for which the likeliest word is right; a word outside the vocabulary always counts as wrong.{}",
        equal_targets(run).unwrap_or_default()
    );
    let labels = over_rounds("Top-1 accuracy", fine_fraction, true);
    Some((caption, chart::lines(&labels, &series)?))
}

/// The targets of all points of the accuracy, with the standard error of the last one. A run that an older version began or made has
/// points of other targets.
fn equal_targets(run: &RunData) -> Option<String> {
    let mut points = run.evaluations.iter().map(|point| point.metrics.on_curve());
    let last = points.clone().next_back()?;
    let users = last.users?;
    let error = last.top1_standard_error?;
    let equal = points.all(|point| (point.users, point.targets) == (Some(users), last.targets));
    equal.then(|| {
        format!(
            " Every point is of equal targets, {} of {} users; the standard error of the last one is {:.2} percentage points.",
            grouped(last.targets),
            grouped(users),
            100.0 * error
        )
    })
}

fn epsilon(run: &RunData) -> Drawn {
    let spent = rounds(run, |round| round.epsilon);
    let mut series = vec![Series::new("spent", Style::Line, FIRST, spent)];
    let planned = run.privacy.as_ref().and_then(|privacy| privacy.planned.as_ref());
    series.extend(planned.map(|planned| {
        let name = format!("planned {}", upper_bound(planned.epsilon));
        Series::level(name, SECOND, planned.epsilon)
    }));
    let delta = planned.map_or(String::new(), |planned| {
        format!(" at delta = {}", upper_bound(planned.delta))
    });
    let caption = format!("Upper bound on epsilon after each round{delta}.");
    let labels = over_rounds("Epsilon spent", number, true);
    Some((caption, chart::lines(&labels, &series)?))
}

/// A quantity of the rounds: each value faintly, and a moving average.
fn smoothed(name: &str, labels: &Labels, caption: &str, points: Vec<(f64, f64)>) -> Drawn {
    let series = [Series::new(name, Style::Smoothed, FIRST, points)];
    Some((caption.to_owned(), chart::lines(labels, &series)?))
}

fn train_loss(run: &RunData) -> Drawn {
    smoothed(
        "loss",
        &over_rounds("Training loss", number, false),
        "Mean over all local steps of a round, in nats per token. Bold: moving average.",
        rounds(run, |round| round.train_loss),
    )
}

fn update_norms(run: &RunData) -> Drawn {
    let latest = &run.rounds[run.rounds.len().saturating_sub(NORM_ROUNDS)..];
    let merged = merge(latest.iter().filter_map(|round| round.update_norms.as_ref()))?;
    let clip = latest.last().and_then(|round| round.clip_norm);
    let marks: Vec<_> = clip
        .map(|clip| (format!("clip norm {}", number(clip)), clip))
        .into_iter()
        .collect();
    let labels = Labels {
        title: "Update norms",
        x: "L2 norm before the last projection",
        x_format: number,
        y_format: whole,
        from_zero: true,
    };
    let caption = format!(
        "Users of the latest {} rounds. What lies beyond the line was clipped to it.",
        latest.len()
    );
    Some((caption, chart::bars(&labels, &merged.0, &merged.1, &marks)?))
}

/// Histograms with different edges over one set of bins; a bin's count is spread evenly over its width.
fn merge<'a>(histograms: impl Iterator<Item = &'a Histogram> + Clone) -> Option<(Vec<f64>, Vec<f64>)> {
    let valid =
        |h: &&Histogram| h.edges.len() == h.counts.len() + 1 && h.edges.iter().all(|edge| edge.is_finite());
    let histograms = histograms.filter(valid);
    let low = histograms
        .clone()
        .filter_map(|h| h.edges.first().copied())
        .reduce(f64::min)?;
    let high = histograms
        .clone()
        .filter_map(|h| h.edges.last().copied())
        .reduce(f64::max)?;
    if high <= low {
        return None;
    }
    let width = (high - low) / NORM_BINS as f64;
    let edges: Vec<f64> = (0..=NORM_BINS).map(|bin| low + width * bin as f64).collect();
    let mut counts = vec![0.0; NORM_BINS];
    for histogram in histograms {
        for (pair, &count) in histogram.edges.windows(2).zip(&histogram.counts) {
            let span = pair[1] - pair[0];
            for (bin, total) in counts.iter_mut().enumerate() {
                let overlap = edges[bin + 1].min(pair[1]) - edges[bin].max(pair[0]);
                if overlap > 0.0 && span > 0.0 {
                    *total += count as f64 * overlap / span;
                }
            }
        }
    }
    Some((edges, counts))
}

fn clipped_fraction(run: &RunData) -> Drawn {
    if run.rounds.iter().all(|round| round.clip_norm.is_none()) {
        return None;
    }
    smoothed(
        "share",
        &over_rounds("Clipped updates", fraction, true),
        "Share of a round's users whose update reached the clip norm. Bold: moving average.",
        rounds(run, |round| round.clip_norm.and(round.clipped_fraction)),
    )
}

fn signal_to_noise(run: &RunData) -> Drawn {
    smoothed(
        "ratio",
        &over_rounds("Signal to noise", number, true),
        "Norm of the average update over the norm of the noise in one round. Below 1 is usual: rounds add up.",
        rounds(run, |round| round.signal_to_noise),
    )
}

fn cohort_sizes(run: &RunData) -> Drawn {
    smoothed(
        "users",
        &over_rounds("Cohort size", whole, true),
        "Users that contributed to a round. Bold: moving average.",
        rounds(run, |round| Some(round.cohort_size as f64)),
    )
}

fn user_sizes(run: &RunData) -> Drawn {
    let Histogram { edges, counts } = run.start.user_sizes.as_ref()?;
    // The bins double, so the axis is logarithmic: places are powers of two.
    if edges.iter().any(|&edge| edge <= 0.0) {
        return None;
    }
    let places: Vec<f64> = edges.iter().map(|edge| edge.log2()).collect();
    let counts: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    let labels = Labels {
        title: "Text per user",
        x: "tokens of a training user (logarithmic)",
        x_format: |place| number(place.exp2()),
        y_format: whole,
        from_zero: true,
    };
    let caption = "Training users by the tokens they hold after caps and filters.";
    Some((caption.to_owned(), chart::bars(&labels, &places, &counts, &[])?))
}
