//! The wishes of single subjects: to take part no more, to know their rounds, and to be linked with no ledger any more. What an operator
//! does on their side stands here too: invitations that are withdrawn, people who are revoked, and tasks that are deleted.

use serde::{Deserialize, Serialize};
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::LedgerLine;
use undertone_coordinator::task::LedgerPlace;
use undertone_protocol::{Digest32, TaskState, digest_of};
use undertone_service::identity::{Invitation, unhex};
use undertone_service::keys::pseudonyms::{self, Pseudonyms};
use undertone_service::room::OpenSession;
use undertone_service::task::{self, Task};
use undertone_service::{Result, ServiceError};
use undertone_store::{Departure, TaskRow};

use super::{ACTOR, Admin, TaskSummary, check_population, shortened, views};

/// The result of a bar in one task, and the rounds that the subject took part in before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The name of the task.
    pub task: String,
    /// The identifier of the task, in hexadecimal digits.
    pub id: String,
    /// The state of the task.
    pub state: String,
    /// `true` if the subject was barred now, `false` if it was before or the task has ended.
    pub barred: bool,
    /// The session of the subject in the open attempt: `none`, `ended`, or `reported` where its update is already in the sum.
    pub session: String,
    /// The released and abandoned rounds in which the subject counts as a participant, each once and ascending.
    pub rounds: Vec<u64>,
    /// A sentence where the task says less than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Admin<'_> {
    /// Ends the participation of a subject in one task, or in its population: all tasks of now and later, on all devices. Says which rounds
    /// it took part in.
    ///
    /// PRIVACY: the receipt links a subject and its rounds. Its reader must be that person, or one that the person has asked.
    pub(super) fn bar(&self, population: &str, subject: &str, task: Option<&str>) -> Result<Vec<Receipt>> {
        check_population(population)?;
        let subject = self.subject(population, subject)?;
        let Some(name) = task else {
            return Ok(self.depart(population, &subject, Departure::Left)?.1);
        };
        let row = self.find(name)?;
        if row.task.population != population {
            return Err(ServiceError::Value {
                key: "the population".to_owned(),
                expected: format!("{:?}, the one of this task", row.task.population),
                got: format!("{:?}", shortened(population)),
            });
        }
        Ok(vec![self.bar_from(&row, &subject, None)?])
    }

    /// Revokes a subject with all its devices, of now and later.
    pub(super) fn revoke_person(&self, population: &str, subject: &str) -> Result<bool> {
        check_population(population)?;
        let subject = self.subject(population, subject)?;
        Ok(self.depart(population, &subject, Departure::Revoked)?.0)
    }

    /// Withdraws an invitation: it enrols no device any more. Devices that it has enrolled go on.
    pub(super) fn withdraw(&self, population: &str, subject: &str) -> Result<bool> {
        check_population(population)?;
        let subject = self.subject(population, subject)?;
        let person = self.person(population, &subject);
        let store = &self.shared().store;
        Ok(store.depart(population, &person, Departure::Withdrawn, ACTOR)?)
    }

    fn person(&self, population: &str, subject: &Digest32) -> Digest32 {
        let keys = &self.shared().keys;
        keys.person(population, &keys.issuer_name(), subject)
    }

    /// Notes a departure, and ends the open sessions of the subject. `true` for a departure that is new.
    fn depart(&self, population: &str, subject: &Digest32, how: Departure) -> Result<(bool, Vec<Receipt>)> {
        let person = self.person(population, subject);
        let store = &self.shared().store;
        // The departure comes first: no session of the subject opens after it, in no task, under no leader.
        let new = store.depart(population, &person, how, ACTOR)?;
        let rows = store.tasks()?.into_iter();
        let rows = rows.filter(|row| row.task.population == population && !row.deleted);
        let receipts = rows.map(|row| self.bar_from(&row, subject, Some(new)));
        Ok((new, receipts.collect::<Result<_>>()?))
    }

    /// The subject that an operator names: by 64 digits, by an invitation, or by a name that a device gave to `--subject`.
    fn subject(&self, population: &str, text: &str) -> Result<Digest32> {
        let text = text.trim();
        if let Some(name) = text.strip_prefix("name:") {
            return Ok(digest_of(name.as_bytes()));
        }
        if let Some(bytes) = unhex(text)
            && let Ok(subject) = bytes.as_slice().try_into()
        {
            return Ok(subject);
        }
        // An invitation names its subject also after its end.
        match Invitation::read(text, &self.shared().keys, population, 0) {
            Ok(invitation) => Ok(*invitation.subject()),
            Err(_) => Err(ServiceError::Value {
                key: "the subject".to_owned(),
                expected: "64 hexadecimal digits, an invitation to this population, or name:NAME".to_owned(),
                // PRIVACY: an invitation with one wrong digit still names its subject.
                got: format!("{} letters", text.chars().count()),
            }),
        }
    }

    /// Bars a subject from one task, or with `left` ends its sessions there: it has left the population, and `left` says whether it did now.
    fn bar_from(&self, row: &TaskRow, subject: &Digest32, left: Option<bool>) -> Result<Receipt> {
        let shared = self.shared();
        let task = self.load(row)?;
        let ended = row.state == TaskState::Completed;
        let mut receipt = Receipt {
            task: row.task.name.clone(),
            id: row.task.id.to_string(),
            state: views::state_name(row.state).to_owned(),
            barred: left == Some(true) && !ended,
            session: "none".to_owned(),
            rounds: Vec::new(),
            note: None,
        };
        if task.file.service.ledger == LedgerPlace::Device {
            let note = match left {
                Some(_) => {
                    "no session of the person opens any more; the devices of this task count their participations themselves, so the \
                     server knows neither their rounds nor an open session, which goes on to its end"
                }
                None => {
                    "the devices of this task count their participations themselves, so the server cannot tell its subjects apart; bar the \
                     person from the population instead, without --task"
                }
            };
            receipt.note = Some(note.to_owned());
            return Ok(receipt);
        }
        let store = shared.store.as_ref();
        let Some(names) = Pseudonyms::open(store, &shared.keys, task.id, task.pseudonyms.as_ref())? else {
            receipt.note = Some(
                "the key of the pseudonyms of this task was destroyed, so nobody can tell whether the subject took part"
                    .to_owned(),
            );
            return Ok(receipt);
        };
        let user = names.name(&shared.keys, task.id, &shared.keys.issuer_name(), subject);
        if !ended {
            if left.is_none() {
                // The bar comes first: no session of the subject opens after it.
                receipt.barred = store.bar(task.id, user, ACTOR)?;
            }
            let session = match self.service.room(task.id) {
                Some(room) => room.end_session_of(user)?,
                None => OpenSession::None,
            };
            receipt.session = match session {
                OpenSession::None => "none",
                OpenSession::Ended => "ended",
                OpenSession::Reported => "reported",
            }
            .to_owned();
        }
        receipt.rounds = self.rounds_of(&task, user)?;
        Ok(receipt)
    }

    /// The rounds whose lines name a user, abandoned attempts included.
    fn rounds_of(&self, task: &Task, user: ParticipantId) -> Result<Vec<u64>> {
        let store = &self.shared().store;
        let damaged = |error: serde_json::Error| ServiceError::Value {
            key: "a line of the ledger in the store".to_owned(),
            expected: "one that this service wrote".to_owned(),
            got: error.to_string(),
        };
        let mut rounds = Vec::new();
        for line in store.ledger(task.id, 0)? {
            match LedgerLine::read(&line).map_err(damaged)? {
                LedgerLine::Round(entry) if entry.everyone().contains(&user) => rounds.push(entry.round),
                LedgerLine::Round(_) | LedgerLine::End(_) => {}
            }
        }
        for attempt in store.abandoned_since_release(task.id)? {
            if attempt.participants.contains(&user) {
                rounds.push(attempt.round);
            }
        }
        rounds.sort_unstable();
        rounds.dedup();
        Ok(rounds)
    }

    /// Destroys the key of the pseudonyms of a task that has ended, and everything else that links its ledger with a device or a person.
    /// For a task whose key was destroyed before, for example by an earlier version, the rest is removed all the same.
    pub(super) fn forget(&self, name: &str) -> Result<TaskSummary> {
        let row = self.find(name)?;
        let task = self.load(&row)?;
        let store = &self.shared().store;
        if task.pseudonyms.is_none() {
            // Its sessions go, and its pseudonyms stay.
            store.sweep()?;
            return Err(ServiceError::Value {
                key: format!("task {}", row.task.name),
                expected: "one with a key of its own for pseudonyms".to_owned(),
                got: "a task whose pseudonyms follow from the key file, which an earlier version created"
                    .to_owned(),
            });
        }
        let gone = store.forget_pseudonym_key(task.id, ACTOR)?;
        store.sweep()?;
        // PRIVACY: what was deleted must not lie in the log or in a free part of a file.
        store.scrub()?;
        match gone {
            true => Ok(TaskSummary::new(&row)),
            false => Err(pseudonyms::destroyed(&row.task.name)),
        }
    }

    /// Deletes an ended task: its ledger, its models and the states of its noise. Its settings and its heads stay, since the budget of the
    /// population and the guard against a store of the past need them.
    pub(super) fn delete(&self, name: &str) -> Result<TaskSummary> {
        let row = self.find(name)?;
        let shared = self.shared();
        let live = |other: &TaskRow| other.state != TaskState::Completed && other.task.id != row.task.id;
        for other in shared.store.tasks()?.iter().filter(|other| live(other)) {
            if task::measures(other)? == Some(row.task.id) {
                return Err(ServiceError::Value {
                    key: format!("task {}", row.task.name),
                    expected: "one that no evaluation measures that has not ended".to_owned(),
                    got: format!("the task that {} measures", other.task.name),
                });
            }
        }
        // The blobs first: after a crash the rows still name what is left of them.
        for blob in shared.store.blobs_of(row.task.id)? {
            shared.blobs.remove(&blob)?;
        }
        shared.store.delete_task(row.task.id, ACTOR)?;
        shared.store.scrub()?;
        Ok(TaskSummary::new(&shared.store.task(row.task.id)?))
    }
}
