#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it does |
//! |---|---|
//! | [`run`] | runs a command line, for the program `undertone` and for the Python package |
//! | [`answer`], [`Answer`] | a command line with the JSON document that it prints, for the Python package |

// Only a server reads its files again.
#![cfg_attr(not(feature = "service"), allow(dead_code))]

mod asked;
mod browser;
mod commands;
mod help;
mod log;
mod output;
mod signals;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use asked::Answer;
#[cfg(feature = "service")]
use commands::service;
use commands::stopped::Stopped;
use commands::{
    advise, audit, data, eval, explain, export, generate, init, lacking, mechanism, personalize, plan,
    planner, predict, pretrain, publish, report, shell, simulate, stopped, sweep, train, verify,
};
use output::Output;
use undertone_planner::account::AccountArgs;

/// Train language models with user-level differential privacy.
///
/// The guarantee of a run bounds what its model can reveal about any one user, under the conditions that the run prints:
/// epsilon, delta, the sampling of users and the relation between neighbouring data sets.
#[derive(Debug, Parser)]
#[command(
    name = "undertone",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Arguments {
    /// Print one JSON document instead of tables and progress bars.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a run file with settings that are known to work.
    ///
    /// The command asks in a terminal, or takes flags. It looks at public and declared facts and at the names of columns, never at
    /// a value of them. The file starts from a public model, and its comments give the reasons. Settings without hope are refused.
    Init(init::InitArgs),
    /// Train a model from a run file, and print its accuracy and its privacy guarantee.
    ///
    /// The run directory holds the model, the ledger of its rounds, the metrics, the guarantee and a report.
    Train(train::RunArgs),
    /// Pre-train a model on public text, without privacy. Private training can start from the result.
    Pretrain(train::TrainArgs),
    /// Train every run of a sweep file (settings and seeds), and compare the runs.
    ///
    /// Runs that were cut off are continued, and finished runs are kept. The comparison shows accuracy with its spread over the
    /// seeds, differences from the first value of the last axis seed by seed, noise and guarantee. The folder of the sweep holds
    /// the runs, comparison.json, comparison.md and pictures of the accuracy over the rounds. Where the values of the first axis
    /// are named by numbers (`epsilon-4`), a picture shows the final loss over these numbers.
    Sweep(sweep::SweepArgs),
    /// Measure the accuracy of a run's final model.
    Eval(eval::EvalArgs),
    /// Write a run's final model for other programs, with its adapters merged.
    ///
    /// The folder holds `model.safetensors`, the run's `vocab.txt` or `tokenizer.json`, and in GPT-2's layout a `config.json`.
    /// The export is computed only from the released model, so the run's guarantee still applies. To start a run from it, set
    /// `initial_model = "FOLDER/model.safetensors"`.
    Export(export::ExportArgs),
    /// Predict the next words of a text with a trained model.
    ///
    /// Without a text, a terminal becomes a keyboard with three suggestions, and shows how many keystrokes they save. Otherwise
    /// each line of standard input is a text. Predictions are computed from the model alone, so the guarantee of its run still applies.
    Predict(predict::PredictArgs),
    /// Continue texts with a trained model.
    ///
    /// The continuations are computed from the model alone, so the guarantee of its run still applies.
    Generate(generate::GenerateArgs),
    /// Train a run's final model separately on each held-out user's text, and measure the gain.
    ///
    /// Each held-out user trains on the first half of their examples and is measured on the other half, before and after.
    /// The run's guarantee does not cover the personalised models, nor the numbers shown: these are exact statistics of the
    /// held-out users.
    Personalize(personalize::PersonalizeArgs),
    /// Compute a privacy guarantee, or find the noise, rounds or sampling that reach one.
    Account(Box<AccountArgs>),
    /// Find how many clients per round, and how much noise, reach a target guarantee; or plan the run of a run file.
    ///
    /// With a run file, the command shows the noise and the guarantee that `undertone train` would plan for --population users. It
    /// opens no text of users, and says what it cannot know without it.
    ///
    /// Without one, it plans a population. The noise multipliers are those of production runs, in proportion to the report goal:
    /// scaling both together keeps utility. With --kinds, matrices are optimised for the given run and compared at equal privacy. The
    /// guarantees hold under zero-out, if the timers of the devices enforce the separation. They assume no sampling.
    Plan(Box<plan::PlanCommand>),
    /// Explain a key of a run file or a task file: its type, its default and its meaning.
    Explain(explain::ExplainArgs),
    /// Write the planner: one page that answers questions about privacy in a browser, without a server.
    ///
    /// The page has the accountant of this program in it. Nothing that is typed into it leaves the browser.
    Planner(planner::PlannerArgs),
    /// Recommend example-level or user-level sampling for a private run, with group size, cohort and noise.
    Advise(advise::AdviseArgs),
    /// Plan and run audits: what an attack of a stated kind and size can show of a run.
    ///
    /// A lower bound below the claim never confirms the claim. The exit status is 0 where nothing contradicts the claim, 3 where
    /// something does, and 1 where the audit could not run.
    Audit(audit::AuditArgs),
    /// Simulate device check-ins without training, and report the guarantees that follow.
    ///
    /// The simulation reports how often and how far apart the devices took part. If the file names a mechanism, it also reports
    /// three guarantees under zero-out: the one that the timers promise, the one that the ledger shows, and the exact one of
    /// the ledger's participations.
    Simulate(Box<simulate::SimulateArgs>),
    /// Optimise, compare and show mechanisms of correlated noise, such as trees, BLT and BandMF.
    Mechanism(mechanism::MechanismArgs),
    /// Import, describe and group text by user, and build vocabularies and tokenizers.
    Data(Box<data::DataArgs>),
    /// Write the report of a run again, and print its summary.
    Report(report::ReportArgs),
    /// Check the claims of a finished run by recomputing them from its files.
    ///
    /// The checks cover the hash chain of the ledger, the clip norm, sensitivity and noise of each round, the participation of
    /// users, the privacy report, the numbers of the metrics that ledger and configuration determine, and the final model. The
    /// command fails and names the places if a claim does not hold.
    Verify(verify::VerifyArgs),
    /// Copy the files of a finished run that are its release to a new folder.
    ///
    /// The folder holds the model, its words, the privacy statement and a public ledger, and no exact statistic of people. The command
    /// verifies the folder from its own files, and refuses a run whose guarantee does not cover all of it.
    Publish(publish::PublishArgs),
    #[cfg(feature = "service")]
    #[command(flatten)]
    Service(service::ServiceCommand),
    /// Print the completions of a shell, for the file that the shell reads.
    ///
    /// For example, `undertone completions bash > ~/.local/share/bash-completion/completions/undertone`.
    Completions(shell::CompletionsArgs),
    /// Write the manual pages of all commands, for `man`.
    ///
    /// For example, `undertone manual ~/.local/share/man/man1` and then `man undertone-train`.
    Manual(shell::ManualArgs),
}

/// Reads the command line.
fn read_arguments(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut program = help::grouped(Arguments::command());
    let mut found = program.try_get_matches_from_mut(words)?;
    Arguments::from_arg_matches_mut(&mut found).map_err(|error| error.format(&mut program))
}

/// Runs a command line, whose first word is the name of the program, and returns the exit status of the process.
///
/// The command prints its result, or its error. It may handle signals of the process, and it keeps what it has started, such as the threads
/// of a server, until it returns.
///
/// # Example
/// ```
/// let words = ["undertone", "account", "gaussian", "--rounds", "1", "--noise-multiplier", "1", "--delta", "1e-6"];
/// assert_eq!(undertone_cli::run(words.map(Into::into)), 0);
/// ```
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    signals::report_full_files();
    let words: Vec<OsString> = words.into_iter().collect();
    let arguments = match read_arguments(&words) {
        Ok(arguments) => arguments,
        Err(error) => return output::of_arguments(&lacking::explained(error)),
    };
    stopped::remember(words);
    #[cfg(feature = "service")]
    let serves = match &arguments.command {
        Command::Service(command) => command.prepare(),
        _ => false,
    };
    #[cfg(not(feature = "service"))]
    let serves = false;
    // A server whose standard error is collected writes events that programs read.
    log::start(serves && !std::io::stderr().is_terminal());
    let output = Output { json: arguments.json };
    let result = perform(arguments.command, &output);
    match result {
        Ok(()) => 0,
        Err(error) if error.is::<Stopped>() => {
            output.stopped(&error);
            signals::status()
        }
        Err(error) => {
            output.error(&error);
            match error.is::<audit::Contradicted>() {
                true => 3,
                false => 1,
            }
        }
    }
}

/// Runs a command line without its first word, and returns the JSON document that it prints with `--json`. Nothing is printed, no signal is
/// handled, and the work uses the threads of the caller. `stop` becomes `true` where the work is to end early: commands that can end in
/// order look at it.
///
/// # Errors
/// The sentence that the program would print.
///
/// # Example
/// ```
/// let words = ["account", "gaussian", "--rounds", "1", "--noise-multiplier", "1", "--delta", "1e-6"];
/// let answer = undertone_cli::answer(words.map(Into::into), Default::default()).unwrap();
/// assert!(answer.document.contains("\"epsilon\": "));
/// assert_eq!(undertone_cli::answer(["quote".into()], Default::default()).is_err(), true);
/// ```
pub fn answer(words: impl IntoIterator<Item = OsString>, stop: Arc<AtomicBool>) -> Result<Answer, String> {
    let words = ["undertone".into(), "--json".into()].into_iter().chain(words);
    let words: Vec<OsString> = words.collect();
    let arguments = read_arguments(&words).map_err(|error| lacking::explained(error).to_string())?;
    let output = Output { json: true };
    let answered = asked::answer(stop, || perform(arguments.command, &output));
    answered.map_err(|error| output::message(&error))
}

/// Runs a command.
fn perform(command: Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Init(args) => init::run(&args, output),
        Command::Train(args) => train::run(args, output),
        Command::Pretrain(args) => pretrain::run(args, output),
        Command::Sweep(args) => sweep::run(&args, output),
        Command::Eval(args) => eval::run(&args, output),
        Command::Export(args) => export::run(&args, output),
        Command::Predict(args) => predict::run(&args, output),
        Command::Generate(args) => generate::run(&args, output),
        Command::Personalize(args) => personalize::run(&args, output),
        Command::Account(args) => args.answer().and_then(|shown| output.print_shown(&shown)),
        Command::Plan(args) => plan::run(&args, output),
        Command::Explain(args) => explain::run(&args, output),
        Command::Planner(args) => planner::run(&args, output),
        Command::Advise(args) => advise::run(&args, output),
        Command::Audit(args) => audit::run(&args, output),
        Command::Simulate(args) => simulate::run(&args, output),
        Command::Mechanism(args) => mechanism::run(args, output),
        Command::Data(args) => data::run(*args, output),
        Command::Report(args) => report::run(args, output),
        Command::Verify(args) => verify::run(&args, output),
        Command::Publish(args) => publish::run(&args, output),
        #[cfg(feature = "service")]
        Command::Service(command) => command.run(output),
        Command::Completions(args) => shell::completions(&args, Arguments::command(), output),
        Command::Manual(args) => shell::manual(&args, Arguments::command(), output),
    }
}
