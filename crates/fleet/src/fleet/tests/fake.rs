//! A service in memory with one plain task, which a test can question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use undertone_device::{Limits, Method, NetworkLost, PolicyFloors, Reply, Request, Setup, Transport};
use undertone_models::ModelSpec;
use undertone_protocol::{
    AggregationRule, Assignment, Blob, Board, CHECKSUM_HEADER, Certificate, CheckIn, CheckInReply, ClipRule,
    Code, Commit, Deadlines, DeviceBudget, Digest32, Enrol, Enrolled, Guarantee, Label, Next, Offset,
    PROTOCOL_HEADER, Plan, Problem, RequestSignature, RetryWindow, RoundSettings, SIGNATURE_HEADER, Signer,
    SumMode, TaskCard, TaskKind, TaskState, TrustedKeys, UploadGrant, Verdict, Wait, check_in_reply,
    checksum_header, clip_rule, crc32c, digest_of, limits, next, read, verify_proof, write,
};

use crate::clock::{FleetClock, VirtualClock};
use crate::error::Result;
use crate::transport::Transports;

pub(super) const POPULATION: &str = "words";
pub(super) const START: u64 = 1_700_000_000_000;
pub(super) const CLIP: f64 = 0.5;
/// The life of a certificate, in milliseconds.
pub(super) const LIFE: u64 = 30 * 24 * 3_600_000;
const TASK: Digest32 = [1; 32];
const WORDS: &[u8] = b"the\ncat\nsat\na\ndog\nran\n";
const MODEL: &str = r#"{"family": "dplm", "embed": 8, "hidden": 12}"#;
const IDS: usize = 9;

fn key(number: u8) -> Signer {
    Signer::from_seed(&[number; 32])
}

fn board_key() -> Signer {
    key(11)
}

fn task_key() -> Signer {
    key(12)
}

fn issuer() -> Signer {
    key(13)
}

fn model_bytes() -> Vec<u8> {
    let spec: ModelSpec = serde_json::from_str(MODEL).unwrap();
    let model = spec.build(IDS).unwrap();
    model.write_params(&model.initial_params(1), "a test").unwrap()
}

pub(super) fn dim() -> usize {
    let spec: ModelSpec = serde_json::from_str(MODEL).unwrap();
    spec.layout(IDS).unwrap().len()
}

/// The settings of devices that follow this service.
pub(super) fn setup() -> Arc<Setup> {
    Arc::new(Setup {
        population: POPULATION.to_owned(),
        board_keys: TrustedKeys::new([board_key().public()]),
        task_keys: TrustedKeys::new([task_key().public()]),
        issuers: TrustedKeys::new([issuer().public()]),
        floors: PolicyFloors {
            min_goal: 1,
            min_group: 2,
            require_secagg: false,
            neighbours: undertone_device::Neighbours::Anyone,
            ..PolicyFloors::COMPILED
        },
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    })
}

/// The terms of the task that a test chooses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) min_sep: u32,
    pub(super) max_part: u32,
    /// Number of reports that end a round.
    pub(super) goal: usize,
}

fn plan(terms: Terms) -> Plan {
    Plan {
        task: TASK.to_vec(),
        name: "next-word".to_owned(),
        population: POPULATION.to_owned(),
        kind: TaskKind::Train.into(),
        rounds: 1000,
        report_goal: 4,
        model: MODEL.to_owned(),
        user_update: r#"{"batch_size": 2, "learning_rate": 0.5}"#.to_owned(),
        vocabulary: Some(Blob::of(WORDS)),
        text: r#"{"examples": "sentences", "max_sentence_tokens": 10}"#.to_owned(),
        clip: Some(ClipRule {
            kind: Some(clip_rule::Kind::Flat(CLIP)),
        }),
        aggregation: Some(AggregationRule {
            mode: SumMode::Plain.into(),
            min_clients: 2,
            max_clients: 1000,
            length: dim() as u64,
            ..AggregationRule::default()
        }),
        min_sep: terms.min_sep,
        max_part: terms.max_part,
        min_examples: 1,
        max_examples: 20,
        guarantee: Some(Guarantee {
            epsilon: 6.0,
            delta: 1e-8,
            rho: 0.4,
            noise_multiplier: 3.0,
        }),
        budget: Some(DeviceBudget {
            cpu_ms: 60_000,
            ..DeviceBudget::default()
        }),
        ..Plan::default()
    }
}

/// One upload that the service accepted, or that is on its way.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Upload {
    pub(super) subject: Digest32,
    pub(super) round: u64,
    pub(super) bytes: Vec<u8>,
    /// `true` once it was committed with a fitting checksum.
    pub(super) committed: bool,
    joined: bool,
}

impl Upload {
    pub(super) fn values(&self) -> Vec<f32> {
        let value = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        self.bytes.chunks_exact(4).map(value).collect()
    }
}

pub(super) struct State {
    clock: VirtualClock,
    terms: Terms,
    plan: Vec<u8>,
    pub(super) round: u64,
    /// Number of reports of the round.
    reports: usize,
    /// Rounds in which each subject reported or held a session.
    pub(super) rounds_of: BTreeMap<Digest32, Vec<u64>>,
    check_ins: BTreeMap<Vec<u8>, Assignment>,
    pub(super) uploads: BTreeMap<[u8; 16], Upload>,
    /// Number of refused requests, by code.
    pub(super) refusals: BTreeMap<&'static str, u64>,
    /// Method and path of every request.
    pub(super) log: Vec<(Method, String)>,
    /// The subjects of all device keys.
    pub(super) enrolled: BTreeMap<Digest32, Digest32>,
}

/// The service, shared by all connections.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

fn ok(body: Vec<u8>) -> Reply {
    Reply {
        status: 200,
        offset: None,
        body,
    }
}

fn step(step: next::Step) -> Reply {
    ok(write(&Next {
        step: Some(step),
        retry: None,
    }))
}

impl Fake {
    pub(super) fn new(clock: &VirtualClock, terms: Terms) -> Self {
        let plan = write(&task_key().sign(Label::Plan, write(&plan(terms))));
        Self(Arc::new(Mutex::new(State {
            clock: clock.clone(),
            terms,
            plan,
            round: 0,
            reports: 0,
            rounds_of: BTreeMap::new(),
            check_ins: BTreeMap::new(),
            uploads: BTreeMap::new(),
            refusals: BTreeMap::new(),
            log: Vec::new(),
            enrolled: BTreeMap::new(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Transport for Fake {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        Ok(self.lock().handle(request))
    }
}

impl Transports for Fake {
    fn open(&self, _: usize) -> Result<Box<dyn Transport>> {
        Ok(Box::new(self.clone()))
    }
}

impl State {
    fn refuse(&mut self, status: u16, problem: Problem) -> Reply {
        *self.refusals.entry(problem.code().as_str_name()).or_default() += 1;
        let problem = problem.with_retry(RetryWindow::between(5_000, 10_000));
        Reply {
            status,
            offset: None,
            body: write(&problem),
        }
    }

    fn handle(&mut self, request: &Request) -> Reply {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| &value[..])
        };
        assert_eq!(header(PROTOCOL_HEADER.0), Some(PROTOCOL_HEADER.1));
        self.log.push((request.method, request.target.clone()));
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        if let Some(call) = path.strip_prefix("/v1/p/words/") {
            return match call {
                "enrol" => self.enrol(&request.body),
                "board" => self.board(),
                "check-in" => self.check_in(request, header(SIGNATURE_HEADER).unwrap()),
                other => panic!("{other}"),
            };
        }
        if let Some(name) = path.strip_prefix("/v1/blobs/") {
            let blobs = [self.plan.clone(), WORDS.to_vec(), model_bytes()];
            let found = blobs.into_iter().find(|bytes| hex(&digest_of(bytes)) == name);
            return ok(found.expect("a blob of the task"));
        }
        let (session, call) = path.strip_prefix("/v1/agg/0/").unwrap().split_once('/').unwrap();
        let session: [u8; 16] =
            std::array::from_fn(|j| u8::from_str_radix(&session[2 * j..2 * j + 2], 16).unwrap());
        assert_eq!(header("authorization"), Some("Bearer 746f6b656e"));
        match call {
            "upload" if request.method == Method::Put => {
                let offset = query.strip_prefix("offset=").unwrap().parse().unwrap();
                let checksum = checksum_header(crc32c(0, &request.body));
                assert_eq!(header(CHECKSUM_HEADER), Some(&checksum[..]));
                self.chunk(session, offset, &request.body)
            }
            "upload" => Reply {
                offset: self.uploads.get(&session).map(|upload| upload.bytes.len() as u64),
                ..ok(Vec::new())
            },
            "join" => {
                self.uploads.entry(session).or_default().joined = true;
                step(next::Step::Upload(UploadGrant {
                    length: 4 * dim() as u64,
                    chunk: 1024,
                }))
            }
            "commit" => self.commit(session, &request.body),
            "next" => {
                assert!(query.ends_with("&wait=0"), "{query}");
                match self.uploads[&session].committed {
                    true => step(next::Step::Verdict(Verdict::Included.into())),
                    false => step(next::Step::Wait(Wait {})),
                }
            }
            "abort" => ok(Vec::new()),
            other => panic!("{other}"),
        }
    }

    fn enrol(&mut self, body: &[u8]) -> Reply {
        let enrol: Enrol = read("it", body, limits::MAX_MESSAGE).unwrap();
        let device: Digest32 = enrol.device_key.clone().try_into().unwrap();
        let signed = undertone_device::enrolment_body(&enrol);
        verify_proof(Label::Enrolment, &device, &signed, &enrol.proof).unwrap();
        // An invitation is a subject in hexadecimal digits.
        let subject: Digest32 = match &enrol.invitation[..] {
            "" => match enrol.subject.try_into() {
                Ok(subject) => subject,
                Err(_) => return self.refuse(401, Problem::new(Code::BadCertificate, "no subject")),
            },
            "refused" => return self.refuse(401, Problem::new(Code::BadCertificate, "not invited")),
            digits => std::array::from_fn(|j| u8::from_str_radix(&digits[2 * j..2 * j + 2], 16).unwrap()),
        };
        self.enrolled.insert(device, subject);
        let certificate = Certificate {
            population: POPULATION.to_owned(),
            subject: subject.to_vec(),
            device_key: device.to_vec(),
            not_before_ms: self.clock.now_ms() - 1000,
            not_after_ms: self.clock.now_ms() + LIFE,
        };
        ok(write(&Enrolled {
            certificate: Some(issuer().sign(Label::Certificate, write(&certificate))),
        }))
    }

    fn board(&self) -> Reply {
        let plan = plan(self.terms);
        let board = Board {
            issued_ms: self.clock.now_ms(),
            tasks: vec![TaskCard {
                task: TASK.to_vec(),
                kind: plan.kind,
                state: TaskState::Active.into(),
                round: self.round,
                min_sep: plan.min_sep,
                max_part: plan.max_part,
                timer_s: 0,
                min_examples: plan.min_examples,
                plan: Some(Blob::of(&self.plan)),
                down_bytes: 1000,
                up_bytes: 1000,
                min_client_version: 0,
                pinned: None,
                pinned_round: 0,
            }],
            idle: Some(RetryWindow::between(10_000, 20_000)),
            population: POPULATION.to_owned(),
        };
        ok(write(&board_key().sign(Label::Board, write(&board))))
    }

    /// The server's own rule: the separation and the number of participations per subject, whatever its devices say.
    fn check_in(&mut self, request: &Request, signature: &str) -> Reply {
        let check_in: CheckIn = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
        let certificate = check_in.certificate.as_ref().unwrap();
        let issuers = TrustedKeys::new([issuer().public()]);
        let (body, _) = issuers.open(Label::Certificate, certificate).unwrap();
        let certificate: Certificate = read("it", body, limits::MAX_MESSAGE).unwrap();
        let device: Digest32 = certificate.device_key.try_into().unwrap();
        let now = self.clock.now_ms();
        let checked = RequestSignature::from_header(signature)
            .and_then(|signature| signature.check(&device, now, "POST", &request.target, &request.body));
        if let Err(error) = checked {
            return self.refuse(401, Problem::new(Code::BadSignature, error.to_string()));
        }
        let subject: Digest32 = certificate.subject.try_into().unwrap();
        if !self.check_ins.contains_key(&check_in.checkin) {
            let rounds = self.rounds_of.entry(subject).or_default();
            let soon = rounds
                .last()
                .is_some_and(|last| self.round < last + u64::from(self.terms.min_sep));
            if soon || rounds.len() >= self.terms.max_part as usize {
                let code = if soon { Code::TooSoon } else { Code::TooOften };
                return self.refuse(429, Problem::new(code, "not now"));
            }
            rounds.push(self.round);
            let mut session = [0; 16];
            session[..8].copy_from_slice(&(self.check_ins.len() as u64).to_le_bytes());
            let upload = Upload {
                subject,
                round: self.round,
                ..Upload::default()
            };
            self.uploads.insert(session, upload);
            let assignment = self.assignment(session);
            self.check_ins.insert(check_in.checkin.clone(), assignment);
        }
        let assignment = self.check_ins[&check_in.checkin].clone();
        ok(write(&CheckInReply {
            reply: Some(check_in_reply::Reply::Assignment(assignment)),
        }))
    }

    fn assignment(&self, session: [u8; 16]) -> Assignment {
        let mut chain = [2; 32];
        chain[..8].copy_from_slice(&self.round.to_le_bytes());
        Assignment {
            session: session.to_vec(),
            token: b"token".to_vec(),
            task: TASK.to_vec(),
            round: self.round,
            attempt: 0,
            aggregator: "/v1/agg/0".to_owned(),
            plan: Some(Blob::of(&self.plan)),
            model: Some(Blob::of(&model_bytes())),
            settings: Some(RoundSettings {
                clip_norm: CLIP,
                mode: SumMode::Plain.into(),
                min_clients: 2,
                max_clients: 1000,
                run: vec![3; 32],
                ..RoundSettings::default()
            }),
            deadlines: Some(Deadlines {
                report_ms: 3_600_000,
                attempt_ms: 3_600_000,
            }),
            chain: chain.to_vec(),
            shard: 0,
        }
    }

    fn chunk(&mut self, session: [u8; 16], offset: usize, chunk: &[u8]) -> Reply {
        let upload = self.uploads.get_mut(&session).unwrap();
        let have = upload.bytes.len();
        if offset > have {
            let problem = Problem {
                offset: have as u64,
                ..Problem::new(Code::Conflict, "a gap")
            };
            return self.refuse(409, problem);
        }
        let known = have.min(offset + chunk.len()) - offset;
        assert_eq!(
            upload.bytes[offset..offset + known],
            chunk[..known],
            "an overlap is equal"
        );
        upload.bytes.extend_from_slice(&chunk[known..]);
        let offset = upload.bytes.len() as u64;
        ok(write(&Offset { offset }))
    }

    fn commit(&mut self, session: [u8; 16], body: &[u8]) -> Reply {
        let commit: Commit = read("it", body, limits::MAX_MESSAGE).unwrap();
        let upload = self.uploads.get_mut(&session).unwrap();
        if upload.committed {
            return step(next::Step::Wait(Wait {}));
        }
        assert!(upload.joined);
        assert_eq!(commit.crc32c, crc32c(0, &upload.bytes));
        assert_eq!(commit.length, upload.bytes.len() as u64);
        let norm = upload
            .values()
            .iter()
            .map(|&value| f64::from(value).powi(2))
            .sum::<f64>()
            .sqrt();
        if upload.bytes.len() != 4 * dim() {
            return self.refuse(400, Problem::new(Code::Range, "a wrong length"));
        }
        if !norm.is_finite() || norm > 2.0 * CLIP {
            return self.refuse(400, Problem::new(Code::Norm, "too long"));
        }
        upload.committed = true;
        self.reports += 1;
        if self.reports == self.terms.goal {
            self.reports = 0;
            self.round += 1;
        }
        step(next::Step::Wait(Wait {}))
    }

    /// The committed uploads.
    pub(super) fn included(&self) -> Vec<&Upload> {
        self.uploads.values().filter(|upload| upload.committed).collect()
    }

    /// The subjects that sent something in each round.
    pub(super) fn subjects(&self, round: u64) -> BTreeSet<Digest32> {
        let of_round = self
            .uploads
            .values()
            .filter(|upload| upload.round == round && upload.committed);
        of_round.map(|upload| upload.subject).collect()
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
