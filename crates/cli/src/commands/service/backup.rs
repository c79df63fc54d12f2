//! `undertone backup`: backups of a service, and the way back.

use std::path::PathBuf;

use anyhow::{Context, bail};
use undertone_operate::admin::{Answer, Operation};
use undertone_operate::backup::{self, BackupKey, Manifest, Places};
use undertone_present::numbers::grouped;

use super::operator::{Missing, perform, unexpected};
use super::task::DataArgs;
use crate::output::{Output, facts};

/// Arguments of `undertone backup`.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BackupCommand {
    /// Write a new file with a random key, which seals the keys in backups. Keep it apart from them.
    Key {
        /// Write this file, which must not exist.
        file: PathBuf,
    },
    /// Make a backup: database, models, heads and sealed keys of one moment. The server may run meanwhile.
    Create {
        /// Write this folder, which must not exist.
        folder: PathBuf,
        #[command(flatten)]
        data: DataArgs,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Restore a backup into a temporary folder, lead each task there without devices, and delete it again.
    ///
    /// The command fails if a file is not as it was, or a task could not go on.
    Rehearse {
        /// Read the backup in this folder.
        folder: PathBuf,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Write a data folder from a backup. Every live task is halted in it.
    ///
    /// A round that was released after the backup must not be made again. Resume a task, with a note, only if you know that there
    /// was no later round; else start a new task. `serve --witness` and the devices notice a later round, too.
    Restore {
        /// Read the backup in this folder.
        folder: PathBuf,
        /// Write this data folder, which must not exist.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Put the database on this Postgres server instead of in a file. It must be empty.
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        /// Put models and heads in this store of objects instead of in a folder, with credentials from the environment.
        #[arg(long, value_name = "URL")]
        blobs: Option<String>,
        #[command(flatten)]
        key: KeyArgs,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct KeyArgs {
    /// Seal and open the keys with the key in this file, which `undertone backup key` made.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Seal and open the keys with the passphrase in the first line of this file, which its owner alone can read.
    #[arg(long, value_name = "FILE")]
    passphrase: Option<PathBuf>,
}

impl KeyArgs {
    /// The file and its kind.
    fn source(self) -> anyhow::Result<BackupKey> {
        match (self.key, self.passphrase) {
            (Some(path), None) => Ok(BackupKey::File(path)),
            (None, Some(path)) => Ok(BackupKey::Passphrase(path)),
            // The parser has refused everything else.
            _ => bail!("give --key FILE or --passphrase FILE"),
        }
    }
}

/// The option that names a key, and its file.
fn named(key: &BackupKey) -> (&'static str, &PathBuf) {
    match key {
        BackupKey::File(path) => ("--key", path),
        BackupKey::Passphrase(path) => ("--passphrase", path),
    }
}

/// Runs the command.
pub(crate) fn run(args: BackupArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        BackupCommand::Key { file } => {
            backup::write_key(&file)?;
            output.show(&serde_json::json!({ "key": file }), || {
                facts([("key", file.display().to_string())])
            })
        }
        BackupCommand::Create { folder, data, key } => {
            let absolute = |path: &PathBuf| {
                std::path::absolute(path)
                    .with_context(|| format!("cannot find the place of {}", path.display()))
            };
            let key = key.source()?;
            let (option, file) = named(&key);
            // The server that performs it may run in another folder.
            let operation = Operation::Backup {
                folder: absolute(&folder)?,
                key: absolute(file)?,
                passphrase: matches!(key, BackupKey::Passphrase(_)),
            };
            let Answer::Saved(manifest) = perform(&data.data, Missing::Refuse, &operation)? else {
                return Err(unexpected());
            };
            output.show(&manifest, || text(&folder, &manifest))?;
            output.note(&format!(
                "try it with: undertone backup rehearse {} {option} {}",
                folder.display(),
                file.display()
            ));
            Ok(())
        }
        BackupCommand::Rehearse { folder, key } => {
            let rehearsal = backup::rehearse(&folder, &key.source()?)?;
            output.show(&rehearsal, || {
                let mut rows = vec![("files", grouped(rehearsal.files as u64))];
                for task in &rehearsal.tasks {
                    let how = match &task.reason {
                        _ if task.leads => "can go on".to_owned(),
                        Some(reason) => format!("cannot go on: {reason}"),
                        None => "cannot go on".to_owned(),
                    };
                    rows.push(("task", format!("{} at round {}: {how}", task.name, task.released)));
                }
                facts(rows)
            })?;
            match rehearsal.tasks.iter().find(|task| !task.leads) {
                None => Ok(()),
                Some(task) => bail!("task {} could not go on from this backup", task.name),
            }
        }
        BackupCommand::Restore {
            folder,
            data,
            store,
            blobs,
            key,
        } => {
            let places = Places {
                store: store.as_deref(),
                blobs: blobs.as_deref(),
            };
            let manifest = backup::restore(&folder, &key.source()?, &data, places)?;
            output.show(&manifest, || text(&data, &manifest))?;
            output.note(
                "every live task is halted: resume it with a note only if no later round was released, else start a new task",
            );
            Ok(())
        }
    }
}

fn text(place: &std::path::Path, manifest: &Manifest) -> String {
    let mut rows = vec![
        ("folder", place.display().to_string()),
        ("files", grouped(manifest.files.len() as u64)),
    ];
    for task in &manifest.tasks {
        rows.push((
            "task",
            format!(
                "{}: {}, {} rounds released",
                task.name,
                task.state,
                grouped(task.released)
            ),
        ));
    }
    facts(rows)
}
