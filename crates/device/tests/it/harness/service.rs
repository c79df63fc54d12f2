//! The service in memory: its board, its blobs, its uploads and its secure sum.

use super::*;

/// A secure sum that the service runs.
struct Secure {
    server: Server,
    expected: usize,
    identities: BTreeMap<[u8; 16], Digest32>,
    shared: BTreeSet<[u8; 16]>,
    signed: BTreeSet<[u8; 16]>,
    answered: BTreeSet<[u8; 16]>,
    closed: [bool; 4],
    /// The time at which the present phase began.
    since: u64,
    threshold: u32,
    rng: ChaCha20Rng,
}

/// An upload on its way.
#[derive(Default, Clone)]
pub(crate) struct Uploaded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) committed: Option<Commit>,
}

/// A change of an honest value.
pub(crate) type Lie<T> = Box<dyn FnMut(&mut T)>;

/// A lie of the service: it changes an assignment, a board or the next message of a session.
#[derive(Default)]
pub(crate) struct Lies {
    pub(crate) assignment: Option<Lie<Assignment>>,
    pub(crate) board: Option<Lie<Board>>,
    pub(crate) next: Option<Lie<Vec<u8>>>,
    /// The service answers every request with this refusal.
    pub(crate) refusal: Option<Code>,
}

/// The service of a test.
pub(crate) struct Service {
    pub(crate) now: u64,
    pub(crate) plan: Plan,
    pub(crate) plan_bytes: Vec<u8>,
    pub(crate) blobs: BTreeMap<Digest32, Vec<u8>>,
    pub(crate) round: u64,
    pub(crate) chain: Digest32,
    pub(crate) lies: Lies,
    /// Method, path and body length of every request, in order.
    pub(crate) log: Vec<(Method, String, usize)>,
    pub(crate) check_ins: BTreeMap<Vec<u8>, Assignment>,
    pub(crate) uploads: BTreeMap<[u8; 16], Uploaded>,
    pub(crate) messages: BTreeMap<([u8; 16], &'static str), Vec<u8>>,
    /// Max bytes of a part of a blob.
    pub(crate) part: usize,
    /// Bytes of a chunk in upload grants.
    pub(crate) chunk: u32,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) estimate: Option<f64>,
    /// The service hands out a message of the secure sum before its phase is complete, for a lie to replace.
    pub(crate) force_message: bool,
    /// The service asks once more after a device has answered the request to unmask.
    pub(crate) repeat_unmask: bool,
    /// The service takes no keys into its secure sum.
    pub(crate) deaf: bool,
    /// The service closes a phase without the devices that have been silent in it for a minute.
    pub(crate) patience: bool,
    /// The service refuses messages of phases that are over, repeats included.
    pub(crate) strict: bool,
    secure: Option<Secure>,
}

fn ok(message: Vec<u8>) -> Reply {
    Reply {
        status: 200,
        offset: None,
        body: message,
    }
}

fn next(step: next::Step) -> Reply {
    ok(write(&Next {
        step: Some(step),
        retry: None,
    }))
}

pub(crate) fn refuse(status: u16, code: Code) -> Reply {
    let problem =
        Problem::new(code, "a sentence\nof the service").with_retry(RetryWindow::between(5000, 6000));
    Reply {
        status,
        offset: None,
        body: write(&problem),
    }
}

impl Service {
    /// A service with this plan, signed by the task's key.
    pub(crate) fn new(plan: Plan) -> Self {
        let plan_bytes = write(&task_key().sign(Label::Plan, write(&plan)));
        Self::with_plan_bytes(plan, plan_bytes)
    }

    pub(crate) fn with_plan_bytes(plan: Plan, plan_bytes: Vec<u8>) -> Self {
        let blobs = [plan_bytes.clone(), WORDS.to_vec(), model_bytes()];
        Self {
            now: START,
            plan,
            plan_bytes,
            blobs: blobs
                .into_iter()
                .map(|bytes| (digest_of(&bytes), bytes))
                .collect(),
            round: ROUND,
            chain: CHAIN,
            lies: Lies::default(),
            log: Vec::new(),
            check_ins: BTreeMap::new(),
            uploads: BTreeMap::new(),
            messages: BTreeMap::new(),
            part: usize::MAX,
            chunk: 1 << 20,
            verdict: Some(Verdict::Included),
            estimate: None,
            force_message: false,
            repeat_unmask: false,
            deaf: false,
            patience: false,
            strict: false,
            secure: None,
        }
    }

    /// The context that every honest party computes for itself.
    pub(crate) fn context(&self) -> Context {
        let rule = self.plan.aggregation.as_ref().unwrap();
        let threat_model = match rule.issuers.is_empty() {
            true => ThreatModel::HonestButCurious,
            false => ThreatModel::Active,
        };
        Context {
            run: RUN,
            round: self.round,
            attempt: 0,
            shard: 2,
            plan_digest: digest_of(&self.plan_bytes),
            model_digest: digest_of(&model_bytes()),
            terms: Terms::new(rule.length, rule.modulus, threat_model)
                .unwrap()
                .with_clients(rule.group_min, rule.group_target)
                .unwrap(),
        }
    }

    /// Opens a secure sum for this number of devices.
    pub(crate) fn open_sum(&mut self, devices: usize, trust: Trust) {
        self.secure = Some(Secure {
            server: Server::new(self.context(), trust).unwrap(),
            expected: devices,
            identities: BTreeMap::new(),
            shared: BTreeSet::new(),
            signed: BTreeSet::new(),
            answered: BTreeSet::new(),
            closed: [false; 4],
            since: START,
            threshold: devices as u32 / 2 + 1,
            rng: ChaCha20Rng::from_seed([77; 32]),
        });
    }

    /// Sets the number of neighbours that open a mask.
    pub(crate) fn set_threshold(&mut self, threshold: u32) {
        self.secure.as_mut().unwrap().threshold = threshold;
    }

    /// The sum, as numbers.
    pub(crate) fn sum(&mut self) -> Vec<f64> {
        let encoding = fixed_point();
        let modulus = encoding.modulus().get();
        let domain = encoding.noise_domain().unwrap();
        let unit = domain.step * f64::from(domain.fraction_bits).exp2();
        let outcome = self.secure.as_mut().unwrap().server.finish().unwrap();
        let lift = |residue: u64| match residue > modulus / 2 {
            true => residue as f64 - modulus as f64,
            false => residue as f64,
        };
        outcome.sum.iter().map(|residue| lift(residue) * unit).collect()
    }

    pub(crate) fn paths(&self, method: Method) -> Vec<&str> {
        let found = self.log.iter().filter(|(used, ..)| *used == method);
        found.map(|(_, path, _)| &path[..]).collect()
    }

    /// Bytes of updates that the service was sent, in whatever form.
    pub(crate) fn upload_bytes(&self) -> usize {
        let puts = self.log.iter().filter(|(method, ..)| *method == Method::Put);
        puts.map(|(.., bytes)| bytes).sum()
    }

    pub(crate) fn handle(&mut self, request: &Request) -> Reply {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| &value[..])
        };
        self.log
            .push((request.method, request.target.clone(), request.body.len()));
        assert_eq!(header("undertone-protocol"), Some("1"));
        if let Some(code) = self.lies.refusal {
            return refuse(429, code);
        }
        let path = request.target.split('?').next().unwrap().to_owned();
        let query: BTreeMap<&str, u64> = request
            .target
            .split(['?', '&'])
            .skip(1)
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        let in_population = format!("/v1/p/{POPULATION}/");
        if let Some(call) = path.strip_prefix(&in_population) {
            let signed = |device: &Digest32| {
                let signature = RequestSignature::from_header(header(SIGNATURE_HEADER).unwrap()).unwrap();
                signature
                    .check(device, self.now, "POST", &path, &request.body)
                    .unwrap();
            };
            return match call {
                "board" => self.board(),
                "check-in" => {
                    let check_in: CheckIn = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
                    let body = &check_in.certificate.as_ref().unwrap().body;
                    let certificate: Certificate = read("it", body, limits::MAX_MESSAGE).unwrap();
                    signed(&certificate.device_key.try_into().unwrap());
                    self.check_in(&check_in)
                }
                "session-keys" => {
                    let keys: SessionKeys = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
                    let body = &keys.certificate.as_ref().unwrap().body;
                    let certificate: Certificate = read("it", body, limits::MAX_MESSAGE).unwrap();
                    signed(&certificate.device_key.try_into().unwrap());
                    let certify = |key: &Vec<u8>| session_certificate(&issuer(), POPULATION, key);
                    ok(write(&SessionCertificates {
                        certificates: keys.keys.iter().map(certify).collect(),
                    }))
                }
                other => panic!("{other}"),
            };
        }
        if let Some(name) = path.strip_prefix("/v1/blobs/") {
            return self.blob(name, header("range"));
        }
        let (session, call) = path.strip_prefix("/v1/agg/0/").unwrap().split_once('/').unwrap();
        let session: [u8; 16] =
            std::array::from_fn(|j| u8::from_str_radix(&session[2 * j..2 * j + 2], 16).unwrap());
        assert_eq!(header("authorization"), Some("Bearer 746f6b656e"));
        let call = call.to_owned();
        let crc = header(CHECKSUM_HEADER).map(str::to_owned);
        self.session(session, &call, request, &query, crc.as_deref())
    }

    fn board(&mut self) -> Reply {
        let plan = &self.plan;
        let mut board = Board {
            issued_ms: self.now,
            tasks: vec![TaskCard {
                task: TASK.to_vec(),
                kind: plan.kind,
                state: TaskState::Active.into(),
                round: self.round,
                min_sep: plan.min_sep,
                max_part: plan.max_part,
                timer_s: plan.timer_s,
                min_examples: plan.min_examples,
                plan: Some(Blob::of(&self.plan_bytes)),
                down_bytes: 1000,
                up_bytes: 1000,
                min_client_version: plan.min_client_version,
                pinned: None,
                pinned_round: 0,
            }],
            idle: Some(RetryWindow::between(10_000, 20_000)),
            population: POPULATION.to_owned(),
        };
        if let Some(lie) = &mut self.lies.board {
            lie(&mut board);
        }
        ok(write(&board_key().sign(Label::Board, write(&board))))
    }

    pub(crate) fn assignment(&self, session: [u8; 16]) -> Assignment {
        let rule = self.plan.aggregation.as_ref().unwrap();
        let clip = match self.plan.clip.as_ref().and_then(|clip| clip.kind.as_ref()) {
            Some(clip_rule::Kind::Flat(norm)) => *norm,
            Some(clip_rule::Kind::Adaptive(adaptive)) => adaptive.initial,
            _ => CLIP,
        };
        Assignment {
            session: session.to_vec(),
            token: b"token".to_vec(),
            task: TASK.to_vec(),
            round: self.round,
            attempt: 0,
            aggregator: "/v1/agg/0".to_owned(),
            plan: Some(Blob::of(&self.plan_bytes)),
            model: Some(Blob::of(&model_bytes())),
            settings: Some(RoundSettings {
                clip_norm: clip,
                layer_norms: Vec::new(),
                estimate: self.estimate,
                mode: rule.mode,
                min_clients: rule.min_clients,
                max_clients: rule.max_clients,
                modulus: rule.modulus,
                run: RUN.to_vec(),
            }),
            deadlines: Some(Deadlines {
                report_ms: 300_000,
                attempt_ms: 600_000,
            }),
            chain: self.chain.to_vec(),
            shard: 2,
        }
    }

    fn check_in(&mut self, check_in: &CheckIn) -> Reply {
        assert_eq!(check_in.eligible, [TASK.to_vec()]);
        let mut session = [0; 16];
        session[0] = self.check_ins.len() as u8 + 1;
        let known = self.check_ins.get(&check_in.checkin).cloned();
        let assignment = known.unwrap_or_else(|| {
            let mut assignment = self.assignment(session);
            if let Some(lie) = &mut self.lies.assignment {
                lie(&mut assignment);
            }
            self.check_ins
                .insert(check_in.checkin.clone(), assignment.clone());
            assignment
        });
        ok(write(&CheckInReply {
            reply: Some(check_in_reply::Reply::Assignment(assignment)),
        }))
    }

    fn blob(&self, name: &str, range: Option<&str>) -> Reply {
        let found = self.blobs.iter().find(|(digest, _)| {
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            hex == name
        });
        let Some((_, bytes)) = found else {
            return refuse(404, Code::NotFound);
        };
        let Some(range) = range else {
            return ok(bytes.clone());
        };
        let (from, to) = range
            .strip_prefix("bytes=")
            .and_then(|range| range.split_once('-'))
            .map(|(from, to)| (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap() + 1))
            .unwrap();
        let to = to.min(bytes.len()).min(from.saturating_add(self.part));
        Reply {
            status: 206,
            offset: None,
            body: bytes[from..to].to_vec(),
        }
    }

    /// Every repeat of a message must have the same bytes.
    fn remember(&mut self, session: [u8; 16], call: &'static str, body: &[u8]) {
        let first = self
            .messages
            .entry((session, call))
            .or_insert_with(|| body.to_vec());
        assert_eq!(first, body, "a repeat of {call} has other bytes");
    }

    fn session(
        &mut self,
        session: [u8; 16],
        call: &str,
        request: &Request,
        query: &BTreeMap<&str, u64>,
        crc: Option<&str>,
    ) -> Reply {
        let body = &request.body[..];
        match (call, request.method) {
            ("join", Method::Post) => {
                self.remember(session, "join", body);
                match &mut self.secure {
                    Some(secure) => {
                        if self.strict && secure.closed[0] {
                            return refuse(409, Code::OutOfTurn);
                        }
                        let keys = AdvertiseKeys::decode(body).unwrap();
                        secure.identities.insert(session, keys.entry.identity);
                        if !secure.closed[0] && !self.deaf {
                            secure.server.receive_keys(&keys).unwrap();
                        }
                        next(next::Step::Wait(Wait {}))
                    }
                    None => next(next::Step::Upload(UploadGrant {
                        length: 4 * self.plan.aggregation.as_ref().unwrap().length,
                        chunk: self.chunk,
                    })),
                }
            }
            ("next", Method::Get) => self.next(session, query["after"]),
            ("shares", Method::Post) => {
                self.remember(session, "shares", body);
                let secure = self.secure.as_mut().unwrap();
                if self.strict && secure.closed[1] {
                    return refuse(409, Code::OutOfTurn);
                }
                if !secure.closed[1] {
                    secure
                        .server
                        .receive_shares(&ShareKeys::decode(body).unwrap())
                        .unwrap();
                }
                secure.shared.insert(session);
                next(next::Step::Wait(Wait {}))
            }
            ("upload", Method::Put) => {
                let upload = self.uploads.entry(session).or_default();
                let offset = query["offset"] as usize;
                assert_eq!(crc, Some(&checksum_header(crc32c(0, body))[..]));
                if offset > upload.bytes.len() {
                    let mut problem = Problem::new(Code::Conflict, "an offset beyond the end");
                    problem.offset = upload.bytes.len() as u64;
                    return Reply {
                        status: 409,
                        offset: None,
                        body: write(&problem),
                    };
                }
                let overlap = upload.bytes.len().min(offset + body.len());
                assert_eq!(
                    &upload.bytes[offset..overlap],
                    &body[..overlap - offset],
                    "an overlap must be equal"
                );
                upload.bytes.truncate(offset);
                upload.bytes.extend_from_slice(body);
                let offset = upload.bytes.len() as u64;
                ok(write(&Offset { offset }))
            }
            ("upload", Method::Head) => Reply {
                status: 200,
                offset: Some(
                    self.uploads
                        .get(&session)
                        .map_or(0, |upload| upload.bytes.len() as u64),
                ),
                body: Vec::new(),
            },
            ("commit", Method::Post) => {
                self.remember(session, "commit", body);
                self.commit(session, read("it", body, limits::MAX_MESSAGE).unwrap())
            }
            ("consistency", Method::Post) => {
                self.remember(session, "consistency", body);
                let secure = self.secure.as_mut().unwrap();
                if self.strict && secure.closed[3] {
                    return refuse(409, Code::OutOfTurn);
                }
                if !secure.closed[3] {
                    secure
                        .server
                        .receive_consistency(&Consistency::decode(body).unwrap())
                        .unwrap();
                }
                secure.signed.insert(session);
                next(next::Step::Wait(Wait {}))
            }
            ("unmask", Method::Post) => {
                self.remember(session, "unmask", body);
                let secure = self.secure.as_mut().unwrap();
                secure
                    .server
                    .receive_unmask(&UnmaskShares::decode(body).unwrap())
                    .unwrap();
                secure.answered.insert(session);
                next(next::Step::Wait(Wait {}))
            }
            ("abort", Method::Post) => ok(Vec::new()),
            (call, method) => panic!("{method:?} {call}"),
        }
    }

    fn commit(&mut self, session: [u8; 16], commit: Commit) -> Reply {
        let upload = self.uploads.get_mut(&session).unwrap();
        assert_eq!(commit.length, upload.bytes.len() as u64);
        assert_eq!(commit.crc32c, crc32c(0, &upload.bytes));
        assert_eq!(commit.weight.to_bits(), 1f64.to_bits());
        let first = upload.committed.is_none();
        upload.committed = Some(commit);
        let packed = upload.bytes.clone();
        let Some(secure) = &mut self.secure else {
            return match self.verdict {
                Some(verdict) => next(next::Step::Verdict(verdict.into())),
                None => next(next::Step::Wait(Wait {})),
            };
        };
        if first && !secure.closed[2] {
            let index = secure.server.index_of(&secure.identities[&session]).unwrap();
            let input = MaskedInput {
                session: secure.server.session().unwrap(),
                index,
                packed,
            };
            secure.server.receive_input(&input).unwrap();
        }
        next(next::Step::Wait(Wait {}))
    }

    /// The next message of a session, after the phases that are complete were closed.
    fn next(&mut self, session: [u8; 16], after: u64) -> Reply {
        let uploaded = self
            .uploads
            .values()
            .filter(|upload| upload.committed.is_some())
            .count();
        let verdict = self.verdict;
        let Some(secure) = &mut self.secure else {
            return match verdict {
                Some(verdict) => next(next::Step::Verdict(verdict.into())),
                None => next(next::Step::Wait(Wait {})),
            };
        };
        let Secure {
            server,
            expected,
            identities,
            shared,
            signed,
            answered,
            closed,
            since,
            threshold,
            rng,
        } = secure;
        let (n, t) = (*expected, *threshold);
        let late = self.patience && self.now > *since + 60_000;
        let open = closed.iter().filter(|closed| **closed).count();
        let enough = [
            identities.len() == n,
            shared.len() == n || late,
            uploaded == n || late,
            signed.len() == n || late,
        ];
        if open < 4 && enough[open] {
            match open {
                0 => server
                    .close_keys(|clients| Topology::full(clients, t), rng)
                    .unwrap(),
                1 => server.close_shares().unwrap(),
                2 => server.close_inputs().unwrap(),
                _ => server.close_signatures().unwrap(),
            }
            closed[open] = true;
            *since = self.now;
        }
        let index = identities
            .get(&session)
            .and_then(|identity| server.index_of(identity));
        let message = match (after, *closed, index) {
            _ if self.force_message => Some(vec![1, 2]),
            (8, ..) if self.repeat_unmask => Some(server.unmask(index.unwrap()).unwrap().encode()),
            (0, [true, ..], Some(index)) => Some(server.roster(index).unwrap().encode()),
            (2, [_, true, ..], Some(index)) => Some(server.relayed_shares(index).unwrap().encode()),
            (4, [_, _, true, _], _) => Some(server.survivors().unwrap().encode()),
            (6, [.., true], Some(index)) => Some(server.unmask(index).unwrap().encode()),
            (8, ..) if answered.len() == n || late => {
                return next(next::Step::Verdict(verdict.unwrap_or(Verdict::Included).into()));
            }
            _ => None,
        };
        match message {
            Some(mut message) => {
                if let Some(lie) = &mut self.lies.next {
                    lie(&mut message);
                }
                next(next::Step::Secagg(message))
            }
            None => next(next::Step::Wait(Wait {})),
        }
    }
}
