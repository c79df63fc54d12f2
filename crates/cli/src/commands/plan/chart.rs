//! The curves of a plan as one SVG picture: epsilon or rho, whichever the target names, on a logarithmic axis.

use std::ops::Range;

use anyhow::{Context, anyhow};
use plotters::prelude::*;
use plotters::style::FontTransform;
use undertone_accounting::plan::{Feasible, Mechanism, Question, Target};
use undertone_training::figures::number;

const SIZE: (u32, u32) = (720, 420);
const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xfe);
const INK: RGBColor = RGBColor(0x1c, 0x25, 0x31);
const MUTED: RGBColor = RGBColor(0x6b, 0x75, 0x83);
const GRID: RGBColor = RGBColor(0xe4, 0xe7, 0xec);

fn colour(mechanism: Mechanism) -> RGBColor {
    match mechanism {
        Mechanism::Tree => RGBColor(0x2f, 0x5d, 0x8a),
        Mechanism::Blt100 => RGBColor(0xd9, 0xa0, 0x3c),
        Mechanism::Blt400 => RGBColor(0xc2, 0x6a, 0x2d),
        Mechanism::Blt1000 => RGBColor(0x8c, 0x3f, 0x4f),
        Mechanism::Independent => RGBColor(0x4a, 0x8f, 0x6d),
    }
}

/// Draws one curve a mechanism, and the target as a dashed line. Empty curves are an error.
pub(super) fn draw(
    question: &Question,
    curves: &[Vec<Feasible>],
    over_rounds: bool,
) -> anyhow::Result<String> {
    let (quantity, target) = match question.target {
        Target::Epsilon(epsilon) => ("epsilon", epsilon.get()),
        Target::Rho(rho) => ("rho", rho.get()),
    };
    let point = |option: &Feasible| {
        let x = if over_rounds {
            option.rounds
        } else {
            option.report_goal
        };
        let y = match question.target {
            Target::Epsilon(_) => option.epsilon.get(),
            Target::Rho(_) => option.rho.get(),
        };
        (x as f64, y)
    };
    let last = curves
        .iter()
        .find_map(|curve| curve.last())
        .context("a plan without curves")?;
    // What lies far from the target is not worth the room.
    let shown = (target * 0.03, target * 30.0);
    let points = || curves.iter().flatten().map(point);
    let x = range(points().map(|point| point.0));
    let y = range(
        points()
            .map(|point| point.1.clamp(shown.0, shown.1))
            .chain([target]),
    );
    let (users, rounds) = (question.population, question.rounds);
    let picture = Picture {
        title: if over_rounds {
            format!(
                "{quantity} over rounds, {users} users, report goal {}",
                last.report_goal
            )
        } else {
            format!("{quantity} over report goals, {users} users, {rounds} rounds")
        },
        x_label: if over_rounds {
            "rounds"
        } else {
            "report goal (noise in proportion)"
        },
        curves: curves
            .iter()
            .filter_map(|curve| Some((curve.first()?.mechanism, curve.iter().map(point).collect())))
            .collect(),
        target,
        x: x.start..x.end.max(1.1 * x.start),
        y: y.start / 1.3..y.end * 1.3,
    };
    picture
        .svg()
        .map_err(|message| anyhow!("drawing the plan: {message}"))
}

fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    values.fold(f64::INFINITY..0.0, |range, value| {
        range.start.min(value)..range.end.max(value)
    })
}

struct Picture {
    title: String,
    x_label: &'static str,
    curves: Vec<(Mechanism, Vec<(f64, f64)>)>,
    target: f64,
    x: Range<f64>,
    y: Range<f64>,
}

impl Picture {
    fn svg(&self) -> Result<String, String> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.paint(&root).map_err(|error| error.to_string())?;
            root.present().map_err(|error| error.to_string())?;
        }
        Ok(svg)
    }

    fn paint<'a>(
        &self,
        root: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let text = |size: i32, colour: RGBColor| ("sans-serif", size).into_font().color(&colour);
        root.fill(&PAPER)?;
        root.draw(&Text::new(self.title.as_str(), (16, 14), text(19, INK)))?;
        let names = self
            .curves
            .iter()
            .map(|(mechanism, _)| (mechanism.name(), colour(*mechanism)));
        let mut column = 16;
        for (name, colour) in names.chain([("target", MUTED)]) {
            root.draw(&PathElement::new(
                [(column, 52), (column + 18, 52)],
                colour.stroke_width(2),
            ))?;
            root.draw(&Text::new(name, (column + 24, 45), text(15, MUTED)))?;
            // No font is loaded here: eight units a letter keep entries apart in any common sans-serif face.
            column += 24 + 8 * name.len() as i32 + 18;
        }
        let mut chart = ChartBuilder::on(root)
            .margin_top(74)
            .margin_right(24)
            .margin_bottom(8)
            .x_label_area_size(46)
            .y_label_area_size(62)
            .build_cartesian_2d(self.x.clone().log_scale(), self.y.clone().log_scale())?;
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
        for (mechanism, points) in &self.curves {
            // The stretch inside the picture: plotters draws what lies outside over the labels.
            for run in points.split(|point| !self.y.contains(&point.1)) {
                let line = LineSeries::new(run.iter().copied(), colour(*mechanism).stroke_width(2));
                chart.draw_series(line)?;
            }
        }
        let ends = [(self.x.start, self.target), (self.x.end, self.target)];
        chart.draw_series(DashedLineSeries::new(ends, 6, 4, MUTED.stroke_width(2)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::{Delta, Epsilon, Rho};

    use super::*;

    fn check(target: Target, over_rounds: bool, words: &[&str]) {
        let question = Question::new(1_000_000, 300, Delta::new(1e-10).unwrap(), target).unwrap();
        let curve = |mechanism| {
            if over_rounds {
                question.over_rounds(mechanism, 2000).unwrap()
            } else {
                question.over_report_goals(mechanism, 2000).unwrap()
            }
        };
        let svg = draw(&question, &Mechanism::ALL.map(curve), over_rounds).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for word in words {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.matches("<polyline").count() >= Mechanism::ALL.len());
    }

    #[test]
    fn pictures() {
        let epsilon = Target::Epsilon(Epsilon::new(8.0).unwrap());
        check(
            epsilon,
            false,
            &[
                "epsilon over report goals, 1000000 users, 300 rounds",
                "blt-400",
                "target",
            ],
        );
        let rho = Target::Rho(Rho::new(0.5).unwrap());
        check(
            rho,
            true,
            &["rho over rounds, 1000000 users, report goal 2000", "independent"],
        );
    }

    #[test]
    fn one_point_and_none() {
        let target = Target::Rho(Rho::new(0.5).unwrap());
        let question = Question::new(100, 1, Delta::new(1e-10).unwrap(), target).unwrap();
        let one = question.over_rounds(Mechanism::Tree, 10).unwrap();
        assert!(draw(&question, &[one], true).is_ok());
        assert!(draw(&question, &[], true).is_err());
    }
}
