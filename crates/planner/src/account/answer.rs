//! An answer, for readers and for programs.

use serde_json::{Map, Value, json};
use undertone_accounting::Guarantee;
use undertone_present::numbers::{number, upper_bound};
use undertone_present::table::{facts, grid};

use super::fact::Fact;
use super::unit::{Unit, relation};

/// Everything that one question was answered with.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) title: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) assumption: &'static str,
    pub(super) facts: Vec<Fact>,
    /// The quantity that was searched for.
    pub(super) calibrated: Option<&'static str>,
    pub(super) guarantee: Guarantee,
    /// No mechanism analysis can state less than this epsilon at the guarantee's delta.
    pub(super) lower_bound: Option<f64>,
    /// The guarantee for whole users, beside that for one example.
    pub(super) whole_user: Option<Second>,
    pub(super) table: Vec<Line>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Guarantees at other deltas, for the statement.
    pub(super) other_deltas: Vec<Guarantee>,
    /// A paragraph for a report.
    pub(super) statement: Option<String>,
}

/// The guarantee for a user with at most so many examples.
#[derive(Debug)]
pub(super) struct Second {
    pub(super) max_examples: u32,
    pub(super) guarantee: Guarantee,
    pub(super) lower_bound: Option<f64>,
}

/// Epsilon after a number of rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) rounds: u64,
    pub(super) epsilon: f64,
    pub(super) lower_bound: Option<f64>,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        let Guarantee {
            epsilon,
            delta,
            adjacency,
            recipe,
            optimal_order,
            ..
        } = self.guarantee;
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("epsilon", bounds(epsilon.get(), self.lower_bound));
        row("delta", upper_bound(delta.get()));
        row("adjacency", relation(adjacency, self.unit));
        if let Some(user) = &self.whole_user {
            let Guarantee { epsilon, delta, .. } = user.guarantee;
            let bounds = bounds(epsilon.get(), user.lower_bound);
            row("epsilon, one user", bounds);
            row(
                "delta, one user",
                format!(
                    "{}, for at most {} examples per user",
                    upper_bound(delta.get()),
                    user.max_examples
                ),
            );
        }
        row("sampling", self.assumption.to_owned());
        row("recipe", recipe.to_string());
        if let Some(order) = optimal_order {
            row("best Renyi order", number(order.order));
        }
        for fact in &self.facts {
            let shown = if self.calibrated == Some(fact.name) {
                format!("{} (found for the target)", found(fact))
            } else {
                fact.shown.clone()
            };
            row(&fact.name.replace('-', " "), shown);
        }
        let mut text = match &self.statement {
            Some(statement) => statement.clone(),
            None => format!("{}\n\n{}", self.title, facts(rows)),
        };
        if !self.table.is_empty() {
            text = format!("{text}\n\n{}", lines(&self.table));
        }
        for note in &self.notes {
            text = format!("{text}\n\nnote: {note}");
        }
        for warning in &self.warnings {
            text = format!("{text}\n\nwarning: {warning}");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let inputs: Map<String, Value> = self
            .facts
            .iter()
            .map(|fact| (fact.name.replace('-', "_"), fact.value.clone()))
            .collect();
        let guarantee = &self.guarantee;
        json!({
            "question": self.title,
            "epsilon": guarantee.epsilon,
            "epsilon_lower_bound": self.lower_bound,
            "delta": guarantee.delta,
            "unit": self.unit.map_or("record", Unit::name),
            "whole_user": self.whole_user.as_ref().map(Second::json),
            "adjacency": guarantee.adjacency,
            "sampling": guarantee.sampling,
            "sampling_assumption": self.assumption,
            "recipe": guarantee.recipe,
            "optimal_order": guarantee.optimal_order,
            "calibrated": self.calibrated.map(|name| name.replace('-', "_")),
            "setting": inputs,
            "table": self.table.iter().map(Line::json).collect::<Vec<_>>(),
            "warnings": self.warnings,
            "notes": self.notes,
            "other_deltas": self.other_deltas.iter().map(|other| json!({ "delta": other.delta, "epsilon": other.epsilon })).collect::<Vec<_>>(),
            "statement": self.statement,
        })
    }
}

impl Second {
    fn json(&self) -> Value {
        json!({
            "max_examples_per_user": self.max_examples,
            "epsilon": self.guarantee.epsilon,
            "epsilon_lower_bound": self.lower_bound,
            "delta": self.guarantee.delta,
        })
    }
}

impl Line {
    fn json(&self) -> Value {
        json!({ "rounds": self.rounds, "epsilon": self.epsilon, "epsilon_lower_bound": self.lower_bound })
    }
}

/// An epsilon that is certainly enough, and one that is certainly spent.
fn bounds(epsilon: f64, lower_bound: Option<f64>) -> String {
    let epsilon = upper_bound(epsilon);
    match lower_bound {
        Some(lower) => {
            let lower = lower_figure(lower);
            format!("{epsilon} (upper bound; the true value is at least {lower})")
        }
        None => format!("{epsilon} (upper bound)"),
    }
}

/// Both bounds, as a clause.
pub(super) fn bounds_certain(epsilon: f64, lower_bound: Option<f64>) -> String {
    let enough = upper_bound(epsilon);
    match lower_bound {
        Some(lower) => format!(
            "epsilon {} is certainly spent, and {enough} is certainly enough",
            lower_figure(lower)
        ),
        None => format!("epsilon {enough} is certainly enough, and no lower bound stands beside it"),
    }
}

/// A value that was searched for, rounded to the side that keeps the target.
fn found(fact: &Fact) -> String {
    match (fact.name, fact.value.as_f64()) {
        ("noise-multiplier", Some(value)) => upper_bound(value),
        ("sampling-probability", Some(value)) => lower_figure(value),
        _ => fact.shown.clone(),
    }
}

/// Epsilon over rounds.
fn lines(lines: &[Line]) -> String {
    let bounded = lines.iter().any(|line| line.lower_bound.is_some());
    let header = ["rounds", "epsilon"]
        .into_iter()
        .chain(bounded.then_some("lower bound"));
    let rows = lines.iter().map(|line| {
        let lower = bounded.then(|| line.lower_bound.map_or_else(String::new, lower_figure));
        let cells = [line.rounds.to_string(), upper_bound(line.epsilon)];
        cells.into_iter().chain(lower).collect()
    });
    grid(header, rows, 0)
}

/// Four digits, never more than the value.
fn lower_figure(value: f64) -> String {
    let text = number(value);
    match text.parse::<f64>() {
        Ok(shown) if shown > value => number(shown - 10f64.powf(value.abs().log10().floor() - 3.0)),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_bounds_are_never_rounded_up() {
        let check = |value: f64, shown: &str| assert_eq!(lower_figure(value), shown);
        check(2.1239, "2.123");
        check(2.1231, "2.123");
        check(2.0, "2");
        check(0.0, "0");
        check(0.012_349, "0.01234");
        check(1234.9, "1234");
    }
}
