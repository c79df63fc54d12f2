//! The opening of an attempt: the head of the store, and the settings and sums of the round.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use undertone_coordinator::chain::Chain;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{Opened, RunHead};
use undertone_coordinator::record::{LedgerEntry, LedgerLine};
use undertone_coordinator::task::TaskPurpose;
use undertone_protocol::{Blob, TaskState};
use undertone_store::{Millis, NewAttempt};

use super::{Current, Inner, Room, Sums};
use crate::attempt::group::Group;
use crate::attempt::plain::PlainSum;
use crate::attempt::session::Sessions;
use crate::attempt::{self, Attempt, Deadlines, PhaseLimits, Settings, over_selected};
use crate::error::{Result, ServiceError};
use crate::keys::random;
use crate::storage::head_state::{self, Saved};

impl Room {
    /// Loads the head of the store.
    pub(super) fn load(&self) -> Result<(RunHead, Blob)> {
        let (store, blobs) = (&self.shared.store, &self.shared.blobs);
        let row = store.task(self.task.id)?;
        let entropy = RoundEntropy::fresh(random()?);
        let config = &self.task.file.task;
        let plan = self.task.privacy.clone();
        let evaluates = matches!(self.task.file.purpose, TaskPurpose::Evaluate { .. });
        let model = match evaluates {
            true => Vec::new(),
            false => crate::storage::blobs::read(blobs.as_ref(), &row.head_model)?,
        };
        if row.head_round == 0 {
            let trained = (!evaluates).then(|| self.task.trained(&model)).transpose()?;
            let head = RunHead::new(config, plan, trained, &self.task.genesis, &entropy)?;
            return Ok((head, Blob::of(&model)));
        }
        let entries = self.entries()?;
        let state = row.head_state.ok_or(ServiceError::Sealed)?;
        let sealed = crate::storage::blobs::read(blobs.as_ref(), &state)?;
        let trained = (!evaluates).then(|| self.task.trained(&model)).transpose()?;
        let saved = Saved {
            task: self.task.id,
            round: row.head_round,
            ledger: &entries,
            chain: Chain::at(row.chain.clone()),
            model: &model,
            sealed: &sealed,
        };
        let opened = head_state::open(saved, trained, &self.shared.keys)?;
        let head = opened.head(config, plan, &self.task.genesis, &entropy)?;
        Ok((head, Blob::of(&model)))
    }

    /// The rounds of the ledger.
    ///
    /// # Errors
    /// From the store; a line that is none of a ledger.
    pub fn entries(&self) -> Result<Vec<LedgerEntry>> {
        let lines = self.shared.store.ledger(self.task.id, 0)?;
        let mut entries = Vec::with_capacity(lines.len());
        for line in lines {
            match LedgerLine::read(&line) {
                Ok(LedgerLine::Round(entry)) => entries.push(*entry),
                Ok(LedgerLine::End(_)) => {}
                Err(error) => {
                    return Err(ServiceError::Value {
                        key: "a line of the ledger in the store".to_owned(),
                        expected: "one that this service wrote".to_owned(),
                        got: error.to_string(),
                    });
                }
            }
        }
        Ok(entries)
    }

    /// Opens the next attempt, where the task wants one.
    pub(super) fn open_attempt(&self, inner: &mut Inner, now: Millis) -> Result<()> {
        let Some(head) = &inner.head else { return Ok(()) };
        if inner.state != TaskState::Active || head.is_over() || now < inner.not_before {
            return Ok(());
        }
        let opened = match head.open(None) {
            Ok(opened) => opened,
            Err(error) => {
                // A round that the budget refuses now, it refuses for good.
                self.pause(inner, &error.to_string())?;
                return Ok(());
            }
        };
        if let Some(why) = self.too_slow(opened.round(), now)? {
            return self.pause(inner, &why);
        }
        let settings = self.settings(now)?;
        let id = self.shared.store.open_attempt(
            &inner.lease,
            &NewAttempt {
                round: opened.round(),
                target: settings.target(),
                select_until: settings.select_until(),
                report_until: settings.attempt_until(),
            },
        )?;
        crate::failpoint!("attempt.opened");
        let number = self.shared.store.abandoned_since_release(self.task.id)?.len() as u32;
        let model = self.served_model(&inner.model)?;
        let sums = self.sums(&opened, number, &settings, &model)?;
        let (machine, effects) = Attempt::new(settings, now);
        inner.round_opened.get_or_insert(now);
        inner.current = Some(Current {
            id,
            number,
            machine,
            sessions: Sessions::new(),
            pending: BTreeMap::new(),
            devices: BTreeMap::new(),
            chain: head.chain().head().to_owned(),
            model,
            opened,
            sums,
            wake: None,
            due: Vec::new(),
            opened_at: now,
            release: false,
            shards: super::shards::Shards::default(),
        });
        if let (Some(cluster), Some(current)) = (&self.cluster, &mut inner.current) {
            current.shards = self.open_shards(cluster, &inner.lease, current);
        }
        self.apply(inner, now, effects)
    }

    fn settings(&self, now: Millis) -> Result<Settings> {
        let file = &self.task.file;
        let value = |error: attempt::SettingsError| ServiceError::Value {
            key: error.name.to_owned(),
            expected: error.expected,
            got: error.got.to_string(),
        };
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (goal, floor) = (narrow(file.goal()), narrow(file.floor()));
        let target = over_selected(goal, file.service.over_selection).map_err(value)?;
        let limits = file.service.deadlines;
        let until = Deadlines {
            select: now + limits.select.millis(),
            report: now + limits.report.millis(),
            attempt: now + limits.attempt.millis(),
        };
        match self.task.is_secure() {
            false => Settings::plain(target, goal, floor, until),
            true => Settings::groups(
                target,
                narrow(file.service.group.target).min(target),
                narrow(file.service.group.min),
                floor,
                PhaseLimits {
                    lobby: limits.lobby.millis(),
                    keys: limits.keys.millis(),
                    shares: limits.shares.millis(),
                    upload: limits.upload.millis(),
                    unmask: limits.unmask.millis(),
                },
                until,
            ),
        }
        .map_err(value)
    }

    fn sums(&self, opened: &Opened, number: u32, settings: &Settings, model: &Blob) -> Result<Sums> {
        let Some(terms) = self.task.terms()? else {
            let adaptive = opened.estimate().is_some();
            let goal = u32::try_from(self.task.file.goal()).unwrap_or(u32::MAX);
            return Ok(Sums::Plain(Arc::new(PlainSum::new(
                opened.bound().clone(),
                goal,
                adaptive,
            )?)));
        };
        let graph = self.task.graph()?;
        let mut groups = Vec::new();
        while settings.places(groups.len() as u32) > 0 {
            let shard = groups.len() as u32;
            let context = self
                .names
                .next(opened.round(), number, shard, model.digest()?, terms)?;
            let group = Group::new(context, self.trust(), graph, settings.places(shard))?;
            groups.push(Arc::new(Mutex::new(group)));
        }
        Ok(Sums::Groups(groups))
    }
}
