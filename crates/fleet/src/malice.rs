//! Devices that do not follow the protocol.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_device::{Reply, Request};
use undertone_protocol::{
    Assignment, CHECKSUM_HEADER, CheckIn, CheckInReply, Code, Commit, Next, Offset, Problem,
    RequestSignature, SIGNATURE_HEADER, Signed, Signer, check_in_reply, checksum_header, crc32c, limits,
    next, read, write,
};

use crate::error::{FleetError, Result};
use crate::steps::Step;

/// A way to break the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Malice {
    /// A plain update of 100 times the clip norm. In a secure sum: residues that were made up.
    OverNorm,
    /// A plain update of 1.9 times the clip norm, which a service clips. In a secure sum: residues that were made up.
    Inflated,
    /// A plain update of values that are no numbers. In a secure sum: residues that were made up.
    Nan,
    /// A plain update that ends four bytes early. In a secure sum: a commit of four bytes fewer than were sent.
    WrongLength,
    /// Check-ins with the certificate of the next device.
    ReplayedCertificate,
    /// A second device of the subject of the device before.
    SharedSubject,
    /// An upload of ones alone: no number in a plain sum; in a secure sum residues at the modulus or above, or behind the last one.
    Residues,
    /// A masked upload with the top bit of each residue flipped: an offset of half the modulus, where that is a power of two.
    HalfModulus,
    /// Keys of a secure sum that are sent once as they are, and once with another byte.
    EquivocatingKeys,
    /// Shares for the unmasking with one wrong byte.
    FalseShares,
    /// An upload of a single byte, and one more try after another.
    SlowLoris,
}

impl Malice {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::OverNorm,
        Self::Inflated,
        Self::Nan,
        Self::WrongLength,
        Self::ReplayedCertificate,
        Self::SharedSubject,
        Self::Residues,
        Self::HalfModulus,
        Self::EquivocatingKeys,
        Self::FalseShares,
        Self::SlowLoris,
    ];

    /// The name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OverNorm => "over-norm",
            Self::Inflated => "inflated",
            Self::Nan => "nan",
            Self::WrongLength => "wrong-length",
            Self::ReplayedCertificate => "replayed-certificate",
            Self::SharedSubject => "shared-subject",
            Self::Residues => "residues",
            Self::HalfModulus => "half-modulus",
            Self::EquivocatingKeys => "equivocating-keys",
            Self::FalseShares => "false-shares",
            Self::SlowLoris => "slow-loris",
        }
    }

    /// The norm of the update as a multiple of the clip norm, where the kind forges it.
    fn factor(self) -> f64 {
        match self {
            Self::OverNorm => 100.0,
            Self::Inflated => 1.9,
            Self::Nan => f64::NAN,
            _ => 0.0,
        }
    }
}

/// A fraction of the devices that break the protocol in one way. As text it is `0.05:over-norm`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Malicious {
    /// The fraction of all devices.
    pub fraction: f64,
    /// Their kind.
    pub kind: Malice,
}

impl FromStr for Malicious {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self> {
        let expected = || {
            let names: Vec<&str> = Malice::ALL.iter().map(|kind| kind.name()).collect();
            format!("a fraction, a colon and one of {}", names.join(", "))
        };
        let wrong = || FleetError::value("malicious", expected(), text.escape_debug());
        let (fraction, name) = text.split_once(':').ok_or_else(wrong)?;
        let kind = Malice::ALL.into_iter().find(|kind| kind.name() == name);
        let fraction: f64 = fraction.parse().map_err(|_| wrong())?;
        match (kind, (0.0..=1.0).contains(&fraction)) {
            (Some(kind), true) => Ok(Self { fraction, kind }),
            _ => Err(wrong()),
        }
    }
}

/// The bytes of a four-byte value at a place of an upload.
fn patterned(value: [u8; 4], from: u64, length: usize) -> Vec<u8> {
    (from..)
        .take(length)
        .map(|place| value[(place % 4) as usize])
        .collect()
}

/// Changes the requests of one session.
pub(crate) struct Forger {
    kind: Malice,
    signer: Signer,
    stolen: Option<Signed>,
    clip_norm: f64,
    /// The length of a plain upload; `None` before the grant, and in a secure sum.
    granted: Option<u64>,
    /// The end of the last chunk, as the device means it.
    claimed: u64,
    /// The modulus of a secure sum; 0 in a plain one.
    modulus: u64,
    /// The masked upload as it was changed.
    changed: Vec<u8>,
}

/// The first byte of the first share in a message to unmask: after version and kind, the head, the count, the index and the kind.
const FIRST_SHARE: usize = 2 + 36 + 4 + 5;

impl Forger {
    /// `signer` is the device's own key, and `stolen` the certificate of another.
    pub(crate) fn new(kind: Malice, signer: Signer, stolen: Option<Signed>) -> Self {
        Self {
            kind,
            signer,
            stolen,
            clip_norm: 0.0,
            granted: None,
            claimed: 0,
            modulus: 0,
            changed: Vec::new(),
        }
    }

    fn forges_updates(&self) -> bool {
        matches!(
            self.kind,
            Malice::OverNorm | Malice::Inflated | Malice::Nan | Malice::WrongLength | Malice::Residues
        )
    }

    /// Every coordinate of the forged update.
    fn value(&self) -> [u8; 4] {
        if self.kind == Malice::Residues {
            return [0xff; 4];
        }
        let Some(length) = self.granted else {
            // Residues of a secure sum that belong to no mask.
            return [0x35, 0x9c, 0x6a, 0xc3];
        };
        let coordinates = (length / 4).max(1) as f64;
        let value = (self.kind.factor() * self.clip_norm / coordinates.sqrt()) as f32;
        value.to_le_bytes()
    }

    /// The forged upload ends here.
    fn end(&self, length: u64) -> u64 {
        match self.kind {
            Malice::WrongLength => length.saturating_sub(4),
            _ => length,
        }
    }

    /// Changes a request on its way to the service.
    pub(crate) fn request(&mut self, step: Step, request: &mut Request, now_ms: u64) {
        match step {
            Step::CheckIn if self.kind == Malice::ReplayedCertificate => self.check_in(request, now_ms),
            Step::Upload if self.forges_updates() => self.chunk(request),
            Step::Commit if self.forges_updates() => self.commit(request),
            Step::Upload if self.kind == Malice::HalfModulus && self.granted.is_none() => {
                self.offset(request);
            }
            Step::Commit if self.kind == Malice::HalfModulus && self.granted.is_none() => {
                let changed = std::mem::take(&mut self.changed);
                rewrite_commit(request, |message| message.crc32c = crc32c(0, &changed));
                self.changed = changed;
            }
            Step::Upload if self.kind == Malice::SlowLoris => {
                request.body.truncate(1);
                self.check(request);
            }
            Step::Join if self.kind == Malice::EquivocatingKeys => {
                if let Some(byte) = request.body.last_mut() {
                    *byte ^= 1;
                }
            }
            Step::Unmask if self.kind == Malice::FalseShares => {
                if let Some(byte) = request.body.get_mut(FIRST_SHARE) {
                    *byte ^= 1;
                }
            }
            _ => {}
        }
    }

    /// A request that is sent before the device's own, which is changed then.
    pub(crate) fn before(&self, step: Step, request: &Request) -> Option<Request> {
        (self.kind == Malice::EquivocatingKeys && step == Step::Join && !request.body.is_empty())
            .then(|| request.clone())
    }

    /// Flips the top bit of each residue of a chunk.
    fn offset(&mut self, request: &mut Request) {
        let from = chunk_offset(request) as usize;
        let bits = u64::from(64 - self.modulus.saturating_sub(1).leading_zeros()).max(1);
        for (place, byte) in request.body.iter_mut().enumerate() {
            let first = 8 * (from + place) as u64;
            for bit in 0..8 {
                if (first + bit) % bits == bits - 1 {
                    *byte ^= 1 << bit;
                }
            }
        }
        self.changed.truncate(from);
        self.changed.extend_from_slice(&request.body);
        self.check(request);
    }

    fn check_in(&self, request: &mut Request, now_ms: u64) {
        let Ok(mut message) = read::<CheckIn>("the check-in", &request.body, limits::MAX_MESSAGE) else {
            return;
        };
        message.certificate = self.stolen.clone();
        request.body = write(&message).into();
        let (method, path) = (request.method.name(), &request.target);
        let signature = RequestSignature::new(&self.signer, now_ms, method, path, &request.body);
        set_header(request, SIGNATURE_HEADER, signature.header());
    }

    fn chunk(&mut self, request: &mut Request) {
        let from = chunk_offset(request);
        self.claimed = from + request.body.len() as u64;
        let Some(length) = self.granted else {
            if self.kind != Malice::WrongLength {
                request.body = patterned(self.value(), from, request.body.len()).into();
                self.check(request);
            }
            return;
        };
        let end = self.claimed.min(self.end(length));
        request.body = patterned(self.value(), from, end.saturating_sub(from) as usize).into();
        self.check(request);
    }

    fn check(&self, request: &mut Request) {
        let checksum = checksum_header(crc32c(0, &request.body));
        set_header(request, CHECKSUM_HEADER, checksum);
    }

    fn commit(&self, request: &mut Request) {
        rewrite_commit(request, |message| {
            message.length = self.end(message.length);
            if self.granted.is_some() || self.kind != Malice::WrongLength {
                let length = usize::try_from(message.length).unwrap_or(0);
                message.crc32c = crc32c(0, &patterned(self.value(), 0, length));
            }
        });
    }

    /// Reads a reply, and changes it where the device must not see that its request was changed.
    pub(crate) fn reply(&mut self, step: Step, reply: &mut Reply) {
        if !reply.is_success() {
            return;
        }
        match step {
            Step::CheckIn => {
                let read = read::<CheckInReply>("the reply", &reply.body, limits::MAX_MESSAGE);
                if let Ok(Some(check_in_reply::Reply::Assignment(Assignment {
                    settings: Some(settings),
                    ..
                }))) = read.map(|reply| reply.reply)
                {
                    self.clip_norm = settings.clip_norm;
                    self.modulus = settings.modulus;
                }
            }
            Step::Join | Step::Poll => {
                let read = read::<Next>("the next step", &reply.body, limits::MAX_SECAGG);
                if let Ok(Some(next::Step::Upload(grant))) = read.map(|next| next.step) {
                    self.granted = Some(grant.length);
                }
            }
            Step::Upload if self.kind == Malice::SlowLoris => {
                // The device takes the service for busy, and sends the same byte after a while.
                let busy = Problem::new(Code::Busy, "the upload goes on slowly");
                (reply.status, reply.body) = (503, write(&busy));
            }
            Step::Upload if self.kind == Malice::WrongLength && self.granted == Some(self.claimed) => {
                reply.body = write(&Offset { offset: self.claimed });
            }
            Step::Probe if self.kind == Malice::WrongLength => {
                if let (Some(length), Some(offset)) = (self.granted, &mut reply.offset)
                    && *offset == self.end(length)
                {
                    *offset = length;
                }
            }
            _ => {}
        }
    }
}

/// The offset of a chunk in its upload.
fn chunk_offset(request: &Request) -> u64 {
    let offset = request.target.rsplit_once("offset=");
    offset.and_then(|(_, offset)| offset.parse().ok()).unwrap_or(0)
}

/// Changes the message of a commit.
fn rewrite_commit(request: &mut Request, change: impl FnOnce(&mut Commit)) {
    if let Ok(mut message) = read::<Commit>("the commit", &request.body, limits::MAX_MESSAGE) {
        change(&mut message);
        request.body = write(&message).into();
    }
}

/// Replaces a header of a request.
pub(crate) fn set_header(request: &mut Request, name: &'static str, value: String) {
    request.headers.retain(|(known, _)| *known != name);
    request.headers.push((name, value));
}

#[cfg(test)]
mod tests {
    use undertone_device::Method;
    use undertone_protocol::{RoundSettings, UploadGrant};

    use super::*;
    use crate::steps::tests::request;

    const LENGTH: u64 = 4 * 100;

    fn ok(body: Vec<u8>) -> Reply {
        Reply {
            status: 200,
            offset: None,
            body,
        }
    }

    /// A forger that has seen an assignment with clip norm 2 and a grant.
    fn plain(kind: Malice) -> Forger {
        let mut forger = Forger::new(kind, Signer::from_seed(&[1; 32]), None);
        let assignment = Assignment {
            settings: Some(RoundSettings {
                clip_norm: 2.0,
                ..RoundSettings::default()
            }),
            ..Assignment::default()
        };
        let reply = CheckInReply {
            reply: Some(check_in_reply::Reply::Assignment(assignment)),
        };
        forger.reply(Step::CheckIn, &mut ok(write(&reply)));
        let grant = UploadGrant {
            length: LENGTH,
            chunk: 90,
        };
        let next = Next {
            step: Some(next::Step::Upload(grant)),
            retry: None,
        };
        forger.reply(Step::Join, &mut ok(write(&next)));
        forger
    }

    /// Sends an upload of ones in chunks of 90 bytes and returns the bytes and the commit that the service gets.
    fn upload(forger: &mut Forger, length: u64) -> (Vec<u8>, Commit) {
        let mut got = Vec::new();
        let mut offset = 0;
        while offset < length {
            let mut put = request(Method::Put, &format!("/v1/agg/0/ab/upload?offset={offset}"));
            let end = length.min(offset + 90);
            put.body = vec![1; (end - offset) as usize].into();
            forger.request(Step::Upload, &mut put, 0);
            if forger.forges_updates() && put.headers.iter().any(|(name, _)| *name == CHECKSUM_HEADER) {
                let checksum = checksum_header(crc32c(0, &put.body));
                assert!(put.headers.contains(&(CHECKSUM_HEADER, checksum)));
            }
            got.extend_from_slice(&put.body);
            let mut reply = ok(write(&Offset {
                offset: got.len() as u64,
            }));
            forger.reply(Step::Upload, &mut reply);
            let seen: Offset = read("the offset", &reply.body, 100).unwrap();
            assert_eq!(seen.offset, end, "the device sees no difference");
            offset = end;
        }
        let mut commit = request(Method::Post, "/v1/agg/0/ab/commit");
        commit.body = write(&Commit {
            length,
            crc32c: crc32c(0, &vec![1; length as usize]),
            weight: 1.0,
            below: None,
        })
        .into();
        forger.request(Step::Commit, &mut commit, 0);
        (got, read("the commit", &commit.body, 100).unwrap())
    }

    fn norm(bytes: &[u8]) -> f64 {
        let words = bytes.chunks_exact(4);
        let value = |word: &[u8]| f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        words.map(|word| value(word).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn forged_plain_updates_have_the_norm_of_their_kind_and_a_fitting_checksum() {
        for (kind, factor) in [(Malice::OverNorm, 100.0), (Malice::Inflated, 1.9)] {
            let (bytes, commit) = upload(&mut plain(kind), LENGTH);
            assert!((norm(&bytes) / 2.0 - factor).abs() < 1e-3, "{kind:?}");
            assert_eq!((commit.length, commit.crc32c), (LENGTH, crc32c(0, &bytes)));
        }
        let (bytes, commit) = upload(&mut plain(Malice::Nan), LENGTH);
        assert!(norm(&bytes).is_nan() && bytes.len() as u64 == LENGTH);
        assert_eq!(commit.crc32c, crc32c(0, &bytes));
    }

    #[test]
    fn a_short_upload_is_consistent_in_itself() {
        let (bytes, commit) = upload(&mut plain(Malice::WrongLength), LENGTH);
        assert_eq!(bytes.len() as u64, LENGTH - 4);
        assert_eq!((commit.length, commit.crc32c), (LENGTH - 4, crc32c(0, &bytes)));
        let mut probe = Reply {
            offset: Some(LENGTH - 4),
            ..ok(Vec::new())
        };
        let mut forger = plain(Malice::WrongLength);
        forger.reply(Step::Probe, &mut probe);
        assert_eq!(probe.offset, Some(LENGTH));
    }

    #[test]
    fn forged_residues_of_a_secure_sum_differ_from_the_masked_ones() {
        let fresh = |kind| Forger::new(kind, Signer::from_seed(&[1; 32]), None);
        let (bytes, commit) = upload(&mut fresh(Malice::OverNorm), 200);
        assert!(bytes.len() == 200 && bytes != vec![1; 200]);
        assert_eq!((commit.length, commit.crc32c), (200, crc32c(0, &bytes)));
        let (bytes, commit) = upload(&mut fresh(Malice::WrongLength), 200);
        assert_eq!((bytes.len(), commit.length), (200, 196));
    }

    /// A forger of a secure sum with a modulus of 20 bits.
    fn secure(kind: Malice) -> Forger {
        let mut forger = Forger::new(kind, Signer::from_seed(&[1; 32]), None);
        let assignment = Assignment {
            settings: Some(RoundSettings {
                modulus: 1 << 20,
                ..RoundSettings::default()
            }),
            ..Assignment::default()
        };
        let reply = CheckInReply {
            reply: Some(check_in_reply::Reply::Assignment(assignment)),
        };
        forger.reply(Step::CheckIn, &mut ok(write(&reply)));
        forger
    }

    #[test]
    fn an_offset_of_half_the_modulus_flips_the_top_bit_of_each_residue_over_all_chunks() {
        let (bytes, commit) = upload(&mut secure(Malice::HalfModulus), 200);
        assert_eq!((commit.length, commit.crc32c), (200, crc32c(0, &bytes)));
        for bit in 0..8 * bytes.len() {
            let (sent, got) = (1u8 >> (bit % 8) & 1, bytes[bit / 8] >> (bit % 8) & 1);
            assert_eq!(sent != got, bit % 20 == 19, "bit {bit}");
        }
        let (bytes, commit) = upload(&mut secure(Malice::Residues), 200);
        assert_eq!(bytes, [0xff; 200]);
        assert_eq!(commit.crc32c, crc32c(0, &bytes));
    }

    #[test]
    fn keys_are_sent_twice_with_other_bytes_and_shares_with_one_wrong_byte() {
        let mut forger = secure(Malice::EquivocatingKeys);
        let mut join = request(Method::Post, "/v1/agg/0/ab/join");
        join.body = vec![7; 100].into();
        let first = forger.before(Step::Join, &join).unwrap();
        forger.request(Step::Join, &mut join, 0);
        assert_eq!(first.body[..], [7; 100]);
        assert_eq!((&join.body[..99], join.body[99]), (&[7; 99][..], 6));
        assert!(forger.before(Step::Commit, &join).is_none());
        let mut unmask = request(Method::Post, "/v1/agg/0/ab/unmask");
        unmask.body = vec![7; 100].into();
        secure(Malice::FalseShares).request(Step::Unmask, &mut unmask, 0);
        assert_eq!(unmask.body.iter().filter(|byte| **byte != 7).count(), 1);
    }

    #[test]
    fn a_slow_loris_sends_one_byte_and_is_told_to_come_again() {
        let mut forger = plain(Malice::SlowLoris);
        let mut put = request(Method::Put, "/v1/agg/0/ab/upload?offset=0");
        put.body = vec![1; 90].into();
        forger.request(Step::Upload, &mut put, 0);
        assert_eq!(put.body[..], [1]);
        let mut reply = ok(write(&Offset { offset: 1 }));
        forger.reply(Step::Upload, &mut reply);
        let problem: Problem = read("the refusal", &reply.body, 1000).unwrap();
        assert_eq!((reply.status, problem.code()), (503, Code::Busy));
    }

    #[test]
    fn a_replayed_certificate_is_signed_by_the_thief() {
        let (thief, owner) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let stolen = owner.sign(undertone_protocol::Label::Certificate, b"certificate".to_vec());
        let mut forger = Forger::new(Malice::ReplayedCertificate, thief.clone(), Some(stolen.clone()));
        let mut check_in = request(Method::Post, "/v1/p/a/check-in");
        check_in.body = write(&CheckIn {
            checkin: vec![7; 16],
            ..CheckIn::default()
        })
        .into();
        check_in.headers.push((SIGNATURE_HEADER, "old".to_owned()));
        forger.request(Step::CheckIn, &mut check_in, 99);
        let message: CheckIn = read("the check-in", &check_in.body, 10_000).unwrap();
        assert_eq!(
            (message.checkin, message.certificate),
            (vec![7; 16], Some(stolen))
        );
        let (_, header) = &check_in.headers[0];
        assert_eq!(check_in.headers.len(), 1);
        let signature = RequestSignature::from_header(header).unwrap();
        signature
            .check(&thief.public(), 99, "POST", "/v1/p/a/check-in", &check_in.body)
            .unwrap();
    }

    #[test]
    fn a_kind_with_its_fraction_is_read_from_text() {
        for kind in Malice::ALL {
            let read: Malicious = format!("0.05:{}", kind.name()).parse().unwrap();
            assert_eq!(read, Malicious { fraction: 0.05, kind });
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
        for bad in ["", "nan", "0.1:", "0.1:other", "2:nan", "-1:nan", "x:nan"] {
            assert!(bad.parse::<Malicious>().is_err(), "{bad}");
        }
    }
}
