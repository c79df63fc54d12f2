//! The commands of a federated service: its server, its tasks, its people and its devices.

mod backup;
mod demo;
mod descriptors;
mod device;
mod fleet;
mod identity;
mod operator;
#[cfg(feature = "otlp")]
mod otlp;
mod serve;
mod task;
mod wiping;

use clap::Subcommand;

use crate::output::Output;

/// A command of the service.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Serve federated tasks to devices, from one data folder on one machine.
    ///
    /// The server assigns devices to rounds, adds up their updates and releases each round exactly once. Progress goes to standard
    /// error. SIGTERM or Ctrl-C ends it in order: a release is finished, other attempts are abandoned, and their participants count.
    /// The log is JSON, one event per line, unless standard error is a terminal. `UNDERTONE_LOG` chooses its events.
    Serve(Box<serve::ServeArgs>),
    /// Create, plan, start, watch and export the tasks of a service.
    ///
    /// The commands work on the data folder itself, or through the server that has it open.
    Task(task::TaskArgs),
    /// Make backups of a service, rehearse them, and restore one.
    Backup(backup::BackupArgs),
    /// Invite the subjects of a population, revoke devices, and print the keys that devices trust.
    Identity(identity::IdentityArgs),
    /// Enrol this machine as a device of a population, give it text, and take part in rounds.
    Device(Box<device::DeviceArgs>),
    /// Let simulated devices take part in the tasks of a service, with faults and malicious devices where asked for.
    ///
    /// Each device is a real one with keys, memory and texts of its own, and the texts come from a documented process. At the end a
    /// funnel shows how far the sessions came. Keys and draws follow from the seed, so these devices protect nobody.
    Fleet(Box<fleet::FleetArgs>),
}

impl ServiceCommand {
    /// Makes the process ready for what the command holds. Returns `true` for a server whose log a program reads.
    pub(crate) fn prepare(&self) -> bool {
        let serves = matches!(self, Self::Serve(_));
        // PRIVACY: these hold updates, tokens or texts of people.
        if serves || matches!(self, Self::Device(_)) {
            wiping::start();
        }
        if serves {
            wiping::return_free_memory();
        }
        matches!(self, Self::Serve(args) if !args.demo)
    }

    /// Runs the command.
    pub(crate) fn run(self, output: &Output) -> anyhow::Result<()> {
        match self {
            Self::Serve(args) => serve::run(&args, output),
            Self::Task(args) => task::run(args, output),
            Self::Backup(args) => backup::run(args, output),
            Self::Identity(args) => identity::run(args, output),
            Self::Device(args) => device::run(*args, output),
            Self::Fleet(args) => fleet::run(&args, output),
        }
    }
}
