//! The transactions of a store in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};

use super::{Attempt, Device, Memory, Model, Session, Task, place};
use crate::clock::{MAX_MILLIS, after};
use crate::rules::{self, AttemptFacts, Receipt, TaskFacts, missing};
use crate::{
    AbandonReason, AbandonedRow, Admission, Admitted, AttemptId, AttemptState, Departure, DeviceRow,
    Enrolled, Enrolment, Histograms, Lease, Membership, Millis, NewAttempt, NewProcess, NewTask, Outcome,
    ProcessRow, Quota, Release, Result, SessionId, SessionState, Store, TaskId, TaskRow, Unpublished,
};

impl Store for Memory {
    fn now(&self) -> Millis {
        self.watch.now()
    }

    fn create_task(&self, task: &NewTask) -> Result<()> {
        let mut state = self.state();
        let taken = state.tasks.iter().any(|found| {
            found.facts.id == task.id
                || (found.task.population == task.population && found.task.name == task.name)
        });
        rules::is_new(taken, task)?;
        let initial = Model {
            digest: task.model,
            made: None,
            published: true,
        };
        state.tasks.push(Task {
            facts: TaskFacts {
                id: task.id,
                state: TaskState::Draft,
                participation: task.participation,
                rounds: task.rounds,
                min_included: task.min_included,
                head_round: 0,
                chain: task.genesis.clone(),
                fence: 0,
                owner: None,
                until: 0,
            },
            task: task.clone(),
            head_model: task.model,
            head_state: None,
            users: BTreeMap::new(),
            barred: BTreeSet::new(),
            lines: Vec::new(),
            metrics: Vec::new(),
            models: BTreeMap::from([(0, initial)]),
            histogram: BTreeMap::new(),
            deleted: false,
            pinned: None,
        });
        Ok(())
    }

    fn task(&self, task: TaskId) -> Result<TaskRow> {
        Ok(self.state().task(task)?.row())
    }

    fn tasks(&self) -> Result<Vec<TaskRow>> {
        Ok(self.state().tasks.iter().map(Task::row).collect())
    }

    fn set_state(&self, task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let found = state.task_mut(task)?;
        found.facts.may_move(from, to, note)?;
        found.facts.state = to;
        state.note(now, actor, "set_state", &rules::moved(task, from, to, note));
        Ok(())
    }

    fn lease(&self, task: TaskId, process: &str, ttl: Millis) -> Result<Option<Lease>> {
        let now = self.now();
        let mut state = self.state();
        let facts = &mut state.task_mut(task)?.facts;
        if !facts.is_free_for(process, now) {
            return Ok(None);
        }
        facts.fence += 1;
        facts.owner = Some(process.to_owned());
        facts.until = after(now, ttl);
        let lease = Lease {
            task,
            process: process.to_owned(),
            fence: facts.fence,
            until: facts.until,
        };
        let open = state
            .open_attempt(task)
            .map(|open| (open.facts.id, open.facts.state));
        if let Some((id, AttemptState::Releasing)) = open {
            state.abandon(now, id, lease.fence, AbandonReason::Crash, &[])?;
        }
        Ok(Some(lease))
    }

    fn renew(&self, lease: &Lease, ttl: Millis) -> Result<Lease> {
        let until = after(self.now(), ttl);
        let mut state = self.state();
        let facts = &mut state.task_mut(lease.task)?.facts;
        facts.led_by(lease)?;
        facts.until = until;
        Ok(Lease {
            until,
            ..lease.clone()
        })
    }

    fn hand_back(&self, lease: Lease) -> Result<()> {
        let mut state = self.state();
        let facts = &mut state.task_mut(lease.task)?.facts;
        facts.led_by(&lease)?;
        facts.owner = None;
        facts.until = 0;
        Ok(())
    }

    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Result<AttemptId> {
        let mut state = self.state();
        let open = state.open_attempt(lease.task).map(|open| open.facts.id);
        let facts = &state.task(lease.task)?.facts;
        facts.led_by(lease)?;
        facts.may_open(open, attempt)?;
        let of_round =
            |found: &&Attempt| found.facts.task == lease.task && found.facts.round == attempt.round;
        let number = state.attempts.iter().filter(of_round).count();
        let id = AttemptId(state.attempts.len() as u64 + 1);
        let (start, opened) = (state.start, self.now());
        state.attempts.push(Attempt {
            facts: AttemptFacts {
                id,
                task: lease.task,
                round: attempt.round,
                state: AttemptState::Selecting,
                fence: lease.fence,
                start,
            },
            number: u32::try_from(number).unwrap_or(u32::MAX),
            target: attempt.target,
            opened,
            select_until: attempt.select_until.min(MAX_MILLIS),
            report_until: attempt.report_until.min(MAX_MILLIS),
            occupied: 0,
            reason: None,
            closed: None,
            members: BTreeMap::new(),
            lost: BTreeMap::new(),
            dropped: HashMap::new(),
            participants: Vec::new(),
            receipt: None,
            included: None,
        });
        Ok(id)
    }

    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Result<()> {
        let mut state = self.state();
        let (_, facts) = state.led(lease, attempt)?;
        facts.may_close_selection()?;
        let facts = &mut state.attempt_mut(attempt)?.facts;
        facts.state = AttemptState::Reporting;
        facts.fence = lease.fence;
        Ok(())
    }

    fn admit(&self, admission: &Admission) -> Result<Admitted> {
        let now = self.now();
        let mut state = self.state();
        if let Some(refused) = state.refusal(admission, now)? {
            return Ok(refused);
        }
        if state.sessions.contains_key(&admission.session) {
            return Err(rules::session_taken());
        }
        let (user, id) = (admission.user, admission.session);
        let attempt = state.attempt_mut(admission.attempt)?;
        attempt.occupied += 1;
        attempt.members.insert(user, id);
        let task = attempt.facts.task;
        let hold = admission.hold_until.min(MAX_MILLIS);
        state.task_mut(task)?.users.entry(user).or_default().hold = Some(hold);
        let checkin = (admission.device, admission.checkin);
        state.checkins.insert(checkin, id);
        let session = Session {
            attempt: admission.attempt,
            user,
            state: SessionState::Assigned,
            checkin,
            opened: now,
        };
        state.sessions.insert(id, session);
        Ok(Admitted::Yes)
    }

    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        for &(id, to) in states {
            let Some(session) = state.sessions.get_mut(&id) else {
                continue;
            };
            let Some(attempt) = place(session.attempt).and_then(|at| state.attempts.get_mut(at)) else {
                continue;
            };
            if !rules::is_open(attempt.facts.state) || !rules::moves(session.state, to) {
                continue;
            }
            session.state = to;
            attempt.occupied -= u32::from(!rules::takes_place(to));
            if to == SessionState::LostBeforeReady {
                attempt.members.remove(&session.user);
                let lost = attempt.lost.entry(session.user).or_default();
                lost.count(session.opened);
                let dropped = attempt.dropped.entry(session.checkin.0).or_default();
                dropped.count(session.opened);
                let task = attempt.facts.task;
                let found = state.tasks.iter_mut().find(|found| found.facts.id == task);
                if let Some(user) = found.and_then(|task| task.users.get_mut(&session.user)) {
                    user.hold = None;
                }
            }
        }
        Ok(())
    }

    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Result<()> {
        let mut state = self.state();
        let (task, facts) = state.led(lease, attempt)?;
        task.may_reserve(facts, state.start, included)?;
        let facts = &mut state.attempt_mut(attempt)?.facts;
        facts.state = AttemptState::Releasing;
        facts.fence = lease.fence;
        Ok(())
    }

    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()> {
        let now = self.now();
        let mut guard = self.state();
        let (task, facts) = guard.led(lease, release.attempt)?;
        let attempt = guard.attempt(release.attempt)?;
        if let Some(receipt) = &attempt.receipt {
            return receipt.repeats(release);
        }
        task.may_commit(facts, lease, release)?;
        let users = rules::distinct(release)?;
        let known = &guard.task(lease.task)?.users;
        for &user in &users {
            let last = known.get(&user).and_then(|found| found.last);
            rules::keeps_to_schema(task.participation, last, release.round, user)?;
        }
        let number = attempt.number;

        let state = &mut *guard;
        let attempt = state.attempt_mut(release.attempt)?;
        attempt.facts.state = AttemptState::Committed;
        attempt.facts.fence = lease.fence;
        attempt.closed = Some(now);
        attempt.receipt = Some(Receipt::of(release));
        attempt.included = Some(release.included.len() as u64);
        let members = attempt.members.clone();
        for (listed, to) in [
            (&release.included, SessionState::Included),
            (&release.lost, SessionState::Lost),
        ] {
            for id in listed.iter().filter_map(|user| members.get(user)) {
                if let Some(session) = state.sessions.get_mut(id) {
                    session.state = to;
                }
            }
        }
        let task = state.task_mut(lease.task)?;
        for user in members.keys() {
            if let Some(user) = task.users.get_mut(user) {
                user.hold = None;
            }
        }
        for user in users {
            task.count(user, release.round);
        }
        task.lines.push(release.line.clone());
        task.metrics.push(release.metrics.clone());
        let round = release.round + 1;
        let made = Unpublished {
            round,
            attempt: release.attempt,
            attempt_of_round: number,
            model: release.model,
            state: release.state,
            chain: release.digest.clone(),
        };
        let model = Model {
            digest: release.model,
            made: Some(made),
            published: false,
        };
        task.models.insert(round, model);
        task.facts.head_round = round;
        task.facts.chain.clone_from(&release.digest);
        task.head_model = release.model;
        task.head_state = release.state;
        Ok(())
    }

    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let (_, facts) = state.led(lease, attempt)?;
        if facts.may_abandon()? {
            state.abandon(now, attempt, lease.fence, reason, users)?;
        }
        Ok(())
    }

    fn outcome(&self, attempt: AttemptId) -> Result<Outcome> {
        let state = self.state();
        let found = state.attempt(attempt)?;
        Ok(Outcome {
            state: found.facts.state,
            reason: found.reason,
            fence: found.facts.fence,
        })
    }

    fn open_attempt_of(&self, task: TaskId) -> Result<Option<(AttemptId, AttemptState)>> {
        let state = self.state();
        let open = state.open_attempt(task);
        Ok(open.map(|attempt| (attempt.facts.id, attempt.facts.state)))
    }

    fn round_opened(&self, task: TaskId, round: u64) -> Result<Option<Millis>> {
        let state = self.state();
        let mut attempts = state.attempts.iter();
        let first = attempts.find(|attempt| attempt.facts.task == task && attempt.facts.round == round);
        Ok(first.map(|attempt| attempt.opened))
    }

    fn abandoned_since_release(&self, task: TaskId) -> Result<Vec<AbandonedRow>> {
        let state = self.state();
        let mut found: Vec<AbandonedRow> = state
            .attempts
            .iter()
            .rev()
            .filter(|attempt| attempt.facts.task == task)
            .take_while(|attempt| attempt.facts.state != AttemptState::Committed)
            .filter_map(|attempt| {
                Some(AbandonedRow {
                    round: attempt.facts.round,
                    attempt_of_round: attempt.number,
                    reason: attempt.reason?,
                    participants: attempt.participants.clone(),
                })
            })
            .collect();
        found.reverse();
        Ok(found)
    }

    fn unpublished(&self, task: TaskId) -> Result<Vec<Unpublished>> {
        let state = self.state();
        let models = state.task(task).map(|found| &found.models);
        Ok(models
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|model| !model.published)
            .filter_map(|model| model.made.clone())
            .collect())
    }

    fn published(&self, task: TaskId, round: u64) -> Result<()> {
        let mut state = self.state();
        let model = state.task_mut(task)?.models.get_mut(&round);
        let Some(model) = model else {
            return Err(rules::no_model(task, round));
        };
        model.published = true;
        Ok(())
    }

    fn may_serve(&self, blob: &Digest32) -> Result<bool> {
        let state = self.state();
        Ok(state.tasks.iter().any(|found| {
            let mut models = found.models.values();
            found.task.plan == *blob || models.any(|model| model.published && model.digest == *blob)
        }))
    }

    fn ledger(&self, task: TaskId, from: u64) -> Result<Vec<Vec<u8>>> {
        let state = self.state();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let lines = state.task(task).map_or(&[][..], |found| &found.lines);
        Ok(lines.iter().skip(from).cloned().collect())
    }

    fn end(&self, lease: &Lease, line: &[u8], digest: &str, previous: &str) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let open = state.open_attempt(lease.task).map(|open| open.facts.id);
        let task = state.task_mut(lease.task)?;
        task.facts.led_by(lease)?;
        task.facts.may_end(open, line, digest, previous)?;
        let from = task.facts.state;
        task.lines.push(line.to_vec());
        digest.clone_into(&mut task.facts.chain);
        task.facts.state = TaskState::Completed;
        let detail = rules::moved(lease.task, from, TaskState::Completed, "");
        state.note(now, &lease.process, "end", &detail);
        Ok(())
    }

    fn metrics(&self, task: TaskId) -> Result<Vec<Vec<u8>>> {
        let state = self.state();
        Ok(state
            .task(task)
            .map_or_else(|_| Vec::new(), |found| found.metrics.clone()))
    }

    fn append_metrics(&self, task: TaskId, line: &[u8]) -> Result<()> {
        self.state().task_mut(task)?.metrics.push(line.to_vec());
        Ok(())
    }

    fn observed(&self, task: TaskId) -> Result<Histograms> {
        let state = self.state();
        let mut found = Histograms::default();
        let known = state.task(task).ok();
        let mut counts = known.map_or_else(BTreeMap::new, |task| task.histogram.clone());
        found.users = counts.values().sum();
        let users = known.map(|task| &task.users);
        for last in users
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter_map(|user| user.last)
        {
            *counts.entry(last.participations).or_default() += 1;
            found.users += 1;
        }
        found.participations = counts.into_iter().collect();
        Ok(found)
    }

    fn enrol(&self, enrolment: &Enrolment) -> Result<Enrolled> {
        let now = self.now();
        let mut state = self.state();
        if let Some(found) = state.devices.get(&enrolment.key) {
            return Ok(Enrolled::Device(found.row.clone()));
        }
        if let Some(how) = state.departure(&enrolment.population, &enrolment.person) {
            return Ok(Enrolled::Departed(how));
        }
        let all = state.devices.values();
        let own: Vec<&Device> = all
            .filter(|device| {
                device.person == enrolment.person && device.row.population == enrolment.population
            })
            .collect();
        let devices = own.iter().filter(|device| !device.row.revoked).count() as u64;
        if let Some(refused) = rules::may_enrol(enrolment, own.len() as u64, devices) {
            return Ok(refused);
        }
        if !state.issue(now, &enrolment.day, 1) {
            return Ok(Enrolled::Day);
        }
        let row = rules::enrolled(&enrolment.population, now);
        let device = Device {
            row: row.clone(),
            person: enrolment.person,
        };
        state.devices.insert(enrolment.key, device);
        Ok(Enrolled::Device(row))
    }

    fn membership(&self, key: &Digest32, population: &str, person: &Digest32) -> Result<Membership> {
        let state = self.state();
        Ok(Membership {
            device: state.devices.get(key).map(|device| device.row.clone()),
            departure: state.departure(population, person),
        })
    }

    fn depart(&self, population: &str, person: &Digest32, how: Departure, actor: &str) -> Result<bool> {
        let now = self.now();
        Ok(self.state().depart(now, population, person, how, actor))
    }

    fn device(&self, key: &Digest32) -> Result<Option<DeviceRow>> {
        Ok(self.state().devices.get(key).map(|device| device.row.clone()))
    }

    fn revoke(&self, key: &Digest32, actor: &str) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let name = crate::audit::hex(key);
        let Some(device) = state.devices.get_mut(key) else {
            return Err(missing("device", name));
        };
        device.row.revoked = true;
        let (population, person) = (device.row.population.clone(), device.person);
        let named = crate::audit::hex(&rules::device_name(key));
        state.note(now, actor, "revoke", &format!("device {named}"));
        state.depart(now, &population, &person, Departure::Withdrawn, actor);
        Ok(())
    }

    fn spend(&self, session_key: &Digest32, until: Millis) -> Result<bool> {
        let mut state = self.state();
        let first = !state.spent.contains_key(session_key);
        if first {
            state.spent.insert(*session_key, until.min(MAX_MILLIS));
        }
        Ok(first)
    }

    fn issue(&self, subject: &Digest32, window: u64, number: u32, limit: u32) -> Result<bool> {
        let now = self.now();
        let quota = Quota {
            counter: *subject,
            window,
            limit,
        };
        Ok(self.state().issue(now, &quota, number))
    }

    fn register(&self, process: &NewProcess) -> Result<u64> {
        let now = self.now();
        let mut state = self.state();
        let before = state.processes.get(&process.name).map_or(0, |row| row.epoch + 1);
        let row = ProcessRow {
            name: process.name.clone(),
            epoch: before.max(now),
            url: process.url.clone(),
            roles: process.roles.clone(),
            beat: now,
        };
        let epoch = row.epoch;
        state.processes.insert(process.name.clone(), row);
        Ok(epoch)
    }

    fn beat(&self, process: &str, epoch: u64, roles: &str) -> Result<bool> {
        let now = self.now();
        let mut state = self.state();
        let found = state.processes.get_mut(process).filter(|row| row.epoch == epoch);
        let Some(row) = found else { return Ok(false) };
        row.beat = now;
        roles.clone_into(&mut row.roles);
        Ok(true)
    }

    fn retire(&self, process: &str, epoch: u64) -> Result<()> {
        self.state()
            .processes
            .retain(|name, row| name != process || row.epoch != epoch);
        Ok(())
    }

    fn processes(&self) -> Result<Vec<ProcessRow>> {
        Ok(self.state().processes.values().cloned().collect())
    }

    fn bar(&self, task: TaskId, user: ParticipantId, actor: &str) -> Result<bool> {
        let now = self.now();
        let mut state = self.state();
        let new = state.task_mut(task)?.barred.insert(user);
        if new {
            state.note(now, actor, "bar", &rules::barred(task));
        }
        Ok(new)
    }

    fn keep_pseudonym_key(&self, task: TaskId, sealed: &[u8]) -> Result<Vec<u8>> {
        let mut state = self.state();
        let kept = state.pseudonym_keys.entry(task);
        Ok(kept.or_insert_with(|| sealed.to_vec()).clone())
    }

    fn pseudonym_key(&self, task: TaskId) -> Result<Option<Vec<u8>>> {
        Ok(self.state().pseudonym_keys.get(&task).cloned())
    }

    fn forget_pseudonym_key(&self, task: TaskId, actor: &str) -> Result<bool> {
        let now = self.now();
        let mut state = self.state();
        rules::may_forget(task, state.task(task)?.facts.state)?;
        let rows = state.forget_users(task)?;
        let gone = state.pseudonym_keys.remove(&task).is_some();
        if gone {
            state.note(now, actor, "forget", &rules::forgotten(task));
        }
        Ok(gone || rows)
    }

    fn blobs_of(&self, task: TaskId) -> Result<Vec<Digest32>> {
        let state = self.state();
        rules::may_delete(task, state.task(task)?.facts.state)?;
        let named = |task: &Task| -> BTreeSet<Digest32> {
            let models = task.models.values();
            models
                .flat_map(|model| {
                    [
                        Some(model.digest),
                        model.made.as_ref().and_then(|made| made.state),
                    ]
                })
                .flatten()
                .collect()
        };
        let mut found = named(state.task(task)?);
        for other in &state.tasks {
            found.remove(&other.task.plan);
            if other.facts.id != task {
                found = &found - &named(other);
            }
        }
        Ok(found.into_iter().collect())
    }

    fn pin(&self, task: TaskId, round: Option<u64>, actor: &str) -> Result<bool> {
        let now = self.now();
        let mut state = self.state();
        let found = state.task_mut(task)?;
        let is_there = |round: &u64| found.models.get(round).is_some_and(|model| model.published);
        if let Some(round) = round.filter(|round| !is_there(round)) {
            return Err(rules::not_released(task, round, found.facts.head_round));
        }
        let new = std::mem::replace(&mut found.pinned, round) != round;
        if new {
            let (action, detail) = rules::pinned(task, round);
            state.note(now, actor, action, &detail);
        }
        Ok(new)
    }

    fn delete_task(&self, task: TaskId, actor: &str) -> Result<bool> {
        let now = self.now();
        let mut state = self.state();
        rules::may_delete(task, state.task(task)?.facts.state)?;
        if state.task(task)?.deleted {
            return Ok(false);
        }
        state.forget_users(task)?;
        state.pseudonym_keys.remove(&task);
        let found = state.task_mut(task)?;
        found.deleted = true;
        found.pinned = None;
        found.head_state = None;
        found.histogram.clear();
        found.lines.clear();
        found.metrics.clear();
        found.models.clear();
        state.note(now, actor, "delete", &rules::deleted(task));
        Ok(true)
    }

    fn sweep(&self) -> Result<()> {
        let now = self.now();
        let mut guard = self.state();
        let state = &mut *guard;
        let ended: BTreeSet<TaskId> = state
            .tasks
            .iter()
            .filter(|task| task.facts.state == TaskState::Completed)
            .map(|task| task.facts.id)
            .collect();
        state.forget_sessions(|attempt| {
            attempt.closed.is_some_and(|closed| {
                after(closed, rules::KEEP_SESSIONS) <= now || ended.contains(&attempt.facts.task)
            })
        });
        state.spent.retain(|_, until| *until > now);
        state
            .counters
            .retain(|_, counter| after(counter.at, rules::KEEP_COUNTERS) > now);
        state
            .processes
            .retain(|_, row| after(row.beat, rules::KEEP_PROCESSES) > now);
        Ok(())
    }

    fn scrub(&self) -> Result<()> {
        Ok(())
    }
}
