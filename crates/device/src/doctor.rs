//! The reasons for which a device takes part or not, found without a session: nothing is trained, sent or counted.

use undertone_protocol::{
    Blob, Board, Certificate, Code, Digest32, Label, PROTOCOL_HEADER, Problem, Signed, TaskCard, limits, read,
};

use crate::certificates::{check_certificate, ends_ms};
use crate::driver::Transport;
use crate::eligibility::{Ineligible, Schedule, eligible, separated};
use crate::error::shown;
use crate::machine::Setup;
use crate::memory::Memory;
use crate::plan::{PlanChecks, TaskPlan};
use crate::wire::{Method, Request};

/// A subject of an examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// The way to the service.
    Server,
    /// The protocol and the version of the app.
    Version,
    /// The signature of the board.
    Keys,
    /// The clock of the device.
    Clock,
    /// The certificate of the device.
    Certificate,
    /// The memory of participations.
    Memory,
    /// The pace of the service.
    Pace,
    /// A task of the board.
    Task(Digest32),
}

/// The condition of one subject.
#[derive(Debug, Clone, PartialEq)]
pub enum Diagnosis {
    /// Nothing stands in the way.
    Good(String),
    /// The device may take part later, without help.
    Later(String),
    /// Somebody must do something first.
    Bad {
        /// The fault.
        fault: String,
        /// The remedy.
        remedy: String,
    },
    /// An app that embeds the device decides by the reason.
    Ineligible(Ineligible),
}

/// One result of an examination.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The subject of the finding.
    pub subject: Subject,
    /// The condition of the subject.
    pub condition: Diagnosis,
}

impl Finding {
    fn good(subject: Subject, what: impl Into<String>) -> Self {
        let condition = Diagnosis::Good(what.into());
        Self { subject, condition }
    }

    fn bad(subject: Subject, fault: impl Into<String>, remedy: impl Into<String>) -> Self {
        let condition = Diagnosis::Bad {
            fault: fault.into(),
            remedy: remedy.into(),
        };
        Self { subject, condition }
    }
}

/// The inputs of an examination.
pub(crate) struct Patient<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) memory: &'a Memory,
    pub(crate) device: Digest32,
    pub(crate) wake_ms: u64,
    pub(crate) now_ms: u64,
}

impl Patient<'_> {
    /// Examines the device, and the board of its population.
    pub(crate) fn examine(&self, transport: &mut dyn Transport) -> Vec<Finding> {
        let mut found = vec![self.certificate(), self.memory()];
        if self.now_ms < self.wake_ms {
            let seconds = (self.wake_ms - self.now_ms).div_ceil(1000);
            let condition =
                Diagnosis::Later(format!("the service asked for the next session in {seconds} s"));
            found.push(Finding {
                subject: Subject::Pace,
                condition,
            });
        } else {
            found.push(Finding::good(Subject::Pace, "a session may begin now"));
        }
        let Some(board) = self.board(transport, &mut found) else {
            return found;
        };
        found.push(self.clock(&board));
        if board.tasks.is_empty() {
            let condition = Diagnosis::Later("the board has no task now".to_owned());
            found.push(Finding {
                subject: Subject::Server,
                condition,
            });
        }
        for card in &board.tasks {
            found.push(self.task(card, transport));
        }
        found
    }

    fn certificate(&self) -> Finding {
        let subject = Subject::Certificate;
        let again = "run `undertone device enrol --again`, or enrol with a new invitation";
        let Some(certificate) = &self.memory.certificate else {
            return Finding::bad(
                subject,
                "the device has no certificate",
                "enrol it with an invitation",
            );
        };
        let Setup {
            issuers, population, ..
        } = self.setup;
        match check_certificate(certificate, issuers, population, &self.device, self.now_ms) {
            Ok(()) => {
                let left = ends_ms(certificate).unwrap_or(0).saturating_sub(self.now_ms);
                Finding::good(subject, format!("valid for {} days", left / 86_400_000))
            }
            Err(refusal) => Finding::bad(subject, refusal.to_string(), again),
        }
    }

    fn memory(&self) -> Finding {
        let subject = Subject::Memory;
        let Memory { latest_ms, lost, .. } = *self.memory;
        if latest_ms > self.now_ms.saturating_add(limits::MAX_SKEW.as_millis() as u64) {
            let hours = (latest_ms - self.now_ms) / 3_600_000;
            let condition = Diagnosis::Later(format!(
                "the clock of this machine was {hours} h later before; the next session goes by the present one if the board confirms it"
            ));
            return Finding { subject, condition };
        }
        if lost > 0 {
            let condition = Diagnosis::Later(format!(
                "the store was restored from a copy, so {lost} participations count for every task, and each timer starts anew"
            ));
            return Finding { subject, condition };
        }
        let known = self.memory.participations.len();
        Finding::good(subject, format!("{known} participations are known"))
    }

    /// The board; `None` where it was not got, with the reason among the findings.
    fn board(&self, transport: &mut dyn Transport, found: &mut Vec<Finding>) -> Option<Board> {
        let target = format!("/v1/p/{}/board", self.setup.population);
        let reply = match transport.send(&get(target, limits::MAX_MESSAGE, None)) {
            Ok(reply) => reply,
            Err(error) => {
                found.push(Finding::bad(
                    Subject::Server,
                    error.to_string(),
                    "check the address, the network, and the root of the server's certificate (`device enrol --root`)",
                ));
                return None;
            }
        };
        if !reply.is_success() {
            let problem = reply.problem().unwrap_or_default();
            found.push(refused(reply.status, &problem));
            return None;
        }
        found.push(Finding::good(Subject::Server, "the service answers"));
        let name = "the board";
        let board = read::<Signed>(name, &reply.body, limits::MAX_MESSAGE).and_then(|signed| {
            let (body, _) = self.setup.board_keys.open(Label::Board, &signed)?;
            read::<Board>(name, body, limits::MAX_MESSAGE)
        });
        match board {
            Ok(board) if board.population == self.setup.population => {
                found.push(Finding::good(
                    Subject::Keys,
                    "the board is signed by a key that this device trusts",
                ));
                Some(board)
            }
            Ok(board) => {
                found.push(Finding::bad(
                    Subject::Keys,
                    format!("the board is that of the population {}", shown(&board.population)),
                    "enrol in the population that the operator named",
                ));
                None
            }
            Err(error) => {
                found.push(Finding::bad(
                    Subject::Keys,
                    error.to_string(),
                    "get the present keys of the service (`undertone identity keys`) by a way that you trust, and enrol with them",
                ));
                None
            }
        }
    }

    fn clock(&self, board: &Board) -> Finding {
        let apart = board.issued_ms.abs_diff(self.now_ms) / 1000;
        let max = limits::MAX_SKEW.as_secs();
        match apart <= max {
            true => Finding::good(Subject::Clock, format!("{apart} s from that of the service")),
            false => Finding::bad(
                Subject::Clock,
                format!("{apart} s from that of the service, where {max} s are allowed"),
                "set the clock of this machine, or that of the server",
            ),
        }
    }

    fn task(&self, card: &TaskCard, transport: &mut dyn Transport) -> Finding {
        let subject = Subject::Task(Digest32::try_from(&card.task[..]).unwrap_or_default());
        let setup = self.setup;
        let task = match eligible(
            card,
            self.memory,
            &setup.limits,
            setup.client_version,
            self.now_ms,
        ) {
            Ok(task) => task,
            Err(reason) => {
                let condition = Diagnosis::Ineligible(reason);
                return Finding { subject, condition };
            }
        };
        let Some(Ok(digest)) = card.plan.as_ref().map(Blob::digest) else {
            return Finding::bad(subject, "the card names no plan", "tell the operator");
        };
        let target = format!("/v1/blobs/{}", crate::wire::hex(&digest));
        let plan = match transport.send(&get(target, limits::MAX_PLAN, Some(digest))) {
            Ok(reply) if reply.is_success() => reply.body,
            Ok(reply) => return refused(reply.status, &reply.problem().unwrap_or_default()).about(subject),
            Err(error) => return Finding::bad(subject, error.to_string(), "try again"),
        };
        let checks = PlanChecks {
            population: &setup.population,
            trusted: &setup.task_keys,
            floors: &setup.floors,
            limits: &setup.limits,
            client_version: setup.client_version,
        };
        let own = "the requirements of the device are those of the app (`device enrol --floors`); the operator can change the task";
        match TaskPlan::read(&plan, &task, &checks) {
            Err(refusal) => Finding::bad(subject, refusal.to_string(), own),
            Ok(plan) => {
                if let Err(reason) = self.follows(&task, card.round, &plan) {
                    let condition = Diagnosis::Ineligible(reason);
                    return Finding { subject, condition };
                }
                let cost = self.memory.cost_with(&task, plan.planned.rho);
                match cost > setup.floors.population_rho {
                    true => Finding::bad(
                        subject,
                        format!(
                            "all tasks together would cost rho = {cost}, and the device allows {}",
                            setup.floors.population_rho
                        ),
                        own,
                    ),
                    false => Finding::good(subject, "the device may take part now"),
                }
            }
        }
    }
}

impl Patient<'_> {
    /// The signed plan decides as the board does: the board may say less than the plan asks for.
    fn follows(&self, task: &Digest32, round: u64, plan: &TaskPlan) -> Result<(), Ineligible> {
        if !plan.has_examples(self.memory) {
            return Err(Ineligible::TooFewExamples);
        }
        let schedule = Schedule {
            round,
            min_sep: plan.min_sep,
            max_part: plan.max_part,
            timer_ms: plan.timer_ms,
        };
        separated(self.memory, task, &schedule, self.now_ms)
    }
}

impl Finding {
    fn about(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }
}

fn get(target: String, max_reply: usize, blob: Option<[u8; 32]>) -> Request {
    Request {
        method: Method::Get,
        target,
        headers: vec![(PROTOCOL_HEADER.0, PROTOCOL_HEADER.1.to_owned())],
        body: undertone_aggregation::Wiped::default(),
        max_reply,
        timeout_ms: 30_000,
        blob,
    }
}

/// The finding of a refused request.
fn refused(status: u16, problem: &Problem) -> Finding {
    let said = shown(&problem.message);
    match problem.code() {
        Code::Upgrade => Finding::bad(Subject::Version, said, "install a newer version of the app"),
        Code::NotFound => Finding::bad(
            Subject::Server,
            said,
            "check the name of the population, and that the operator has created a task in it",
        ),
        Code::Revoked => Finding::bad(
            Subject::Certificate,
            said,
            "enrol with a new key, if the operator allows it",
        ),
        code => Finding::bad(
            Subject::Server,
            format!(
                "the service answered with status {status} and {}: {said}",
                code.as_str_name()
            ),
            "check that the address is that of an Undertone service, and look at its log",
        ),
    }
}

/// The subject in a certificate, which names its person to the issuer.
pub(crate) fn subject_of(certificate: &Signed) -> Option<Digest32> {
    let body: Certificate = read("the certificate", &certificate.body, limits::MAX_CERTIFICATE).ok()?;
    body.subject.as_slice().try_into().ok()
}
