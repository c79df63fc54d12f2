//! A question about privacy, and the common way from it to an answer.

use anyhow::{Context, ensure};
use undertone_accounting::{Accountant, Adjacency, Delta, Event, Recipe};
use undertone_present::numbers::upper_bound;

use super::answer::{Answer, Line, Second};
use super::fact::Fact;
use super::options::{Knobs, Quantity, StatedFor, TargetArgs};
use super::statement::{self, Wording};
use super::unit::Unit;
use crate::shown::Shown;

/// The number of users, or of examples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    pub(super) unit: Unit,
    pub(super) number: u64,
}

impl Records {
    /// The warning about a delta that a release of everything about one of the records would meet, too.
    fn warning(self, delta: Delta) -> Option<String> {
        let Self { unit, number } = self;
        (delta.get() * number as f64 >= 1.0).then(|| {
            let (unit, delta) = (unit.name(), upper_bound(delta.get()));
            format!(
                "delta = {delta} is not below 1 / {number}, one over the number of {unit}s: a program that publishes one random \
                 {unit} whole meets it, too; choose a delta far below"
            )
        })
    }
}

/// The second answer of a question about one example: that for all examples of a user.
#[derive(Debug)]
pub(super) struct WholeUser {
    pub(super) max_examples: u32,
    pub(super) events: Vec<(Event, u64)>,
}

/// The events and facts that a question states at given knobs.
#[derive(Debug, Default)]
pub(super) struct Stated {
    /// Events with their numbers of releases.
    pub(super) events: Vec<(Event, u64)>,
    /// The inputs, and the values that follow from them before any epsilon.
    pub(super) facts: Vec<Fact>,
    /// The number of users or examples, where it is known.
    pub(super) records: Option<Records>,
    /// Events about whole users beside those about one example.
    pub(super) whole_user: Option<WholeUser>,
    /// Warnings for the caller.
    pub(super) warnings: Vec<String>,
    /// Facts without which a reader may misread the answer.
    pub(super) notes: Vec<String>,
    /// The words of a statement about the question.
    pub(super) wording: Wording,
}

/// A question: it maps knobs to events, and says which knobs may be searched for.
pub(super) struct Question<'a> {
    /// The question, in a line.
    pub(super) title: &'static str,
    /// The unit of the guarantee; `None` if the caller did not say it.
    pub(super) unit: Option<Unit>,
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
        let state = |accountant: &Accountant| match target {
            StatedFor::AtEpsilon(epsilon) => accountant.delta_for(epsilon),
            StatedFor::AtDelta(delta) | StatedFor::Calibrate(_, (_, delta)) => accountant.guarantee(delta),
        };
        let guarantee = state(&accountant)?;
        let delta = guarantee.delta;
        let whole_user = stated.whole_user.map(|user| {
            let accountant = self.accountant(&user.events)?;
            let guarantee = state(&accountant)?;
            anyhow::Ok(Second {
                max_examples: user.max_examples,
                lower_bound: args.lower_bound(&accountant, &guarantee)?,
                guarantee,
            })
        });
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
        warnings.extend(stated.records.and_then(|records| records.warning(delta)));
        if guarantee.optimal_order.is_some_and(|order| order.at_edge) {
            warnings.push(
                "the best Renyi order is the first or the last of the grid: the bound holds, but a different --recipe may \
                 be tighter"
                    .to_owned(),
            );
        }
        let mut answer = Answer {
            title: self.question.title,
            unit: self.question.unit,
            assumption: self.question.assumption,
            facts: stated.facts,
            calibrated: calibrated.map(Quantity::name),
            lower_bound: args.lower_bound(&accountant, &guarantee)?,
            guarantee,
            whole_user: whole_user.transpose()?,
            table,
            warnings,
            notes: stated.notes,
            other_deltas: Vec::new(),
            statement: None,
        };
        if args.statement() {
            let unit = self.question.unit.context(
                "--statement: expected --unit user or --unit example beside --sampling-probability, got none; a statement names its unit",
            )?;
            answer.other_deltas = statement::other_deltas(&accountant, delta);
            let command = args.asked_again(stated.wording.command.clone()).line();
            answer.statement = Some(statement::paragraph(&answer, unit, &stated.wording, &command));
        }
        Ok(answer)
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
