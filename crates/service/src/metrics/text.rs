//! The text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

use undertone_store::TaskId;

use super::{Family, Metrics, in_steps};

/// The figures of a task that are read when they are asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TaskFigures {
    /// Its name, which is unique in its population.
    pub(crate) name: String,
    pub(crate) population: String,
    pub(crate) head_round: u64,
    /// The epsilon of its released rounds.
    pub(crate) epsilon: Option<f64>,
    /// Sessions of its open attempt by their state.
    pub(crate) sessions: BTreeMap<&'static str, u64>,
}

/// The figures that are read when they are asked for.
pub(crate) type Scrape = BTreeMap<TaskId, TaskFigures>;

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

fn labels(task: Option<&TaskFigures>, label: (&str, &str)) -> String {
    let mut all = Vec::new();
    if let Some(task) = task {
        all.push(format!("population=\"{}\"", escaped(&task.population)));
        all.push(format!("task=\"{}\"", escaped(&task.name)));
    }
    if let (name, value) = label
        && !name.is_empty()
    {
        all.push(format!("{name}=\"{}\"", escaped(value)));
    }
    match all.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", all.join(",")),
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// All figures as text. A series without a value that may be shown is left out.
pub(crate) fn text(metrics: &Metrics, scrape: &Scrape) -> String {
    let mut text = String::new();
    let inner = metrics.lock();
    for (family, name, shape, label, help) in FAMILIES {
        let kind = if shape == Shape::Summary {
            "summary"
        } else {
            "counter"
        };
        head(&mut text, name, kind, help);
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
            let labels = labels(task, (label, value));
            let _ = match shape {
                Shape::Count => writeln!(text, "{name}{labels} {count}"),
                Shape::Sum => writeln!(text, "{name}{labels} {sum}"),
                Shape::Summary => writeln!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}"),
            };
        }
    }
    drop(inner);
    gauges(&mut text, scrape);
    text
}

fn gauges(text: &mut String, scrape: &Scrape) {
    let name = "undertone_sessions";
    let help = "Sessions of the open attempt by their state, rounded down to a multiple of ten.";
    head(text, name, "gauge", help);
    for task in scrape.values() {
        for (state, number) in &task.sessions {
            if let Some(number) = in_steps(*number) {
                let _ = writeln!(text, "{name}{} {number}", labels(Some(task), ("state", state)));
            }
        }
    }
    let name = "undertone_head_round";
    head(text, name, "gauge", "Number of released rounds.");
    for task in scrape.values() {
        let _ = writeln!(text, "{name}{} {}", labels(Some(task), ("", "")), task.head_round);
    }
    let name = "undertone_epsilon_spent";
    let help = "Upper bound on the epsilon of the released rounds, by the ledger.";
    head(text, name, "gauge", help);
    for task in scrape.values() {
        if let Some(epsilon) = task.epsilon {
            let _ = writeln!(text, "{name}{} {epsilon}", labels(Some(task), ("", "")));
        }
    }
}
