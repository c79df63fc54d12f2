//! Error over bits as a picture: one colour a scheme, the Gaussian as a dashed line.

use anyhow::anyhow;

use super::Comparison;
use super::protocol::Scheme;
use undertone_present::curves::{COLOURS, Pen, Picture, named, range};

pub(super) fn draw(comparison: &Comparison) -> anyhow::Result<String> {
    let on_grid = || {
        comparison
            .rows
            .iter()
            .filter(|row| row.scheme != Scheme::Gaussian)
    };
    let bits = range(on_grid().map(|row| row.message_bits));
    // One abscissa has no width.
    let x = if bits.end > bits.start { bits } else { 1.0..32.0 };
    let mut schemes: Vec<Scheme> = on_grid().map(|row| row.scheme).collect();
    schemes.dedup();
    let mut curves = Vec::new();
    for (scheme, colour) in schemes.into_iter().zip(COLOURS) {
        let mut points: Vec<_> = on_grid()
            .filter(|row| row.scheme == scheme)
            .map(|row| (row.message_bits, row.measured_error))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        curves.push((scheme.name(), Pen::solid(colour), points));
    }
    if let Some(row) = comparison.rows.iter().find(|row| row.scheme == Scheme::Gaussian) {
        let level = vec![(x.start, row.measured_error), (x.end, row.measured_error)];
        curves.push((row.scheme.name(), Pen::LIMIT, level));
    }
    let (legend, curves) = named(curves);
    let y = range(comparison.rows.iter().map(|row| row.measured_error));
    let picture = Picture {
        title: "squared error of the mean over bits per coordinate".to_owned(),
        x_label: "bits of a coordinate in a client's message",
        legend,
        curves,
        x,
        y: y.start / 1.3..y.end * 1.3,
    };
    picture
        .svg()
        .map_err(|message| anyhow!("drawing the picture: {message}"))
}
