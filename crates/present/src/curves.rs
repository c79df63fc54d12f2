//! Curves over logarithmic or linear axes as one SVG picture.

use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::FontTransform;

use crate::chart::{Area, Drawn, GRID, INK, MUTED, document};
use crate::numbers::number;
use crate::scale::Scale;

/// Size of every picture in SVG units; pages scale them.
const SIZE: (u32, u32) = (720, 420);

/// Colours of curves that are told apart by colour.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0x2f, 0x5d, 0x8a),
    RGBColor(0xd9, 0xa0, 0x3c),
    RGBColor(0xc2, 0x6a, 0x2d),
    RGBColor(0x8c, 0x3f, 0x4f),
    RGBColor(0x4a, 0x8f, 0x6d),
    RGBColor(0x7a, 0x5c, 0xa8),
    RGBColor(0x5f, 0xa8, 0xc4),
    RGBColor(0x8a, 0x84, 0x2f),
];

/// The look of a curve.
#[derive(Debug, Clone, Copy)]
pub struct Pen {
    /// Colour of the curve.
    pub colour: RGBColor,
    /// `true` for a dashed curve.
    pub dashed: bool,
}

impl Pen {
    /// The look of a limit or a target: dashed and grey.
    pub const LIMIT: Self = Self {
        colour: MUTED,
        dashed: true,
    };

    /// A solid curve of one colour.
    #[must_use]
    pub const fn solid(colour: RGBColor) -> Self {
        Self {
            colour,
            dashed: false,
        }
    }

    /// The look of the curve at this place of a picture: solid in every colour, then dashed.
    #[must_use]
    pub fn numbered(place: usize) -> Self {
        Self {
            colour: COLOURS[place % COLOURS.len()],
            dashed: place >= COLOURS.len(),
        }
    }
}

/// A curve as points.
pub type Points = Vec<(f64, f64)>;

/// The names of curves with their pens.
pub type Legend = Vec<(String, Pen)>;

/// The legend and the curves of a picture in which every curve has its own name.
#[must_use]
pub fn named(curves: impl IntoIterator<Item = (String, Pen, Points)>) -> (Legend, Vec<(Pen, Points)>) {
    let drawn = curves.into_iter();
    drawn
        .map(|(name, pen, points)| ((name, pen), (pen, points)))
        .unzip()
}

/// Curves in one picture.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    /// Title of the picture.
    pub title: String,
    /// Name of the horizontal axis.
    pub x_label: &'a str,
    /// Names with the look they stand for.
    pub legend: Vec<(String, Pen)>,
    /// Curves as points, with their look.
    pub curves: Vec<(Pen, Points)>,
    /// Range of the horizontal axis.
    pub x: Range<f64>,
    /// Range of the vertical axis. What lies outside is not drawn.
    pub y: Range<f64>,
}

/// The smallest range that holds all values, which must be positive.
pub fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    values.fold(f64::INFINITY..0.0, |range, value| {
        range.start.min(value)..range.end.max(value)
    })
}

/// Curves over logarithmic axes that hold all of their points.
///
/// # Errors
/// The message of the drawing library.
pub fn logarithmic(
    title: String,
    x_label: &str,
    curves: impl IntoIterator<Item = (String, Pen, Points)>,
) -> Drawn {
    let (legend, curves) = named(curves);
    let points = || curves.iter().flat_map(|curve| &curve.1);
    let x = range(points().map(|point| point.0));
    let y = range(points().map(|point| point.1));
    let picture = Picture {
        title,
        x_label,
        legend,
        x: x.start..x.end.max(1.1 * x.start),
        y: y.start / 1.1..y.end * 1.1,
        curves,
    };
    picture.svg()
}

/// Curves over linear axes: the horizontal one is at least `width` wide, the vertical one goes from zero to at least `top`.
///
/// # Errors
/// The message of the drawing library.
pub fn linear(
    title: String,
    x_label: &str,
    curves: impl IntoIterator<Item = (String, Pen, Points)>,
    (width, top): (f64, f64),
) -> Drawn {
    let (legend, curves) = named(curves);
    let points = || curves.iter().flat_map(|curve| &curve.1);
    let (left, right) = points().fold((f64::INFINITY, 0.0f64), |(left, right), point| {
        (left.min(point.0), right.max(point.0))
    });
    let left = left.min(right);
    let top = points().map(|point| point.1).fold(top, f64::max);
    let picture = Picture {
        title,
        x_label,
        legend,
        x: left..right.max(left + width),
        y: 0.0..1.1 * top,
        curves,
    };
    picture.svg_over(Scale::Linear, Scale::Linear)
}

impl Picture<'_> {
    /// The SVG document of the picture over logarithmic axes.
    ///
    /// # Errors
    /// The message of the drawing library.
    pub fn svg(&self) -> Drawn {
        self.svg_over(Scale::Logarithmic, Scale::Logarithmic)
    }

    /// The SVG document of the picture over axes of the given scales.
    ///
    /// # Errors
    /// The message of the drawing library.
    pub fn svg_over(&self, x_scale: Scale, y_scale: Scale) -> Drawn {
        let (x, y) = (self.x.clone(), self.y.clone());
        match (x_scale, y_scale) {
            (Scale::Linear, Scale::Linear) => self.paint_svg(x, y),
            (Scale::Linear, Scale::Logarithmic) => self.paint_svg(x, y.log_scale()),
            (Scale::Logarithmic, Scale::Linear) => self.paint_svg(x.log_scale(), y),
            (Scale::Logarithmic, Scale::Logarithmic) => self.paint_svg(x.log_scale(), y.log_scale()),
        }
    }

    fn paint_svg<X, Y>(&self, x: X, y: Y) -> Result<String, String>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        document(SIZE, |root| {
            self.paint(root, x, y).map_err(|error| error.to_string())
        })
    }

    fn paint<'b, X, Y>(
        &self,
        root: &Area<'b>,
        x: X,
        y: Y,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = |size: i32, colour: RGBColor| ("sans-serif", size).into_font().color(&colour);
        root.draw(&Text::new(self.title.as_str(), (16, 14), text(19, INK)))?;
        let (mut column, mut line) = (16, 52);
        for (name, pen) in &self.legend {
            // No font is loaded here: eight units a letter keep entries apart in any common sans-serif face.
            let width = 24 + 8 * name.chars().count() as i32 + 18;
            if column > 16 && column + width > SIZE.0 as i32 {
                (column, line) = (16, line + 20);
            }
            // A dash and a gap are six units each.
            let dashes = if pen.dashed {
                vec![(0, 6), (12, 18)]
            } else {
                vec![(0, 18)]
            };
            for (from, to) in dashes {
                root.draw(&PathElement::new(
                    [(column + from, line), (column + to, line)],
                    pen.colour.stroke_width(2),
                ))?;
            }
            root.draw(&Text::new(
                name.as_str(),
                (column + 24, line - 7),
                text(15, MUTED),
            ))?;
            column += width;
        }
        let mut chart = ChartBuilder::on(root)
            .margin_top(line + 22)
            .margin_right(24)
            .margin_bottom(8)
            .x_label_area_size(46)
            .y_label_area_size(62)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(1))
            .axis_style(GRID.stroke_width(1))
            .x_labels(12)
            .y_labels(12)
            .label_style(text(15, MUTED))
            .x_desc(self.x_label)
            .axis_desc_style(text(15, MUTED).transform(FontTransform::None))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        for (pen, points) in &self.curves {
            // The stretch inside the picture: plotters draws what lies outside over the labels.
            for run in points.split(|point| !self.y.contains(&point.1)) {
                let (run, style) = (run.iter().copied(), pen.colour.stroke_width(2));
                if pen.dashed {
                    chart.draw_series(DashedLineSeries::new(run, 6, 4, style))?;
                } else {
                    chart.draw_series(LineSeries::new(run, style))?;
                }
            }
        }
        Ok(())
    }
}
