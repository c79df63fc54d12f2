//! `undertone`: train language models with user-level differential privacy, and everything around it.
//!
//! This binary is glue: every command reads its arguments, calls a library crate and shows the result.

mod commands;
mod output;
mod signals;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{
    account, advise, data, eval, export, mechanism, personalize, plan, pretrain, report, simulate, sweep,
    train, verify,
};
use output::Output;

/// Train language models on text that belongs to people, so that the model provably reveals almost nothing about any one
/// of them.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    /// Print one JSON document for machines instead of tables and progress bars.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model as a run file says; ends with the model, its accuracy and its guarantee.
    Train(train::RunArgs),
    /// Pre-train a model on public text, without privacy; private training can start from it.
    Pretrain(train::TrainArgs),
    /// Train a run file along axes and over seeds, and compare the runs.
    Sweep(sweep::SweepArgs),
    /// Evaluate the final model of a run.
    Eval(eval::EvalArgs),
    /// Write a run's final model for other programs: GPT-2's layout, adapters merged.
    Export(export::ExportArgs),
    /// Train a run's final model on held-out users' own text, one by one, and measure what that adds.
    Personalize(personalize::PersonalizeArgs),
    /// State or search a privacy guarantee: epsilon, delta, noise, rounds.
    Account(Box<account::AccountArgs>),
    /// From population, rounds and target to feasible report goals, noise and separation.
    Plan(plan::PlanArgs),
    /// Before a private fine-tuning: example-level or user-level sampling, group sizes, cohort and noise.
    Advise(advise::AdviseArgs),
    /// Simulate who takes part in a population of devices with timers, and what guarantee that gives.
    Simulate(Box<simulate::SimulateArgs>),
    /// Optimise, compare and show noise mechanisms: BLT, trees, BandMF and the others.
    Mechanism(mechanism::MechanismArgs),
    /// Import, describe and index user-partitioned text.
    Data(Box<data::DataArgs>),
    /// Make the report of a run again and show its summary.
    Report(report::ReportArgs),
    /// Recompute from a run's files what it claims: ledger, participation, noise, guarantee, model.
    Verify(verify::VerifyArgs),
}

fn main() -> ExitCode {
    signals::report_full_files();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("UNDERTONE_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(|| output::Log)
        .with_ansi(false)
        .without_time()
        .init();
    let output = Output { json: arguments.json };
    let result = match arguments.command {
        Command::Train(args) => train::run(args, &output),
        Command::Pretrain(args) => pretrain::run(args, &output),
        Command::Sweep(args) => sweep::run(&args, &output),
        Command::Eval(args) => eval::run(&args, &output),
        Command::Export(args) => export::run(&args, &output),
        Command::Personalize(args) => personalize::run(&args, &output),
        Command::Account(args) => account::run(*args, &output),
        Command::Plan(args) => plan::run(args, &output),
        Command::Advise(args) => advise::run(&args, &output),
        Command::Simulate(args) => simulate::run(&args, &output),
        Command::Mechanism(args) => mechanism::run(args, &output),
        Command::Data(args) => data::run(*args, &output),
        Command::Report(args) => report::run(args, &output),
        Command::Verify(args) => verify::run(&args, &output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::FAILURE
        }
    }
}
