//! Benchmarks: whole federated clients per CPU second beside the arithmetic peak of the same machine, and CPU seconds of
//! privacy accounting and of optimising strategies, and noise samples per CPU second beside its memory bandwidth.
//!
//! `undertone-lab bench clients --model stackoverflow|dplm [--threads N] [--clients N]` prints one `RESULT {json}` line,
//! `undertone-lab bench accounting [--repeats N] [--only QUESTION]` one for every question of privacy accounting,
//! `undertone-lab bench mechanisms [--repeats N] [--only QUESTION]` one for every strategy optimised
//! (BandMF by name only: `--only band-mf-342-n2052`),
//! `undertone-lab bench noise [--dim N] [--threads N] [--only ITEM]` one for every sampler and stream,
//! `undertone-lab bench secagg [--dim N] [--only ITEM]` one for every part of secure aggregation and for whole sessions,
//! `undertone-lab bench encodings [--log-dim N] [--only ITEM]` one for every transform, sum, packing and encoder, and for a plain sum,
//! `undertone-lab bench transformer [--size SIZE] [--batch N] [--steps N] [--threads N]` one for training steps of a transformer,
//! `undertone-lab bench decode [--sequences N] [--prefix N] [--tokens N]` one for next tokens of a transformer,
//! `undertone-lab bench service [--only ITEM] [--devices N] [--parameters N]` one for every question of the federated service,
//! `undertone-lab bench grouping generate|group|stream` one for a step of grouping text by user.

mod accounting;
mod clients;
mod decode;
mod encodings;
mod grouping;
mod mechanisms;
mod noise;
mod numpy_random;
mod peak;
mod questions;
mod secagg;
mod service;
mod transformer;
mod usage;
mod workload;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Local SGD, clipping and summing of whole clients, one client per thread
    Clients(clients::Arguments),
    /// Privacy accounting, from parameters to a guarantee
    Accounting(questions::Arguments),
    /// Optimising and certifying noise strategies
    Mechanisms(questions::Arguments),
    /// Samplers and noise streams, beside memory bandwidth
    Noise(noise::Arguments),
    /// Secure aggregation: masking, sharing, whole sessions with lost clients
    Secagg(secagg::Arguments),
    /// Transforms, modular sums, packing and encoders for secure sums, beside copy bandwidth
    Encodings(encodings::Arguments),
    /// Training steps of a transformer, plain and clipped by example
    Transformer(transformer::Arguments),
    /// Next tokens of a transformer with a cache, beside memory bandwidth
    Decode(decode::Arguments),
    /// The federated service over sockets, beside raw connections, disks and signatures
    Service(service::Arguments),
    /// The server of a benchmark, in a process of its own
    #[command(hide = true)]
    ServiceHost(service::HostArguments),
    /// Grouping of text by user on disk, and random access to users
    #[command(subcommand)]
    Grouping(grouping::Step),
}

/// Runs one benchmark.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Clients(arguments) => clients::run(&arguments),
        Command::Accounting(arguments) => accounting::run(&arguments),
        Command::Mechanisms(arguments) => mechanisms::run(&arguments),
        Command::Noise(arguments) => noise::run(&arguments),
        Command::Secagg(arguments) => secagg::run(&arguments),
        Command::Encodings(arguments) => encodings::run(&arguments),
        Command::Transformer(arguments) => transformer::run(&arguments),
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Service(arguments) => service::run(&arguments),
        Command::ServiceHost(arguments) => service::run_host(&arguments),
        Command::Grouping(step) => grouping::run(&step),
    }
}
