//! `undertone task bar`: the end of the participation of one person.

use undertone_operate::admin::{Answer, Operation, Receipt};

use super::super::operator::{Missing, perform, unexpected};
use super::DataArgs;
use crate::output::{Output, facts};

/// Arguments of `undertone task bar`.
#[derive(Debug, clap::Args)]
pub(super) struct BarArgs {
    /// Name the person: by the subject that `undertone device status` prints, or by an invitation. With `serve --identity dev` give
    /// name:NAME.
    subject: String,
    #[command(flatten)]
    data: DataArgs,
    /// Name the population.
    #[arg(long, value_name = "NAME")]
    population: String,
    /// Bar the person from this task alone, and not from the population.
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
}

/// Bars a person, and prints the receipt.
pub(super) fn run(args: &BarArgs, output: &Output) -> anyhow::Result<()> {
    let operation = Operation::Bar {
        population: args.population.clone(),
        subject: args.subject.clone(),
        task: args.task.clone(),
    };
    let Answer::Barred(receipts) = perform(&args.data.data, Missing::Refuse, &operation)? else {
        return Err(unexpected());
    };
    output.show(&receipts, || {
        if receipts.is_empty() {
            return facts([
                ("population", args.population.clone()),
                ("the person", "takes part no more".to_owned()),
                ("tasks", "none yet; check the name of the population".to_owned()),
            ]);
        }
        let each: Vec<String> = receipts.iter().map(|receipt| facts(rows(receipt))).collect();
        each.join("\n\n")
    })
}

fn rows(receipt: &Receipt) -> Vec<(&'static str, String)> {
    let rounds: Vec<String> = receipt.rounds.iter().map(ToString::to_string).collect();
    let mut rows = vec![
        ("task", receipt.task.clone()),
        ("state", receipt.state.clone()),
        (
            "the person",
            match (receipt.barred, receipt.state.as_str()) {
                (true, _) => "takes part no more",
                (false, "completed") => "cannot take part, since the task has ended",
                (false, _) if receipt.note.is_some() => "was not barred",
                (false, _) => "was barred before",
            }
            .to_owned(),
        ),
        (
            "rounds",
            match (rounds.is_empty(), &receipt.note) {
                (false, _) => rounds.join(", "),
                (true, None) => "none".to_owned(),
                (true, Some(_)) => "unknown".to_owned(),
            },
        ),
    ];
    match receipt.session.as_str() {
        "ended" => rows.push(("open session", "ended; nothing of it is in a sum".to_owned())),
        "reported" => rows.push((
            "open session",
            "its update was accepted before; it stays in the sum of the open round and counts".to_owned(),
        )),
        _ => {}
    }
    rows.extend(receipt.note.clone().map(|note| ("note", note)));
    rows
}
