//! Who takes part: invitations, certificates of devices, and certificates of keys of secure sums.

pub mod attest;
pub mod person;

use sha2::{Digest, Sha256};
use undertone_protocol::{
    Certificate, Code, Digest32, Enrol, Label, ProtocolError, SessionCertificate, Signed, Signer,
    TrustedKeys, limits, read, verify_proof, write,
};
use undertone_store::Millis;

use crate::error::{Result, ServiceError};
use crate::keys::Keys;

/// One day in milliseconds: the window of session certificates.
pub const DAY: Millis = 24 * 3600 * 1000;

/// The evidence for the identity of a device's subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The device says who its subject is. For tests and demonstrations on one machine.
    Dev,
    /// An issuer says it by a certificate.
    Certificate,
    /// An issuer says it by a certificate, and a verifier judges the platform of each device that asks for a place in a task with
    /// `identity = "attested"`.
    Attested,
}

impl Identity {
    /// The name of the level, as a task file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Certificate => "certificate",
            Self::Attested => "attested",
        }
    }
}

/// An invitation for one subject. Its holder can enrol devices of that subject until it ends.
#[derive(Clone, PartialEq, Eq)]
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it is the right to be a subject"
)]
pub struct Invitation {
    subject: Digest32,
    expires: Millis,
}

const INVITATION: usize = 32 + 8 + 16;

impl Invitation {
    /// The invitation of a subject until a time.
    #[must_use]
    pub fn new(subject: Digest32, expires: Millis) -> Self {
        Self { subject, expires }
    }

    /// The subject that it invites.
    #[must_use]
    pub fn subject(&self) -> &Digest32 {
        &self.subject
    }

    fn tag(&self, keys: &Keys, population: &str) -> [u8; 16] {
        let mut tag = [0; 16];
        // The key is fixed in length and stands in front and behind, so no message extends another.
        let key = keys.invitations();
        let digest = Sha256::new()
            .chain_update(*key)
            .chain_update((population.len() as u64).to_le_bytes())
            .chain_update(population)
            .chain_update(self.subject)
            .chain_update(self.expires.to_le_bytes())
            .chain_update(*key)
            .finalize();
        tag.copy_from_slice(&digest[..16]);
        tag
    }

    /// The text of the invitation: 112 hexadecimal digits, which only these keys make.
    #[must_use]
    pub fn text(&self, keys: &Keys, population: &str) -> String {
        let bytes = [
            &self.subject[..],
            &self.expires.to_le_bytes(),
            &self.tag(keys, population),
        ]
        .concat();
        hex(&bytes)
    }

    /// Reads an invitation to this population.
    ///
    /// # Errors
    /// [`Code::BadCertificate`] for text that these keys did not make, or whose time has passed.
    pub fn read(text: &str, keys: &Keys, population: &str, now: Millis) -> Result<Self, IdentityRefusal> {
        let refused = |why: &'static str| IdentityRefusal::new(Code::BadCertificate, why);
        let bytes = unhex(text.trim()).filter(|bytes| bytes.len() == INVITATION);
        let bytes = bytes.ok_or_else(|| refused("an invitation has 112 hexadecimal digits"))?;
        let (subject, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| refused("an invitation is damaged"))?;
        let (expires, tag) = rest
            .split_first_chunk()
            .ok_or_else(|| refused("an invitation is damaged"))?;
        let invitation = Self::new(*subject, Millis::from_le_bytes(*expires));
        let equal = invitation
            .tag(keys, population)
            .iter()
            .zip(tag)
            .fold(0, |all, (a, b)| all | (a ^ b));
        if equal != 0 {
            return Err(refused(
                "this invitation was not made for this population by this service",
            ));
        }
        if now >= invitation.expires {
            return Err(refused("this invitation has ended; ask for a new one"));
        }
        Ok(invitation)
    }
}

/// A refused request of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct IdentityRefusal {
    /// The code.
    pub code: Code,
    /// The reason, for the log of the device.
    pub reason: String,
}

impl IdentityRefusal {
    /// A refusal with its reason.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

impl From<ProtocolError> for IdentityRefusal {
    fn from(error: ProtocolError) -> Self {
        let code = match error {
            ProtocolError::UnknownKey { .. } | ProtocolError::Expired { .. } => Code::BadCertificate,
            ProtocolError::Signature { .. } | ProtocolError::Key { .. } => Code::BadSignature,
            _ => Code::Malformed,
        };
        Self::new(code, error.to_string())
    }
}

/// The signer of certificates of one population.
pub struct Issuer<'k> {
    keys: &'k Keys,
    signer: Signer,
    population: &'k str,
    identity: Identity,
}

impl std::fmt::Debug for Issuer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("population", &self.population)
            .finish_non_exhaustive()
    }
}

impl<'k> Issuer<'k> {
    /// The issuer of a population.
    #[must_use]
    pub fn new(keys: &'k Keys, population: &'k str, identity: Identity) -> Self {
        Self {
            keys,
            signer: keys.issuer(),
            population,
            identity,
        }
    }

    /// The certificate of an enrolment, and the subject that it names.
    ///
    /// # Errors
    /// A refusal where the device does not hold its key, or has no right to its subject.
    pub fn enrol(&self, request: &Enrol, now: Millis) -> Result<(Signed, Digest32), IdentityRefusal> {
        let malformed =
            |what: &str| IdentityRefusal::new(Code::Malformed, format!("{what} must have 32 bytes"));
        let device: Digest32 = request
            .device_key
            .as_slice()
            .try_into()
            .map_err(|_| malformed("the key of a device"))?;
        let unsigned = Enrol {
            proof: Vec::new(),
            ..request.clone()
        };
        verify_proof(Label::Enrolment, &device, &write(&unsigned), &request.proof)?;
        let subject: Digest32 = match (&request.certificate, self.identity) {
            (Some(certificate), _) => self.renewed(certificate, &device, now)?,
            (None, Identity::Dev) => {
                let subject = request.subject.as_slice().try_into();
                subject.map_err(|_| malformed("a subject"))?
            }
            (None, Identity::Certificate | Identity::Attested) => {
                Invitation::read(&request.invitation, self.keys, self.population, now)?.subject
            }
        };
        let certificate = Certificate {
            population: self.population.to_owned(),
            subject: subject.to_vec(),
            device_key: device.to_vec(),
            // The clock of a device may be behind.
            not_before_ms: now.saturating_sub(limits::MAX_SKEW.as_millis() as u64),
            not_after_ms: now + limits::MAX_CERTIFICATE_LIFE.as_millis() as u64,
        };
        let signed = self.signer.sign(Label::Certificate, write(&certificate));
        Ok((signed, subject))
    }

    /// The subject of a certificate that is renewed: it is valid now, and of the key that signs the request. An older key of the issuer
    /// may have signed it.
    fn renewed(
        &self,
        certificate: &Signed,
        device: &Digest32,
        now: Millis,
    ) -> Result<Digest32, IdentityRefusal> {
        let member = member(certificate, &IssuerKeys::of(self.keys), self.population, now)?;
        match member.device == *device {
            true => Ok(member.subject),
            false => Err(IdentityRefusal::new(
                Code::BadCertificate,
                "the certificate to renew is for the key of another device",
            )),
        }
    }

    /// Certificates for keys of secure sums, valid from now to the end of the next day. They name no subject: two of them cannot be
    /// linked.
    ///
    /// # Errors
    /// A refusal for a key of another length, or too many keys.
    pub(crate) fn certify(&self, keys: &[Vec<u8>], now: Millis) -> Result<Vec<Signed>, IdentityRefusal> {
        if keys.is_empty() || keys.len() > limits::MAX_SESSION_KEYS {
            let reason = format!(
                "1 to {} keys were expected, got {}",
                limits::MAX_SESSION_KEYS,
                keys.len()
            );
            return Err(IdentityRefusal::new(Code::Range, reason));
        }
        let day = now / DAY;
        let certify = |key: &Vec<u8>| {
            if key.len() != 32 {
                return Err(IdentityRefusal::new(
                    Code::Malformed,
                    "a session key must have 32 bytes",
                ));
            }
            // The window is the day, not the moment: the moment would link the certificates of one batch.
            let certificate = SessionCertificate {
                population: self.population.to_owned(),
                not_before_ms: day * DAY,
                not_after_ms: (day + 2) * DAY,
                session_key: key.clone(),
            };
            Ok(self.signer.sign(Label::SessionCertificate, write(&certificate)))
        };
        keys.iter().map(certify).collect()
    }

    /// The name under which the certificates of a subject are counted. It is neither the subject nor a pseudonym.
    #[must_use]
    pub(crate) fn counted_as(&self, subject: &Digest32) -> Digest32 {
        let key = self.keys.invitations();
        Sha256::new()
            .chain_update(b"undertone/1/issuance\0")
            .chain_update(*key)
            .chain_update(subject)
            .finalize()
            .into()
    }
}

/// A device whose certificate was checked.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it names a subject")]
pub struct Member {
    /// The subject.
    pub subject: Digest32,
    /// The key of the device.
    pub device: Digest32,
    /// The name of the issuer that vouches for it, whichever of its keys signed.
    pub issuer: Digest32,
}

/// An issuer: its name, and the keys that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerKeys {
    /// The name, which stays while keys are replaced.
    pub name: Digest32,
    /// The keys.
    pub trusted: TrustedKeys,
}

impl IssuerKeys {
    /// The built-in issuer of a service.
    #[must_use]
    pub fn of(keys: &Keys) -> Self {
        Self {
            name: keys.issuer_name(),
            trusted: TrustedKeys::new(keys.issuer_keys()),
        }
    }
}

/// Checks the certificate of a device.
///
/// # Errors
/// A refusal for an unknown issuer, another population, a time outside its validity, or fields of a wrong length.
pub fn member(
    certificate: &Signed,
    issuer: &IssuerKeys,
    population: &str,
    now: Millis,
) -> Result<Member, IdentityRefusal> {
    let (body, _) = issuer.trusted.open(Label::Certificate, certificate)?;
    let certificate: Certificate = read(Label::Certificate.name(), body, limits::MAX_CERTIFICATE)?;
    let refused = |reason: &str| IdentityRefusal::new(Code::BadCertificate, reason);
    if certificate.population != population {
        return Err(refused("the certificate is for another population"));
    }
    if !(certificate.not_before_ms..certificate.not_after_ms).contains(&now) {
        return Err(IdentityRefusal::from(ProtocolError::Expired {
            name: Label::Certificate.name(),
            from: certificate.not_before_ms,
            to: certificate.not_after_ms,
            now,
        }));
    }
    let (subject, device) = (certificate.subject.as_slice(), certificate.device_key.as_slice());
    match (subject.try_into(), device.try_into()) {
        (Ok(subject), Ok(device)) => Ok(Member {
            subject,
            device,
            issuer: issuer.name,
        }),
        _ => Err(refused("a subject and a key of 32 bytes were expected")),
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of hexadecimal digits; `None` for a text that is none.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |place: usize| u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok();
    (0..digits.len() / 2).map(byte).collect()
}

/// 32 bytes from hexadecimal digits.
///
/// # Errors
/// [`ServiceError::Value`] naming the key.
pub fn digest_from(key: &str, text: &str) -> Result<Digest32> {
    unhex(text)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| ServiceError::Value {
            key: key.to_owned(),
            expected: "64 hexadecimal digits".to_owned(),
            got: text.chars().take(80).collect(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    fn enrolment(device: &Signer, invitation: String, subject: Vec<u8>) -> Enrol {
        let unsigned = Enrol {
            device_key: device.public().to_vec(),
            invitation,
            subject,
            ..Enrol::default()
        };
        let proof = device.proof(Label::Enrolment, &write(&unsigned));
        Enrol { proof, ..unsigned }
    }

    #[test]
    fn an_invitation_enrols_its_subject_and_no_other() {
        let keys = Keys::from_root([1; 32]);
        let issuer = Issuer::new(&keys, "a", Identity::Certificate);
        let device = Signer::from_seed(&[2; 32]);
        let text = Invitation::new([5; 32], NOW + 1000).text(&keys, "a");
        // The claim in the request does not count.
        let signed = issuer
            .enrol(&enrolment(&device, text.clone(), vec![9; 32]), NOW)
            .unwrap()
            .0;
        let issuers = IssuerKeys::of(&keys);
        let found = member(&signed, &issuers, "a", NOW).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        assert!(found.subject == [5; 32] && found.device == device.public());
        let life = limits::MAX_CERTIFICATE_LIFE.as_millis() as u64;
        for (population, now) in [("b", NOW), ("a", NOW + life), ("a", NOW - 300_001)] {
            assert_eq!(
                member(&signed, &issuers, population, now).err().unwrap().code,
                Code::BadCertificate
            );
        }
        let others = IssuerKeys::of(&Keys::from_root([2; 32]));
        assert_eq!(
            member(&signed, &others, "a", NOW).err().unwrap().code,
            Code::BadCertificate
        );
    }

    #[test]
    fn changed_ended_and_foreign_invitations_are_refused() {
        let keys = Keys::from_root([1; 32]);
        let text = Invitation::new([5; 32], NOW + 1000).text(&keys, "a");
        let read = |text: &str, keys: &Keys, population: &str, now| {
            Invitation::read(text, keys, population, now)
                .err()
                .map(|refusal| refusal.code)
        };
        assert_eq!(read(&text, &keys, "a", NOW), None);
        let bad = Some(Code::BadCertificate);
        assert_eq!(read(&text, &keys, "a", NOW + 1000), bad);
        assert_eq!(read(&text, &keys, "b", NOW), bad);
        assert_eq!(read(&text, &Keys::from_root([2; 32]), "a", NOW), bad);
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
            assert_eq!(
                read(&String::from_utf8(changed).unwrap(), &keys, "a", NOW),
                bad,
                "digit {place}"
            );
        }
        for other in ["", "00", "zz", "ä"] {
            assert_eq!(read(other, &keys, "a", NOW), bad);
        }
    }

    #[test]
    fn nobody_enrols_the_key_of_another_device() {
        let keys = Keys::from_root([1; 32]);
        let issuer = Issuer::new(&keys, "a", Identity::Dev);
        let (device, thief) = (Signer::from_seed(&[2; 32]), Signer::from_seed(&[3; 32]));
        let honest = enrolment(&device, String::new(), vec![9; 32]);
        issuer.enrol(&honest, NOW).unwrap();
        let stolen = Enrol {
            subject: vec![8; 32],
            proof: honest.proof.clone(),
            device_key: honest.device_key.clone(),
            ..Enrol::default()
        };
        assert_eq!(issuer.enrol(&stolen, NOW).unwrap_err().code, Code::BadSignature);
        let forged = Enrol {
            device_key: device.public().to_vec(),
            ..enrolment(&thief, String::new(), vec![9; 32])
        };
        assert_eq!(issuer.enrol(&forged, NOW).unwrap_err().code, Code::BadSignature);
    }

    #[test]
    fn a_device_renews_its_own_certificate_while_it_is_valid_and_no_other() {
        let keys = Keys::from_root([1; 32]);
        let issuer = Issuer::new(&keys, "a", Identity::Certificate);
        let (device, thief) = (Signer::from_seed(&[2; 32]), Signer::from_seed(&[3; 32]));
        let invitation = Invitation::new([9; 32], NOW + DAY).text(&keys, "a");
        let first = issuer
            .enrol(&enrolment(&device, invitation, Vec::new()), NOW)
            .unwrap()
            .0;
        let renewal = |signer: &Signer, certificate: &Signed| {
            let mut enrol = Enrol {
                device_key: signer.public().to_vec(),
                certificate: Some(certificate.clone()),
                ..Enrol::default()
            };
            enrol.proof = signer.proof(Label::Enrolment, &write(&enrol));
            enrol
        };
        let later = NOW + 29 * DAY;
        let second = issuer.enrol(&renewal(&device, &first), later).unwrap().0;
        let issuers = IssuerKeys::of(&keys);
        let member = |certificate: &Signed, now| member(certificate, &issuers, "a", now);
        let renewed = member(&second, NOW + 50 * DAY).unwrap();
        assert!(renewed.subject == [9; 32] && renewed.device == device.public());
        // Of another key, after its end, of another population, and with a proof of another key.
        for (signer, certificate, now) in [(&thief, &first, later), (&device, &first, NOW + 31 * DAY)] {
            let refused = issuer.enrol(&renewal(signer, certificate), now).unwrap_err();
            assert_eq!(refused.code, Code::BadCertificate, "{}", refused.reason);
        }
        let other = Issuer::new(&keys, "b", Identity::Certificate);
        assert!(other.enrol(&renewal(&device, &first), later).is_err());
        let forged = Enrol {
            proof: renewal(&thief, &first).proof,
            ..renewal(&device, &first)
        };
        assert_eq!(issuer.enrol(&forged, later).unwrap_err().code, Code::BadSignature);
    }

    #[test]
    fn session_certificates_of_one_day_differ_in_their_keys_alone() {
        let keys = Keys::from_root([1; 32]);
        let issuer = Issuer::new(&keys, "a", Identity::Certificate);
        let first = issuer.certify(&[vec![1; 32]], NOW).unwrap();
        let later = issuer.certify(&[vec![1; 32]], NOW + 1000).unwrap();
        assert_eq!(first, later);
        assert!(issuer.certify(&[], NOW).is_err() && issuer.certify(&vec![vec![1; 32]; 65], NOW).is_err());
        assert!(issuer.certify(&[vec![1; 31]], NOW).is_err());
    }
}
