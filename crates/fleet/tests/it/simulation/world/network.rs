//! The way of a request to the service: lost, late, repeated, cut, forged, or as it was sent.

use undertone_device::{Bytes, Event, Reply, Request};
use undertone_protocol::{
    CHECKSUM_HEADER, CheckIn, Next, RequestSignature, SIGNATURE_HEADER, Verdict, checksum_header, crc32c,
    next, read, write,
};

use super::super::kinds::{Kind, Manner, cuts};
use super::{Fate, KEPT, Sending, Sent, SessionLog, Waiting, World};

impl World<'_> {
    /// Sends a request by its fate.
    pub(super) fn request(&mut self, number: usize, mut request: Request) -> Sending {
        if let Some(bytes) = request.blob.and_then(|digest| self.blobs.get(&digest)) {
            return Sending::Event(Event::Cached(Bytes::clone(bytes)));
        }
        request.target = request.target.replace("wait=25", "wait=0");
        if let Some(path) = request.target.strip_prefix("/v1/agg/0/") {
            let session = path.split('/').next().unwrap_or_default();
            self.devices[number].session = Some(format!("/v1/agg/0/{session}"));
        }
        let kind = Kind::of(&request);
        if let Some(point) = self.devices[number].leaves
            && point.is_before(kind)
        {
            if kind == Kind::Upload {
                let half = request.body.len() / 2;
                cut(&mut request, half);
                self.carry(&request);
            }
            self.left(number);
            return Sending::Left;
        }
        if let Some((treated, manner)) = self.meddle
            && treated == kind
        {
            self.meddled += 1;
            if self.treat(number, &request, manner) {
                return Sending::Waits;
            }
        }
        let fate = std::mem::replace(&mut self.devices[number].fate, Fate::Delivered);
        if let Fate::Forged(manner) = fate {
            self.forge(number, &mut request, manner);
        }
        let reply = self.deliver(number, &request, fate);
        if let Some(point) = self.devices[number].leaves
            && point.is_after(kind)
            && reply.as_ref().is_some_and(Reply::is_success)
        {
            self.left(number);
            return Sending::Left;
        }
        Sending::Event(reply.map_or(Event::NetworkLost, Event::Reply))
    }

    /// Sends a request. `None` where no reply comes back.
    fn deliver(&mut self, number: usize, request: &Request, fate: Fate) -> Option<Reply> {
        let sent = Sent {
            device: number,
            request: request.clone(),
        };
        let reply = match fate {
            Fate::LostBefore => {
                self.note("lost before");
                return None;
            }
            Fate::Late => {
                self.note("late");
                self.held.push(sent);
                return None;
            }
            Fate::LostAfter => {
                self.note("lost after");
                self.carry(request);
                None
            }
            Fate::Duplicated => {
                self.note("duplicate");
                self.carry(request);
                self.carry(request)
            }
            Fate::Delivered | Fate::Forged(_) => self.carry(request),
        };
        if self.sent.len() == KEPT {
            self.sent.remove(0);
        }
        self.sent.push(sent);
        self.observe(number, Kind::of(request), reply.as_ref());
        reply
    }

    /// Notes what the service said to a session.
    pub(super) fn observe(&mut self, number: usize, kind: Kind, reply: Option<&Reply>) {
        let Some(reply) = reply.filter(|reply| reply.is_success()) else {
            return;
        };
        let subject = self.devices[number].subject;
        if kind == Kind::CheckIn {
            self.sessions.push(SessionLog {
                subject,
                ..SessionLog::default()
            });
        }
        let mut sessions = self.sessions.iter_mut().rev();
        let Some(log) = sessions.find(|log| log.subject == subject) else {
            return;
        };
        match kind {
            Kind::Join => log.joined = true,
            Kind::Commit => {
                let next: Next = read("the reply", &reply.body, 1 << 20).unwrap();
                match next.step {
                    Some(next::Step::Verdict(verdict)) => log.late = verdict == i32::from(Verdict::Late),
                    _ => log.committed = true,
                }
            }
            _ => {}
        }
    }

    fn left(&mut self, number: usize) {
        self.note("left");
        let subject = self.devices[number].subject;
        let mut sessions = self.sessions.iter_mut().rev();
        if let Some(log) = sessions.find(|log| log.subject == subject) {
            log.left = true;
        }
    }

    /// Treats a message; `true` where it stays on its way.
    fn treat(&mut self, number: usize, request: &Request, manner: Manner) -> bool {
        match manner {
            Manner::Duplicated => {
                self.carry(request);
            }
            Manner::Truncated => {
                for length in cuts(request.body.len()) {
                    let mut copy = request.clone();
                    copy.body = request.body[..length].to_vec().into();
                    self.carry(&copy);
                }
            }
            Manner::Replayed => {
                let own = self.devices[number].session.clone();
                let mut others = self.devices.iter().filter(|device| device.number != number);
                let theirs = others.find_map(|device| device.session.clone());
                if let (Some(own), Some(theirs)) = (own, theirs) {
                    let mut copy = request.clone();
                    copy.target = request.target.replace(&own, &theirs);
                    let reply = self.carry(&copy);
                    let refused = reply.is_some_and(|reply| !reply.is_success());
                    assert!(refused || copy.target == request.target, "{}", copy.target);
                }
            }
            Manner::Reordered | Manner::Delayed(_) => {
                let (after, delay) = match manner {
                    Manner::Delayed(ms) => (0, ms),
                    _ => (self.arrived + 5, 0),
                };
                let at = self.now() + delay;
                self.devices[number].waits = Some(Waiting {
                    request: request.clone(),
                    after,
                    at,
                });
                return true;
            }
        }
        false
    }

    /// Changes a request as a thief, a broken proxy or a liar would.
    fn forge(&mut self, number: usize, request: &mut Request, manner: u8) {
        self.note("forge");
        let other = (number + 1) % self.devices.len();
        match manner % 5 {
            // The token of this session under the path of another one.
            0 => {
                if let (Some(own), Some(theirs)) = (
                    self.devices[number].session.clone(),
                    self.devices[other].session.clone(),
                ) {
                    request.target = request.target.replace(&own, &theirs);
                }
            }
            // The certificate of another device, under this device's signature.
            1 => {
                let mut check_in: CheckIn = read("the check-in", &request.body, 1 << 20).unwrap_or_default();
                if check_in.certificate.is_some() {
                    check_in.certificate = self.devices[other].memory.certificate.clone();
                    request.body = write(&check_in).into();
                    let (method, path) = (request.method.name(), &request.target);
                    let key = self.template.signers[number].clone();
                    let signature = RequestSignature::new(&key, self.now(), method, path, &request.body);
                    let name = SIGNATURE_HEADER;
                    request.headers.retain(|(known, _)| *known != name);
                    request.headers.push((name, signature.header()));
                }
            }
            // A flipped bit.
            2 => {
                let place = request.body.len() / 2;
                if let Some(byte) = request.body.get_mut(place) {
                    *byte ^= 1;
                }
            }
            // Half of the body.
            3 => {
                let half = request.body.len() / 2;
                request.body.truncate(half);
            }
            // A flipped digit in each header.
            _ => {
                for (_, value) in &mut request.headers {
                    let end = if value.ends_with('0') { "1" } else { "0" };
                    value.pop();
                    value.push_str(end);
                }
            }
        }
    }
}

/// Cuts the body of a chunk, with a checksum that fits.
pub(crate) fn cut(request: &mut Request, length: usize) {
    request.body.truncate(length);
    let checksum = checksum_header(crc32c(0, &request.body));
    request.headers.retain(|(name, _)| *name != CHECKSUM_HEADER);
    request.headers.push((CHECKSUM_HEADER, checksum));
}
