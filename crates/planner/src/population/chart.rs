//! The curves of a plan as one SVG picture: epsilon or rho, whichever the target names, on a logarithmic axis.

use anyhow::{Context, anyhow};
use undertone_accounting::plan::ProductionSetting;
use undertone_mechanisms::population_plan::{Feasible, Goal, PopulationQuestion};

use undertone_present::curves::{COLOURS, Pen, Picture, named, range};

fn pen(mechanism: ProductionSetting) -> Pen {
    let [tree, blt_100, blt_400, blt_1000, independent, ..] = COLOURS;
    let colour = match mechanism {
        ProductionSetting::Tree => tree,
        ProductionSetting::Blt100 => blt_100,
        ProductionSetting::Blt400 => blt_400,
        ProductionSetting::Blt1000 => blt_1000,
        ProductionSetting::Independent => independent,
    };
    Pen::solid(colour)
}

/// Draws one curve per mechanism, and the target as a dashed line. Empty curves are an error.
pub(super) fn draw(
    question: &PopulationQuestion,
    curves: &[Vec<Feasible>],
    over_rounds: bool,
) -> anyhow::Result<String> {
    let (quantity, target) = match question.target {
        Goal::Epsilon(epsilon) => ("epsilon", epsilon.get()),
        Goal::Rho(rho) => ("rho", rho.get()),
    };
    let point = |option: &Feasible| {
        let x = if over_rounds {
            option.rounds
        } else {
            option.report_goal
        };
        let y = match question.target {
            Goal::Epsilon(_) => option.epsilon.get(),
            Goal::Rho(_) => option.rho.get(),
        };
        (x as f64, y)
    };
    let last = curves
        .iter()
        .find_map(|curve| curve.last())
        .context("cannot draw the plan: it has no curves")?;
    // What lies far from the target is not worth the room.
    let shown = (target * 0.03, target * 30.0);
    let points = || curves.iter().flatten().map(point);
    let x = range(points().map(|point| point.0));
    let y = range(
        points()
            .map(|point| point.1.clamp(shown.0, shown.1))
            .chain([target]),
    );
    let x = x.start..x.end.max(1.1 * x.start);
    let lines = curves.iter().filter_map(|curve| {
        let mechanism = curve.first()?.mechanism;
        let points = curve.iter().map(point).collect();
        Some((mechanism.name().to_owned(), pen(mechanism), points))
    });
    let goal = vec![(x.start, target), (x.end, target)];
    let (legend, lines) = named(lines.chain([("target".to_owned(), Pen::LIMIT, goal)]));
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
            "report goal (noise multiplier in proportion)"
        },
        legend,
        curves: lines,
        x,
        y: y.start / 1.3..y.end * 1.3,
    };
    picture
        .svg()
        .map_err(|message| anyhow!("cannot draw the plan: {message}"))
}

#[cfg(test)]
mod tests {
    use undertone_accounting::{Delta, Rho};

    use super::*;

    #[test]
    fn one_point_is_drawn_and_no_curves_are_refused() {
        let target = Goal::Rho(Rho::new(0.5).unwrap());
        let question = PopulationQuestion::new(100, 1, Delta::new(1e-10).unwrap(), target).unwrap();
        let one = question.over_rounds(ProductionSetting::Tree, 10).unwrap();
        assert!(draw(&question, &[one], true).is_ok());
        assert!(draw(&question, &[], true).is_err());
    }
}
