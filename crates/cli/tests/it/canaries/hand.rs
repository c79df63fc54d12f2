//! A device that the test plays by hand.

use std::time::{SystemTime, UNIX_EPOCH};

use undertone_device::{HttpTransport, Method, Reply, Request, Transport, enrolment_body};
use undertone_present::numbers::hex;
use undertone_protocol::{
    Assignment, CHECKSUM_HEADER, CheckIn, CheckInReply, Code, Commit, Enrol, Enrolled, Label, Next,
    PROTOCOL_HEADER, Problem, RequestSignature, SIGNATURE_HEADER, Signed, Signer, check_in_reply,
    checksum_header, crc32c, limits, next, read, write,
};

/// A device whose every byte the test chooses.
pub(super) struct Hand {
    pub(super) number: usize,
    pub(super) signer: Signer,
    pub(super) transport: HttpTransport,
    pub(super) certificate: Option<Signed>,
    pub(super) assignment: Option<Assignment>,
}

impl Hand {
    pub(super) fn new(number: usize, url: &str, root: &[u8]) -> Self {
        Self {
            number,
            signer: Signer::from_seed(&[number as u8 + 1; 32]),
            transport: HttpTransport::with_roots(url, &[root]).expect("a transport"),
            certificate: None,
            assignment: None,
        }
    }

    pub(super) fn send(
        &mut self,
        method: Method,
        target: String,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Reply {
        let mut all = vec![(PROTOCOL_HEADER.0, PROTOCOL_HEADER.1.to_owned())];
        all.extend(headers);
        let request = Request {
            method,
            target,
            headers: all,
            body: body.into(),
            max_reply: limits::MAX_MESSAGE,
            timeout_ms: 60_000,
            blob: None,
        };
        self.transport.send(&request).expect("a reply")
    }

    pub(super) fn enrol(&mut self, invitation: &str) {
        let mut enrol = Enrol {
            device_key: self.signer.public().to_vec(),
            invitation: invitation.to_owned(),
            ..Enrol::default()
        };
        enrol.proof = self.signer.proof(Label::Enrolment, &enrolment_body(&enrol));
        let reply = self.send(
            Method::Post,
            "/v1/p/demo/enrol".to_owned(),
            Vec::new(),
            write(&enrol),
        );
        assert!(reply.is_success(), "{}", reply.status);
        let enrolled: Enrolled = read("the reply", &reply.body, limits::MAX_MESSAGE).expect("a reply");
        self.certificate = enrolled.certificate;
    }

    pub(super) fn check_in(&mut self, task: &[u8], number: u8) -> Result<(), Code> {
        let message = CheckIn {
            checkin: vec![number; 16],
            eligible: vec![task.to_vec()],
            client_version: 1,
            certificate: self.certificate.clone(),
            evidence: Vec::new(),
        };
        let (path, body) = ("/v1/p/demo/check-in", write(&message));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock")
            .as_millis() as u64;
        let signature = RequestSignature::new(&self.signer, now, "POST", path, &body).header();
        let reply = self.send(
            Method::Post,
            path.to_owned(),
            vec![(SIGNATURE_HEADER, signature)],
            body,
        );
        if !reply.is_success() {
            let problem: Problem = read("the refusal", &reply.body, limits::MAX_MESSAGE).expect("a refusal");
            return Err(problem.code());
        }
        let answer: CheckInReply = read("the reply", &reply.body, limits::MAX_MESSAGE).expect("a reply");
        match answer.reply {
            Some(check_in_reply::Reply::Assignment(assignment)) => self.assignment = Some(assignment),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        method: Method,
        what: &str,
        header: Option<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Next {
        let assignment = self.assignment.as_ref().expect("an assignment");
        let target = format!("{}/{}/{what}", assignment.aggregator, hex(&assignment.session));
        let bearer = ("authorization", format!("Bearer {}", hex(&assignment.token)));
        let headers = [Some(bearer), header].into_iter().flatten().collect();
        let reply = self.send(method, target, headers, body);
        assert!(reply.is_success(), "{what}: {}", reply.status);
        read("the reply", &reply.body, limits::MAX_MESSAGE).unwrap_or_default()
    }

    /// Joins, and returns the number of coordinates of an update.
    pub(super) fn join(&mut self) -> usize {
        match self.call(Method::Post, "join", None, Vec::new()).step {
            Some(next::Step::Upload(grant)) => grant.length as usize / 4,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn upload(&mut self, bytes: &[u8]) {
        let checksum = (CHECKSUM_HEADER, checksum_header(crc32c(0, bytes)));
        self.call(Method::Put, "upload?offset=0", Some(checksum), bytes.to_vec());
    }

    pub(super) fn commit(&mut self, bytes: &[u8]) {
        let commit = Commit {
            length: bytes.len() as u64,
            crc32c: crc32c(0, bytes),
            weight: 1.0,
            below: None,
        };
        self.call(Method::Post, "commit", None, write(&commit));
    }
}
