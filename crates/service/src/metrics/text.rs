//! The figures that may leave the process, and their text in the format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

use undertone_store::TaskId;

use super::{Family, Metrics, in_steps};

/// The figures of a task that are read when they are asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskFigures {
    /// The name of the task, which is unique in its population.
    pub name: String,
    /// The population of the task.
    pub population: String,
    /// Number of released rounds.
    pub head_round: u64,
    /// The epsilon of its released rounds.
    pub epsilon: Option<f64>,
    /// Sessions of its open attempt by their state.
    pub sessions: BTreeMap<&'static str, u64>,
}

/// The figures that are read when they are asked for.
pub(crate) type Scrape = BTreeMap<TaskId, TaskFigures>;

/// A series at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Nothing, or `_sum` or `_count` behind the name of the figure.
    pub suffix: &'static str,
    /// Names and values: a task, a result, a state, a reason, a phase, a version of the app.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// The kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// A number that only grows.
    Counter,
    /// Two counters: a number of events, and the sum of their values.
    Summary,
    /// A number that moves both ways.
    Gauge,
}

impl FigureKind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Summary => "summary",
            Self::Gauge => "gauge",
        }
    }
}

/// A figure of the service with its series.
///
/// PRIVACY: this is all that `/metrics` and OpenTelemetry get. A count of devices or groups is there from ten on and moves in steps of
/// ten, and no label names a device, a subject, a group or an address.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownFigure {
    /// The name, such as `undertone_checkins_total`.
    pub name: &'static str,
    /// The kind.
    pub kind: FigureKind,
    /// One sentence.
    pub help: &'static str,
    /// The series that may be shown.
    pub samples: Vec<Sample>,
}

/// The parts of a family that are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The number of events.
    Count,
    /// The sum of their values.
    Sum,
    /// Both.
    Summary,
}

/// The families with their names, shapes, labels and descriptions, in the order of [`Family`].
const FAMILIES: [(Family, &str, Shape, &str, &str); 9] = [
    (
        Family::CheckIns,
        "undertone_checkins_total",
        Shape::Count,
        "result",
        "Check-ins of devices by their result, in steps of ten.",
    ),
    (
        Family::Attempts,
        "undertone_attempts_total",
        Shape::Count,
        "reason",
        "Attempts that have ended: committed, or abandoned for this reason.",
    ),
    (
        Family::AttemptSeconds,
        "undertone_attempt_seconds",
        Shape::Summary,
        "",
        "Seconds from the opening of an attempt to its end.",
    ),
    (
        Family::UploadBytes,
        "undertone_upload_bytes_total",
        Shape::Sum,
        "",
        "Bytes of updates that were added to a sum, in steps of ten updates.",
    ),
    (
        Family::AddSeconds,
        "undertone_add_seconds",
        Shape::Summary,
        "",
        "Seconds to check an update and add it to its sum, in steps of ten updates.",
    ),
    (
        Family::PhaseSeconds,
        "undertone_secagg_phase_seconds",
        Shape::Summary,
        "phase",
        "Seconds that groups of secure sums spent in a phase, in steps of ten groups.",
    ),
    (
        Family::TransactionSeconds,
        "undertone_tx_seconds",
        Shape::Summary,
        "name",
        "Seconds of a transaction of the store. Those that devices cause move in steps of ten.",
    ),
    (
        Family::TransactionRetries,
        "undertone_tx_retries_total",
        Shape::Count,
        "",
        "Commits of a release that were sent again, since their answer was lost.",
    ),
    (
        Family::LeasesLost,
        "undertone_lease_lost_total",
        Shape::Count,
        "",
        "Transactions that were refused since another process leads the task.",
    ),
];

/// A name as the value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn labels(task: Option<&TaskFigures>, label: (&'static str, &str)) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(task) = task {
        all.push(("population", task.population.clone()));
        all.push(("task", task.name.clone()));
    }
    if !label.0.is_empty() {
        all.push((label.0, label.1.to_owned()));
    }
    all
}

/// All figures. A series without a value that may be shown is left out.
pub fn shown(metrics: &Metrics, scrape: &Scrape) -> Vec<ShownFigure> {
    let mut figures = Vec::new();
    let inner = metrics.lock();
    for (family, name, shape, label, help) in FAMILIES {
        let mut samples = Vec::new();
        for (&(of, task, value), figure) in &inner.series {
            let (Some((count, sum)), true) = (figure.shown(), of == family) else {
                continue;
            };
            let task = match task.map(|task| scrape.get(&task)) {
                // A task that the scrape does not know has no name to show.
                Some(None) => continue,
                Some(Some(task)) => Some(task),
                None => None,
            };
            let parts: &[(&'static str, f64)] = match shape {
                Shape::Count => &[("", count as f64)],
                Shape::Sum => &[("", sum)],
                Shape::Summary => &[("_sum", sum), ("_count", count as f64)],
            };
            samples.extend(parts.iter().map(|&(suffix, number)| Sample {
                suffix,
                labels: labels(task, (label, value)),
                value: number,
            }));
        }
        let kind = match shape {
            Shape::Summary => FigureKind::Summary,
            Shape::Count | Shape::Sum => FigureKind::Counter,
        };
        figures.push(ShownFigure {
            name,
            kind,
            help,
            samples,
        });
    }
    drop(inner);
    figures.push(funnels(metrics, scrape));
    figures.extend(gauges(scrape));
    figures
}

/// The way of devices from their check-in to a release, by the version of the app.
fn funnels(metrics: &Metrics, scrape: &Scrape) -> ShownFigure {
    let mut samples = Vec::new();
    for (id, task) in scrape {
        for row in metrics.funnels().rows(*id) {
            let version = row
                .version
                .map_or_else(|| "other".to_owned(), |version| version.to_string());
            for (step, count) in row.steps() {
                let Some(count) = count else { continue };
                let mut labels = labels(Some(task), ("step", step));
                labels.push(("app_version", version.clone()));
                samples.push(Sample {
                    suffix: "",
                    labels,
                    value: count as f64,
                });
            }
        }
    }
    ShownFigure {
        name: "undertone_funnel_total",
        kind: FigureKind::Counter,
        help: "Check-ins and sessions by the step that they reached and the version of the app, in steps of ten, from ten devices on.",
        samples,
    }
}

fn gauges(scrape: &Scrape) -> [ShownFigure; 3] {
    let sample = |task, label, value| Sample {
        suffix: "",
        labels: labels(Some(task), label),
        value,
    };
    let mut sessions = Vec::new();
    for task in scrape.values() {
        for (state, number) in &task.sessions {
            if let Some(number) = in_steps(*number) {
                sessions.push(sample(task, ("state", *state), number as f64));
            }
        }
    }
    let rounds = scrape.values();
    let epsilons = scrape.values();
    let gauge = |name, help, samples| ShownFigure {
        name,
        kind: FigureKind::Gauge,
        help,
        samples,
    };
    [
        gauge(
            "undertone_sessions",
            "Sessions of the open attempt by their state, rounded down to a multiple of ten.",
            sessions,
        ),
        gauge(
            "undertone_head_round",
            "Number of released rounds.",
            rounds
                .map(|task| sample(task, ("", ""), task.head_round as f64))
                .collect(),
        ),
        gauge(
            "undertone_epsilon_spent",
            "Upper bound on the epsilon of the released rounds, by the ledger.",
            epsilons
                .filter_map(|task| Some(sample(task, ("", ""), task.epsilon?)))
                .collect(),
        ),
    ]
}

/// Figures as text.
#[must_use]
pub fn text(figures: &[ShownFigure]) -> String {
    let mut text = String::new();
    for figure in figures {
        let name = figure.name;
        let _ = writeln!(
            text,
            "# HELP {name} {}\n# TYPE {name} {}",
            figure.help,
            figure.kind.name()
        );
        for Sample {
            suffix,
            labels,
            value,
        } in &figure.samples
        {
            let pairs: Vec<String> = labels
                .iter()
                .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
                .collect();
            let labels = match pairs.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", pairs.join(",")),
            };
            let _ = writeln!(text, "{name}{suffix}{labels} {value}");
        }
    }
    text
}
