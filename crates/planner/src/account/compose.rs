//! `undertone account compose`.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use serde::Deserialize;
use undertone_accounting::{Event, Recipe};

use super::fact::Fact;
use super::options::{Knobs, StatedFor, TargetArgs};
use super::question::{self, Asked, Question, Records, Stated};
use super::statement::Wording;
use super::unit::Unit;
use super::words::Words;
use crate::files::{parsed, text};
use crate::shown::Shown;

/// Arguments of `undertone account compose`.
#[derive(Debug, clap::Args)]
pub(super) struct ComposeArgs {
    /// Read the events from this TOML file: `[[event]]` tables with `kind`, its parameters and `count` (default: 1).
    file: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) fn run(args: &ComposeArgs) -> anyhow::Result<Shown> {
    let events = read(&args.file)?;
    let mut question = Question {
        title: "Composition of events",
        unit: Some(Unit::User),
        assumption: "as each event says",
        recipe: Recipe::Pld,
        adjacency: None,
        quantities: &[],
        state: &|_| state(&args.file, &events),
    };
    if args.target.recipe().is_none() {
        question.recipe = tightest(&question, &events, &args.target)?;
    }
    question::show(&question, &Knobs::default(), &args.target)
}

/// The recipe whose answer is the smallest. Where none has one, the recipe that tells best why.
fn tightest(question: &Question<'_>, events: &[(Event, u64)], target: &TargetArgs) -> anyhow::Result<Recipe> {
    let stated = target.target()?;
    let answer = |recipe| {
        let adjacency = target.adjacency();
        let asked = Asked {
            question,
            recipe,
            adjacency,
        };
        let accountant = asked.accountant(events)?;
        anyhow::Ok(match stated {
            StatedFor::AtEpsilon(epsilon) => accountant.delta_for(epsilon)?.delta.get(),
            StatedFor::AtDelta(delta) | StatedFor::Calibrate(_, (_, delta)) => {
                accountant.guarantee(delta)?.epsilon.get()
            }
        })
    };
    // Of equal answers the first is taken, which has the best lower bound beside it.
    let recipes = [Recipe::ExactGaussian, Recipe::Pld, Recipe::Rdp, Recipe::Zcdp];
    let answers = recipes
        .into_iter()
        .filter_map(|recipe| Some((recipe, answer(recipe).ok()?)));
    let best = answers.min_by(|(_, one), (_, other)| one.total_cmp(other));
    Ok(best.map_or_else(
        || Recipe::best_for(events.iter().map(|(event, _)| event)),
        |(recipe, _)| recipe,
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    event: Vec<toml::Table>,
}

fn read(path: &Path) -> anyhow::Result<Vec<(Event, u64)>> {
    let name = path.display();
    let file: File = parsed(path, &text(path)?, "expected a list of [[event]] tables")?;
    ensure!(
        !file.event.is_empty(),
        "{name}: expected at least one [[event]] table"
    );
    let events = file.event.into_iter().zip(1..).map(|(mut table, number)| {
        let count = table.remove("count").unwrap_or(toml::Value::Integer(1));
        let count = count.as_integer().and_then(|count| u64::try_from(count).ok());
        let count = count.filter(|count| *count > 0).with_context(|| {
            format!("{name}: event {number}: `count`: expected a whole number of at least 1")
        })?;
        let event = event(table).with_context(|| format!("{name}: event {number}"));
        Ok((event?, count))
    });
    events.collect()
}

/// The event of a table.
fn event(table: toml::Table) -> anyhow::Result<Event> {
    ensure!(
        table.get("kind").and_then(toml::Value::as_str) != Some("shuffled"),
        "`kind`: shuffled batches amplify nothing here; expected \"gaussian\" with the number of epochs as count, or \
         \"fixed-size-gaussian\" where each round draws its batch anew"
    );
    Event::deserialize(toml::Value::Table(table))
        .map_err(|error| anyhow!("{}", error.message().replace('\n', " ")))
}

fn state(file: &Path, events: &[(Event, u64)]) -> anyhow::Result<Stated> {
    let entries: Vec<serde_json::Value> = events
        .iter()
        .map(|(event, count)| serde_json::json!({ "count": count, "event": event }))
        .collect();
    let total: u64 = events.iter().map(|(_, count)| count).sum();
    let shown = format!("{total} releases by {} entries of the file", events.len());
    Ok(Stated {
        events: events.to_vec(),
        facts: vec![Fact::new("events", shown, entries.clone())],
        records: events
            .iter()
            .filter_map(|(event, _)| population(event))
            .min()
            .map(|number| Records {
                unit: Unit::User,
                number,
            }),
        notes: notes(events),
        wording: Wording {
            mechanism: format!(
                "a composition of {total} releases: {}{}",
                listed(&entries),
                if has_fixed(events) { FIXED } else { "" }
            ),
            sampling: "The sampling is that which each kind of event names, and it draws users".to_owned(),
            command: Words::of("compose").word(&file.display().to_string()),
        },
        ..Stated::default()
    })
}

/// The events with their fields. A long list ends with the number of those that it leaves out.
fn listed(entries: &[serde_json::Value]) -> String {
    const MOST: usize = 5;
    let mut texts: Vec<String> = entries
        .iter()
        .take(MOST)
        .map(|entry| {
            let event = entry["event"].as_object();
            let kind = entry["event"]["kind"].as_str().unwrap_or_default();
            let fields = event.into_iter().flatten().filter(|(name, _)| *name != "kind");
            let fields: Vec<String> = fields.map(|(name, value)| format!("{name} {value}")).collect();
            match fields.is_empty() {
                true => format!("{} of {kind}", entry["count"]),
                false => format!("{} of {kind} ({})", entry["count"], fields.join(", ")),
            }
        })
        .collect();
    if entries.len() > MOST {
        texts.push(format!("and {} more entries of the file", entries.len() - MOST));
    }
    texts.join("; ")
}

/// The event itself, or the one that it repeats.
fn innermost(event: &Event) -> &Event {
    match event {
        Event::RepeatAndSelect { event, .. } => innermost(event),
        event => event,
    }
}

/// The users that an event counts.
fn population(event: &Event) -> Option<u64> {
    match innermost(event) {
        Event::FixedSizeGaussian { population, .. } | Event::TruncatedPoissonGaussian { population, .. } => {
            Some(*population)
        }
        _ => None,
    }
}

/// The scale of noise that is not relative to one clip norm, for a statement.
const FIXED: &str = ". The noise multiplier of fixed-size-gaussian is relative to the replace-one sensitivity: twice the clip norm \
                     for a sum of clipped updates";

fn has_fixed(events: &[(Event, u64)]) -> bool {
    events
        .iter()
        .any(|(event, _)| matches!(innermost(event), Event::FixedSizeGaussian { .. }))
}

fn notes(events: &[(Event, u64)]) -> Vec<String> {
    let note = has_fixed(events).then(|| {
        "noise_multiplier of fixed-size-gaussian is relative to the replace-one sensitivity, which is twice the clip norm for a sum \
         of clipped updates: noise of standard deviation z clip norms has noise_multiplier z / 2"
            .to_owned()
    });
    note.into_iter().collect()
}
