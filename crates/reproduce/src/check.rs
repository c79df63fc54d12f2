use serde::Serialize;

use crate::table::Row;
use crate::{ReproduceError, Table, dplm};

/// A check that can be run by name.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Check {
    /// Name on the command line.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Paper and place.
    pub source: &'static str,
    /// The paper's way of computing, in words.
    pub recipe: &'static str,
    #[serde(skip)]
    pub(crate) body: fn() -> Result<Body, ReproduceError>,
}

/// The part of a table that a check computes.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) parameters: Vec<&'static str>,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

/// All checks, in the order of the papers.
static CHECKS: [Check; 3] = [dplm::table_1::CHECK, dplm::table_2::CHECK, dplm::text::CHECK];

/// All checks, in the order of the papers.
#[must_use]
pub fn checks() -> &'static [Check] {
    &CHECKS
}

/// Recomputes the table of one check.
///
/// # Errors
/// [`ReproduceError::UnknownCheck`] for a name that [`checks`] does not list.
pub fn run(id: &str) -> Result<Table, ReproduceError> {
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
    } = (check.body)()?;
    let entries = || rows.iter().flat_map(|row| &row.entries);
    Ok(Table {
        id: check.id,
        title: check.title,
        source: check.source,
        recipe: check.recipe,
        matched: entries().filter(|entry| entry.matches).count(),
        total: entries().count(),
        parameters,
        columns,
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &str, total: usize) {
        let table = run(id).unwrap();
        let wrong: Vec<_> = table
            .rows
            .iter()
            .flat_map(|row| &row.entries)
            .filter(|entry| !entry.matches)
            .collect();
        assert!(table.reproduces(), "{id}: {wrong:#?}");
        assert_eq!(table.total, total, "{id}");
        for row in &table.rows {
            assert_eq!(
                (row.parameters.len(), row.entries.len()),
                (table.parameters.len(), table.columns.len())
            );
            for entry in &row.entries {
                assert!(entry.tighter.value <= entry.ours, "{id}: {entry:?}");
            }
        }
    }

    #[test]
    fn dplm_table_1() {
        check("dplm-table-1", 42);
    }

    #[test]
    fn dplm_table_2() {
        check("dplm-table-2", 6);
    }

    #[test]
    fn dplm_text() {
        check("dplm-text", 3);
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        assert_eq!(
            run("dplm-table-9").unwrap_err().to_string(),
            "check: expected one of dplm-table-1, dplm-table-2, dplm-text, got 'dplm-table-9'"
        );
    }

    #[test]
    fn names_are_unique_and_tables_serialize() {
        let mut names: Vec<_> = checks().iter().map(|check| check.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks().len());
        let json = serde_json::to_value(run("dplm-text").unwrap()).unwrap();
        assert_eq!(json["rows"][1]["entries"][0]["paper"], "3.81");
        assert_eq!(json["rows"][1]["entries"][0]["rounding"]["rule"], "truncated");
    }
}
