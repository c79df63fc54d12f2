//! Simulations as SVG pictures.

use anyhow::anyhow;
use undertone_studies::simulate::Simulation;

use undertone_present::curves::{COLOURS, Pen, Points, linear};

const LINE: Pen = Pen::solid(COLOURS[0]);

/// Minutes of every round over the days.
pub(super) fn rounds(simulation: &Simulation) -> anyhow::Result<String> {
    let times = simulation.round_times.iter();
    let points = times.map(|round| (round.day, round.minutes)).collect();
    let title = format!(
        "Minutes per round; {} devices, report goal {}, timer {} hours",
        simulation.population, simulation.report_goal, simulation.timer_hours
    );
    draw(title, "day", [("minutes".to_owned(), LINE, points)])
}

/// MinS over the values of a sweep, and what the population allows.
pub(super) fn sweep(key: &str, points: &[(f64, &Simulation)]) -> anyhow::Result<String> {
    let observed = points
        .iter()
        .filter_map(|(value, simulation)| Some((*value, simulation.min_sep? as f64)));
    let allowed = points
        .iter()
        .map(|(value, simulation)| (*value, simulation.largest_min_sep as f64));
    let Some((_, first)) = points.first() else {
        return Err(anyhow!("cannot draw the sweep: it has no values"));
    };
    draw(
        format!(
            "MinS over {key}; {} devices, {} rounds",
            first.population, first.rounds
        ),
        "value of the key",
        [
            (
                "observed rounds between (MinS)".to_owned(),
                LINE,
                observed.collect(),
            ),
            (
                "max possible: population / report goal - 1".to_owned(),
                Pen::LIMIT,
                allowed.collect(),
            ),
        ],
    )
}

fn draw(
    title: String,
    x_label: &'static str,
    curves: impl IntoIterator<Item = (String, Pen, Points)>,
) -> anyhow::Result<String> {
    linear(title, x_label, curves, (1e-3, 1.0))
        .map_err(|message| anyhow!("cannot draw the simulation: {message}"))
}
