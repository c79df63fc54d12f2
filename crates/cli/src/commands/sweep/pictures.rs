//! Accuracy over rounds, a picture for each value of the earlier axes.

use anyhow::anyhow;
use undertone_reproduce::Scale;
use undertone_training::sweep::{Comparison, Row};

use crate::commands::plan::picture::{COLOURS, Pen, Picture};

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

fn name(key: &[String]) -> String {
    match key {
        [] => "accuracy.svg".to_owned(),
        _ => format!("accuracy-{}.svg", key.join("-")),
    }
}

fn picture(comparison: &Comparison, key: &[String], rows: &[&Row]) -> anyhow::Result<String> {
    let curves: Vec<(Pen, Vec<(f64, f64)>)> = rows
        .iter()
        .enumerate()
        .map(|(place, row)| {
            let pen = Pen {
                colour: COLOURS[place % COLOURS.len()],
                dashed: place >= COLOURS.len(),
            };
            let points = row
                .curve
                .iter()
                .map(|&(round, value)| (round as f64, 100.0 * value));
            (pen, points.collect())
        })
        .collect();
    let points = || curves.iter().flat_map(|curve| &curve.1);
    let (left, right) = points().fold((f64::INFINITY, 0.0f64), |(left, right), point| {
        (left.min(point.0), right.max(point.0))
    });
    let top = points().map(|point| point.1).fold(0.1, f64::max);
    let legend = rows.iter().zip(&curves);
    Picture {
        title: format!(
            "{}: top-1 in vocabulary, per cent",
            [&[comparison.name.clone()][..], key].concat().join(", ")
        ),
        x_label: "rounds finished",
        legend: legend
            .map(|(row, curve)| (row.values.last().cloned().unwrap_or_default(), curve.0))
            .collect(),
        x: left..right.max(left + 1.0),
        y: 0.0..1.1 * top,
        curves,
    }
    .svg_over(Scale::Linear, Scale::Linear)
    .map_err(|message| anyhow!("drawing the sweep: {message}"))
}
