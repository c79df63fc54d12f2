//! `undertone identity`: the built-in issuer of a service.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use undertone_operate::admin::{Answer, KeyRow, Operation, RotationStep};
use undertone_run_directory::files;

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
    /// Withdraw an invitation. It enrols no device any more; devices that it has enrolled go on.
    Withdraw {
        /// Give the invitation, or its person, as `undertone device status` prints it.
        invitation: String,
        #[command(flatten)]
        data: DataArgs,
        /// Name the population.
        #[arg(long, value_name = "NAME")]
        population: String,
    },
    /// Revoke the key of a device, or a person with all devices. Nothing revoked takes part in a later round, or renews its certificate.
    ///
    /// The invitation of a revoked device enrols no other one: invite the person anew.
    Revoke {
        /// Give the public key of the device, as `undertone device status` prints it.
        #[arg(required_unless_present = "person", conflicts_with = "person")]
        device: Option<String>,
        /// Revoke this person with all devices, of now and later: the line `person` of `undertone device status`, or the invitation.
        #[arg(long, value_name = "PERSON", requires = "population")]
        person: Option<String>,
        /// Name the population of the person.
        #[arg(long, value_name = "NAME", requires = "person")]
        population: Option<String>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Replace a key of the service in three steps, or show the stages of its keys.
    ///
    /// `add` makes a fresh key that is trusted and not used. `use` makes it the current one and retires the one before. `drop` destroys
    /// the retired one. Restart every process after each step. People stay who they are: no pseudonym changes.
    Rotate {
        /// Choose the key.
        #[arg(value_enum)]
        purpose: PurposeName,
        /// Make this step; without it the stages of the keys are shown.
        #[arg(value_enum)]
        step: Option<StepName>,
        #[command(flatten)]
        data: DataArgs,
    },
    /// Make a certificate of TLS for tests and closed networks, with a key of its own. A service on the internet needs one of an authority.
    ///
    /// Serve with `--tls DIR/cert.pem,DIR/key.pem`, and let devices trust it by `undertone device enrol --root DIR/cert.pem`.
    Certificate {
        /// Write `cert.pem` and `key.pem` into this folder. Files of these names must not be there.
        #[arg(long, short, value_name = "DIR")]
        out: PathBuf,
        /// Name a host or an address by which devices reach the service. Give it more than once for several.
        #[arg(long = "host", value_name = "NAME", default_values = ["localhost", "127.0.0.1", "::1"])]
        hosts: Vec<String>,
        /// Let it end after this number of days.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PurposeName {
    /// The key that seals the state of the noise.
    State,
    /// The key that signs plans, which apps trust.
    Plans,
    /// The key that signs certificates, which apps and the service trust.
    Issuer,
}

impl PurposeName {
    fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Plans => "plans",
            Self::Issuer => "issuer",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StepName {
    /// Add a fresh key, which is trusted and not used yet.
    Add,
    /// Use the added key, and retire the one before.
    Use,
    /// Drop the retired key.
    Drop,
}

impl StepName {
    /// The work that is left.
    fn next(self) -> &'static str {
        match self {
            Self::Add => {
                "restart every process; with `plans` and `issuer`, ship the keys of `undertone identity keys` in the app before `use`"
            }
            Self::Use => "restart every process; then `drop` the retired key as soon as nothing needs it",
            Self::Drop => "restart every process; the next version of the app needs the dropped key no more",
        }
    }
}

impl From<StepName> for RotationStep {
    fn from(step: StepName) -> Self {
        match step {
            StepName::Add => Self::Add,
            StepName::Use => Self::Use,
            StepName::Drop => Self::Drop,
        }
    }
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
        IdentityCommand::Withdraw {
            invitation,
            data,
            population,
        } => {
            let operation = Operation::Withdraw {
                population: population.clone(),
                subject: invitation,
            };
            let Answer::Departed(new) = perform(&data.data, Missing::Refuse, &operation)? else {
                return Err(unexpected());
            };
            let shown = serde_json::json!({ "population": population, "withdrawn": new });
            output.show(&shown, || {
                let invitation = match new {
                    true => "withdrawn; it enrols no device any more",
                    false => "was withdrawn before",
                };
                facts([
                    ("population", population.clone()),
                    ("invitation", invitation.to_owned()),
                ])
            })
        }
        IdentityCommand::Revoke {
            device: None,
            person,
            population,
            data,
        } => {
            let population = population.unwrap_or_default();
            let operation = Operation::RevokePerson {
                population: population.clone(),
                subject: person.unwrap_or_default(),
            };
            let Answer::Departed(new) = perform(&data.data, Missing::Refuse, &operation)? else {
                return Err(unexpected());
            };
            let shown = serde_json::json!({ "population": population, "person_revoked": new });
            output.show(&shown, || {
                let person = match new {
                    true => "revoked, with all devices",
                    false => "was revoked before",
                };
                facts([
                    ("population", population.clone()),
                    ("the person", person.to_owned()),
                ])
            })
        }
        IdentityCommand::Revoke {
            device: Some(device),
            data,
            ..
        } => {
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
        IdentityCommand::Certificate { out, hosts, days } => certificate(&out, &hosts, days, output),
        IdentityCommand::Keys { data, out } => {
            let Answer::Keys(keys) = perform(&data.data, Missing::Create, &Operation::Keys)? else {
                return Err(unexpected());
            };
            if let Some(out) = out {
                files::write_json(&out, &keys)?;
            }
            output.show(&keys, || {
                let all = [("plans", &keys.plans), ("issuer", &keys.issuer)];
                let several = all
                    .into_iter()
                    .flat_map(|(name, list)| list.digits().iter().map(move |digits| (name, digits)));
                facts(
                    std::iter::once(("board", &keys.board))
                        .chain(several)
                        .collect::<Vec<_>>(),
                )
            })
        }
        IdentityCommand::Rotate { purpose, step, data } => {
            let operation = Operation::Rotate {
                purpose: purpose.name().to_owned(),
                step: step.map(RotationStep::from),
            };
            let Answer::Rotated(rows) = perform(&data.data, Missing::Refuse, &operation)? else {
                return Err(unexpected());
            };
            output.show(&rows, || {
                let of = rows.iter().filter(|row| row.purpose == purpose.name());
                let line = |row: &KeyRow| match &row.public {
                    Some(public) => public.clone(),
                    None => "seals states".to_owned(),
                };
                facts(of.map(|row| (row.stage.as_str(), line(row))).collect::<Vec<_>>())
            })?;
            if let Some(step) = step {
                output.note(step.next());
            }
            Ok(())
        }
    }
}

/// Makes a certificate for tests, and says how it is used.
fn certificate(folder: &Path, hosts: &[String], days: u32, output: &Output) -> anyhow::Result<()> {
    let (chain, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    for path in [&chain, &key] {
        if files::exists(path) {
            bail!(
                "{} is there already; remove it, or choose another folder",
                path.display()
            );
        }
    }
    let (certificate, secret) = undertone_service::http::tls::test_certificate(hosts, days)?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    files::write_secret_with(&key, |file| {
        std::io::Write::write_all(file, secret.as_bytes())
            .map_err(|source| undertone_run_directory::error::DirectoryError::io("write", &key, source))
    })?;
    files::write_atomic(&chain, certificate.as_bytes())?;
    let document = serde_json::json!({ "certificate": chain, "key": key, "hosts": hosts, "days": days });
    output.show(&document, || {
        facts([
            ("certificate", chain.display().to_string()),
            ("key", key.display().to_string()),
            ("hosts", hosts.join(", ")),
            ("ends", format!("in {days} days")),
        ])
    })?;
    output.note(&format!(
        "serve with --tls {},{}, and enrol devices with --root {}",
        chain.display(),
        key.display(),
        chain.display()
    ));
    Ok(())
}
