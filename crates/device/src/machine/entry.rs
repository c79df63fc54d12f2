//! The way into a session: board, session keys, check-in, assignment.

use undertone_aggregation::Wiped;
use undertone_protocol::{
    Assignment, Blob, Board, CheckIn, CheckInReply, Digest32, Label, ProtocolError, RoundSettings, Signed,
    TaskCard, check_in_reply, limits, read, write,
};
use undertone_secagg::SigningIdentity;
use zeroize::Zeroizing;

use super::{Ended, Machine, State};
use crate::certificates::{check_certificate, check_session_certificate, session_keys};
use crate::eligibility::{Ineligible, Schedule, eligible, separated};
use crate::error::Refusal;
use crate::floors::Neighbours;
use crate::held::NamedRelease;
use crate::keystore::SecretKey;
use crate::memory::{Participation, Progress, Row, StockedKey};
use crate::plan::{Prepared, RoundTerms, TaskPlan, array};
use crate::wire::{Bytes, Method, Request, hex, target};

/// A device asks for session keys when it has fewer than this number.
const LOW_STOCK: usize = 2;

/// Number of session keys that a device asks for at once: the default limit of an issuer for a day.
const KEYS_AT_ONCE: usize = 8;

/// Max bytes of a session token.
const MAX_TOKEN: usize = 1024;

/// Keys that wait for their certificates.
pub(super) struct Requesting {
    seeds: Vec<(SecretKey, Digest32)>,
}

impl Requesting {
    pub(super) fn request(&self, population: &str, certificate: Option<Signed>) -> Request {
        let keys: Vec<Digest32> = self.seeds.iter().map(|(_, public)| *public).collect();
        session_keys(population, &keys, certificate)
    }
}

/// A check-in, which keeps its number when it is sent again.
pub(super) struct CheckingIn {
    id: [u8; 16],
    cards: Vec<(Digest32, TaskCard)>,
}

/// An assignment that the device follows, and the pieces that it has loaded for it.
pub(crate) struct Session {
    pub(super) base: String,
    pub(super) token: Zeroizing<String>,
    pub(super) task: Digest32,
    pub(super) round: u64,
    pub(super) attempt: u32,
    pub(super) shard: u32,
    pub(super) chain: Digest32,
    pub(super) settings: RoundSettings,
    pub(super) plan_blob: Blob,
    pub(super) model_blob: Blob,
    /// The last time at which an upload makes sense.
    pub(super) report_by: u64,
    pub(super) end_by: u64,
    pub(super) plan: Option<std::sync::Arc<TaskPlan>>,
    pub(super) terms: Option<RoundTerms>,
    pub(super) prepared: Option<std::sync::Arc<Prepared>>,
    pub(super) frozen: Option<Bytes>,
    pub(super) model: Option<Bytes>,
    /// The session key that the participation uses up.
    pub(super) key: Option<StockedKey>,
    /// The time of the participation, fixed when its row is first written.
    pub(super) taking_part_at: Option<u64>,
}

impl Session {
    pub(super) fn head(&self) -> Row {
        Row::Head {
            task: self.task,
            round: self.round,
            chain: self.chain,
        }
    }

    pub(super) fn participation(&self) -> Option<Row> {
        let plan = self.plan.as_ref()?;
        Some(Row::Participation {
            row: Participation {
                task: self.task,
                round: self.round,
                attempt: self.attempt,
                at_ms: self.taking_part_at?,
                progress: Progress::Begun,
            },
            rho: plan.planned.rho,
            key: self.key.as_ref().map(|key| key.public),
        })
    }

    /// The digest of the model, which was checked when the model came.
    pub(super) fn model_digest(&self) -> Digest32 {
        digest_of_blob(&self.model_blob)
    }

    pub(super) fn plan_backoff(&self, until_ms: u64) -> Row {
        Row::PlanBackoff {
            plan: digest_of_blob(&self.plan_blob),
            until_ms,
        }
    }

    pub(super) fn progress(&self, progress: Progress) -> Row {
        Row::Progress {
            task: self.task,
            round: self.round,
            attempt: self.attempt,
            progress,
        }
    }
}

/// The digest that names a blob. Its form was checked when the assignment was accepted.
fn digest_of_blob(blob: &Blob) -> Digest32 {
    blob.digest().unwrap_or_default()
}

/// A required part of a message.
fn part<'m, T>(name: &'static str, value: Option<&'m T>) -> Result<&'m T, Refusal> {
    value.ok_or_else(|| Refusal::value(name, "a value", "none"))
}

impl Machine {
    pub(super) fn board_request(&self) -> Request {
        Request {
            method: Method::Get,
            target: format!("/v1/p/{}/board", self.setup.population),
            headers: Vec::new(),
            body: Wiped::default(),
            max_reply: limits::MAX_MESSAGE,
            timeout_ms: 30_000,
            blob: None,
        }
    }

    pub(super) fn receive_board(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let signed: Signed = read("the signed board", body, limits::MAX_MESSAGE)?;
        let (body, _) = self.setup.board_keys.open(Label::Board, &signed)?;
        let board: Board = read("the board", body, limits::MAX_MESSAGE)?;
        if board.population != self.setup.population {
            let expected = self.setup.population.clone();
            return Err(Refusal::value(
                "the board's population",
                expected,
                board.population,
            ));
        }
        self.window = board.idle;
        // PRIVACY: a clock that is far from the service's cannot tell whether a timer has run out.
        if board.issued_ms.abs_diff(self.now) > limits::MAX_SKEW.as_millis() as u64 {
            self.finish(Ended::Clock);
            return Ok(());
        }
        self.confirmed_ms = Some(self.now);
        self.memory.confirm(self.now);
        self.named = board.tasks.iter().filter_map(NamedRelease::of).collect();
        let (mut cards, mut reasons) = (Vec::new(), Vec::new());
        for card in board.tasks {
            match eligible(
                &card,
                &self.memory,
                &self.setup.limits,
                self.setup.client_version,
                self.now,
            ) {
                Ok(task) if cards.len() < limits::MAX_ELIGIBLE => cards.push((task, card)),
                Ok(_) => {}
                Err(reason) => {
                    let task = Digest32::try_from(&card.task[..]).unwrap_or_default();
                    reasons.push((task, reason));
                }
            }
        }
        if cards.is_empty() {
            self.wait_for(&reasons);
            self.finish(Ended::NotEligible(reasons));
            return Ok(());
        }
        let certified = self.memory.certificate.as_ref().is_some_and(|certificate| {
            let device = self.device.public();
            let checked = check_certificate(
                certificate,
                &self.setup.issuers,
                &self.setup.population,
                &device,
                self.now,
            );
            checked.is_ok()
        });
        if !certified {
            self.finish(Ended::NotEnrolled);
            return Ok(());
        }
        let mut id = [0; 16];
        self.rng_fill(&mut id);
        self.checking_in = Some(CheckingIn { id, cards });
        self.advance();
        let stock = self.memory.stock.iter();
        let valid = stock.filter(|key| key.not_after_ms > self.now).count();
        if matches!(self.setup.floors.neighbours, Neighbours::Certified) && valid < LOW_STOCK {
            self.state = State::Keys(self.fresh_keys());
        } else {
            self.check_in();
        }
        Ok(())
    }

    /// The window after a board without a task for this device: not before the first timer runs out.
    fn wait_for(&mut self, reasons: &[(Digest32, Ineligible)]) {
        let times = reasons.iter().filter_map(|(_, reason)| match reason {
            Ineligible::TooNew { until_ms }
            | Ineligible::TooSoon { until_ms }
            | Ineligible::PlanBackoff { until_ms } => Some(*until_ms),
            _ => None,
        });
        if let Some(wait) = times.min().map(|until| until.saturating_sub(self.now))
            && reasons.len() == 1
        {
            let window = self.window.unwrap_or_default();
            self.window = Some(undertone_protocol::RetryWindow::between(
                window.min_ms.max(wait),
                window.max_ms.max(wait.saturating_add(wait / 10)),
            ));
        }
    }

    fn fresh_keys(&mut self) -> Requesting {
        let mut fresh = || {
            let mut seed = SecretKey::default();
            self.rng_fill(seed.as_mut());
            let public = SigningIdentity::from_seed(&seed).public();
            (seed, public)
        };
        Requesting {
            seeds: (0..KEYS_AT_ONCE).map(|_| fresh()).collect(),
        }
    }

    pub(super) fn receive_certificates(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let reply: undertone_protocol::SessionCertificates =
            read("the session certificates", body, limits::MAX_MESSAGE)?;
        let State::Keys(requesting) = &self.state else {
            return Ok(());
        };
        let mut keys: Vec<StockedKey> = Vec::new();
        for signed in reply.certificates.into_iter().take(KEYS_AT_ONCE) {
            // The key that the certificate is for decides; an answer may hold fewer than were asked for.
            let found = requesting.seeds.iter().find_map(|(seed, public)| {
                let checked = check_session_certificate(
                    &signed,
                    &self.setup.issuers,
                    &self.setup.population,
                    public,
                    self.now,
                );
                checked.ok().map(|end| (seed, public, end))
            });
            let Some((seed, public, not_after_ms)) = found else {
                return Err(Refusal::value(
                    "a session certificate",
                    "one of a trusted issuer for a key of this device",
                    "another",
                ));
            };
            if keys.iter().all(|key| key.public != *public) {
                keys.push(StockedKey {
                    seed: seed.clone(),
                    public: *public,
                    certificate: signed,
                    not_after_ms,
                });
            }
        }
        self.advance();
        self.state = State::WriteStock(keys);
        Ok(())
    }

    /// Goes on to the check-in that the board led to.
    pub(super) fn check_in(&mut self) {
        match self.checking_in.take() {
            Some(checking_in) => self.state = State::CheckIn(checking_in),
            None => self.finish(Ended::Unreachable),
        }
    }

    pub(super) fn check_in_request(&self, checking_in: &CheckingIn) -> Request {
        let message = CheckIn {
            checkin: checking_in.id.to_vec(),
            eligible: checking_in.cards.iter().map(|(task, _)| task.to_vec()).collect(),
            client_version: self.setup.client_version,
            certificate: self.memory.certificate.clone(),
            evidence: self.setup.evidence.clone(),
        };
        Request {
            method: Method::Post,
            target: format!("/v1/p/{}/check-in", self.setup.population),
            body: write(&message).into(),
            ..self.board_request()
        }
    }

    pub(super) fn receive_assignment(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let reply: CheckInReply = read("the reply to the check-in", body, limits::MAX_MESSAGE)?;
        let State::CheckIn(checking_in) = &self.state else {
            return Ok(());
        };
        match reply.reply {
            Some(check_in_reply::Reply::Rejected(problem)) => {
                self.rejected(&problem);
                Ok(())
            }
            Some(check_in_reply::Reply::Assignment(assignment)) => {
                let session = self.accept(&assignment, &checking_in.cards)?;
                self.session = Some(session);
                self.advance();
                self.state = State::WriteHead;
                Ok(())
            }
            None => Err(Refusal::OutOfTurn {
                expected: "an assignment or a refusal",
                got: "neither",
            }),
        }
    }

    /// Compares an assignment with the board and with the device's memory.
    fn accept(&self, assignment: &Assignment, cards: &[(Digest32, TaskCard)]) -> Result<Session, Refusal> {
        let id: [u8; 16] = array("assignment.session", &assignment.session)?;
        let task: Digest32 = array("assignment.task", &assignment.task)?;
        let chain: Digest32 = array("assignment.chain", &assignment.chain)?;
        let aggregator = target("assignment.aggregator", &assignment.aggregator)?;
        let (_, card) = cards
            .iter()
            .find(|(known, _)| *known == task)
            .ok_or_else(|| Refusal::value("assignment.task", "a task that the device offered", "another"))?;
        if !(1..=MAX_TOKEN).contains(&assignment.token.len()) {
            let expected = format!("1 to {MAX_TOKEN} bytes");
            return Err(Refusal::value(
                "assignment.token",
                expected,
                assignment.token.len(),
            ));
        }
        let round = assignment.round;
        // PRIVACY: a server that goes back, or that shows two histories of one round, gets nothing from this device.
        match self.memory.heads.get(&task) {
            Some((seen, _)) if round < *seen => {
                return Err(Refusal::OldRound {
                    seen: *seen,
                    got: round,
                });
            }
            Some((seen, known)) if round == *seen && *known != chain => {
                return Err(Refusal::OtherHead { round });
            }
            _ => {}
        }
        let plan_blob = part("assignment.plan", assignment.plan.as_ref())?;
        let on_board = part("the card's plan", card.plan.as_ref())?;
        if plan_blob.digest()? != on_board.digest()? {
            return Err(ProtocolError::Digest { name: "the plan" }.into());
        }
        self.check_schedule(
            &task,
            &Schedule {
                round,
                min_sep: card.min_sep,
                max_part: card.max_part,
                timer_ms: card.timer_s.saturating_mul(1000),
            },
        )?;
        let model_blob = part("assignment.model", assignment.model.as_ref())?;
        model_blob.digest()?;
        let limit = self.setup.limits.down_bytes;
        if model_blob.length > limit {
            let expected = format!("at most {limit} bytes");
            return Err(Refusal::floor("the model", expected, model_blob.length));
        }
        let deadlines = assignment.deadlines.unwrap_or_default();
        let wall = self.setup.limits.wall_ms;
        let within = |limit: u64| match limit {
            0 => wall,
            limit => limit.min(wall),
        };
        let end_by = self.now.saturating_add(within(deadlines.attempt_ms));
        Ok(Session {
            base: format!("{}/{}", aggregator.trim_end_matches('/'), hex(&id)),
            token: Zeroizing::new(hex(&assignment.token)),
            task,
            round,
            attempt: assignment.attempt,
            shard: assignment.shard,
            chain,
            settings: part("assignment.settings", assignment.settings.as_ref())?.clone(),
            plan_blob: plan_blob.clone(),
            model_blob: model_blob.clone(),
            report_by: end_by.min(self.now.saturating_add(within(deadlines.report_ms))),
            end_by,
            plan: None,
            terms: None,
            prepared: None,
            frozen: None,
            model: None,
            key: None,
            taking_part_at: None,
        })
    }

    /// PRIVACY: the schedule of the board and that of the signed plan are both checked for the round that is really offered.
    pub(super) fn check_schedule(&self, task: &Digest32, schedule: &Schedule) -> Result<(), Refusal> {
        separated(&self.memory, task, schedule, self.now).map_err(|reason| {
            let expected = "far enough from the last participation of this device";
            Refusal::value("assignment.round", expected, format!("{reason:?}"))
        })
    }

    pub(super) fn rng_fill(&mut self, bytes: &mut [u8]) {
        use rand_core::Rng;
        self.rng.fill_bytes(bytes);
    }
}
