use serde::Serialize;

use crate::reproduce::table::Row;
use crate::reproduce::{
    Conditions, Figure, ReproduceError, Statement, Table, blt, cpsgd, dplm, gboard, secagg, userdp,
};

/// A check that can be run by name.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Check {
    /// Name on the command line.
    pub id: &'static str,
    /// The result that the check shows.
    pub title: &'static str,
    /// Paper and place.
    pub source: &'static str,
    /// The paper's way of computing, in words.
    pub recipe: &'static str,
    #[serde(skip)]
    pub(crate) body: fn(&Conditions<'_>) -> Result<Body, ReproduceError>,
}

/// The part of a table that a check computes.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) parameters: Vec<&'static str>,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<&'static str>,
    pub(crate) reference: Option<&'static str>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) figures: Vec<Figure>,
}

/// All checks, in the order of the papers.
static CHECKS: [Check; 29] = [
    dplm::table_1::CHECK,
    dplm::table_2::CHECK,
    dplm::text::CHECK,
    gboard::table_1::CHECK,
    gboard::table_2::CHECK,
    gboard::text::CHECK,
    gboard::figure_4::CHECK,
    gboard::algorithm_2::CHECK,
    blt::table_2::CHECK,
    blt::table_3::CHECK,
    blt::table_4::CHECK,
    blt::figure_1::CHECK,
    blt::figure_2::CHECK,
    blt::figure_3::CHECK,
    blt::figure_3::AS_MANY_AS_FIT,
    blt::figure_5::CHECK,
    blt::figure_6::CHECK,
    blt::figure_8::CHECK,
    blt::figure_9::CHECK,
    blt::figure_10::CHECK,
    userdp::figure_1::CHECK,
    userdp::figure_2::CHECK,
    userdp::figure_3::CHECK,
    userdp::lemma_1::CHECK,
    userdp::estimate_and_double::CHECK,
    cpsgd::theorem_1::CHECK,
    cpsgd::figure_1::CHECK,
    cpsgd::figure_2::CHECK,
    secagg::CHECK,
];

/// All checks, in the order of the papers.
#[must_use]
pub fn checks() -> &'static [Check] {
    &CHECKS
}

/// Recomputes the table of one check.
///
/// # Errors
/// [`ReproduceError::UnknownCheck`] for a name that [`checks`] does not list.
pub fn run(id: &str, conditions: &Conditions<'_>) -> Result<Table, ReproduceError> {
    let check = CHECKS
        .iter()
        .find(|check| check.id == id)
        .ok_or_else(|| ReproduceError::UnknownCheck {
            known: CHECKS.map(|check| check.id).join(", "),
            got: id.to_owned(),
        })?;
    let Body {
        parameters,
        columns,
        rows,
        notes,
        reference,
        statements,
        figures,
    } = (check.body)(conditions)?;
    let entries = || rows.iter().flat_map(|row| &row.entries);
    Ok(Table {
        id: check.id,
        title: check.title,
        source: check.source,
        recipe: check.recipe,
        matched: entries().filter(|entry| entry.matches).count(),
        explained: entries().filter(|entry| entry.explanation.is_some()).count(),
        total: entries().count(),
        parameters,
        columns,
        rows,
        notes,
        reference,
        statements,
        figures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Conditions<'static> = Conditions::new(&|| 0.0);

    fn check(id: &str, total: usize, explained: usize) {
        let table = run(id, &QUICK).unwrap();
        let wrong: Vec<_> = table
            .rows
            .iter()
            .flat_map(|row| &row.entries)
            .filter(|entry| !entry.matches && entry.explanation.is_none())
            .collect();
        let fail: Vec<_> = table
            .statements
            .iter()
            .filter(|statement| !statement.holds)
            .collect();
        assert!(table.reproduces(), "{id}: {wrong:#?} {fail:#?}");
        assert_eq!((table.total, table.explained), (total, explained), "{id}");
        assert_eq!(table.matched + table.explained, table.total, "{id}");
        for row in &table.rows {
            assert_eq!(
                (row.parameters.len(), row.entries.len()),
                (table.parameters.len(), table.columns.len())
            );
            for entry in &row.entries {
                let tighter = entry.tighter.map_or(entry.ours, |tighter| tighter.value);
                assert!(tighter <= entry.ours, "{id}: {entry:?}");
            }
        }
    }

    #[test]
    fn dplm_table_1_is_reproduced() {
        check("dplm-table-1", 42, 0);
    }

    #[test]
    fn dplm_table_2_is_reproduced() {
        check("dplm-table-2", 6, 0);
    }

    #[test]
    fn the_text_of_dplm_is_reproduced() {
        check("dplm-text", 3, 0);
    }

    #[test]
    fn gboard_table_1_is_reproduced() {
        check("gboard-table-1", 13, 1);
    }

    #[test]
    fn gboard_table_2_is_reproduced() {
        check("gboard-table-2", 14, 0);
    }

    #[test]
    fn the_text_of_gboard_is_reproduced() {
        check("gboard-text", 5, 0);
    }

    #[test]
    fn gboard_figure_4_is_reproduced() {
        check("gboard-figure-4", 21, 1);
    }

    #[test]
    #[ignore = "slow"]
    fn blt_extrapolation_is_reproduced() {
        check("blt-figure-8", 6, 0);
        check("blt-figure-9", 8, 4);
    }

    #[test]
    fn blt_table_4_is_reproduced() {
        check("blt-table-4", 20, 4);
    }

    #[test]
    fn blt_table_3_losses_are_reproduced() {
        check("blt-table-3-losses", 16, 2);
    }

    #[test]
    #[ignore = "slow"]
    fn the_figures_of_blt_are_reproduced() {
        for id in ["blt-figure-5", "blt-figure-6", "blt-figure-10"] {
            check(id, 0, 0);
            for figure in run(id, &QUICK).unwrap().figures {
                assert!(
                    figure.x.is_sorted() && figure.curves.iter().all(|curve| curve.y.len() == figure.x.len())
                );
            }
        }
    }

    #[test]
    fn gboard_algorithm_2_is_reproduced() {
        check("gboard-algorithm-2", 0, 0);
    }

    #[test]
    #[ignore = "slow"]
    fn theorem_and_figures_of_cpsgd_are_reproduced() {
        check("cpsgd-theorem-1", 14, 0);
        check("cpsgd-figure-1", 0, 0);
        check("cpsgd-figure-2", 0, 0);
    }

    #[test]
    fn secagg_parameters_are_reproduced() {
        check("secagg-parameters", 48, 0);
    }

    #[test]
    #[ignore = "slow"]
    fn userdp_figure_1_is_reproduced() {
        check("userdp-figure-1", 19, 0);
    }

    #[test]
    #[ignore = "slow"]
    fn userdp_els_and_uls_are_reproduced() {
        check("userdp-lemma-1", 0, 0);
        check("userdp-figure-2", 0, 0);
        check("userdp-figure-3", 0, 0);
        check("userdp-estimate-and-double", 0, 0);
    }

    #[test]
    fn an_explanation_needs_a_difference() {
        let rounding = crate::reproduce::Rounding::Nearest { decimals: 1 };
        let entry = crate::reproduce::Entry::new("0.5", 0.52, rounding, None);
        assert_eq!(entry.clone().explained("never").explanation, None);
        let other = crate::reproduce::Entry {
            matches: false,
            ..entry
        };
        assert_eq!(other.explained("why").explanation, Some("why"));
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        assert_eq!(
            run("dplm-table-9", &QUICK).unwrap_err().to_string(),
            "check: expected one of dplm-table-1, dplm-table-2, dplm-text, gboard-table-1, gboard-table-2, \
             gboard-text, gboard-figure-4, gboard-algorithm-2, blt-table-2, blt-table-3-losses, blt-table-4, blt-figure-1, blt-figure-2, \
             blt-figure-3, blt-figure-4, blt-figure-5, blt-figure-6, blt-figure-8, blt-figure-9, blt-figure-10, userdp-figure-1, \
             userdp-figure-2, userdp-figure-3, userdp-lemma-1, userdp-estimate-and-double, cpsgd-theorem-1, cpsgd-figure-1, cpsgd-figure-2, secagg-parameters, got 'dplm-table-9'"
        );
    }

    #[test]
    fn names_are_unique_and_tables_serialize() {
        let mut names: Vec<_> = checks().iter().map(|check| check.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks().len());
        let json = serde_json::to_value(run("dplm-text", &QUICK).unwrap()).unwrap();
        assert_eq!(json["rows"][1]["entries"][0]["paper"], "3.81");
        assert_eq!(json["rows"][1]["entries"][0]["rounding"]["rule"], "truncated");
    }
}
