//! `undertone task`: the tasks of a service.

use std::path::{Path, PathBuf};

use anyhow::Context;
use undertone_present::numbers::{epsilon_delta, grouped, number, upper_bound};
use undertone_present::table::ruled;
use undertone_service::admin::{Answer, Exported, Figures, Operation, TaskDetails, TaskSummary};

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
    /// List all tasks with their states and rounds.
    List {
        #[command(flatten)]
        data: DataArgs,
    },
    /// Describe a task: its plan, its guarantee so far and its last rounds.
    Show(OneTask),
    /// Start a draft, if its planned epsilon fits into its budget and that of its population.
    Activate(OneTask),
    /// Pause a task. No attempt opens until it is resumed; the open one goes on.
    Pause(WithNote),
    /// Let a paused task go on, or a halted one with a note.
    Resume(WithNote),
    /// End a task for good. Its open attempt is abandoned, and the ledger gets its last line.
    Stop(OneTask),
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
    let (data, missing, operation) = operation(args.command)?;
    let spinner = output.spinner("working");
    let answer = perform(&data.data, missing, &operation);
    spinner.finish_and_clear();
    match answer? {
        Answer::Task(task) => {
            output.show(&task, || facts(summary(&task)))?;
            if let Some(hint) = hint(&operation, &task, &data.data) {
                output.note(&hint);
            }
            Ok(())
        }
        Answer::Tasks(tasks) => output.show(&tasks, || list(&tasks)),
        Answer::Details(details) => output.show(&details, || describe(&details)),
        Answer::Exported(exported) => {
            output.show(&exported, || facts(written(&exported)))?;
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
        Answer::Invitations(_) | Answer::Keys(_) => Err(unexpected()),
    }
}

fn operation(command: TaskCommand) -> anyhow::Result<(DataArgs, Missing, Operation)> {
    let (data, operation) = match command {
        TaskCommand::Create {
            file,
            data,
            population,
        } => {
            let text = super::text(&file)?;
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
        TaskCommand::List { data } => (data, Operation::List),
        TaskCommand::Show(OneTask { task, data }) => (data, Operation::Show { task }),
        TaskCommand::Activate(OneTask { task, data }) => (data, Operation::Activate { task }),
        TaskCommand::Pause(WithNote { task, note }) => {
            let OneTask { task, data } = task;
            (data, Operation::Pause { task, note })
        }
        TaskCommand::Resume(WithNote { task, note }) => {
            let OneTask { task, data } = task;
            (data, Operation::Resume { task, note })
        }
        TaskCommand::Stop(OneTask { task, data }) => (data, Operation::Stop { task }),
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
        Operation::Stop { .. } => Some(format!(
            "write its results with: undertone task export {name} FOLDER --data {data}"
        )),
        _ => None,
    }
}

fn summary(task: &TaskSummary) -> Vec<(&'static str, String)> {
    vec![
        ("task", task.name.clone()),
        ("identifier", task.id.clone()),
        ("population", task.population.clone()),
        ("kind", task.kind.clone()),
        ("state", task.state.clone()),
        ("rounds", rounds(task)),
        ("model", task.model.clone()),
        ("head of the ledger", task.chain.clone()),
    ]
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
    let stated =
        |name: &'static str, found: &Option<Figures>| found.as_ref().map(|found| (name, figures(found)));
    rows.extend(stated("planned guarantee", &details.planned));
    if let Some(max) = details.max_epsilon {
        rows.push(("max epsilon", upper_bound(max)));
    }
    rows.extend(stated("guarantee so far", &details.observed));
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
    rows.extend(
        exported
            .planned
            .as_ref()
            .map(|found| ("planned guarantee", figures(found))),
    );
    rows.extend(
        exported
            .observed
            .as_ref()
            .map(|found| ("guarantee", figures(found))),
    );
    rows
}
