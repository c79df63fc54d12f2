//! The operations of an operator: tasks, invitations and devices.
//!
//! A process that has the data folder open performs them, and the listener of a running server offers them to other programs of the
//! machine ([`listener`]).

mod dashboard;
mod figures;
mod guarantees;
pub mod listener;
mod rotation;
mod subjects;
#[cfg(test)]
mod tests;
mod views;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_accounting::Delta;
use undertone_coordinator::CoordinatorError;
use undertone_coordinator::plan::{PopulationBudget, PrivacyPlan};
use undertone_coordinator::record::EndReason;
use undertone_coordinator::task::{IdentityLevel, Seeding};
use undertone_protocol::TaskKind;
use undertone_protocol::{Digest32, TaskState};
use undertone_run_directory::files;
use undertone_service::identity::{DAY, Identity, Invitation, digest_from};
use undertone_service::keys::random;
use undertone_service::metrics::FunnelRow;
use undertone_service::room::{Room, Shared};
use undertone_service::server::Service;
use undertone_service::task::{self, Task};
use undertone_service::{Result, ServiceError};
use undertone_store::{StoreError, TaskRow};

use crate::backup::{self, BackupKey, Manifest};

pub(crate) use dashboard::Doors;
pub use figures::Reader;
pub(crate) use guarantees::Guarantees;
pub use rotation::{KeyRow, RotationStep};
pub use subjects::Receipt;
pub use views::{Exported, Figures, KeyList, PublicKeys, RoundView, TaskDetails, TaskSummary};

/// The name of an operator in the audit log.
const ACTOR: &str = "operator";

/// Max number of invitations of one operation.
const MAX_INVITATIONS: u32 = 100_000;

/// Max number of days of an invitation.
const MAX_DAYS: u32 = 3650;

/// The file of the budgets of populations in the data folder.
const BUDGETS: &str = "budgets.json";

/// An operation, as it travels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Creates a task as a draft.
    Create {
        /// The text of the task file.
        text: String,
        /// The path of the task file: for messages, and the place where its relative paths start.
        path: PathBuf,
        /// The population.
        population: String,
    },
    /// Lists all tasks.
    List,
    /// Describes a task.
    Show {
        /// The name of the task, or the first 8 or more digits of its identifier.
        task: String,
    },
    /// Counts how far the devices of a task came, by the version of the app, since the start of the server.
    Funnel {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
    },
    /// Begins a draft, if its whole plan fits into its budget and that of its population.
    Activate {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
    },
    /// Pauses an active task: no attempt opens any more.
    Pause {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
        /// The reason, for the audit log.
        note: String,
    },
    /// Lets a paused or a halted task go on.
    Resume {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
        /// The reason, for the audit log; required for a halted task.
        note: String,
    },
    /// Ends a task for good. Its open attempt is abandoned, and the last line of its ledger says so.
    Stop {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
    },
    /// Writes the directory of a task that has ended, which `undertone verify` reads.
    Export {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
        /// The directory to write, by an absolute path.
        folder: PathBuf,
    },
    /// Sets the budget of a population for all of its tasks together.
    Budget {
        /// The population.
        population: String,
        /// Max epsilon of all tasks.
        max_epsilon: f64,
        /// The delta at which it is stated.
        delta: f64,
    },
    /// Makes invitations, each for one new subject.
    Invite {
        /// The population.
        population: String,
        /// Number of invitations.
        count: u32,
        /// Days until they end.
        days: u32,
    },
    /// Revokes the key of a device.
    Revoke {
        /// The public key of the device, in hexadecimal digits.
        device: String,
    },
    /// Revokes a subject of a population with all its devices.
    RevokePerson {
        /// The population.
        population: String,
        /// The subject, named as in [`Bar`](Self::Bar).
        subject: String,
    },
    /// Withdraws an invitation: it enrols no device any more.
    Withdraw {
        /// The population.
        population: String,
        /// The invitation, or its subject, named as in [`Bar`](Self::Bar).
        subject: String,
    },
    /// Lets the boards name an earlier release of a task for predictions, or the newest one again.
    Pin {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
        /// Number of releases that made the model; the newest one without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        round: Option<u64>,
    },
    /// Deletes the models, the noise and the ledger of a task that has ended.
    Delete {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
    },
    /// Ends the participation of a subject in one task, or in a population with its tasks of now and later.
    Bar {
        /// The population.
        population: String,
        /// The subject: 64 hexadecimal digits, an invitation, or `name:` and the name that a device gave.
        subject: String,
        /// The task, named as in [`Show`](Self::Show); all of the population without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
    },
    /// Destroys the key of the pseudonyms of a task that has ended. Nobody can link a subject and its ledger afterwards.
    Forget {
        /// The task, named as in [`Show`](Self::Show).
        task: String,
    },
    /// Makes a backup of the data folder.
    Backup {
        /// The folder to write, by an absolute path.
        folder: PathBuf,
        /// The file with the key of the backup, or with its passphrase, by an absolute path.
        key: PathBuf,
        /// `true` if the file holds a passphrase.
        #[serde(default)]
        passphrase: bool,
    },
    /// Names the public keys that devices trust.
    Keys,
    /// Reads the certificate of TLS again.
    Reload,
    /// Makes one step of the replacement of a key, or names the stages of all keys.
    Rotate {
        /// The purpose of the key: `state`, `plans` or `issuer`.
        purpose: String,
        /// The step; without it nothing changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<RotationStep>,
    },
}

/// The answer to an operation, as it travels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "snake_case")]
pub enum Answer {
    /// A task after an operation.
    Task(TaskSummary),
    /// All tasks.
    Tasks(Vec<TaskSummary>),
    /// The description of a task.
    Details(Box<TaskDetails>),
    /// The funnel of a task by the version of the app.
    Funnel(Vec<FunnelRow>),
    /// A written directory.
    Exported(Exported),
    /// Invitations. PRIVACY: each is the right to be a subject.
    Invitations(Vec<String>),
    /// The receipts of a bar, one per task. PRIVACY: it links a subject and its rounds.
    Barred(Vec<Receipt>),
    /// `true` for a departure that is new, `false` where the subject was gone before.
    Departed(bool),
    /// A backup that was made.
    Saved(Manifest),
    /// Public keys.
    Keys(PublicKeys),
    /// The keys that can be replaced, with their stages.
    Rotated(Vec<KeyRow>),
    /// There is nothing to say.
    Done,
}

/// The operator of a service whose data folder this process has open.
#[derive(Debug)]
pub struct Admin<'s> {
    service: &'s Service,
    folder: &'s Path,
}

impl<'s> Admin<'s> {
    /// The operator of a service over this data folder.
    #[must_use]
    pub fn new(service: &'s Service, folder: &'s Path) -> Self {
        Self { service, folder }
    }

    fn shared(&self) -> &'s Shared {
        self.service.shared()
    }

    /// Performs an operation.
    ///
    /// # Errors
    /// [`ServiceError::Value`] naming the key or the option; from the store.
    pub fn perform(&self, operation: &Operation) -> Result<Answer> {
        Ok(match operation {
            Operation::Create {
                text,
                path,
                population,
            } => Answer::Task(self.create(text, path, population)?),
            Operation::List => {
                let rows = self.shared().store.tasks()?;
                Answer::Tasks(rows.iter().map(TaskSummary::new).collect())
            }
            Operation::Show { task } => {
                let row = self.find(task)?;
                Answer::Details(Box::new(TaskDetails::new(
                    self.shared(),
                    &row,
                    &self.load(&row)?,
                )?))
            }
            Operation::Funnel { task } => {
                let row = self.find(task)?;
                Answer::Funnel(self.service.metrics().funnels().rows(row.task.id))
            }
            Operation::Activate { task } => Answer::Task(self.activate(task)?),
            Operation::Pause { task, note } => {
                let row = self.find(task)?;
                Answer::Task(self.set_state(&row, TaskState::Active, TaskState::Paused, note)?)
            }
            Operation::Resume { task, note } => {
                let row = self.find(task)?;
                let from = match row.state {
                    TaskState::Halted => TaskState::Halted,
                    _ => TaskState::Paused,
                };
                Answer::Task(self.set_state(&row, from, TaskState::Active, note)?)
            }
            Operation::Stop { task } => Answer::Task(self.stop(task)?),
            Operation::Export { task, folder } => Answer::Exported(self.export(task, folder)?),
            Operation::Budget {
                population,
                max_epsilon,
                delta,
            } => {
                self.set_budget(population, *max_epsilon, *delta)?;
                Answer::Done
            }
            Operation::Invite {
                population,
                count,
                days,
            } => Answer::Invitations(self.invite(population, *count, *days)?),
            Operation::Revoke { device } => {
                let key: Digest32 = digest_from("the key of a device", device)?;
                self.shared().store.revoke(&key, ACTOR)?;
                Answer::Done
            }
            Operation::RevokePerson { population, subject } => {
                Answer::Departed(self.revoke_person(population, subject)?)
            }
            Operation::Withdraw { population, subject } => {
                Answer::Departed(self.withdraw(population, subject)?)
            }
            Operation::Pin { task, round } => Answer::Task(self.pin(task, *round)?),
            Operation::Delete { task } => Answer::Task(self.delete(task)?),
            Operation::Bar {
                population,
                subject,
                task,
            } => Answer::Barred(self.bar(population, subject, task.as_deref())?),
            Operation::Backup {
                folder,
                key,
                passphrase,
            } => {
                let now = self.shared().store.now();
                let key = match passphrase {
                    true => BackupKey::Passphrase(key.clone()),
                    false => BackupKey::File(key.clone()),
                };
                Answer::Saved(backup::create(self.folder, now, folder, &key)?)
            }
            Operation::Forget { task } => Answer::Task(self.forget(task)?),
            Operation::Reload => {
                self.service.reload()?;
                tracing::info!("the certificate of TLS was read again; new connections get it");
                Answer::Done
            }
            Operation::Keys => Answer::Keys(PublicKeys::of(&self.keys_of_folder()?)),
            Operation::Rotate { step: None, .. } => Answer::Rotated(self.key_rows()?),
            Operation::Rotate {
                purpose,
                step: Some(step),
            } => Answer::Rotated(self.rotate(purpose, *step)?),
        })
    }

    fn create(&self, text: &str, path: &Path, population: &str) -> Result<TaskSummary> {
        check_population(population)?;
        let file = undertone_run_directory::task::parse(text, path, Seeding::Refused)?;
        let base = path.parent().unwrap_or_else(|| Path::new("."));
        let shared = self.shared();
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let id = task::create_with_pseudonyms(&file, base, population, &shared.keys, store, blobs)?;
        let row = store.task(id)?;
        Ok(TaskSummary {
            warning: self.load(&row)?.warning()?,
            ..TaskSummary::new(&row)
        })
    }

    /// The task of this name, or of an identifier that starts with these digits.
    fn find(&self, name: &str) -> Result<TaskRow> {
        let row = self.find_any(name)?;
        match row.deleted {
            false => Ok(row),
            true => Err(ServiceError::Value {
                key: format!("task {}", row.task.name),
                expected: "one that was not deleted".to_owned(),
                got: "one whose models and ledger were deleted".to_owned(),
            }),
        }
    }

    fn find_any(&self, name: &str) -> Result<TaskRow> {
        let rows = self.shared().store.tasks()?;
        let digits = name.len() >= 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fits = |row: &TaskRow| {
            row.task.name == name || (digits && row.task.id.to_string().starts_with(&name.to_lowercase()))
        };
        let mut found: Vec<TaskRow> = rows.into_iter().filter(fits).collect();
        match (found.pop(), found.pop()) {
            (Some(row), None) => Ok(row),
            (None, _) => Err(StoreError::Missing {
                what: "task",
                name: shortened(name),
            }
            .into()),
            (Some(_), Some(_)) => Err(ServiceError::Value {
                key: "the task".to_owned(),
                expected: "a name that one task has, or the first digits of its identifier".to_owned(),
                got: format!("{:?}, which several tasks have", shortened(name)),
            }),
        }
    }

    fn load(&self, row: &TaskRow) -> Result<Task> {
        Task::load(row, self.shared().blobs.as_ref(), &self.shared().keys)
    }

    /// The guarantee of the released rounds of a task, recomputed from its ledger; `None` without a release or without noise.
    ///
    /// # Errors
    /// From the store and the accountant.
    pub fn observed(&self, row: &TaskRow) -> Result<Option<Figures>> {
        let report = match self.service.room(row.task.id) {
            Some(room) => views::report(self.shared(), room.task())?,
            None => views::report(self.shared(), &self.load(row)?)?,
        };
        Ok(report.observed.as_ref().map(Figures::new))
    }

    fn set_state(&self, row: &TaskRow, from: TaskState, to: TaskState, note: &str) -> Result<TaskSummary> {
        let store = &self.shared().store;
        store.set_state(row.task.id, from, to, ACTOR, note)?;
        Ok(TaskSummary::new(&store.task(row.task.id)?))
    }

    /// Sessions train the newest model all the same: the noise of later rounds is that of all releases together.
    fn pin(&self, name: &str, round: Option<u64>) -> Result<TaskSummary> {
        let row = self.find(name)?;
        if row.task.kind == TaskKind::Evaluate {
            return Err(ServiceError::Value {
                key: format!("task {}", row.task.name),
                expected: "a task that trains, since devices predict with its releases".to_owned(),
                got: "an evaluation".to_owned(),
            });
        }
        let shared = self.shared();
        shared.store.pin(row.task.id, round, ACTOR)?;
        self.service.renew_boards();
        Ok(TaskSummary::new(&shared.store.task(row.task.id)?))
    }

    fn activate(&self, name: &str) -> Result<TaskSummary> {
        let row = self.find(name)?;
        let task = self.load(&row)?;
        self.check_keys_of(&task)?;
        check_identity(&task, self.service.identity())?;
        // PRIVACY: the whole mechanism is admitted before its first round, or not at all.
        task.privacy.check_budget()?;
        self.check_population_budget(&row, &task.privacy)?;
        self.set_state(&row, TaskState::Draft, TaskState::Active, "")
    }

    /// Checks that all tasks of the population that have begun, and this one, fit into the population's budget together.
    fn check_population_budget(&self, row: &TaskRow, plan: &PrivacyPlan) -> Result<()> {
        let population = &row.task.population;
        let Some(Budget {
            max_epsilon, delta, ..
        }) = self
            .budgets()?
            .into_iter()
            .find(|budget| budget.population == *population)
        else {
            return Ok(());
        };
        let mut begun = Vec::new();
        for other in self.shared().store.tasks()? {
            let counts = other.state != TaskState::Draft && other.task.id != row.task.id;
            if counts && other.task.population == *population {
                begun.push(self.load(&other)?);
            }
        }
        let mut tasks: Vec<(&str, &PrivacyPlan)> = begun
            .iter()
            .map(|task| (task.file.task.name.as_str(), &task.privacy))
            .collect();
        tasks.push((&row.task.name, plan));
        budget_of(max_epsilon, delta)?.admit(&tasks)?;
        Ok(())
    }

    fn budgets(&self) -> Result<Vec<Budget>> {
        let path = self.folder.join(BUDGETS);
        match files::exists(&path) {
            true => Ok(files::read_json(&path)?),
            false => Ok(Vec::new()),
        }
    }

    fn set_budget(&self, population: &str, max_epsilon: f64, delta: f64) -> Result<()> {
        check_population(population)?;
        budget_of(max_epsilon, delta)?;
        let mut budgets = self.budgets()?;
        budgets.retain(|budget| budget.population != population);
        budgets.push(Budget {
            population: population.to_owned(),
            max_epsilon,
            delta,
        });
        Ok(files::write_json(&self.folder.join(BUDGETS), &budgets)?)
    }

    fn stop(&self, name: &str) -> Result<TaskSummary> {
        let row = self.find(name)?;
        let id = row.task.id;
        // A draft has no ledger to end, and an ended task has its last line.
        if matches!(row.state, TaskState::Draft | TaskState::Completed) {
            return Err(ServiceError::Value {
                key: format!("task {}", row.task.name),
                expected: "active, paused or halted, to be stopped".to_owned(),
                got: views::state_name(row.state).to_owned(),
            });
        }
        match self.service.room(id) {
            Some(_) => self.service.stop(id)?,
            None if self.service.stop_elsewhere(id)? => {}
            None => self.end(&row)?,
        }
        Ok(TaskSummary::new(&self.shared().store.task(id)?))
    }

    /// Ends a task that no room of this process leads.
    fn end(&self, row: &TaskRow) -> Result<()> {
        let (shared, spool) = (self.service.shared().clone(), self.service.spool().clone());
        match Room::lead(shared, spool, self.load(row)?)? {
            Some(room) => room.end(EndReason::Stopped),
            None => Err(ServiceError::Value {
                key: format!("task {}", row.task.name),
                expected: "a task that no other process leads".to_owned(),
                got: "a lease of another process; try again after 30 s".to_owned(),
            }),
        }
    }

    fn export(&self, name: &str, folder: &Path) -> Result<Exported> {
        let row = self.find(name)?;
        if row.state != TaskState::Completed {
            let next = match row.state {
                TaskState::Draft => format!("`undertone task activate {}` starts it", row.task.name),
                _ => format!("`undertone task stop {}` ends it with them", row.task.name),
            };
            return Err(ServiceError::Value {
                key: format!("task {}", row.task.name),
                expected: format!(
                    "ended before its export; {} of {} rounds are released, and {next}",
                    row.head_round, row.task.rounds
                ),
                got: format!("{} task", views::state_name(row.state)),
            });
        }
        let shared = self.shared();
        let task = self.load(&row)?;
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let report = task.export(store, blobs, &shared.keys, folder, &[])?;
        Ok(Exported {
            folder: folder.to_owned(),
            task: row.task.name.clone(),
            rounds: row.head_round,
            planned: report.planned.as_ref().map(Figures::new),
            observed: report.observed.as_ref().map(Figures::new),
            claimed: report.claimed().map(Figures::new),
            obstacles: undertone_verify::obstacles(folder)?,
            warning: task.warning()?,
            one_word: views::one_word(shared, &row, &task),
        })
    }

    fn invite(&self, population: &str, count: u32, days: u32) -> Result<Vec<String>> {
        check_population(population)?;
        in_range("--count", count, MAX_INVITATIONS)?;
        in_range("--days", days, MAX_DAYS)?;
        let shared = self.shared();
        let expires = shared.store.now() + u64::from(days) * DAY;
        let invitation = |_| Ok(Invitation::new(random()?, expires).text(&shared.keys, population));
        (0..count).map(invitation).collect()
    }
}

/// The budget of a population, in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    population: String,
    max_epsilon: f64,
    delta: f64,
}

/// Checks that a service with this identity can vouch for what a task claims.
///
/// # Errors
/// [`ServiceError::Value`] for a task whose subjects need a certificate, where devices name their subjects themselves.
pub(crate) fn check_identity(task: &Task, identity: Identity) -> Result<()> {
    let (level, name) = (task.file.service.identity, &task.file.task.name);
    let refuse = |expected: &str, got: &str| {
        Err(ServiceError::Value {
            key: format!("service.identity of task {name}"),
            expected: expected.to_owned(),
            got: format!("{got:?}"),
        })
    };
    match (level, identity) {
        (IdentityLevel::Attested, Identity::Dev | Identity::Certificate) => refuse(
            "\"certificate\" or \"dev\", or a running server with `serve --identity attested`: this one has no verifier of platform \
             evidence",
            level.name(),
        ),
        // PRIVACY: the report of the task would claim an issuer that nobody asked.
        (IdentityLevel::Certificate, Identity::Dev) => refuse(
            "\"dev\" with `serve --identity dev`, where devices name their subjects themselves",
            level.name(),
        ),
        _ => Ok(()),
    }
}

fn budget_of(max_epsilon: f64, delta: f64) -> Result<PopulationBudget> {
    let delta = Delta::new(delta).map_err(CoordinatorError::from)?;
    Ok(PopulationBudget::new(max_epsilon, delta)?)
}

fn check_population(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if (1..=100).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('.') {
        return Ok(());
    }
    Err(ServiceError::Value {
        key: "the population".to_owned(),
        expected: "1 to 100 letters, digits, dots, hyphens and underscores, no dot first".to_owned(),
        got: format!("{:?}", shortened(name)),
    })
}

fn in_range(key: &str, number: u32, max: u32) -> Result<()> {
    match (1..=max).contains(&number) {
        true => Ok(()),
        false => Err(ServiceError::Value {
            key: key.to_owned(),
            expected: format!("1 to {max}"),
            got: number.to_string(),
        }),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
