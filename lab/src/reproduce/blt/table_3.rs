//! Table 3: losses of the mechanisms of the simulation. Its accuracies need training and are not here.

use undertone_accounting::participation::Participation;
use undertone_mechanisms::optimize::blt::BltOptimizer;
use undertone_mechanisms::{Losses, Objective, Strategy, Tree, TreeFull, TreeLayout};

use super::contenders::{STAND_IN, banded, blt, losses, schema};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row, Tighter};
use crate::reproduce::{Conditions, ReproduceError, Rounding, Statement};

pub(crate) const CHECK: Check = Check {
    id: "blt-table-3-losses",
    title: "MaxLoss and RmsLoss over 2052 rounds, gap 342, at most 6 participations",
    source: "[BLT] Table 3, whose two loss columns are swapped in print",
    recipe: "error of prefix sums times sensitivity; BLTs of least MaxLoss for k participations, in the interior basin \
             where there are two, evaluated at 6; BandMF of least RmsLoss; TreeAgg-Full: trees of 2048 leaves one after \
             another",
    body,
};

const ROUNDS: usize = 2052;
const GAP: u64 = 342;
const MOST: u64 = 6;

/// Buffers, participations optimised for, and what stands under "RMS Loss" and "Max Loss".
const PRINTED: [(usize, u64, &str, &str); 6] = [
    (2, 1, "11.80", "11.15"),
    (5, 1, "11.40", "10.87"),
    (2, 6, "10.81", "9.34"),
    (3, 6, "10.79", "9.33"),
    (4, 6, "10.79", "9.33"),
    (5, 6, "10.79", "9.33"),
];

const NOT_AT_ITS_MINIMUM: &str = "BandMF: RmsLoss, which it minimises, is the paper's; at the minimum MaxLoss is lower than \
                                  printed, so the paper's matrix was a little short of it";

/// Both basins of one number of buffers.
struct Basins {
    buffers: usize,
    interior: Losses,
    edge: Losses,
}

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let six = schema(GAP, MOST)?;
    let (name, matrix) = banded(conditions, ROUNDS, GAP as usize)?;
    let why = if conditions.slow() {
        NOT_AT_ITS_MINIMUM
    } else {
        STAND_IN
    };
    let band = losses(&matrix, ROUNDS, &six)?;
    let label = if conditions.slow() {
        "BandMF (342 bands)".to_owned()
    } else {
        format!("BandMF (342 bands): {name}")
    };
    let tree = TreeFull::new(ROUNDS, TreeLayout::Trees { leaves: 2048 })?;
    let tree = losses(&Strategy::TreeFull(tree), ROUNDS, &six)?;
    let mut rows = vec![
        row(
            label,
            [("10.21", band.max_loss), ("8.60", band.rms_loss)],
            None,
            why,
        ),
        row(
            "TreeAgg-Full".to_owned(),
            [("14.98", tree.max_loss), ("12.47", tree.rms_loss)],
            None,
            "",
        ),
    ];
    let mut all = vec![band, tree];
    let mut basins = Vec::new();
    for (buffers, most, max_loss, rms_loss) in PRINTED {
        let found = if most == 1 {
            blt(ROUNDS, Participation::single(), Objective::MaxLoss, buffers)?
        } else {
            blt(ROUNDS, six, Objective::MaxLoss, buffers)?
        };
        // For one participation the paper's matrices are the best ones.
        let paper = match &found.interior {
            Some(interior) if most > 1 => interior,
            _ => &found.best,
        };
        let evaluated = losses(&Strategy::Blt(paper.strategy.clone()), ROUNDS, &six)?;
        let better = (most > 1 && found.best.losses.max_loss < evaluated.max_loss).then_some(Tighter {
            value: found.best.losses.max_loss,
            recipe: "best of both basins",
        });
        if let (true, Some(interior), Some(edge)) = (most > 1, &found.interior, &found.edge) {
            basins.push(Basins {
                buffers,
                interior: interior.losses,
                edge: edge.losses,
            });
        }
        all.push(evaluated);
        rows.push(row(
            format!("BLT (nbuf={buffers}, k={most})"),
            [(max_loss, evaluated.max_loss), (rms_loss, evaluated.rms_loss)],
            better,
            "",
        ));
    }
    Ok(Body {
        parameters: vec!["mechanism"],
        columns: vec![
            "MaxLoss (under RMS in print)".to_owned(),
            "RmsLoss (under Max in print)".to_owned(),
        ],
        statements: vec![
            swapped(&rows, &all),
            two_basins(&basins),
            online_tree(tree)?,
            normalised_columns()?,
        ],
        rows,
        notes: vec![
            "not here: the accuracies at epsilon 2 and 8, which need training",
            "where a BLT row carries a third number, its MaxLoss is that of the better basin; the RmsLoss there is higher \
             than in the paper's basin (see the statement below the table)",
        ],
        ..Body::default()
    })
}

fn row(
    label: String,
    [max_loss, rms_loss]: [(&'static str, f64); 2],
    better: Option<Tighter>,
    why: &'static str,
) -> Row {
    let rounding = Rounding::Nearest { decimals: 2 };
    let entry = |(paper, ours), better: Option<Tighter>| {
        let entry = Entry::new(paper, ours, rounding, better);
        entry.explained((!why.is_empty()).then_some(why))
    };
    Row {
        parameters: vec![label],
        entries: vec![entry(max_loss, better), entry(rms_loss, None)],
    }
}

fn swapped(rows: &[Row], losses: &[Losses]) -> Statement {
    let printed = |row: &Row| {
        let [first, second] = row.entries.as_slice() else {
            return false;
        };
        first.paper.parse::<f64>().ok() > second.paper.parse::<f64>().ok()
    };
    let larger = rows.iter().filter(|row| printed(row)).count();
    Statement {
        says: "the headers RMS and Max are swapped in print: a mean square is never above the largest, yet RMS is printed \
               larger in every row",
        found: format!("RMS is printed larger in {larger} of {} rows", rows.len()),
        holds: larger == rows.len() && losses.iter().all(|losses| losses.rms_loss <= losses.max_loss),
    }
}

fn two_basins(basins: &[Basins]) -> Statement {
    let found = basins.iter().map(|basin| {
        let (interior, edge) = (basin.interior, basin.edge);
        format!(
            "{} buffers: interior {:.3}/{:.3}, edge {:.3}/{:.3}",
            basin.buffers, interior.max_loss, interior.rms_loss, edge.max_loss, edge.rms_loss
        )
    });
    let many = basins.iter().filter(|basin| basin.buffers >= 3);
    Statement {
        says: "from 3 buffers on there are two basins: the printed one, and one with a first decay of 1 whose MaxLoss is \
               lower and RmsLoss higher (MaxLoss/RmsLoss)",
        found: found.collect::<Vec<_>>().join("; "),
        holds: many.clone().count() == 3
            && many.into_iter().all(|basin| {
                basin.edge.max_loss < basin.interior.max_loss && basin.edge.rms_loss > basin.interior.rms_loss
            }),
    }
}

fn online_tree(full: Losses) -> Result<Statement, ReproduceError> {
    let online = losses(&Strategy::Tree(Tree::new()), ROUNDS, &schema(GAP, MOST)?)?;
    Ok(Statement {
        says: "TreeAgg in logarithmic memory, as deployed, costs more than TreeAgg-Full",
        found: format!(
            "online decoder {:.2}/{:.2}, full decoder {:.2}/{:.2}",
            online.max_loss, online.rms_loss, full.max_loss, full.rms_loss
        ),
        holds: online.max_loss > full.max_loss && online.rms_loss > full.rms_loss,
    })
}

/// Claim beyond the paper: a BLT of 2 buffers with normalised columns has a smaller `MaxLoss` than every printed BLT.
fn normalised_columns() -> Result<Statement, ReproduceError> {
    let optimizer = BltOptimizer::new(ROUNDS, schema(GAP, MOST)?)?.buffers(2)?;
    let found = optimizer.optimize_normalised()?.best;
    Ok(Statement {
        says: "not in the paper: a BLT of 2 buffers with normalised columns is below every printed BLT's MaxLoss, exactly \
               accounted",
        found: format!(
            "{:.3}/{:.3}, sensitivity {}",
            found.losses.max_loss,
            found.losses.rms_loss,
            if found.sensitivity.exact {
                "exact"
            } else {
                "bounded"
            }
        ),
        holds: found.sensitivity.exact && found.losses.max_loss < 10.785,
    })
}
