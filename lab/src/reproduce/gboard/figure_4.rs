//! Figure 4: population, rounds, report goal and separation against zCDP.

use undertone_accounting::plan::ProductionSetting;
use undertone_accounting::{Delta, Rho};
use undertone_mechanisms::population_plan::{Goal, PopulationQuestion};

use super::{DELTA, table_1, table_2, tree_rho};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Rounding, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "gboard-figure-4",
    title: "zCDP over report goals, rounds and MinS, by the plan's arithmetic",
    source: "[Gboard] Figure 4, section 2.2",
    recipe: "noise multiplier 7 at 6500 clients per round, in proportion to the report goal; gap: population / report goal, \
             rounded down; MaxP: as often as fits; one binary tree, exact; zero-out, no sampling",
    body,
};

/// Clients per round of the production runs.
const REPORT_GOAL: u64 = 6500;

/// Lengths of the curves.
const ROUNDS: [u64; 3] = [1000, 2000, 3000];

/// Report goals of the panels (a) and (b).
const GOALS: [u64; 12] = [
    500, 750, 1000, 1500, 2000, 3000, 4000, 5000, 6500, 8000, 10_000, 13_000,
];

/// MinS of panel (c).
const SEPARATIONS: [u64; 17] = [
    20, 40, 54, 80, 100, 153, 200, 250, 300, 350, 400, 500, 600, 750, 1000, 1500, 2000,
];

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let small = over_goals("zCDP over report goals, a million users", 1_000_000)?;
    let large = over_goals("zCDP over report goals, three million users", 3_000_000)?;
    let separations = over_separations()?;
    let (rows, covered) = tables()?;
    let statements = vec![
        larger_goals(&[&small, &large]),
        separation(&separations),
        fewer_rounds(&[&small, &large, &separations]),
        small_populations(&small),
        covered,
    ];
    Ok(Body {
        parameters: vec!["place", "quantity"],
        columns: vec!["value".to_owned()],
        rows,
        notes: vec![
            "the curves themselves are pictures without printed numbers: lengths and abscissae are ours, the statements are \
             the paper's",
        ],
        statements,
        figures: vec![small, large, separations],
        ..Body::default()
    })
}

/// rho of a plan at a report goal, and with MaxP lowered where it is given.
fn planned(population: u64, rounds: u64, goal: u64, most: Option<u64>) -> Result<f64, ReproduceError> {
    // The target does not enter rho.
    let question =
        PopulationQuestion::new(population, rounds, Delta::new(DELTA)?, Goal::Rho(Rho::new(1.0)?))?;
    let question = match most {
        Some(most) => question.with_max_participation(most)?,
        None => question,
    };
    Ok(question.option(ProductionSetting::Tree, goal)?.rho.get())
}

/// The zCDP parameter rho at 6500 clients per round where at least `min_sep` rounds lie between participations.
fn separated(rounds: u64, min_sep: u64, most: Option<u64>) -> Result<f64, ReproduceError> {
    planned(REPORT_GOAL * (min_sep + 1), rounds, REPORT_GOAL, most)
}

fn over_goals(title: &'static str, population: u64) -> Result<Figure, ReproduceError> {
    panel(
        title,
        "report goal (noise in proportion)",
        &GOALS,
        |rounds, goal| planned(population, rounds, goal, None),
    )
}

fn over_separations() -> Result<Figure, ReproduceError> {
    panel(
        "zCDP over MinS at report goal 6500, worst-case MaxP",
        "MinS",
        &SEPARATIONS,
        |rounds, min_sep| separated(rounds, min_sep, None),
    )
}

fn panel(
    title: &'static str,
    x_label: &'static str,
    x: &[u64],
    rho: impl Fn(u64, u64) -> Result<f64, ReproduceError>,
) -> Result<Figure, ReproduceError> {
    let curve = |rounds: u64| {
        let y = x.iter().map(|x| Ok(Some(rho(rounds, *x)?)));
        Ok(Curve {
            method: "TreeAgg",
            setting: format!("{rounds} rounds"),
            y: y.collect::<Result<_, ReproduceError>>()?,
        })
    };
    Ok(Figure {
        title,
        x_label,
        y_label: "rho",
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        x: x.iter().map(|x| *x as f64).collect(),
        curves: ROUNDS
            .into_iter()
            .map(curve)
            .collect::<Result<_, ReproduceError>>()?,
    })
}

/// The tables' rows through the plan, beside what the tables print; and whether panel (c) bounds them.
fn tables() -> Result<(Vec<Row>, Statement), ReproduceError> {
    let row = |place: &str, quantity: String, entry| Row {
        parameters: vec![place.to_owned(), quantity],
        entries: vec![entry],
    };
    let two = Rounding::Nearest { decimals: 2 };
    let one_client = ProductionSetting::Tree.noise_multiplier(1, 1)?.get();
    let mut rows = vec![row(
        "section 2.2",
        "noise multiplier of 500 clients that keeps the utility of 7 at 6500".to_owned(),
        Entry::new("0.54", 500.0 * one_client, two, None),
    )];
    let mut least_room = f64::INFINITY;
    let first = table_1::PRINTED.iter().map(|row| ("Table 1", *row));
    let second = table_2::PRINTED.iter();
    let second = second
        .map(|&(model, rounds, min_sep, most, rho, _)| ("Table 2", (model, rounds, min_sep, most, rho)));
    for (place, (model, rounds, min_sep, most, paper)) in first.chain(second) {
        let rho = separated(rounds, min_sep, Some(most))?;
        let why = (model == table_1::TWICE_ROUNDED).then_some(table_1::WHY_TWICE_ROUNDED);
        let entry = Entry::new(paper, rho, two, None).explained(why);
        let quantity = format!("rho of {model}: {rounds} rounds, MinS {min_sep}, MaxP {most}");
        rows.push(row(place, quantity, entry));
        least_room = least_room.min(separated(rounds, min_sep, None)? / tree_rho(rounds, min_sep, most)?);
    }
    let statement = Statement {
        says: "worst-case MaxP bounds every run of Tables 1 and 2 (rho of panel (c) at its rounds and MinS over its own)",
        found: format!("at least {least_room:.3} times its own"),
        holds: least_room >= 1.0,
    };
    Ok((rows, statement))
}

/// Values of a curve at two abscissae.
fn pair(figure: &Figure, curve: &Curve, from: u64, to: u64) -> Option<(f64, f64)> {
    let at = |place: u64| {
        let place = figure.x.iter().position(|x| *x == place as f64)?;
        curve.y[place]
    };
    at(from).zip(at(to))
}

fn larger_goals(panels: &[&Figure]) -> Statement {
    let mut largest = 0.0f64;
    for figure in panels {
        for curve in &figure.curves {
            for from in [500, 750, 1000, 1500, 2000, 4000, 5000] {
                let ends = pair(figure, curve, from, 2 * from);
                largest = largest.max(ends.map_or(f64::INFINITY, |(small, large)| large / small));
            }
        }
    }
    Statement {
        says: "a larger report goal generally leads to stronger privacy (every doubling lowers rho, for every population and \
               length)",
        found: format!("a doubled report goal has at most {largest:.3} times the rho"),
        holds: largest < 1.0,
    }
}

fn separation(figure: &Figure) -> Statement {
    let mut rises = 0;
    for curve in &figure.curves {
        rises += curve.y.windows(2).filter(|pair| pair[1] > pair[0]).count();
    }
    let ends = figure.curves.iter().map(|curve| {
        let ends = pair(figure, curve, SEPARATIONS[0], SEPARATIONS[SEPARATIONS.len() - 1]);
        ends.map_or(0.0, |(short, long)| short / long)
    });
    let least = ends.fold(f64::INFINITY, f64::min);
    Statement {
        says: "increasing MinS achieves stronger privacy (rho never rises along panel (c), and falls from end to end)",
        found: format!("{rises} rises; rho falls by a factor of at least {least:.1}"),
        holds: rises == 0 && least > 1.0,
    }
}

fn fewer_rounds(panels: &[&Figure]) -> Statement {
    let mut smallest = f64::INFINITY;
    for figure in panels {
        for lengths in figure.curves.windows(2) {
            for (short, long) in lengths[0].y.iter().zip(&lengths[1].y) {
                smallest = smallest.min(long.zip(*short).map_or(0.0, |(long, short)| long / short));
            }
        }
    }
    Statement {
        says: "the same utility in fewer rounds improves privacy (a thousand rounds more never lower rho, in any panel)",
        found: format!("a thousand rounds more have at least {smallest:.3} times the rho"),
        holds: smallest >= 1.0,
    }
}

fn small_populations(figure: &Figure) -> Statement {
    let longest = figure.curves.last();
    let y = longest.map_or(&[][..], |curve| &curve.y);
    let supported = figure
        .x
        .iter()
        .zip(y)
        .filter(|(goal, _)| **goal <= REPORT_GOAL as f64);
    let least = supported.fold(f64::INFINITY, |least, (_, rho)| least.min(rho.unwrap_or(0.0)));
    Statement {
        says: "strong guarantees are difficult for a million users and 3000 rounds (at report goals up to 6500, rho stays above \
               2, the end of the range of launched models)",
        found: format!("at least {least:.2}"),
        holds: least.is_finite() && least > 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_participation_is_one_path_of_the_tree() {
        // 1023 rounds: the largest complete tree has 512 leaves, 10 levels; z = 7.
        let rho = separated(1023, 1022, None).unwrap();
        assert!((rho - 10.0 / 98.0).abs() < 1e-12, "{rho}");
        // Twice the clients: twice the noise, half of the gap.
        let doubled = planned(2 * REPORT_GOAL * 1023, 1023, 2 * REPORT_GOAL, None).unwrap();
        assert!((doubled - 10.0 / 392.0).abs() < 1e-12, "{doubled}");
    }

    #[test]
    fn statements_can_fail() {
        let over =
            |x: &[u64], rho: fn(u64, u64) -> f64| panel("", "", x, |rounds, x| Ok(rho(rounds, x))).unwrap();
        let goals = |rho| over(&GOALS, rho);
        let separations = |rho| over(&SEPARATIONS, rho);
        let falls: fn(u64, u64) -> f64 = |_, x| 1.0 / x as f64;
        let flat: fn(u64, u64) -> f64 = |_, _| 1.0;

        let [falling, constant] = [goals(falls), goals(flat)];
        assert!(larger_goals(&[&falling, &falling]).holds);
        assert!(!larger_goals(&[&falling, &constant]).holds);
        let late = goals(|_, goal| if goal < 8000 { 1.0 / goal as f64 } else { 1.0 });
        assert!(!larger_goals(&[&late]).holds);

        assert!(separation(&separations(falls)).holds);
        assert!(!separation(&separations(flat)).holds);
        let rise = separations(|_, min_sep| if min_sep == 100 { 1.0 } else { 1.0 / min_sep as f64 });
        assert!(!separation(&rise).holds);

        let [longer, shorter] = [
            goals(|rounds, _| rounds as f64),
            goals(|rounds, _| 1.0 / rounds as f64),
        ];
        assert!(fewer_rounds(&[&constant, &longer]).holds);
        assert!(!fewer_rounds(&[&longer, &shorter]).holds);

        assert!(small_populations(&goals(|rounds, _| if rounds == 3000 { 2.1 } else { 1.0 })).holds);
        assert!(small_populations(&goals(|_, goal| if goal > REPORT_GOAL { 1.0 } else { 2.1 })).holds);
        assert!(!small_populations(&goals(|_, goal| if goal == 5000 { 2.0 } else { 3.0 })).holds);
        assert!(!small_populations(&constant).holds);
    }
}
