//! `undertone-lab`: the papers' numbers, reference numbers of other software, and benchmarks.

mod bench;
mod binomial;
mod conformance;
mod mean;
mod output;
mod papers;
/// The allocator of `undertone serve`, for the server of a benchmark.
#[path = "../../crates/cli/src/commands/service/wiping.rs"]
mod wiping;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Output;

/// Reproduce the papers, check Undertone against other software, and measure it.
#[derive(Parser)]
#[command(name = "undertone-lab", version, arg_required_else_help = true)]
struct Arguments {
    /// Print one JSON document instead of tables.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare Undertone with reference numbers that other software computed.
    #[command(subcommand)]
    Conformance(conformance::Command),
    /// Measure speed and memory. Prints one line `RESULT {json}` per question.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Recompute the numbers of the papers and compare them with the printed ones.
    Reproduce(papers::ReproduceArgs),
    /// Estimate the mean of the clients' vectors from quantised and noised messages, with every encoding.
    Mean(Box<mean::MeanArgs>),
    /// State the guarantee of binomial noise on a quantised vector, by the theorem of [cpSGD] and exactly.
    Binomial(binomial::BinomialArgs),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output { json: arguments.json };
    let result = match arguments.command {
        Command::Conformance(command) => conformance::run(&command),
        Command::Bench(command) => bench::run(command).map(|()| true),
        Command::Reproduce(args) => papers::run(args, &output).map(|()| true),
        Command::Mean(args) => mean::run(&args, &output).map(|()| true),
        Command::Binomial(args) => binomial::run(&args, &output).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output.error(&error);
            ExitCode::FAILURE
        }
    }
}
