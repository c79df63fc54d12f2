//! Inputs of the federated service: messages, plans, certificates, task files, operations and uploads.
//!
//! They come from the network or from an author, and are read in memory, so they need no honest folder. A reader either accepts an
//! input or refuses it with an error. The bodies panic where a reader does more, and where it breaks a promise that is named at the
//! place.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use undertone_coordinator::task::Seeding;
use undertone_device::{
    Limits, PlanChecks, PolicyFloors, TaskPlan, check_certificate, check_session_certificate,
};
use undertone_operate::admin::listener::AdminFile;
use undertone_operate::admin::{Operation, PublicKeys};
use undertone_protocol::{
    Abort, Assignment, Board, Certificate, CheckIn, CheckInReply, Commit, Digest32, Enrol, Enrolled, Head,
    Label, Next, Offset, Plan, Problem, RequestSignature, SessionCertificate, SessionCertificates,
    SessionKeys, Signed, Signer, TokenKey, TrustedKeys, Versions, crc32c, limits, next, read,
    read_checksum_header, write,
};
use undertone_service::identity::{Identity, Invitation, IssuerKeys, Member, member};
use undertone_service::keys::Keys;
use undertone_service::room::{Claims, Room};
use undertone_service_testing as testing;
use undertone_service_testing::{PEOPLE, START as NOW};
use undertone_store::TaskId;
use zeroize::Zeroizing;

use crate::Syntax;

/// The names of the fuzz targets, each of which [`fuzz`] runs.
pub const TARGETS: [&str; 4] = [
    "federated_messages",
    "federated_plans",
    "federated_settings",
    "federated_uploads",
];

const TASK: &str = r#"
name = "words"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 2, hidden = 2 }
cohort = { sampling = "check_in", users_per_round = 1000000, population = 2000000 }
participation = { min_sep = 2, max_part = 2 }
user_update = { batch_size = 2, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "tree" } }

[service]
over_selection = 1.3
group = { target = 4, min = 4 }
deadlines = { select = "10m", report = "20m", attempt = "60m" }
eligibility = { min_examples = 8, max_examples = 256, timer = "24h" }
identity = "certificate"
budget = { cpu = "120s", upload_kbps_min = 128, battery_percent = 2 }
pace = { checkins_per_needed = 3.0, min_interval = "15m" }
"#;

/// Runs a target on an input, and returns whether a reader accepted it.
///
/// # Panics
/// Where a reader panics or breaks a promise: that is what is looked for. Also for a name that is none of [`TARGETS`].
#[must_use]
pub fn fuzz(target: &str, input: &[u8]) -> bool {
    match target {
        "federated_messages" => messages(input),
        "federated_plans" => plans(input),
        "federated_settings" => settings(input),
        "federated_uploads" => uploads(input),
        _ => panic!("no target {target}"),
    }
}

/// Honest inputs of a target, for mutations and as seeds of a fuzzer.
///
/// # Panics
/// For a name that is none of [`TARGETS`].
#[must_use]
pub fn honest(target: &str) -> Vec<(Syntax, Vec<u8>)> {
    let world = world();
    let with = |number: u8, bytes: Vec<u8>| (Syntax::Bytes, [vec![number], bytes].concat());
    match target {
        "federated_messages" => honest_messages(world)
            .into_iter()
            .map(|(number, bytes)| with(number, bytes))
            .collect(),
        "federated_plans" => {
            let signed: Signed = read("the plan", &world.plan, limits::MAX_PLAN).unwrap_or_default();
            vec![with(0, world.plan.clone()), with(1, signed.body)]
        }
        "federated_settings" => vec![
            (Syntax::Toml, TASK.as_bytes().to_vec()),
            (
                Syntax::Json,
                br#"{"operation":"create","text":"name = 1","path":"t.toml","population":"p"}"#.to_vec(),
            ),
            (
                Syntax::Json,
                br#"{"operation":"budget","population":"p","max_epsilon":8.0,"delta":1e-6}"#.to_vec(),
            ),
            (
                Syntax::Json,
                br#"{"address":"http://127.0.0.1:4000","token":"00"}"#.to_vec(),
            ),
        ],
        // Whole in one chunk; in two, which overlap; and a chunk that starts too late.
        "federated_uploads" => vec![
            (Syntax::Bytes, [&[0, 0, 60][..], &[7; 60]].concat()),
            (
                Syntax::Bytes,
                [
                    &[0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 4, 5][..],
                    &[5, 6, 7, 8, 9],
                    &[3, 0, 0],
                ]
                .concat(),
            ),
            (Syntax::Bytes, vec![1, 40, 2, 1, 2, 2, 0, 0, 3, 0, 0]),
        ],
        _ => panic!("no target {target}"),
    }
}

/// A service with an open attempt, and a device that has joined it.
struct World {
    plan: Vec<u8>,
    task: TaskId,
    keys: Keys,
    certificate: Signed,
    room: Arc<Room>,
    token: TokenKey,
    /// The number of the next device.
    next: AtomicU64,
}

impl World {
    /// A session of a new device that has joined, with the length of its upload.
    fn session(&self) -> (Claims, u64) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let named = |kind: u8| {
            let mut name = [kind; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            name
        };
        let member = Member {
            subject: named(1),
            device: named(2),
            issuer: [9; 32],
        };
        let mut checkin = [0; 16];
        checkin[..8].copy_from_slice(&number.to_le_bytes());
        let opened = self
            .room
            .admit(&member, checkin, &self.token)
            .ok()
            .and_then(|assigned| {
                let claims = self.token.open(&assigned.token, NOW).ok()?;
                match self.room.join(&claims, &[]).ok()?.step? {
                    next::Step::Upload(grant) => Some((claims, grant.length)),
                    _ => None,
                }
            });
        opened.unwrap_or_else(|| panic!("device {number} got no session"))
    }
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| make().unwrap_or_else(|error| panic!("no honest service: {error:#}")))
}

fn make() -> anyhow::Result<World> {
    let running = testing::World::new()
        .task(TASK)
        .words("the\nof\nand\nto\n")
        .start();
    let (service, task) = (&running.service, running.task);
    // The start leads the task, and this tick opens an attempt.
    service.tick()?;
    let refused = |problem: Problem| anyhow::anyhow!("{}: {}", problem.code().as_str_name(), problem.message);
    let (keys, device) = (testing::keys(), device());
    let enrolment = testing::enrolment(&keys, &device, &[9; 32]);
    let enrolled = service.enrol(PEOPLE, &enrolment.body).map_err(refused)?;
    let certificate = testing::certificate(&enrolled).unwrap_or_default();
    let body = write(&check_in(task, &certificate));
    let path = "/v1/p/people/check-in";
    let signature = RequestSignature::new(&device, NOW, "POST", path, &body).header();
    let assignment = service
        .check_in(PEOPLE, &signature, path, &body)
        .map_err(refused)?;
    let (room, _) = service
        .session(&assignment.token, &assignment.session)
        .map_err(refused)?;
    Ok(World {
        plan: testing::loaded(running.shared(), task).plan,
        task,
        keys,
        certificate,
        room,
        token: TokenKey::new(&Zeroizing::new([5; 32])),
        next: AtomicU64::new(1),
    })
}

fn device() -> Signer {
    Signer::from_seed(&[3; 32])
}

fn check_in(task: TaskId, certificate: &Signed) -> CheckIn {
    CheckIn {
        checkin: vec![1; 16],
        eligible: vec![task.0.to_vec()],
        client_version: 1,
        certificate: Some(certificate.clone()),
        evidence: vec![1, 2],
    }
}

/// Reads a message of this type. A message that was read is written to bytes that read as the same bytes again, and no longer than twice
/// the input: a reader keeps nothing that the input did not have.
fn message<M: prost::Message + Default>(bytes: &[u8]) -> bool {
    let Ok(message) = read::<M>("the message", bytes, limits::MAX_SECAGG) else {
        return false;
    };
    let written = write(&message);
    assert!(
        written.len() <= 2 * bytes.len() + 16,
        "{} bytes from {}",
        written.len(),
        bytes.len()
    );
    let again: M =
        read("the message", &written, 2 * limits::MAX_SECAGG).expect("a message that was written is read");
    assert_eq!(write(&again), written);
    true
}

/// The first byte chooses the reader.
fn messages(input: &[u8]) -> bool {
    let Some((number, bytes)) = input.split_first() else {
        return false;
    };
    let readers: [fn(&[u8]) -> bool; 20] = [
        message::<Signed>,
        message::<Board>,
        message::<Enrol>,
        message::<Enrolled>,
        message::<Certificate>,
        message::<SessionKeys>,
        message::<SessionCertificates>,
        message::<SessionCertificate>,
        message::<CheckIn>,
        message::<CheckInReply>,
        message::<Assignment>,
        message::<Plan>,
        message::<Next>,
        message::<Commit>,
        message::<Offset>,
        message::<Abort>,
        message::<Problem>,
        message::<Head>,
        signed,
        headers,
    ];
    readers[usize::from(*number) % readers.len()](bytes)
}

/// Certificates whose body is the input, with the signature of the issuer: only so are their fields reached.
fn signed(bytes: &[u8]) -> bool {
    let world = world();
    let issuer = world.keys.issuer();
    let trusted = TrustedKeys::new([issuer.public()]);
    let of = |label| issuer.sign(label, bytes.to_vec());
    let key: Digest32 = device().public();
    let device = member(&of(Label::Certificate), &IssuerKeys::of(&world.keys), PEOPLE, NOW);
    let own = check_certificate(&of(Label::Certificate), &trusted, PEOPLE, &key, NOW).is_ok();
    // A device accepts no certificate that its service would refuse.
    assert!(!own || device.is_ok_and(|member| member.device == key));
    let session = of(Label::SessionCertificate);
    own | check_session_certificate(&session, &trusted, PEOPLE, &key, NOW).is_ok()
}

/// Headers and texts that a request carries.
fn headers(bytes: &[u8]) -> bool {
    let world = world();
    let text = String::from_utf8_lossy(bytes);
    let signature = RequestSignature::from_header(&text);
    if let Ok(signature) = &signature {
        assert!(
            signature
                .check(&device().public(), NOW, "POST", "/", b"")
                .is_err()
        );
    }
    let checksum = read_checksum_header(&text);
    let invitation = Invitation::read(&text, &world.keys, PEOPLE, NOW);
    // Nobody makes an invitation or a token without the keys of the service.
    assert!(invitation.is_err());
    assert!(
        TokenKey::new(&zeroize::Zeroizing::new([5; 32]))
            .open(bytes, NOW)
            .is_err()
    );
    signature.is_ok() || checksum.is_some() || Versions::CURRENT.speak(&text)
}

/// A plan as it travels, or a body that is signed first.
fn plans(input: &[u8]) -> bool {
    let Some((number, bytes)) = input.split_first() else {
        return false;
    };
    let world = world();
    let signer = world.keys.plans();
    let trusted = TrustedKeys::new([signer.public()]);
    let floors = PolicyFloors {
        population_rho: 100.0,
        ..testing::floors(Identity::Certificate)
    };
    let limits = Limits::default();
    let checks = PlanChecks {
        population: PEOPLE,
        trusted: &trusted,
        floors: &floors,
        limits: &limits,
        client_version: 1,
    };
    let plan = match number % 2 {
        0 => bytes.to_vec(),
        _ => write(&signer.sign(Label::Plan, bytes.to_vec())),
    };
    TaskPlan::read(&plan, &world.task.0, &checks).is_ok()
}

/// Task files, operations and the files of operators.
fn settings(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else {
        return false;
    };
    let task = undertone_run_directory::task::parse(text, Path::new("task.toml"), Seeding::Refused);
    if let Ok(file) = &task {
        // A task that was accepted has a canonical text, which is accepted as the same task.
        let canonical = undertone_run_directory::task::text(file).expect("a canonical text");
        let again =
            undertone_run_directory::task::parse(&canonical, Path::new("task.toml"), Seeding::Refused);
        assert!(again.is_ok_and(|again| undertone_run_directory::task::text(&again).ok() == Some(canonical)));
    }
    task.is_ok()
        || serde_json::from_str::<Operation>(text).is_ok()
        || serde_json::from_str::<AdminFile>(text).is_ok()
        || serde_json::from_str::<PublicKeys>(text).is_ok()
}

/// Chunks of one upload: each is a byte of flags, an offset, a length, and its bytes. Flag 1 sends a wrong checksum, flag 2 commits with a
/// wrong checksum afterwards, flag 4 moves the offset far away.
fn uploads(input: &[u8]) -> bool {
    let world = world();
    let room = &world.room;
    let (mut claims, length) = world.session();
    // The bytes that the service must have.
    let mut model: Vec<u8> = Vec::new();
    let mut rest = input;
    let mut any = false;
    while let [flags, offset, size, after @ ..] = rest {
        let (chunk, next) = after.split_at(usize::from(*size).min(after.len()));
        rest = next;
        let offset = match flags & 4 {
            0 => u64::from(*offset),
            _ => u64::MAX - u64::from(*offset),
        };
        let checksum = crc32c(0, chunk) ^ u32::from(flags & 1);
        let end = offset.saturating_add(chunk.len() as u64);
        let have = model.len() as u64;
        let fits = flags & 1 == 0 && offset <= have && end <= length && {
            let known = (have.min(end) - offset.min(have)) as usize;
            model[offset as usize..offset as usize + known] == chunk[..known]
        };
        let answer = room.upload(&claims, offset, checksum, chunk);
        assert_eq!(
            answer.is_ok(),
            fits,
            "{answer:?} for {offset}..{end} at {have} of {length}"
        );
        if fits {
            any = true;
            model.extend_from_slice(&chunk[(have - offset).min(chunk.len() as u64) as usize..]);
            assert_eq!(answer, Ok(model.len() as u64));
        }
        if flags & 2 != 0 {
            damaged(world, &claims, length, &model);
            claims = world.session().0;
            model.clear();
        }
        assert_eq!(room.offset(&claims), Ok(model.len() as u64));
    }
    damaged(world, &claims, length, &model);
    any
}

/// Ends an upload by a commit with a wrong checksum, which changes nothing, and gives its session up.
fn damaged(world: &World, claims: &Claims, length: u64, model: &[u8]) {
    let zeros = vec![0; length as usize - model.len()];
    let room = &world.room;
    let sent = room.upload(claims, model.len() as u64, crc32c(0, &zeros), &zeros);
    assert_eq!(sent, Ok(length));
    let whole = [model, &zeros].concat();
    let refused = room.commit(
        claims,
        &Commit {
            length,
            crc32c: !crc32c(0, &whole),
            weight: 1.0,
            below: None,
        },
    );
    assert!(refused.is_err(), "an upload with a wrong checksum was accepted");
    assert_eq!(room.offset(claims), Ok(length));
    assert!(room.give_up(claims).is_ok(), "a session could not be given up");
    assert!(room.offset(claims).is_err(), "an upload outlives its session");
}

fn honest_messages(world: &World) -> Vec<(u8, Vec<u8>)> {
    let signed: Signed = read("the plan", &world.plan, limits::MAX_PLAN).unwrap_or_default();
    let certificate = world.certificate.clone();
    let keys = SessionKeys {
        keys: vec![vec![1; 32], vec![2; 32]],
        certificate: Some(certificate.clone()),
    };
    let session = SessionCertificate {
        population: PEOPLE.to_owned(),
        not_before_ms: NOW - 1,
        not_after_ms: NOW + 1,
        session_key: device().public().to_vec(),
    };
    let next = Next {
        step: Some(next::Step::Secagg(vec![1, 2, 3])),
        retry: Some(undertone_protocol::RetryWindow::between(1, 2)),
    };
    let signature = RequestSignature::new(&device(), NOW, "POST", "/", b"other").header();
    vec![
        (0, write(&certificate)),
        (8, write(&check_in(world.task, &certificate))),
        (5, write(&keys)),
        (11, signed.body),
        (12, write(&next)),
        (16, write(&Problem::new(undertone_protocol::Code::Busy, "later"))),
        (18, certificate.body),
        (18, write(&session)),
        (19, signature.into_bytes()),
        (19, b"deadbeef".to_vec()),
    ]
}
