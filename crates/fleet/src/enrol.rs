//! Enrolment: each device gets its certificate.

use std::time::Duration;

use undertone_device::{Method, Request, Transport, check_certificate, enrolment_body};
use undertone_protocol::{
    Code, Enrol, Enrolled, Label, PROTOCOL_HEADER, Problem, Signed, limits, read, write,
};

use crate::config::{Enrolment, FleetConfig};
use crate::simulated::Simulated;

/// Number of times that a device asks a service that is busy or cannot be reached.
const TRIES: u32 = 20;

/// The pause after such a try.
const PAUSE: Duration = Duration::from_millis(100);

fn request(config: &FleetConfig, device: &Simulated) -> Request {
    let name = config.subject_name(device.subject);
    let (invitation, subject) = match &config.enrolment {
        Enrolment::SelfAsserted => (String::new(), name.to_vec()),
        Enrolment::Invitations(text) => (text(device.subject, &name), Vec::new()),
    };
    let mut enrol = Enrol {
        device_key: device.signer.public().to_vec(),
        invitation,
        subject,
        ..Enrol::default()
    };
    enrol.proof = device.signer.proof(Label::Enrolment, &enrolment_body(&enrol));
    let (header, version) = PROTOCOL_HEADER;
    Request {
        method: Method::Post,
        target: format!("/v1/p/{}/enrol", config.setup.population),
        headers: vec![(header, version.to_owned())],
        body: write(&enrol).into(),
        max_reply: limits::MAX_MESSAGE,
        timeout_ms: 30_000,
        blob: None,
    }
}

/// The certificate of a device, or the reason why it gets none.
pub(crate) fn enrol(
    config: &FleetConfig,
    device: &Simulated,
    transport: &mut dyn Transport,
) -> Result<Signed, String> {
    let request = request(config, device);
    let mut reason = String::new();
    for try_number in 0..TRIES {
        if try_number > 0 {
            std::thread::sleep(PAUSE);
        }
        let reply = match transport.send(&request) {
            Ok(reply) => reply,
            Err(lost) => {
                reason = lost.to_string();
                continue;
            }
        };
        if !reply.is_success() {
            let problem: Problem = read("the refusal", &reply.body, limits::MAX_MESSAGE).unwrap_or_default();
            reason = format!(
                "status {}, {}: {}",
                reply.status,
                problem.code().as_str_name(),
                problem.message.escape_debug()
            );
            if problem.code() == Code::Busy {
                continue;
            }
            return Err(reason);
        }
        let enrolled: Enrolled = read("the reply to the enrolment", &reply.body, limits::MAX_MESSAGE)
            .map_err(|error| error.to_string())?;
        let certificate = enrolled.certificate.ok_or("a reply without a certificate")?;
        let setup = &config.setup;
        check_certificate(
            &certificate,
            &setup.issuers,
            &setup.population,
            &device.signer.public(),
            config.clock.now_ms(),
        )
        .map_err(|refusal| refusal.to_string())?;
        return Ok(certificate);
    }
    Err(reason)
}
