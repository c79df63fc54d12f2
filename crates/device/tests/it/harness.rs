//! A service in memory that a test can question, and devices that speak with it under a virtual clock.

mod driven;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_aggregation::{Encoding, EncodingKind, EncodingSize};
use undertone_device::{
    Action, Ended, Event, Job, Limits, Machine, Memory, Method, Neighbours, Outcome, Participation,
    PolicyFloors, Reply, Request, Row, Setup, StockedKey, Watch,
};
use undertone_models::ModelSpec;
use undertone_protocol::{
    AggregationRule, Assignment, Blob, Board, CHECKSUM_HEADER, Certificate, CheckIn, CheckInReply, ClipRule,
    Code, Commit, Deadlines, DeviceBudget, Digest32, Guarantee, Label, Next, Offset, Plan, Problem,
    RequestSignature, RetryWindow, RoundSettings, SIGNATURE_HEADER, SessionCertificate, SessionCertificates,
    SessionKeys, Signed, Signer, SumMode, TaskCard, TaskKind, TaskState, TrustedKeys, UploadGrant, Verdict,
    Wait, check_in_reply, checksum_header, clip_rule, crc32c, digest_of, limits, next, read, write,
};
use undertone_secagg::message::{AdvertiseKeys, Consistency, MaskedInput, Message, ShareKeys, UnmaskShares};
use undertone_secagg::{Context, Floors, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust};
use zeroize::Zeroizing;

pub(crate) use driven::*;
pub(crate) use service::*;

pub(crate) const POPULATION: &str = "keyboard-en";
pub(crate) const TASK: Digest32 = [1; 32];
pub(crate) const CHAIN: Digest32 = [2; 32];
pub(crate) const RUN: Digest32 = [3; 32];
pub(crate) const ROUND: u64 = 5;
/// The virtual time at which every test begins.
pub(crate) const START: u64 = 1_700_000_000_000;
pub(crate) const TIMER_S: u64 = 3600;
pub(crate) const WORDS: &[u8] = b"the\ncat\nsat\na\ndog\nran\n";
pub(crate) const MODEL: &str = r#"{"family": "dplm", "embed": 2, "hidden": 3}"#;
pub(crate) const CLIP: f64 = 0.5;

pub(crate) fn board_key() -> Signer {
    Signer::from_seed(&[11; 32])
}

pub(crate) fn task_key() -> Signer {
    Signer::from_seed(&[12; 32])
}

pub(crate) fn issuer() -> Signer {
    Signer::from_seed(&[13; 32])
}

/// Number of parameters of the model.
pub(crate) fn dim() -> usize {
    model().layout().len()
}

fn model() -> Box<dyn undertone_models::SequenceModel> {
    let spec: ModelSpec = serde_json::from_str(MODEL).unwrap();
    spec.build(9).unwrap()
}

pub(crate) fn model_bytes() -> Vec<u8> {
    let model = model();
    model.write_params(&model.initial_params(1), "a test").unwrap()
}

/// The encoding of the secure tasks: numbers in fixed point, whose sum a test can read.
pub(crate) fn fixed_point() -> Encoding {
    let size = EncodingSize {
        dim: dim(),
        clip_norm: CLIP,
        min_clients: 4,
        max_clients: 8,
    };
    Encoding::new(EncodingKind::Identity, size).unwrap()
}

/// A plan of a task that trains.
pub(crate) fn plan(mode: SumMode) -> Plan {
    let secure = mode == SumMode::Secagg;
    let encoding = fixed_point();
    Plan {
        task: TASK.to_vec(),
        name: "next-word".to_owned(),
        population: POPULATION.to_owned(),
        kind: TaskKind::Train.into(),
        rounds: 100,
        report_goal: 4,
        model: MODEL.to_owned(),
        user_update: r#"{"batch_size": 2, "learning_rate": 0.5}"#.to_owned(),
        vocabulary: Some(Blob::of(WORDS)),
        frozen: None,
        text: r#"{"examples": "sentences", "max_sentence_tokens": 10}"#.to_owned(),
        clip: Some(ClipRule {
            kind: Some(clip_rule::Kind::Flat(CLIP)),
        }),
        aggregation: Some(AggregationRule {
            mode: mode.into(),
            encoding: if secure { r#"{"kind": "identity"}"# } else { "" }.to_owned(),
            min_clients: 4,
            max_clients: 8,
            modulus: if secure { encoding.modulus().get() } else { 0 },
            length: dim() as u64,
            group_target: 8,
            group_min: 4,
            graph: None,
            rotations: vec![4; 32],
            issuers: vec![issuer().public().to_vec()],
        }),
        min_sep: 3,
        max_part: 2,
        timer_s: TIMER_S,
        min_examples: 2,
        max_examples: 20,
        min_client_version: 1,
        guarantee: Some(Guarantee {
            epsilon: 6.0,
            delta: 1e-8,
            rho: 0.4,
            noise_multiplier: 3.0,
        }),
        budget: Some(DeviceBudget {
            cpu_ms: 60_000,
            upload_kbps_min: 0,
            battery_percent: 1,
        }),
        head_key: vec![5; 32],
        task_sha256: vec![6; 32],
        of: Vec::new(),
        loss_cap: 0.0,
        ledger_on_device: false,
    }
}

/// A plan of a task that measures the model.
pub(crate) fn evaluation(mode: SumMode) -> Plan {
    let mut plan = Plan {
        kind: TaskKind::Evaluate.into(),
        of: vec![9; 32],
        loss_cap: 10.0,
        user_update: String::new(),
        clip: Some(ClipRule {
            kind: Some(clip_rule::Kind::Flat(1.0)),
        }),
        ..plan(mode)
    };
    plan.aggregation.as_mut().unwrap().length = 3;
    plan
}

pub(crate) fn floors() -> PolicyFloors {
    PolicyFloors {
        min_goal: 4,
        min_group: 4,
        require_secagg: false,
        secagg: Floors::COMPILED.with_clients(4, 4).unwrap(),
        neighbours: Neighbours::Anyone,
        ..PolicyFloors::COMPILED
    }
}

pub(crate) fn setup(floors: PolicyFloors) -> Setup {
    Setup {
        population: POPULATION.to_owned(),
        board_keys: TrustedKeys::new([board_key().public()]),
        task_keys: TrustedKeys::new([task_key().public()]),
        issuers: TrustedKeys::new([issuer().public()]),
        floors,
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    }
}

pub(crate) fn certificate(device: &Digest32) -> Signed {
    certificate_until(device, START + 30 * 24 * 3_600_000)
}

pub(crate) fn certificate_until(device: &Digest32, not_after_ms: u64) -> Signed {
    let certificate = Certificate {
        population: POPULATION.to_owned(),
        subject: vec![7; 32],
        device_key: device.to_vec(),
        not_before_ms: START - 1000,
        not_after_ms,
    };
    issuer().sign(Label::Certificate, write(&certificate))
}

pub(crate) fn session_certificate(signer: &Signer, population: &str, key: &[u8]) -> Signed {
    let certificate = SessionCertificate {
        population: population.to_owned(),
        not_before_ms: START - 1000,
        not_after_ms: START + 24 * 3_600_000,
        session_key: key.to_vec(),
    };
    signer.sign(Label::SessionCertificate, write(&certificate))
}
