//! A question about privacy, and the common way from it to an answer.

use anyhow::ensure;
use serde_json::Value;
use undertone_accounting::{Accountant, Adjacency, Delta, Event, Recipe};
use undertone_present::numbers::number;

use super::answer::{Answer, Line};
use super::options::{Knobs, Quantity, StatedFor, TargetArgs};
use crate::shown::Shown;

/// One named fact of a question, for readers and for programs.
#[derive(Debug, Clone)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) shown: String,
    pub(super) value: Value,
}

impl Fact {
    pub(super) fn new(name: &'static str, shown: String, value: impl Into<Value>) -> Self {
        Self {
            name,
            shown,
            value: value.into(),
        }
    }

    /// A whole number.
    pub(super) fn count(name: &'static str, value: u64) -> Self {
        Self::new(name, value.to_string(), value)
    }

    /// A measure, which is shown with four digits.
    pub(super) fn measure(name: &'static str, value: f64) -> Self {
        Self::new(name, number(value), value)
    }
}

/// The events and facts that a question states at given knobs.
#[derive(Debug)]
pub(super) struct Stated {
    /// Events with their numbers of releases.
    pub(super) events: Vec<(Event, u64)>,
    /// The inputs, and the values that follow from them before any epsilon.
    pub(super) facts: Vec<Fact>,
    /// Warnings for the caller.
    pub(super) warnings: Vec<String>,
}

/// A question: it maps knobs to events, and says which knobs may be searched for.
pub(super) struct Question<'a> {
    /// The question, in a line.
    pub(super) title: &'static str,
    /// The assumption about the sampling of users.
    pub(super) assumption: &'static str,
    /// The tightest valid recipe.
    pub(super) recipe: Recipe,
    /// The relation the mechanism is usually stated for; `None` for that of the first event.
    pub(super) adjacency: Option<Adjacency>,
    /// The knobs that the question has.
    pub(super) quantities: &'static [Quantity],
    /// Events, facts and warnings at these knobs.
    pub(super) state: &'a dyn Fn(&Knobs) -> anyhow::Result<Stated>,
}

/// Answers a question at these knobs.
pub(super) fn show(question: &Question<'_>, knobs: &Knobs, args: &TargetArgs) -> anyhow::Result<Shown> {
    let answer = Asked {
        question,
        recipe: args.recipe().unwrap_or(question.recipe),
        adjacency: args.adjacency().or(question.adjacency),
    }
    .answer(knobs, args)?;
    Shown::new(&answer.json(), answer.text())
}

/// A question with the recipe and the relation that it is answered by.
pub(super) struct Asked<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) recipe: Recipe,
    pub(super) adjacency: Option<Adjacency>,
}

impl Asked<'_> {
    fn answer(&self, knobs: &Knobs, args: &TargetArgs) -> anyhow::Result<Answer> {
        let target = args.target()?;
        let (mut knobs, mut calibrated) = (*knobs, None);
        if let StatedFor::Calibrate(quantity, target) = target {
            knobs = self.calibrate(quantity, &knobs, target)?;
            calibrated = Some(quantity);
        }
        let stated = (self.question.state)(&knobs)?;
        let accountant = self.accountant(&stated.events)?;
        let (guarantee, delta) = match target {
            StatedFor::AtEpsilon(epsilon) => {
                let guarantee = accountant.delta_for(epsilon)?;
                (guarantee, guarantee.delta)
            }
            StatedFor::AtDelta(delta) | StatedFor::Calibrate(_, (_, delta)) => {
                (accountant.guarantee(delta)?, delta)
            }
        };
        let mut table = Vec::new();
        if self.question.quantities.contains(&Quantity::Rounds) {
            for rounds in args.table(knobs.rounds()?)?.unwrap_or_default() {
                table.push(self.line(&knobs, rounds, delta, args)?);
            }
        } else {
            ensure!(
                args.table(1)?.is_none(),
                "--table: this command has no number of rounds"
            );
        }
        let mut warnings = stated.warnings;
        if guarantee.optimal_order.is_some_and(|order| order.at_edge) {
            warnings.push(
                "the best Renyi order is the first or the last of the grid: the bound holds, but a different --recipe may \
                 be tighter"
                    .to_owned(),
            );
        }
        Ok(Answer {
            title: self.question.title,
            assumption: self.question.assumption,
            facts: stated.facts,
            calibrated: calibrated.map(Quantity::name),
            lower_bound: args.lower_bound(&accountant, &guarantee)?,
            guarantee,
            table,
            warnings,
        })
    }

    pub(super) fn accountant(&self, events: &[(Event, u64)]) -> anyhow::Result<Accountant> {
        let mut accountant = match self.adjacency {
            Some(adjacency) => Accountant::under(self.recipe, adjacency),
            None => Accountant::new(self.recipe),
        };
        for (event, count) in events {
            accountant.compose(event, *count)?;
        }
        Ok(accountant)
    }

    fn line(&self, knobs: &Knobs, rounds: u64, delta: Delta, args: &TargetArgs) -> anyhow::Result<Line> {
        let knobs = Knobs {
            rounds: Some(rounds),
            ..*knobs
        };
        let accountant = self.accountant(&(self.question.state)(&knobs)?.events)?;
        let guarantee = accountant.guarantee(delta)?;
        Ok(Line {
            rounds,
            epsilon: guarantee.epsilon.get(),
            lower_bound: args.lower_bound(&accountant, &guarantee)?,
        })
    }
}
