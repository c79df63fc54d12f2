//! Numbers in the running text of section 2 and appendix A, and in the remark column of Table 1.

use undertone_accounting::participation;

use super::{DELTA, RECIPE, epsilon, tree_rho};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, ReproduceError, Rounding};

pub(crate) const CHECK: Check = Check {
    id: "gboard-text",
    title: "Numbers in the text, delta = 1e-10",
    source: "[Gboard] section 2.2, Table 1 (base model), appendix A",
    recipe: RECIPE,
    body,
};

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let (rounded, cut) = (
        Rounding::Nearest { decimals: 2 },
        Rounding::Truncated { decimals: 0 },
    );
    let largest_gap = |population, report_goal| {
        participation::largest_gap(population, report_goal).map(|gap| gap.get() as f64)
    };
    let rows = [
        (
            "Table 1",
            "rho of the earlier es-ES model: 2000 rounds, MinS 313, MaxP 6",
            Entry::new("0.81", tree_rho(2000, 313, 6)?, rounded, None),
        ),
        (
            "appendix A",
            "epsilon of the smallest rho, 0.25",
            Entry::new("4.49", epsilon(0.25, DELTA)?, rounded, None),
        ),
        (
            "appendix A",
            "epsilon of the largest rho, 1.86",
            Entry::new("13.69", epsilon(1.86, DELTA)?, rounded, None),
        ),
        (
            "section 2.2",
            "separation limit of 10^6 users at report goal 6500",
            Entry::new("153", largest_gap(1_000_000, 6500)?, cut, None),
        ),
        (
            "section 2.2",
            "separation limit of 4.21 M users (es-ES) at report goal 6500",
            Entry::new("647", largest_gap(4_210_000, 6500)?, cut, None),
        ),
    ];
    let rows = rows.into_iter().map(|(place, what, entry)| Row {
        parameters: vec![place.to_owned(), what.to_owned()],
        entries: vec![entry],
    });
    Ok(Body {
        parameters: vec!["place", "quantity"],
        columns: vec!["value".to_owned()],
        rows: rows.collect(),
        notes: Vec::new(),
        ..Body::default()
    })
}
