//! A simulation as tables.

use undertone_present::numbers::{number, upper_bound};
use undertone_studies::simulate::{Figures, PrivacyComparison, Simulation};

use crate::output::facts;
use undertone_present::table::grid;

/// Columns of the longest bar.
const BAR: f64 = 30.0;

/// Explains the columns of participation.
pub(super) const LEGEND: &str = "MinS: rounds strictly between two participations of a device. max MinS: the population allows no more. \
                                 MaxP: max participations per device.";

/// Everything about one simulation.
pub(super) fn of(simulation: &Simulation) -> String {
    let mut parts = vec![
        facts(overview(simulation)),
        format!(
            "Devices by number of participations\n{}",
            bars(&participations(simulation), "devices")
        ),
        format!(
            "Rounds per hour of the day (UTC)\n{}",
            bars(&hours(simulation), "rounds")
        ),
    ];
    if let Some(privacy) = &simulation.privacy {
        parts.push(comparison(privacy, simulation.abandoned_in_a_row));
    }
    parts.join("\n\n")
}

/// MinS, or what there is instead.
pub(super) fn min_sep(simulation: &Simulation) -> String {
    simulation
        .min_sep
        .map_or_else(|| "no device twice".to_owned(), |rounds| rounds.to_string())
}

fn overview(simulation: &Simulation) -> Vec<(&'static str, String)> {
    let [shortest, median, longest] = simulation.round_minutes.map(number);
    let abandoned = match simulation.abandoned {
        0 => String::new(),
        attempts => format!("; {attempts} more attempts were abandoned"),
    };
    let selected = simulation.selected.max(1) as f64;
    let took_part: u64 = simulation.participations.iter().skip(1).sum();
    vec![
        (
            "devices",
            format!("{}; {took_part} of them took part", simulation.population),
        ),
        (
            "rounds",
            format!(
                "{} rounds of {} reports in {} days{abandoned}",
                simulation.rounds,
                simulation.report_goal,
                number(simulation.simulated_days)
            ),
        ),
        (
            "minutes per round",
            format!("{shortest} to {longest}, median {median}"),
        ),
        (
            "dropped out",
            format!(
                "{} % of the selected devices",
                number(100.0 * simulation.dropped_out as f64 / selected)
            ),
        ),
        ("timer", format!("{} hours", number(simulation.timer_hours))),
        (
            "rounds between (MinS)",
            format!(
                "{} between two participations of a device; the population allows at most {}",
                min_sep(simulation),
                simulation.largest_min_sep
            ),
        ),
        (
            "participations (MaxP)",
            format!("at most {} per device", simulation.max_participation),
        ),
    ]
}

fn participations(simulation: &Simulation) -> Vec<(String, f64)> {
    (0..)
        .zip(&simulation.participations)
        .map(|(times, devices): (u64, _)| (times.to_string(), *devices as f64))
        .collect()
}

fn hours(simulation: &Simulation) -> Vec<(String, f64)> {
    (0..)
        .zip(simulation.rounds_per_hour)
        .map(|(hour, rounds): (u64, _)| (format!("{hour:02}"), rounds))
        .collect()
}

/// Lines of a name, a value and a bar.
fn bars(values: &[(String, f64)], unit: &str) -> String {
    let max = values
        .iter()
        .map(|value| value.1)
        .fold(f64::MIN_POSITIVE, f64::max);
    let rows = values.iter().map(|(name, value)| {
        let length = (BAR * value / max).round() as usize;
        // The bar stands last: nothing is to the right of it that it could push away.
        vec![name.clone(), number(*value), "#".repeat(length)]
    });
    grid(["", unit, ""], rows, 3)
}

fn comparison(privacy: &PrivacyComparison, abandoned_in_a_row: u64) -> String {
    let row = |name: &str, figures: &Figures| {
        let (gap, max) = match &figures.participation {
            Some(schema) if schema.max_participation() == 1 => ("-".to_owned(), "1".to_owned()),
            Some(schema) => (
                schema.gap().rounds_between().get().to_string(),
                schema.max_participation().to_string(),
            ),
            None => (String::new(), String::new()),
        };
        let sign = if figures.sensitivity.exact { "" } else { "~" };
        vec![
            name.to_owned(),
            gap,
            max,
            format!("{sign}{}", upper_bound(figures.sensitivity.squared.get())),
            format!("{sign}{}", upper_bound(figures.rho)),
            format!("{sign}{}", upper_bound(figures.epsilon)),
        ]
    };
    let header = ["", "MinS", "MaxP", "squared sensitivity", "rho", "epsilon"];
    let rows = [
        row("promised by the timer", &privacy.planned),
        row("observed in the ledger", &privacy.observed),
        row("exact for the ledger", &privacy.exact),
    ];
    let mut text = format!(
        "{}, noise multiplier {}, delta {}, zero-out\n{}",
        privacy.mechanism,
        number(privacy.noise_multiplier),
        upper_bound(privacy.delta),
        grid(header, rows, 1)
    );
    if abandoned_in_a_row > 0 {
        text += "\nThe promise of the timer assumes that no round is abandoned, but this simulation abandoned some.";
    }
    text
}
