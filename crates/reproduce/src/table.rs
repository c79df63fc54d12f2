use serde::Serialize;

use crate::Rounding;

/// A recomputed table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Name of the check.
    pub id: &'static str,
    /// What the table shows.
    pub title: &'static str,
    /// Paper and place.
    pub source: &'static str,
    /// The paper's way of computing, in words.
    pub recipe: &'static str,
    /// Names of the parameters that head a row, as many as [`Row::parameters`].
    pub parameters: Vec<&'static str>,
    /// Names of the columns, as many as [`Row::entries`].
    pub columns: Vec<String>,
    /// The rows in the paper's order.
    pub rows: Vec<Row>,
    /// Entries whose printed form is the paper's.
    pub matched: usize,
    /// Entries.
    pub total: usize,
}

/// One row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Parameters as the paper prints them.
    pub parameters: Vec<String>,
    /// One entry a column.
    pub entries: Vec<Entry>,
}

/// One printed number and ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// What the paper prints.
    pub paper: &'static str,
    /// Ours by the paper's recipe, not rounded.
    pub ours: f64,
    /// Ours in the paper's printed form.
    pub printed: String,
    /// How the paper came to its printed form.
    pub rounding: Rounding,
    /// Whether `printed` equals `paper`.
    pub matches: bool,
    /// The same statement, proved more tightly.
    pub tighter: Tighter,
}

/// A tighter value of the same quantity under the same delta and adjacency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tighter {
    /// The value.
    pub value: f64,
    /// How it was computed.
    pub recipe: &'static str,
}

impl Entry {
    pub(crate) fn new(paper: &'static str, ours: f64, rounding: Rounding, tighter: Tighter) -> Self {
        let printed = rounding.print(ours);
        Self {
            paper,
            ours,
            matches: printed == paper,
            printed,
            rounding,
            tighter,
        }
    }
}

impl Table {
    /// Whether every entry comes out as printed.
    #[must_use]
    pub fn reproduces(&self) -> bool {
        self.total > 0 && self.matched == self.total
    }
}
