//! Losses of several mechanisms as one SVG picture of horizontal bars.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use undertone_mechanisms::Objective;

use super::compare::Row;
use undertone_present::chart::{Area, INK, MUTED, document};
use undertone_present::curves::COLOURS;

const WIDTH: u32 = 880;
const TOP: i32 = 78;
/// Height of the bars of one mechanism.
const HEIGHT: i32 = 40;
/// Names end here, bars begin.
const LEFT: i32 = 310;
const RIGHT: i32 = 740;
/// Longest bar over the shortest of its kind: what lies farther off would leave the others no room.
const LONGEST: f64 = 4.0;

/// Draws RmsLoss and MaxLoss of every row, on one linear axis from 0; bars far longer than the others are cut.
pub(super) fn draw(title: &str, rows: &[Row], objective: Objective) -> anyhow::Result<String> {
    let height = TOP + HEIGHT * rows.len() as i32 + 16;
    document((WIDTH, height.unsigned_abs()), |root| {
        paint(root, title, rows, objective).map_err(|error| error.to_string())
    })
    .map_err(|message| anyhow!("cannot draw the comparison: {message}"))
}

fn paint<'a>(
    root: &Area<'a>,
    title: &str,
    rows: &[Row],
    objective: Objective,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    let font = |size: i32, colour: RGBColor| ("sans-serif", size).into_font().color(&colour);
    let place = |x: HPos| Pos::new(x, VPos::Center);
    root.draw(&Text::new(title, (16, 14), font(17, INK)))?;
    let [first, second, ..] = COLOURS;
    let bars = match objective {
        Objective::RmsLoss => [(Objective::RmsLoss, first), (Objective::MaxLoss, second)],
        Objective::MaxLoss => [(Objective::MaxLoss, first), (Objective::RmsLoss, second)],
    };
    for (place, (name, colour)) in bars.iter().enumerate() {
        let x = 16 + 110 * place as i32;
        root.draw(&Rectangle::new([(x, 47), (x + 18, 57)], colour.filled()))?;
        root.draw(&Text::new(name.to_string(), (x + 26, 45), font(15, MUTED)))?;
    }
    let losses = || {
        rows.iter()
            .map(|row| row.losses.max_loss.max(row.losses.rms_loss))
    };
    let min = losses().fold(f64::INFINITY, f64::min);
    let max = losses().fold(f64::MIN_POSITIVE, f64::max).min(LONGEST * min);
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + HEIGHT * index as i32;
        let name = font(14, INK).pos(place(HPos::Right));
        root.draw(&Text::new(
            row.name.as_str(),
            (LEFT - 10, y + HEIGHT / 2 - 3),
            name,
        ))?;
        for (line, (loss, colour)) in bars.iter().enumerate() {
            let value = row.losses.get(*loss);
            let y = y + 3 + 16 * line as i32;
            let end = LEFT + (f64::from(RIGHT - LEFT) * (value / max).min(1.0)).round() as i32;
            root.draw(&Rectangle::new([(LEFT, y), (end, y + 12)], colour.filled()))?;
            let figure = font(13, MUTED).pos(place(HPos::Left));
            let cut = if value > max { " (bar cut)" } else { "" };
            root.draw(&Text::new(format!("{value:.3}{cut}"), (end + 6, y + 6), figure))?;
        }
    }
    Ok(())
}
