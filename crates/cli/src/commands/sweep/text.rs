//! A comparison as a table, on the terminal and as Markdown.

use undertone_present::numbers::{epsilon_delta, number, share};
use undertone_present::table::grid;
use undertone_run_directory::metrics::accuracy;
use undertone_studies::sweep::{Comparison, Difference, Row, Spread};

use crate::output::value;

/// The table for the terminal.
pub(super) fn table(comparison: &Comparison) -> String {
    let rows = comparison.rows.iter().map(cells);
    let mut text = grid(header(comparison), rows, comparison.axes.len());
    let left = comparison.trials - comparison.finished;
    if left > 0 {
        text += &format!("\n\n{left} of {} runs have not finished.", comparison.trials);
    }
    if let Some(why) = &comparison.without_users {
        text += &format!("\n\n{NO_USERS} ({}).", value(why));
    }
    text
}

/// The note where the users of a run could not be measured again.
const NO_USERS: &str =
    "Standard errors say nothing of the held-out users, because a run could not be measured again";

/// The comparison as a Markdown document.
pub(super) fn markdown(comparison: &Comparison) -> String {
    let header = header(comparison);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("# {}\n\n", comparison.name);
    if comparison.finished < comparison.trials {
        text += &format!(
            "{} of {} runs have finished.\n\n",
            comparison.finished, comparison.trials
        );
    }
    text += &line(&header);
    text += &format!("|{}\n", "---|".repeat(header.len()));
    for row in &comparison.rows {
        text += &line(&cells(row));
    }
    text += "\nValues are means over the seeds. Differences compare with the first value of the last axis, seed by seed and user by \
             user. Their units are percentage points of keyboard top-1 (known words) and nats of loss (the logarithm of perplexity). ± is one \
             standard error, over the held-out users and, with several seeds, over the seeds too.\n";
    if let Some(why) = &comparison.without_users {
        text += &format!("\n{NO_USERS} ({why}).\n");
    }
    if comparison.rows.iter().any(|row| row.is_estimate) {
        text += "\nEstimates are the guarantees that larger runs with this noise would have. They do not apply to these runs.\n";
    }
    text
}

fn header(comparison: &Comparison) -> Vec<String> {
    let estimate = comparison.rows.iter().any(|row| row.is_estimate);
    let figures = [
        "seeds",
        accuracy::KNOWN_WORDS,
        "difference",
        accuracy::KEYBOARD,
        "perplexity",
        "loss difference",
        "noise std",
        if estimate { "estimate" } else { "guarantee" },
        "seconds",
    ];
    let axes = comparison.axes.iter().cloned();
    axes.chain(figures.map(str::to_owned)).collect()
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |spread: &Spread| share(spread.mean, spread.standard_error);
    let none = || "–".to_owned();
    let difference = |difference: &Option<Difference>, scale: f64, digits: usize| {
        difference.map_or_else(
            none,
            |Difference {
                 mean, standard_error, ..
             }| {
                // A difference that is shown as nothing has no sign of its own.
                let shown = scale * mean;
                let nothing = shown.abs() < 0.5 * 0.1_f64.powi(digits as i32);
                let mean = format!("{:+.digits$}", if nothing { 0.0 } else { shown });
                standard_error.map_or_else(
                    || mean.clone(),
                    |error| format!("{mean} ± {:.digits$}", scale * error),
                )
            },
        )
    };
    let figures = [
        row.seeds.len().max(1).to_string(),
        row.in_vocab_top1.as_ref().map_or_else(none, percent),
        difference(&row.difference, 100.0, 2),
        percent(&row.top1),
        format!("{:.1}", row.perplexity.mean),
        difference(&row.loss_difference, 1.0, 4),
        number(row.noise_std),
        row.guarantee
            .as_ref()
            .map_or_else(none, |record| epsilon_delta(record.epsilon, record.delta)),
        format!("{:.0}", row.train_seconds.mean),
    ];
    row.values.iter().cloned().chain(figures).collect()
}
