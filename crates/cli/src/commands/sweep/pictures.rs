//! Accuracy over rounds, a picture for each value of the earlier axes; the loss at the end over the first axis.

use anyhow::anyhow;
use undertone_present::Scale;
use undertone_studies::sweep::{Comparison, Row};

use undertone_present::curves::{Pen, Picture, Points, linear, named, range};

/// File names and SVG documents.
pub(super) fn curves(comparison: &Comparison) -> anyhow::Result<Vec<(String, String)>> {
    let mut groups: Vec<(&[String], Vec<&Row>)> = Vec::new();
    for row in comparison.rows.iter().filter(|row| !row.curve.is_empty()) {
        let key = &row.values[..row.values.len() - 1];
        match groups.iter_mut().find(|group| group.0 == key) {
            Some(group) => group.1.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups
        .iter()
        .map(|(key, rows)| Ok((name(key), picture(comparison, key, rows)?)))
        .collect()
}

/// The loss at the end over the numbers that the first axis' values are named by, a curve for each combination of the other
/// axes; nothing where a name ends in no positive number, or there is one only.
pub(super) fn losses(comparison: &Comparison) -> anyhow::Result<Option<String>> {
    let mut curves: Vec<(String, Points)> = Vec::new();
    for row in &comparison.rows {
        let Some(x) = number_of(&row.values[0]) else {
            return Ok(None);
        };
        let key = row.values[1..].join(", ");
        let point = (x, row.loss.mean);
        match curves.iter_mut().find(|curve| curve.0 == key) {
            Some(curve) => curve.1.push(point),
            None => curves.push((key, vec![point])),
        }
    }
    for curve in &mut curves {
        curve.1.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let points = || curves.iter().flat_map(|curve| &curve.1);
    let (x, y) = (
        range(points().map(|point| point.0)),
        range(points().map(|point| point.1)),
    );
    if x.is_empty() {
        return Ok(None);
    }
    let margin = 0.05 * (y.end - y.start).max(1e-3);
    let drawn = curves.into_iter().enumerate();
    let (legend, curves) = named(drawn.map(|(place, (name, points))| (name, Pen::numbered(place), points)));
    Picture {
        title: format!("{}: final loss in nats per target", comparison.name),
        x_label: &comparison.axes[0],
        legend,
        curves,
        x,
        y: y.start - margin..y.end + margin,
    }
    .svg_over(Scale::Logarithmic, Scale::Linear)
    .map(Some)
    .map_err(|message| anyhow!("cannot draw the sweep: {message}"))
}

/// `epsilon-0.5` is 0.5.
fn number_of(name: &str) -> Option<f64> {
    let number = name.rsplit('-').next()?.parse::<f64>().ok()?;
    (number.is_finite() && number > 0.0).then_some(number)
}

fn name(key: &[String]) -> String {
    match key {
        [] => "accuracy.svg".to_owned(),
        _ => format!("accuracy-{}.svg", key.join("-")),
    }
}

fn picture(comparison: &Comparison, key: &[String], rows: &[&Row]) -> anyhow::Result<String> {
    let curves = rows.iter().enumerate().map(|(place, row)| {
        let curve = row.curve.iter();
        let points = curve.map(|&(round, value)| (round as f64, 100.0 * value));
        let name = row.values.last().cloned().unwrap_or_default();
        (name, Pen::numbered(place), points.collect())
    });
    let names = [&[comparison.name.clone()][..], key].concat().join(", ");
    let title = format!("{names}: keyboard top-1, known words, %");
    linear(title, "rounds finished", curves, (1.0, 0.1))
        .map_err(|message| anyhow!("cannot draw the sweep: {message}"))
}
