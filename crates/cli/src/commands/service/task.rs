//! `undertone task`: the tasks of a service.

mod bar;
mod estimate;

use std::path::{Path, PathBuf};

use anyhow::Context;
use undertone_operate::admin::{Answer, Exported, Figures, Operation, TaskDetails, TaskSummary};
use undertone_present::numbers::{epsilon_delta, grouped, number, upper_bound};
use undertone_present::table::ruled;
use undertone_service::metrics::FunnelRow;

use super::operator::{Missing, perform, unexpected};
use crate::output::{Output, facts};

/// Arguments of `undertone task`.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    command: TaskCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TaskCommand {
    /// Create a task as a draft from a task file. Nothing starts before `undertone task activate`.
    ///
    /// The noise is optimised now, the plan is signed, and the guarantee of all rounds is shown.
    Create {
        /// Read the task file (TOML) from this path. `examples/federated.toml` is one.
        file: PathBuf,
        #[command(flatten)]
        data: DataArgs,
        /// Name the population: up to 100 letters, digits, dots, hyphens and underscores.
        #[arg(long, value_name = "NAME")]
        population: String,
    },
    /// Estimate a task before it starts: days, devices, epsilon, bytes, processor time, and the server that it needs.
    ///
    /// The command plans the noise as `create` does, and refuses a task that cannot be done, with the reasons. Training is timed on
    /// this machine. `docs/guide/size-a-service.md` states each formula.
    Estimate(Box<estimate::EstimateArgs>),
    /// List all tasks with their states and rounds.
    List {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Describe a task: its plan, its guarantee so far and its last rounds.
    Show(OneTask),
    /// Show how far devices came since the server's start, by the version of the app: from check-in to release.
    ///
    /// Counts move in steps of ten, and counts below ten are not shown. The server must run.
    Funnel(OneTask),
    /// Start a draft, if its planned epsilon fits into its budget and that of its population.
    Activate(OneTask),
    /// Pause a task. No attempt opens until it is resumed; the open one goes on.
    Pause(WithNote),
    /// Let a paused task go on, or a halted one with a note.
    Resume(WithNote),
    /// End a task for good. Its open attempt is abandoned, and the ledger gets its last line.
    Stop {
        #[command(flatten)]
        task: OneTask,
        /// Destroy the key of the task's pseudonyms too, as `undertone task forget` does.
        #[arg(long)]
        forget: bool,
    },
    /// End the participation of one person in a population, in tasks of now and later, and print the rounds that they were in.
    ///
    /// No session of the person opens any more, and an open one ends, unless its update is already in the sum. Released models stay.
    /// The receipt links a person and rounds: give it to that person alone.
    Bar(bar::BarArgs),
    /// Destroy the key of the pseudonyms of a task that has ended, and its rows about people. Nobody can then link a person and its ledger.
    ///
    /// Backups from before still hold the key, sealed under the key file: delete them too. The export and its checks need no key.
    Forget(OneTask),
    /// Let devices predict with an earlier release of a task. Sessions train the newest one all the same.
    ///
    /// The boards name the pinned release until `undertone task unpin`. A device that holds a model of the task loads it in its next session.
    Pin {
        #[command(flatten)]
        task: OneTask,
        /// Pin the model after this number of releases; 0 is the initial model.
        round: u64,
    },
    /// Let devices predict with the newest release again.
    Unpin(OneTask),
    /// Delete a task that has ended: its models, the states of its noise and its ledger. Export it before.
    ///
    /// Its settings stay, since its epsilon counts for the budget of the population, and so does its name. Blobs of other tasks stay.
    Delete(OneTask),
    /// Write the directory of a task that has ended. `undertone verify` checks its claims.
    Export {
        #[command(flatten)]
        task: OneTask,
        /// Write this directory, which must not exist.
        folder: PathBuf,
    },
    /// Set the budget of a population: a max epsilon for all of its tasks together.
    ///
    /// Every later activation adds up the plans of all tasks that have begun, and refuses a task beyond the budget.
    Budget {
        #[command(flatten)]
        data: DataArgs,
        /// Name the population.
        #[arg(long, value_name = "NAME")]
        population: String,
        /// Set the max epsilon of all tasks together.
        #[arg(long, value_name = "EPSILON")]
        max_epsilon: f64,
        /// Set the delta of that epsilon (for example 1e-6).
        #[arg(long)]
        delta: f64,
    },
}

/// The data folder.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// Use the service in this data folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
}

#[derive(Debug, clap::Args)]
struct OneTask {
    /// Name the task, or give the first 8 or more digits of its identifier.
    task: String,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Debug, clap::Args)]
struct WithNote {
    #[command(flatten)]
    task: OneTask,
    /// Give a reason for the audit log.
    #[arg(long, default_value = "")]
    note: String,
}

/// Performs the operation and shows its answer.
pub(crate) fn run(args: TaskArgs, output: &Output) -> anyhow::Result<()> {
    match &args.command {
        TaskCommand::Estimate(args) => return estimate::run(args, output),
        TaskCommand::Bar(args) => return bar::run(args, output),
        _ => {}
    }
    let forget = matches!(args.command, TaskCommand::Stop { forget: true, .. });
    let (data, missing, operation) = operation(args.command)?;
    let spinner = output.spinner("working");
    let mut answer = perform(&data.data, missing, &operation);
    if let (Ok(Answer::Task(task)), true) = (&answer, forget) {
        let task = task.id.clone();
        answer = perform(&data.data, missing, &Operation::Forget { task });
    }
    spinner.finish_and_clear();
    match answer? {
        Answer::Task(task) => {
            output.show(&task, || facts(summary(&task)))?;
            task.warning.iter().for_each(|warning| output.warn(warning));
            if let Some(hint) = hint(&operation, &task, &data.data) {
                output.note(&hint);
            }
            Ok(())
        }
        Answer::Tasks(tasks) => output.show(&tasks, || list(&tasks)),
        Answer::Funnel(rows) => output.show(&rows, || funnel(&rows)),
        Answer::Details(details) => {
            output.show(&details, || describe(&details))?;
            let sentences = details.summary.warning.iter().chain(&details.one_word);
            sentences.for_each(|sentence| output.warn(sentence));
            Ok(())
        }
        Answer::Exported(exported) => {
            output.show(&exported, || facts(written(&exported)))?;
            output.warn_of(&exported.obstacles);
            let sentences = exported.warning.iter().chain(&exported.one_word);
            sentences.for_each(|sentence| output.warn(sentence));
            output.note(&format!(
                "check its claims with: undertone verify {}",
                exported.folder.display()
            ));
            Ok(())
        }
        Answer::Done => {
            let Operation::Budget {
                population,
                max_epsilon,
                delta,
            } = &operation
            else {
                return Err(unexpected());
            };
            let set =
                serde_json::json!({ "population": population, "max_epsilon": max_epsilon, "delta": delta });
            output.show(&set, || {
                facts([
                    ("population", population.clone()),
                    ("budget", epsilon_delta(*max_epsilon, *delta)),
                ])
            })
        }
        Answer::Invitations(_)
        | Answer::Keys(_)
        | Answer::Rotated(_)
        | Answer::Departed(_)
        | Answer::Barred(_)
        | Answer::Saved(_) => Err(unexpected()),
    }
}

fn operation(command: TaskCommand) -> anyhow::Result<(DataArgs, Missing, Operation)> {
    let (data, operation) = match command {
        TaskCommand::Create {
            file,
            data,
            population,
        } => {
            let text = crate::commands::text(&file)?;
            // The server that performs it may run in another folder.
            let path = absolute(&file)?;
            let operation = Operation::Create {
                text,
                path,
                population,
            };
            return Ok((data, Missing::Create, operation));
        }
        TaskCommand::Budget {
            data,
            population,
            max_epsilon,
            delta,
        } => {
            let operation = Operation::Budget {
                population,
                max_epsilon,
                delta,
            };
            return Ok((data, Missing::Create, operation));
        }
        // It is no operation of a service.
        TaskCommand::Estimate(_) => return Err(unexpected()),
        TaskCommand::List { data } => (data, Operation::List),
        TaskCommand::Show(OneTask { task, data }) => (data, Operation::Show { task }),
        TaskCommand::Funnel(OneTask { task, data }) => (data, Operation::Funnel { task }),
        TaskCommand::Activate(OneTask { task, data }) => (data, Operation::Activate { task }),
        TaskCommand::Pause(WithNote { task, note }) => {
            let OneTask { task, data } = task;
            (data, Operation::Pause { task, note })
        }
        TaskCommand::Resume(WithNote { task, note }) => {
            let OneTask { task, data } = task;
            (data, Operation::Resume { task, note })
        }
        TaskCommand::Stop { task, .. } => {
            let OneTask { task, data } = task;
            (data, Operation::Stop { task })
        }
        TaskCommand::Forget(OneTask { task, data }) => (data, Operation::Forget { task }),
        TaskCommand::Pin { task, round } => {
            let OneTask { task, data } = task;
            let round = Some(round);
            (data, Operation::Pin { task, round })
        }
        TaskCommand::Unpin(OneTask { task, data }) => (data, Operation::Pin { task, round: None }),
        TaskCommand::Delete(OneTask { task, data }) => (data, Operation::Delete { task }),
        // It shows an answer of its own.
        TaskCommand::Bar(_) => return Err(unexpected()),
        TaskCommand::Export { task, folder } => {
            let OneTask { task, data } = task;
            let folder = absolute(&folder)?;
            (data, Operation::Export { task, folder })
        }
    };
    Ok((data, Missing::Refuse, operation))
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot find the place of {}", path.display()))
}

/// The next step of the operator.
fn hint(operation: &Operation, task: &TaskSummary, data: &Path) -> Option<String> {
    let (name, data) = (&task.name, data.display());
    match operation {
        Operation::Create { .. } => Some(format!(
            "see its plan with `undertone task show {name} --data {data}`, start it with `undertone task activate {name} --data {data}`"
        )),
        Operation::Activate { .. } => Some(format!("serve it with: undertone serve --data {data}")),
        Operation::Forget { .. } => {
            Some("the key of the pseudonyms is destroyed; backups from before still hold it".to_owned())
        }
        Operation::Delete { .. } => Some(
            "its models and its ledger are deleted; its epsilon still counts for the budget of the population".to_owned(),
        ),
        Operation::Stop { .. } => Some(format!(
            "write its results with: undertone task export {name} FOLDER --data {data}"
        )),
        _ => None,
    }
}

fn summary(task: &TaskSummary) -> Vec<(&'static str, String)> {
    let pinned = task
        .pinned
        .map(|round| ("pinned", format!("the model after {} releases", grouped(round))));
    let mut rows = vec![
        ("task", task.name.clone()),
        ("identifier", task.id.clone()),
        ("population", task.population.clone()),
        ("kind", task.kind.clone()),
        ("state", task.state.clone()),
        ("rounds", rounds(task)),
        ("model", task.model.clone()),
        ("head of the ledger", task.chain.clone()),
    ];
    rows.extend(pinned);
    rows
}

fn rounds(task: &TaskSummary) -> String {
    format!("{} of {} released", grouped(task.released), grouped(task.rounds))
}

fn list(tasks: &[TaskSummary]) -> String {
    if tasks.is_empty() {
        return "There are no tasks; create one with `undertone task create`.".to_owned();
    }
    let head = ["task", "population", "kind", "state", "rounds", "identifier"];
    let rows = tasks.iter().map(|task| {
        vec![
            task.name.clone(),
            task.population.clone(),
            task.kind.clone(),
            task.state.clone(),
            rounds(task),
            task.id.chars().take(16).collect(),
        ]
    });
    ruled(head, rows, 5)
}

/// One row per version. A count that is not shown is below ten.
fn funnel(rows: &[FunnelRow]) -> String {
    if rows.is_empty() {
        return "Fewer than 10 devices have asked for this task since the start of the server.".to_owned();
    }
    let head = [
        "version", "asked", "too old", "refused", "no place", "assigned", "ready", "reported", "included",
    ];
    let cell = |count: Option<u64>| count.map_or_else(|| "< 10".to_owned(), grouped);
    let lines = rows.iter().map(|row| {
        let version = row
            .version
            .map_or_else(|| "others".to_owned(), |version| version.to_string());
        let counts = [
            row.asked,
            row.too_old,
            row.refused,
            row.no_place,
            row.assigned,
            row.ready,
            row.reported,
            row.included,
        ];
        std::iter::once(version).chain(counts.map(cell)).collect()
    });
    ruled(head, lines, 0)
}

fn figures(figures: &Figures) -> String {
    let rho = figures
        .rho
        .map_or_else(String::new, |rho| format!(", {}-zCDP", number(rho)));
    format!(
        "{}, {}{rho}",
        epsilon_delta(figures.epsilon, figures.delta),
        figures.adjacency
    )
}

/// The row of a guarantee, where there is one.
fn stated(name: &'static str, found: Option<&Figures>) -> Option<(&'static str, String)> {
    found.map(|found| (name, figures(found)))
}

fn describe(details: &TaskDetails) -> String {
    let mut rows = summary(&details.summary);
    rows.extend([
        ("identity", details.identity.clone()),
        ("sum", details.sum.clone()),
        (
            "devices per round",
            format!(
                "{} wanted, at least {}, up to {} at one time",
                grouped(details.goal),
                grouped(details.floor),
                grouped(details.sessions)
            ),
        ),
        (
            "participation",
            format!(
                "at least {} rounds apart, at most {} times per subject",
                grouped(details.min_sep),
                grouped(details.max_part)
            ),
        ),
        ("parameters", grouped(details.parameters)),
    ]);
    rows.extend(stated("planned guarantee", details.planned.as_ref()));
    if let Some(max) = details.max_epsilon {
        rows.push(("max epsilon", upper_bound(max)));
    }
    rows.extend(stated("guarantee so far", details.observed.as_ref()));
    let subjects = details.subjects.map_or("fewer than 10".to_owned(), grouped);
    rows.push(("subjects so far", subjects));
    if details.abandoned > 0 {
        rows.push((
            "abandoned attempts",
            format!("{} since the last release", details.abandoned),
        ));
    }
    for round in &details.last_rounds {
        let text = format!(
            "round {}: {} devices, norm {}, {} s",
            round.round,
            grouped(round.included),
            number(round.release_norm),
            number(round.seconds)
        );
        rows.push(("released", text));
    }
    facts(rows)
}

fn written(exported: &Exported) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("directory", exported.folder.display().to_string()),
        ("task", exported.task.clone()),
        ("rounds", grouped(exported.rounds)),
    ];
    rows.extend(stated("planned guarantee", exported.planned.as_ref()));
    rows.extend(stated("guarantee", exported.claimed.as_ref()));
    if exported.claimed != exported.observed {
        rows.extend(stated(
            "of the rounds that were made, on a condition",
            exported.observed.as_ref(),
        ));
    }
    rows
}
