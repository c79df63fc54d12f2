use serde::Serialize;

use crate::reproduce::{Figure, Rounding, Statement};

/// A recomputed table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Name of the check.
    pub id: &'static str,
    /// The title: the quantities that the table shows.
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
    /// Entries whose printed form is not the paper's, and for which [`Entry::explanation`] says why.
    pub explained: usize,
    /// Entries.
    pub total: usize,
    /// The printed numbers that this table leaves out, each with the reason.
    pub notes: Vec<&'static str>,
    /// Source of [`Entry::paper`] if the paper prints no number; `None` for the paper itself.
    pub reference: Option<&'static str>,
    /// The claims that the paper makes in words about these numbers.
    pub statements: Vec<Statement>,
    /// The recomputed panels, for a check of a figure.
    pub figures: Vec<Figure>,
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
    /// The number that the paper prints, or the [reference](Table::reference) instead.
    pub paper: &'static str,
    /// Ours by the paper's recipe, not rounded.
    pub ours: f64,
    /// Ours in the paper's printed form.
    pub printed: String,
    /// The rule by which the paper rounds to its printed form.
    pub rounding: Rounding,
    /// `true` if `printed` equals `paper`.
    pub matches: bool,
    /// A tighter proof of the same guarantee; `None` where the paper's recipe is exact.
    pub tighter: Option<Tighter>,
    /// Why the printed form cannot come out, for an entry that is known to differ.
    pub explanation: Option<&'static str>,
}

/// A tighter value of the same quantity under the same delta and adjacency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tighter {
    /// The value.
    pub value: f64,
    /// The recipe that computed the value.
    pub recipe: &'static str,
}

impl Entry {
    pub(crate) fn new(
        paper: &'static str,
        ours: f64,
        rounding: Rounding,
        tighter: impl Into<Option<Tighter>>,
    ) -> Self {
        let printed = rounding.print(ours);
        Self {
            paper,
            ours,
            matches: printed == paper,
            printed,
            rounding,
            tighter: tighter.into(),
            explanation: None,
        }
    }

    /// A measured entry that is never compared: the paper's is of another machine.
    pub(crate) fn measured(paper: &'static str, ours: f64, digits: usize, why: &'static str) -> Self {
        let rounding = Rounding::Significant { digits };
        Self {
            matches: false,
            explanation: Some(why),
            ..Self::new(paper, ours, rounding, None)
        }
    }

    /// Says why this entry differs, if there is a reason. One that matches after all is left alone: the explanation is wrong then.
    pub(crate) fn explained(self, why: impl Into<Option<&'static str>>) -> Self {
        Self {
            explanation: why.into().filter(|_| !self.matches),
            ..self
        }
    }
}

impl Table {
    /// Returns `true` if every entry equals the printed number or says why it cannot, and every statement holds.
    #[must_use]
    pub fn reproduces(&self) -> bool {
        let statements = self.statements.iter().all(|statement| statement.holds);
        let anything = self.total > 0 || !self.statements.is_empty();
        anything && self.matched + self.explained == self.total && statements
    }
}
