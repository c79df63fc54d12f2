//! Line and bar charts of a run's report, as SVG documents.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::FontTransform;

/// Size of every picture in SVG units; pages scale them.
const SIZE: (u32, u32) = (600, 340);

/// Background. The style sheet of a page maps this colour, and the others below, to its light or dark counterpart.
const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xfe);
/// Titles.
pub const INK: RGBColor = RGBColor(0x1c, 0x25, 0x31);
/// Labels and legends.
pub const MUTED: RGBColor = RGBColor(0x6b, 0x75, 0x83);
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xe4, 0xe7, 0xec);
/// The first series of a picture.
pub const FIRST: RGBColor = RGBColor(0x2f, 0x5d, 0x8a);
/// The second series of a picture.
pub const SECOND: RGBColor = RGBColor(0xc2, 0x6a, 0x2d);
/// The third series of a picture.
pub const THIRD: RGBColor = RGBColor(0x4a, 0x8f, 0x6d);

/// A series longer than this is drawn as means over equal stretches.
const MAX_POINTS: usize = 600;

/// The look of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line through every value.
    Line,
    /// The values faintly, and a bold moving average through them.
    Smoothed,
    /// A dashed line across the picture at one height.
    Level,
}

/// One named series.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name of the series in the legend.
    pub name: String,
    /// Look of the series.
    pub style: Style,
    /// Colour of the series.
    pub colour: RGBColor,
    /// Points of the series, finite, in the order in which a line visits them.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A series without the points that are not finite.
    #[must_use]
    pub fn new(name: &str, style: Style, colour: RGBColor, points: Vec<(f64, f64)>) -> Self {
        let finite = |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        let points = points.into_iter().filter(finite).collect();
        Self {
            name: name.to_owned(),
            style,
            colour,
            points,
        }
    }

    /// A dashed line at one height. It has no point if the height is not finite.
    #[must_use]
    pub fn level(name: String, colour: RGBColor, height: f64) -> Self {
        let points = if height.is_finite() {
            vec![(0.0, height)]
        } else {
            Vec::new()
        };
        Self {
            name,
            style: Style::Level,
            colour,
            points,
        }
    }
}

/// The text of a value on an axis.
pub type Format = fn(f64) -> String;

/// The text around the data of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Labels {
    /// Title of the picture.
    pub title: &'static str,
    /// Name of the horizontal axis.
    pub x: &'static str,
    /// Text of the values on the horizontal axis.
    pub x_format: Format,
    /// Text of the values on the vertical axis.
    pub y_format: Format,
    /// `true` if the vertical axis starts at zero whatever the data.
    pub from_zero: bool,
}

/// An SVG document, or the message of the drawing library.
pub type Drawn = Result<String, String>;
/// The area of a picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A chart of lines over a common horizontal axis. There is none if no series other than levels has data.
#[must_use]
pub fn lines(labels: &Labels, series: &[Series]) -> Option<Drawn> {
    let moving = || {
        series
            .iter()
            .filter(|s| s.style != Style::Level)
            .flat_map(|s| &s.points)
    };
    let (left, right) = range(moving().map(|p| p.0))?;
    let right = if right > left { right } else { left + 1.0 };
    let (low, high) = range(series.iter().flat_map(|s| &s.points).map(|p| p.1))?;
    let (low, high) = padded(low, high, labels.from_zero);
    Some(document(SIZE, |root| {
        let shown = series.iter().filter(|s| !s.points.is_empty());
        let mut legend: Vec<_> = shown.map(|s| (s.name.as_str(), s.colour, s.style)).collect();
        if legend.len() == 1 {
            // The title says what a single line is.
            legend.clear();
        }
        let mut chart = axes(root, labels, &legend, left..right, low..high)?;
        for s in series {
            draw_series(&mut chart, s, left..right)?;
        }
        Ok(())
    }))
}

/// A chart of bars between explicit edges, with marked places. There is none if all counts are zero.
#[must_use]
pub fn bars(labels: &Labels, edges: &[f64], counts: &[f64], marks: &[(String, f64)]) -> Option<Drawn> {
    let tallest = counts.iter().copied().fold(0.0, f64::max);
    let marked = marks.iter().map(|mark| mark.1);
    let (left, right) = range(edges.iter().copied().chain(marked))?;
    if tallest <= 0.0 || edges.len() != counts.len() + 1 || right <= left {
        return None;
    }
    Some(document(SIZE, |root| {
        let legend: Vec<_> = marks
            .iter()
            .map(|(name, _)| (name.as_str(), SECOND, Style::Level))
            .collect();
        let right = right + (right - left) * 0.02;
        let mut chart = axes(root, labels, &legend, left..right, 0.0..tallest * 1.08)?;
        let bar = |(pair, &count): (&[f64], &f64)| {
            let mut bar = Rectangle::new([(pair[0], 0.0), (pair[1], count)], FIRST.mix(0.85).filled());
            bar.set_margin(0, 0, 1, 1);
            bar
        };
        let filled = edges.windows(2).zip(counts).filter(|(_, count)| **count > 0.0);
        chart
            .draw_series(filled.map(bar))
            .map_err(|error| error.to_string())?;
        for (_, place) in marks {
            dashed(&mut chart, [(*place, 0.0), (*place, tallest * 1.08)], SECOND)?;
        }
        Ok(())
    }))
}

/// The SVG document of a picture of this size in SVG units, on the background that pages map.
///
/// # Errors
/// The message of the drawing library.
pub fn document(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&PAPER).map_err(|error| error.to_string())?;
        draw(&root)?;
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

/// Title, legend and axes; returns the plotting area.
fn axes<'a, 'b>(
    root: &'a Area<'b>,
    labels: &Labels,
    legend: &[(&str, RGBColor, Style)],
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
) -> Result<Chart<'a, 'b>, String> {
    let text = |size: i32, colour: RGBColor| ("sans-serif", size).into_font().color(&colour);
    let say = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    root.draw(&Text::new(labels.title, (16, 14), text(20, INK)))
        .map_err(say)?;
    let mut column = 16;
    for (name, colour, style) in legend {
        let line = |from: i32, to: i32| {
            PathElement::new([(column + from, 50), (column + to, 50)], colour.stroke_width(2))
        };
        if *style == Style::Level {
            root.draw(&line(0, 7))
                .and_then(|()| root.draw(&line(11, 18)))
                .map_err(say)?;
        } else {
            root.draw(&line(0, 18)).map_err(say)?;
        }
        root.draw(&Text::new(*name, (column + 24, 43), text(15, MUTED)))
            .map_err(say)?;
        // No font is loaded here: seven units a letter keep entries apart in any common sans-serif face.
        column += 24 + 7 * name.chars().count() as i32 + 18;
    }
    let mut chart = ChartBuilder::on(root)
        .margin_top(if legend.is_empty() { 48 } else { 72 })
        .margin_right(20)
        .margin_bottom(8)
        .x_label_area_size(46)
        .y_label_area_size(62)
        .build_cartesian_2d(x, y)
        .map_err(say)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(1))
        .axis_style(GRID.stroke_width(1))
        .x_labels(7)
        .y_labels(6)
        .label_style(text(15, MUTED))
        .x_desc(labels.x)
        .axis_desc_style(text(15, MUTED).transform(FontTransform::None))
        .x_label_formatter(&|v| (labels.x_format)(*v))
        .y_label_formatter(&|v| (labels.y_format)(*v))
        .draw()
        .map_err(say)?;
    Ok(chart)
}

fn draw_series(chart: &mut Chart<'_, '_>, series: &Series, x: std::ops::Range<f64>) -> Result<(), String> {
    let say = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let points = thinned(&series.points);
    match series.style {
        Style::Level => {
            for &(_, height) in &points {
                dashed(chart, [(x.start, height), (x.end, height)], series.colour)?;
            }
        }
        Style::Line => {
            if points.len() < 40 {
                let dots = points
                    .iter()
                    .map(|&point| Circle::new(point, 3, series.colour.filled()));
                chart.draw_series(dots).map_err(say)?;
            }
            chart
                .draw_series(LineSeries::new(points, series.colour.stroke_width(2)))
                .map_err(say)?;
        }
        Style::Smoothed => {
            let smooth = moving_average(&points);
            if points.len() == 1 {
                let dot = points
                    .iter()
                    .map(|&point| Circle::new(point, 3, series.colour.filled()));
                chart.draw_series(dot).map_err(say)?;
            }
            chart
                .draw_series(LineSeries::new(points, series.colour.mix(0.35).stroke_width(1)))
                .map_err(say)?;
            chart
                .draw_series(LineSeries::new(smooth, series.colour.stroke_width(2)))
                .map_err(say)?;
        }
    }
    Ok(())
}

fn dashed(chart: &mut Chart<'_, '_>, ends: [(f64, f64); 2], colour: RGBColor) -> Result<(), String> {
    let line = DashedLineSeries::new(ends, 6, 4, colour.stroke_width(2));
    chart
        .draw_series(line)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|v| v.is_finite());
    finite.fold(None, |range: Option<(f64, f64)>, v| {
        Some(range.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
    })
}

/// Room above and below, and a height even for a constant.
fn padded(low: f64, high: f64, from_zero: bool) -> (f64, f64) {
    let low = if from_zero { low.min(0.0) } else { low };
    let room = if high > low {
        (high - low) * 0.08
    } else {
        high.abs().max(1e-12) * 0.5
    };
    (
        if from_zero && low >= 0.0 { 0.0 } else { low - room },
        high + room,
    )
}

fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(MAX_POINTS).max(1);
    points.chunks(stretch).map(mean).collect()
}

fn mean(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len().max(1) as f64;
    (
        points.iter().map(|p| p.0).sum::<f64>() / n,
        points.iter().map(|p| p.1).sum::<f64>() / n,
    )
}

/// Centred means over about a twentieth of the series.
fn moving_average(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = points.len() / 40;
    let window = |i: usize| {
        // Symmetric windows, shorter at the ends: the average does not lag and does not bend.
        let reach = reach.min(i).min(points.len() - 1 - i);
        (points[i].0, mean(&points[i - reach..=i + reach]).1)
    };
    (0..points.len()).map(window).collect()
}
