//! `undertone identity`: the built-in issuer of a service.

use std::path::PathBuf;

use undertone_service::admin::{Answer, Operation};

use super::operator::{Missing, perform, unexpected};
use super::task::DataArgs;
use crate::output::{Output, facts};

/// Arguments of `undertone identity`.
#[derive(Debug, clap::Args)]
pub(crate) struct IdentityArgs {
    #[command(subcommand)]
    command: IdentityCommand,
}

#[derive(Debug, clap::Subcommand)]
enum IdentityCommand {
    /// Print invitations, one per line. Each one lets a new person enrol their devices until it ends.
    ///
    /// An invitation is one subject: devices that enrol with the same invitation count as one person. Send it by a way that nobody else
    /// can read.
    Issue {
        #[command(flatten)]
        data: DataArgs,
        /// Name the population.
        #[arg(long, value_name = "NAME")]
        population: String,
        /// Print this number of invitations.
        #[arg(long, default_value_t = 1)]
        count: u32,
        /// Let them end after this number of days.
        #[arg(long, default_value_t = 7)]
        days: u32,
    },
    /// Revoke the key of a device. It takes part in no later round, and its certificate is not renewed.
    Revoke {
        /// Give the public key of the device, as `undertone device status` prints it.
        device: String,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Print the public keys of the service, which an app compiles in. Write them to a file for `undertone device enrol`.
    Keys {
        #[command(flatten)]
        data: DataArgs,
        /// Write the keys to this file in JSON.
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Performs the operation and shows its answer.
pub(crate) fn run(args: IdentityArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        IdentityCommand::Issue {
            data,
            population,
            count,
            days,
        } => {
            let operation = Operation::Invite {
                population: population.clone(),
                count,
                days,
            };
            let Answer::Invitations(invitations) = perform(&data.data, Missing::Create, &operation)? else {
                return Err(unexpected());
            };
            let document =
                serde_json::json!({ "population": population, "days": days, "invitations": invitations });
            output.show(&document, || invitations.join("\n"))
        }
        IdentityCommand::Revoke { device, data } => {
            let operation = Operation::Revoke {
                device: device.clone(),
            };
            let Answer::Done = perform(&data.data, Missing::Refuse, &operation)? else {
                return Err(unexpected());
            };
            output.show(&serde_json::json!({ "revoked": device }), || {
                facts([("revoked", device.clone())])
            })
        }
        IdentityCommand::Keys { data, out } => {
            let Answer::Keys(keys) = perform(&data.data, Missing::Create, &Operation::Keys)? else {
                return Err(unexpected());
            };
            if let Some(out) = out {
                undertone_run::files::write_json(&out, &keys)?;
            }
            output.show(&keys, || {
                facts([
                    ("board", &keys.board),
                    ("plans", &keys.plans),
                    ("issuer", &keys.issuer),
                ])
            })
        }
    }
}
