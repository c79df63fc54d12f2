//! A history on two stores at once, and the book that it is checked against.

use super::*;

/// Both stores, with the number of histories that they have seen.
pub(super) struct Pair {
    pub(super) memory: World,
    pub(super) database: World,
    pub(super) histories: u64,
    /// Sessions so far, so that no identifier comes twice.
    pub(super) sessions: u64,
}

impl Pair {
    pub(super) fn new(database: World) -> Self {
        Self {
            memory: World::memory(),
            database,
            histories: 0,
            sessions: 0,
        }
    }

    /// Does the same on both stores, and checks that both say the same.
    pub(super) fn both<T: std::fmt::Debug>(
        &self,
        act: impl Fn(&dyn Store) -> undertone_store::Result<T>,
    ) -> Result<T, StoreError> {
        let (memory, database) = (act(self.memory.store()), act(self.database.store()));
        let text = |result: &undertone_store::Result<T>| match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(text(&memory), text(&database), "memory and a database");
        database
    }
}

/// The record of one history, kept apart from the stores.
pub(super) struct Oracle {
    pub(super) schema: Participation,
    /// The rounds of each user, in released and abandoned attempts, as they were counted.
    pub(super) rounds: BTreeMap<u64, Vec<u64>>,
    /// Sessions that count, of the open attempt.
    pub(super) members: BTreeSet<u64>,
    pub(super) head: u64,
    pub(super) fence: u64,
    pub(super) ended: bool,
    /// The lines of the ledger.
    pub(super) lines: Vec<Vec<u8>>,
    /// The departures of subjects, and the keys of devices that were revoked.
    pub(super) departed: BTreeMap<Digest32, Departure>,
    pub(super) revoked: BTreeSet<Digest32>,
    /// Admissions that were refused for one of the two.
    pub(super) gone: u64,
}

impl Oracle {
    /// `true` if the user may take part in a round, by the words of the schema.
    pub(super) fn admits(&self, user: u64, round: u64) -> bool {
        let Some(rounds) = self.rounds.get(&user) else {
            return true;
        };
        let fits = rounds.iter().all(|before| {
            let gap = round.checked_sub(*before);
            gap.is_some_and(|gap| gap >= self.schema.gap().get())
        });
        let in_step = self.schema.spacing() == Spacing::AtLeast
            || rounds
                .iter()
                .max()
                .is_none_or(|last| round - last == self.schema.gap().get());
        fits && in_step && (rounds.len() as u64) < self.schema.max_participation()
    }

    pub(super) fn depart(&mut self, person: Digest32, how: Departure) {
        let known = self.departed.entry(person).or_insert(how);
        *known = how.max(*known);
    }

    /// The answer to a device that takes part no more.
    pub(super) fn gone(&self, admission: &Admission) -> Option<Admitted> {
        if self.revoked.contains(&admission.key) {
            return Some(Admitted::Revoked);
        }
        let how = self.departed.get(&admission.person).copied()?;
        (how >= Departure::Left).then_some(Admitted::Departed(how))
    }

    pub(super) fn count(&mut self, user: u64, round: u64) {
        assert!(
            self.admits(user, round),
            "user {user} in round {round} after {:?}",
            self.rounds.get(&user)
        );
        self.rounds.entry(user).or_default().push(round);
    }
}

pub(super) struct History<'a> {
    pub(super) pair: &'a mut Pair,
    pub(super) task: NewTask,
    pub(super) oracle: Oracle,
    pub(super) leases: Vec<Lease>,
    pub(super) attempts: Vec<AttemptId>,
    /// Sessions of the last attempt, with what is known of them.
    pub(super) sessions: Vec<(SessionId, u64)>,
    pub(super) admissions: Vec<Admission>,
    pub(super) last_release: Option<Release>,
}

impl History<'_> {
    pub(super) fn id(&self) -> TaskId {
        self.task.id
    }

    /// The lease to act by: mostly the last one.
    pub(super) fn lease(&self, old: bool) -> Lease {
        let fallback = Lease {
            task: self.id(),
            process: "never".to_owned(),
            fence: 0,
            until: 0,
        };
        let found = if old {
            self.leases.first()
        } else {
            self.leases.last()
        };
        found.cloned().unwrap_or(fallback)
    }

    pub(super) fn attempt(&self) -> AttemptId {
        self.attempts.last().copied().unwrap_or(AttemptId(0))
    }

    /// Checks that only the lease with the last fence has changed anything.
    pub(super) fn led(&self, lease: &Lease) {
        assert_eq!(lease.fence, self.oracle.fence, "a void lease was obeyed");
    }

    /// Counts the users of attempts that were abandoned since the last look.
    pub(super) fn count_abandoned(&mut self, before: usize) {
        let id = self.id();
        let listed = self.pair.both(|store| store.abandoned_since_release(id)).unwrap();
        for abandoned in &listed[before..] {
            assert_eq!(abandoned.round, self.oracle.head);
            let named: BTreeSet<u64> = abandoned.participants.iter().map(|user| user.get()).collect();
            assert_eq!(named.len(), abandoned.participants.len(), "a user twice");
            assert!(
                named.is_superset(&self.oracle.members),
                "a session was not counted"
            );
            for user in named {
                self.oracle.count(user, abandoned.round);
            }
            self.oracle.members.clear();
        }
    }

    pub(super) fn abandoned(&self) -> usize {
        let id = self.id();
        self.pair
            .both(|store| store.abandoned_since_release(id))
            .unwrap()
            .len()
    }

    pub(super) fn step(&mut self, op: &Op) {
        let id = self.id();
        let before = self.abandoned();
        match op {
            Op::Lease { process, ttl } => {
                let process = format!("process {process}");
                if let Some(lease) = self.pair.both(|store| store.lease(id, &process, *ttl)).unwrap() {
                    self.oracle.fence += 1;
                    assert_eq!(lease.fence, self.oracle.fence, "fences grow by one");
                    self.leases.push(lease);
                    self.count_abandoned(before);
                }
            }
            Op::Renew { old } => {
                let lease = self.lease(*old);
                if self.pair.both(|store| store.renew(&lease, 20_000)).is_ok() {
                    self.led(&lease);
                }
            }
            Op::HandBack => {
                let lease = self.lease(false);
                let _ = self.pair.both(|store| store.hand_back(lease.clone()));
            }
            Op::Open { target, wrong_round } => self.open(*target, *wrong_round),
            Op::CloseSelection => {
                let (lease, attempt) = (self.lease(false), self.attempt());
                if self
                    .pair
                    .both(|store| store.close_selection(&lease, attempt))
                    .is_ok()
                {
                    self.led(&lease);
                }
            }
            Op::Admit { user, device, repeat } => self.admit(*user, *device, *repeat),
            Op::Leave {
                user,
                device,
                how,
                last,
            } => {
                self.leave(*user, *device, *how, *last);
                self.admit(*user, *device, *last);
            }
            Op::Note { session, state } => {
                let Some(&(session, who)) = self.sessions.get(session % self.sessions.len().max(1)) else {
                    return;
                };
                let state = STATES[*state];
                self.pair
                    .both(|store| store.note_sessions(&[(session, state)]))
                    .unwrap();
                if state == SessionState::LostBeforeReady {
                    // The stores decide whether the note came in time; both agree, so the next abandonment shows it.
                    self.oracle.members.remove(&who);
                }
            }
            Op::Reserve { included, old } => {
                let (lease, attempt) = (self.lease(*old), self.attempt());
                if self
                    .pair
                    .both(|store| store.reserve(&lease, attempt, *included))
                    .is_ok()
                {
                    self.led(&lease);
                    assert!(*included >= self.task.min_included);
                }
            }
            Op::Commit { split, twist, old } => self.commit(*split, *twist, *old),
            Op::Repeat => {
                let (lease, release) = (self.lease(false), self.last_release.clone());
                if let Some(release) = release {
                    let _ = self.pair.both(|store| store.commit_release(&lease, &release));
                }
            }
            Op::Abandon { reason, extra, old } => {
                let (lease, attempt) = (self.lease(*old), self.attempt());
                // A user whose row the database lost; admission had let it in.
                let extra = extra.filter(|user| self.oracle.admits(*user, self.oracle.head));
                let extra = users(extra);
                let reason = REASONS[*reason];
                if self
                    .pair
                    .both(|store| store.abandon(&lease, attempt, reason, &extra))
                    .is_ok()
                {
                    self.led(&lease);
                    self.count_abandoned(before);
                }
            }
            Op::Advance { by } => {
                self.pair.memory.clock.advance(*by);
                self.pair.database.clock.advance(*by);
            }
            Op::Move { from, to } => {
                let (from, to) = (TASK_STATES[*from], TASK_STATES[*to]);
                let moved = self
                    .pair
                    .both(|store| store.set_state(id, from, to, "operator", "a note"));
                assert!(moved.is_err() || to != TaskState::Completed);
                // Most histories go on.
                let _ = self
                    .pair
                    .both(|store| store.set_state(id, TaskState::Paused, TaskState::Active, "operator", ""));
                let _ = self.pair.both(|store| {
                    store.set_state(id, TaskState::Halted, TaskState::Active, "operator", "on")
                });
            }
            Op::Publish { round } => {
                let done = self.pair.both(|store| store.published(id, *round)).is_ok();
                assert_eq!(done, *round <= self.oracle.head, "round {round}");
            }
            Op::Restart => {
                // A server that other tests share goes on.
                if self.pair.database.can_restart() {
                    self.pair.memory.restart();
                    self.pair.database.restart();
                }
            }
            Op::Sweep => self.pair.both(|store| store.sweep()).unwrap(),
            Op::End => self.end(),
            Op::Round { process, mask, split } => {
                let (process, ttl) = (*process, 20_000);
                self.step(&Op::Lease { process, ttl });
                self.step(&Op::Open {
                    target: 5,
                    wrong_round: false,
                });
                for user in (0..USERS).filter(|user| mask >> user & 1 == 1) {
                    self.step(&Op::Admit {
                        user,
                        device: process,
                        repeat: false,
                    });
                }
                self.step(&Op::Reserve {
                    included: self.task.min_included,
                    old: false,
                });
                self.step(&Op::Commit {
                    split: *split,
                    twist: 23,
                    old: false,
                });
            }
        }
        self.check();
    }

    pub(super) fn open(&mut self, target: u32, wrong_round: bool) {
        let lease = self.lease(false);
        let now = self.pair.database.store().now();
        let attempt = NewAttempt {
            round: self.oracle.head + u64::from(wrong_round),
            target,
            select_until: now + 300_000,
            report_until: now + 600_000,
        };
        if let Ok(opened) = self.pair.both(|store| store.open_attempt(&lease, &attempt)) {
            self.led(&lease);
            assert!(!wrong_round && !self.oracle.ended && self.oracle.head < self.task.rounds);
            assert!(self.attempts.last().is_none_or(|last| *last < opened));
            self.attempts.push(opened);
            self.sessions.clear();
            self.oracle.members.clear();
        }
    }

    /// The hash of a subject and the key of its device, which no other history has.
    fn names(&self, user: u64, device: u8) -> (Digest32, Digest32) {
        let of = |what: &str| sha(format!("{} of {}: {what}", self.task.name, user).as_bytes());
        (of("the subject"), of(&format!("device {device}")))
    }

    pub(super) fn leave(&mut self, user: u64, device: u8, how: Option<Departure>, last: bool) {
        let (person, key) = match self.admissions.last() {
            Some(admission) if last => (admission.person, admission.key),
            _ => self.names(user, device),
        };
        let population = self.task.population.clone();
        if let Some(how) = how {
            let departed = self
                .pair
                .both(|store| store.depart(&population, &person, how, "operator"));
            assert_eq!(departed.unwrap(), self.oracle.departed.get(&person) < Some(&how));
            self.oracle.depart(person, how);
            return;
        }
        let enrolment = Enrolment {
            person,
            ..enrolment(&key, &population)
        };
        self.pair.both(|store| store.enrol(&enrolment)).unwrap();
        // A subject that departed had enrolled no such device.
        if self.pair.both(|store| store.revoke(&key, "operator")).is_ok() {
            self.oracle.revoked.insert(key);
            self.oracle.depart(person, Departure::Withdrawn);
        }
    }

    pub(super) fn admit(&mut self, user: u64, device: u8, repeat: bool) {
        let admission = match self.admissions.last() {
            Some(last) if repeat => last.clone(),
            _ => {
                self.pair.sessions += 1;
                let number = self.pair.sessions;
                let now = self.pair.database.store().now();
                let mut checkin = [0; 16];
                checkin[..8].copy_from_slice(&number.to_le_bytes());
                let (person, key) = self.names(user, device);
                Admission {
                    attempt: self.attempt(),
                    session: session(number),
                    user: common::user(user),
                    person,
                    key,
                    device: sha(&[device, user as u8]),
                    checkin,
                    hold_until: now + 3_000,
                    // Some histories reach these limits.
                    limits: SessionLimits {
                        sessions: 3,
                        interval: 20,
                    },
                }
            }
        };
        let answer = self.pair.both(|store| store.admit(&admission));
        if let (Some(gone), Ok(answer)) = (self.oracle.gone(&admission), &answer) {
            assert_eq!(*answer, gone);
            self.oracle.gone += 1;
        }
        if matches!(answer, Ok(Admitted::Yes)) {
            let user = admission.user.get();
            assert!(
                self.oracle.admits(user, self.oracle.head),
                "user {user} was admitted"
            );
            // PRIVACY: the second open session of a subject would be its second update in the sum.
            assert!(self.oracle.members.insert(user), "user {user} has two sessions");
            self.sessions.push((admission.session, user));
        }
        self.admissions.push(admission);
    }

    pub(super) fn commit(&mut self, split: u16, twist: u8, old: bool) {
        let (lease, attempt, id) = (self.lease(old), self.attempt(), self.id());
        let (mut included, mut lost) = (Vec::new(), Vec::new());
        for (at, user) in self.oracle.members.iter().enumerate() {
            match split >> (2 * at) & 3 {
                0 => {}
                1 => lost.push(*user),
                _ => included.push(*user),
            }
        }
        match twist {
            // A user that is barred, or one whose session was lost.
            0 => included.push(u64::from(split) % USERS),
            1 => lost.push(u64::from(split) % USERS),
            2 => included.extend(included.clone()),
            _ => {}
        }
        let mut release = release(
            self.pair.database.store(),
            id,
            attempt,
            &users(included.iter().copied()),
            &users(lost.iter().copied()),
        );
        match twist {
            3 => release.round += 1,
            4 => release.previous.clone_from(&self.task.genesis),
            5 => release.line.push(b' '),
            _ => {}
        }
        let head = self.pair.both(|store| store.task(id)).unwrap().head_round;
        let committed = self.pair.both(|store| store.commit_release(&lease, &release));
        if committed.is_ok() && self.pair.both(|store| store.task(id)).unwrap().head_round > head {
            self.led(&lease);
            assert!(release.included.len() as u64 >= self.task.min_included);
            for user in included.into_iter().chain(lost) {
                self.oracle.count(user, head);
            }
            self.oracle.head += 1;
            self.oracle.lines.push(release.line.clone());
            self.oracle.members.clear();
            self.last_release = Some(release);
        }
    }

    pub(super) fn end(&mut self) {
        let (lease, id) = (self.lease(false), self.id());
        let row = self.pair.both(|store| store.task(id)).unwrap();
        let line = format!("{{\"previous\":\"{}\",\"end\":true}}", row.chain);
        let digest = hex(&sha(line.as_bytes()));
        let ended = self
            .pair
            .both(|store| store.end(&lease, line.as_bytes(), &digest, &row.chain));
        if ended.is_ok() {
            self.led(&lease);
            assert!(!self.oracle.ended, "a task ended twice");
            self.oracle.ended = true;
            self.oracle.lines.push(line.into_bytes());
        }
    }

    /// The state of both stores is the same, and is that of the record.
    pub(super) fn check(&self) {
        let id = self.id();
        let row = self.pair.both(|store| store.task(id)).unwrap();
        assert_eq!(
            row.head_round, self.oracle.head,
            "the head moves by one per release"
        );
        assert_eq!(row.fence, self.oracle.fence);
        self.pair.both(|store| store.open_attempt_of(id)).unwrap();
        if let Some(attempt) = self.attempts.last() {
            self.pair.both(|store| store.outcome(*attempt)).unwrap();
        }
    }

    /// The whole history once more, at its end.
    pub(super) fn check_end(&self) {
        let id = self.id();
        let lines = self.pair.both(|store| store.ledger(id, 0)).unwrap();
        assert_eq!(lines, self.oracle.lines);
        let mut chain = self.task.genesis.clone();
        for line in &lines {
            let text = std::str::from_utf8(line).unwrap();
            assert!(
                text.contains(&format!("\"previous\":\"{chain}\"")),
                "{text} after {chain}"
            );
            chain = hex(&sha(line));
        }
        assert_eq!(self.pair.both(|store| store.task(id)).unwrap().chain, chain);
        let mut counts = BTreeMap::<u64, u64>::new();
        for rounds in self.oracle.rounds.values() {
            *counts.entry(rounds.len() as u64).or_default() += 1;
        }
        let expected = Histograms {
            participations: counts.into_iter().collect(),
            users: self.oracle.rounds.len() as u64,
        };
        assert_eq!(self.pair.both(|store| store.observed(id)).unwrap(), expected);
        self.pair.both(|store| store.unpublished(id)).unwrap();
        let metrics = self.pair.both(|store| store.metrics(id)).unwrap();
        assert_eq!(metrics.len() as u64, self.oracle.head);
    }
}
