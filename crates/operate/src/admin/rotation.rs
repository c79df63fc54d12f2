//! The replacement of a key, step by step, with what must hold before each step.

use serde::{Deserialize, Serialize};
use undertone_coordinator::task::IdentityLevel;
use undertone_protocol::{TaskState, limits};
use undertone_service::identity::{DAY, hex};
use undertone_service::keys::{KeyStage, Keys, Purpose, key_file};
use undertone_service::task::Task;
use undertone_service::{Result, ServiceError};
use undertone_store::TaskRow;

use super::Admin;

/// A step of the replacement of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationStep {
    /// Add a fresh key, which is trusted and not used yet.
    Add,
    /// Use the added key, and retire the one before.
    Use,
    /// Drop the retired key.
    Drop,
}

/// A key of a service as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRow {
    /// `state`, `plans` or `issuer`.
    pub purpose: String,
    /// `next`, `current`, `retired` or `dropped`.
    pub stage: String,
    /// The begin of the stage, in milliseconds since 1970; 0 for a key from the begin of the service.
    pub since_ms: u64,
    /// The public half, in hexadecimal digits; none for a key that seals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
}

fn rows(keys: &Keys) -> Vec<KeyRow> {
    keys.views()
        .into_iter()
        .map(|view| KeyRow {
            purpose: view.purpose.name().to_owned(),
            stage: view.stage.name().to_owned(),
            since_ms: view.since,
            public: view.public.map(|key| hex(&key)),
        })
        .collect()
}

impl Admin<'_> {
    /// The keys in the file of the data folder. Those of this process are the ones from its start.
    pub(super) fn keys_of_folder(&self) -> Result<Keys> {
        match undertone_run_directory::files::exists(&key_file(self.folder)) {
            true => Keys::open(self.folder),
            false => Ok(self.shared().keys.clone()),
        }
    }

    /// The keys that can be replaced, and their stages.
    pub(super) fn key_rows(&self) -> Result<Vec<KeyRow>> {
        Ok(rows(&self.keys_of_folder()?))
    }

    /// Makes one step of the replacement of a key. Every process takes the new file at its next start.
    pub(super) fn rotate(&self, purpose: &str, step: RotationStep) -> Result<Vec<KeyRow>> {
        let purpose: Purpose = purpose.parse()?;
        let now = self.shared().store.now();
        let mut keys = self.keys_of_folder()?;
        match step {
            RotationStep::Add => keys.add(purpose, now)?,
            RotationStep::Use => {
                keys.use_next(purpose, now)?;
                if purpose == Purpose::Issuer {
                    self.check_named(&keys)?;
                }
            }
            RotationStep::Drop => {
                let before = keys.clone();
                keys.drop_retired(purpose, now)?;
                match purpose {
                    Purpose::Issuer => check_expired(&before, now)?,
                    Purpose::Plans => self.check_no_plan_of(&before)?,
                    Purpose::State => self.check_states_open(&keys)?,
                }
            }
        }
        keys.save(self.folder)?;
        Ok(rows(&keys))
    }

    /// The tasks that have begun and not ended. A draft is checked when it begins.
    fn live(&self) -> Result<Vec<TaskRow>> {
        let mut rows = self.shared().store.tasks()?;
        rows.retain(|row| !matches!(row.state, TaskState::Draft | TaskState::Completed));
        Ok(rows)
    }

    /// Refuses to begin a task whose plan devices would not take any more.
    pub(super) fn check_keys_of(&self, task: &Task) -> Result<()> {
        let keys = self.keys_of_folder()?;
        if !keys.plan_keys().contains(&task.plan_key) {
            return Err(ServiceError::Value {
                key: format!("the key that signed the plan of task {}", task.file.task.name),
                expected: "one that apps trust".to_owned(),
                got: "a dropped one; create the task anew".to_owned(),
            });
        }
        named_in(task, &keys)
    }

    /// A device in a secure sum accepts neighbours whose certificates a key in the plan signed.
    fn check_named(&self, keys: &Keys) -> Result<()> {
        for row in self.live()? {
            named_in(&self.load(&row)?, keys)?;
        }
        Ok(())
    }

    fn check_no_plan_of(&self, keys: &Keys) -> Result<()> {
        let retired = keys.views().into_iter().find_map(|view| {
            (view.purpose == Purpose::Plans && view.stage == KeyStage::Retired).then_some(view.public?)
        });
        for row in self.live()? {
            if Some(self.load(&row)?.plan_key) == retired {
                return Err(ServiceError::Value {
                    key: "the retired key of plans".to_owned(),
                    expected: "under no plan of a task that has not ended".to_owned(),
                    got: format!("under that of task {}", row.task.name),
                });
            }
        }
        Ok(())
    }

    fn check_states_open(&self, keys: &Keys) -> Result<()> {
        for row in self.live()? {
            let Some(digest) = row.head_state else { continue };
            let sealed = undertone_service::storage::blobs::read(self.shared().blobs.as_ref(), &digest)?;
            if !undertone_service::storage::head_state::opens(&sealed, keys, row.task.id, row.head_round) {
                return Err(ServiceError::Value {
                    key: "the retired key of states".to_owned(),
                    expected: "needed by no state".to_owned(),
                    got: format!(
                        "the state of task {} after {} rounds, which it has sealed; its next release is sealed under the new key",
                        row.task.name, row.head_round
                    ),
                });
            }
        }
        Ok(())
    }
}

/// Checks that the plan of a secure task names the key that signs certificates.
fn named_in(task: &Task, keys: &Keys) -> Result<()> {
    let certified = task.file.service.identity != IdentityLevel::Dev;
    if task.is_secure() && certified && !task.issuers.contains(&keys.issuer().public()) {
        return Err(ServiceError::Value {
            key: "the key of the issuer in use".to_owned(),
            expected: "named in the plan of each task with secure sums".to_owned(),
            got: format!(
                "not in that of task {}, which was created before the key was added; stop it, wait for its end, or create it anew",
                task.file.task.name
            ),
        });
    }
    Ok(())
}

/// Certificates of the retired key are valid for a month after it was retired.
fn check_expired(keys: &Keys, now: u64) -> Result<()> {
    let life = limits::MAX_CERTIFICATE_LIFE.as_millis() as u64;
    let until = keys.retired_since(Purpose::Issuer).unwrap_or(0) + life;
    match now >= until {
        true => Ok(()),
        false => Err(ServiceError::Value {
            key: "the retired key of the issuer".to_owned(),
            expected: format!(
                "retired for {} days, since its certificates are valid so long",
                life / DAY
            ),
            got: format!("{} days left", (until - now).div_ceil(DAY)),
        }),
    }
}
