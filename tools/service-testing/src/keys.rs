//! The keys of a service, and of the devices that trust them.

use std::sync::Arc;

use undertone_device::{Limits, Method, Neighbours, PolicyFloors, Request, Setup, enrolment_body};
use undertone_protocol::{
    Digest32, Enrol, Enrolled, Label, PROTOCOL_HEADER, Signed, Signer, TrustedKeys, limits, read, write,
};
use undertone_secagg::Floors;
use undertone_service::identity::{Identity, Invitation};
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_store::{Blobs, Store};

use crate::PEOPLE;

/// The keys of the service.
pub fn keys() -> Keys {
    Keys::from_root([7; 32])
}

/// The things of a process of this name, over a store and blobs.
pub fn shared(store: Arc<dyn Store>, blobs: Arc<dyn Blobs>, process: &str) -> Shared {
    Shared {
        store,
        blobs,
        keys: keys(),
        process: process.to_owned(),
        witness: None,
    }
}

/// The floors of devices that take part in the tasks of tests. They demand certificates of neighbours unless the identity level is `dev`.
pub fn floors(identity: Identity) -> PolicyFloors {
    PolicyFloors {
        min_goal: 2,
        min_group: 2,
        max_epsilon: 100.0,
        require_secagg: false,
        population_rho: 10.0,
        secagg: Floors::COMPILED.with_clients(4, 4).unwrap(),
        neighbours: match identity {
            Identity::Dev => Neighbours::Anyone,
            Identity::Certificate | Identity::Attested => Neighbours::Certified,
        },
        ..PolicyFloors::COMPILED
    }
}

/// The settings of devices that trust these keys.
pub fn setup(keys: &Keys, floors: PolicyFloors) -> Arc<Setup> {
    Arc::new(Setup {
        population: PEOPLE.to_owned(),
        board_keys: TrustedKeys::new([keys.board().public()]),
        task_keys: TrustedKeys::new([keys.plans().public()]),
        issuers: TrustedKeys::new([keys.issuer().public()]),
        floors,
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    })
}

/// The text of an invitation that does not end.
pub(crate) fn invitation(keys: &Keys, subject: &Digest32) -> String {
    Invitation::new(*subject, u64::MAX / 2).text(keys, PEOPLE)
}

/// The request by which a device enrols for its subject, with an invitation.
pub fn enrolment(keys: &Keys, device: &Signer, subject: &Digest32) -> Request {
    let mut enrol = Enrol {
        device_key: device.public().to_vec(),
        invitation: invitation(keys, subject),
        subject: subject.to_vec(),
        ..Enrol::default()
    };
    enrol.proof = device.proof(Label::Enrolment, &enrolment_body(&enrol));
    let (name, value) = PROTOCOL_HEADER;
    Request {
        method: Method::Post,
        target: format!("/v1/p/{PEOPLE}/enrol"),
        headers: vec![(name, value.to_owned())],
        body: write(&enrol).into(),
        max_reply: limits::MAX_MESSAGE,
        timeout_ms: 60_000,
        blob: None,
    }
}

/// The certificate in the reply to an enrolment.
pub fn certificate(reply: &[u8]) -> Option<Signed> {
    let enrolled: Enrolled = read("the reply", reply, limits::MAX_MESSAGE).ok()?;
    enrolled.certificate
}
