//! Certificates: of the device, and of its keys for secure sums.

use undertone_protocol::{
    Certificate, Digest32, Enrol, Enrolled, Label, PROTOCOL_HEADER, ProtocolError, SessionCertificate,
    SessionKeys, Signed, Signer, TrustedKeys, limits, read, write,
};
use undertone_secagg::{MAX_CERTIFICATE_BYTES, Vouch};

use crate::error::Refusal;
use crate::plan::array;
use crate::wire::{Method, Request};

fn in_time(name: &'static str, from: u64, to: u64, now: u64) -> Result<(), Refusal> {
    match (from..to).contains(&now) {
        true => Ok(()),
        false => Err(ProtocolError::Expired { name, from, to, now }.into()),
    }
}

/// Checks the certificate of this device.
///
/// # Errors
/// A certificate of another issuer, population, key or time.
pub fn check_certificate(
    signed: &Signed,
    issuers: &TrustedKeys,
    population: &str,
    device: &Digest32,
    now_ms: u64,
) -> Result<(), Refusal> {
    let (body, _) = issuers.open(Label::Certificate, signed)?;
    let certificate: Certificate = read("the certificate", body, limits::MAX_CERTIFICATE)?;
    // Whatever the service would refuse, a device does not keep.
    array::<32>("the certificate's subject", &certificate.subject)?;
    if certificate.population != population {
        return Err(Refusal::value(
            "the certificate's population",
            population,
            certificate.population,
        ));
    }
    if certificate.device_key != device {
        let expected = "the key of this device";
        return Err(Refusal::value("the certificate's key", expected, "another"));
    }
    in_time(
        "the certificate",
        certificate.not_before_ms,
        certificate.not_after_ms,
        now_ms,
    )
}

/// Checks the certificate of a key for secure sums, and returns its end in milliseconds since 1970.
///
/// # Errors
/// A certificate of another issuer, population, key or time, or of too many bytes for a roster.
pub fn check_session_certificate(
    signed: &Signed,
    issuers: &TrustedKeys,
    population: &str,
    key: &Digest32,
    now_ms: u64,
) -> Result<u64, Refusal> {
    let name = "the session certificate";
    let (body, _) = issuers.open(Label::SessionCertificate, signed)?;
    let certificate: SessionCertificate = read(name, body, limits::MAX_MESSAGE)?;
    if certificate.population != population {
        return Err(Refusal::value(
            "the session certificate's population",
            population,
            certificate.population,
        ));
    }
    if array::<32>("the session key", &certificate.session_key)? != *key {
        return Err(Refusal::value(
            "the certified key",
            "that of its owner",
            "another",
        ));
    }
    let length = write(signed).len();
    if length > MAX_CERTIFICATE_BYTES {
        let expected = format!("at most {MAX_CERTIFICATE_BYTES} bytes");
        return Err(Refusal::value(name, expected, length));
    }
    in_time(name, certificate.not_before_ms, certificate.not_after_ms, now_ms)?;
    Ok(certificate.not_after_ms)
}

/// A device's judgement of its neighbours in a secure sum: each key needs a session certificate of a trusted issuer.
#[derive(Debug, Clone)]
pub struct Issuers {
    /// The issuers that the app trusts and the plan names.
    pub keys: TrustedKeys,
    /// The population.
    pub population: String,
    /// The time at which the device joined, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Vouch for Issuers {
    fn vouches(&self, identity: &Digest32, certificate: &[u8]) -> bool {
        read::<Signed>("the session certificate", certificate, MAX_CERTIFICATE_BYTES).is_ok_and(|signed| {
            check_session_certificate(&signed, &self.keys, &self.population, identity, self.now_ms).is_ok()
        })
    }
}

fn post(path: String, body: Vec<u8>) -> Request {
    Request {
        method: Method::Post,
        target: path,
        headers: Vec::new(),
        body: body.into(),
        max_reply: limits::MAX_MESSAGE,
        timeout_ms: 30_000,
        blob: None,
    }
}

/// The bytes that the proof of an enrolment signs: all other fields.
#[must_use]
pub fn enrolment_body(enrol: &Enrol) -> Vec<u8> {
    write(&Enrol {
        proof: Vec::new(),
        ..enrol.clone()
    })
}

/// The request of a device that wants a certificate. `subject` is the device's own claim, for the identity level `dev` alone.
pub(crate) fn enrolment(
    population: &str,
    device: &Signer,
    invitation: &str,
    subject: Option<Digest32>,
) -> Request {
    let mut enrol = Enrol {
        device_key: device.public().to_vec(),
        invitation: invitation.to_owned(),
        subject: subject.map(|subject| subject.to_vec()).unwrap_or_default(),
        ..Enrol::default()
    };
    proven(population, device, &mut enrol)
}

/// The request of a device that renews its certificate, by a signature of its key.
pub(crate) fn renewal(population: &str, device: &Signer, certificate: Signed) -> Request {
    let mut enrol = Enrol {
        device_key: device.public().to_vec(),
        certificate: Some(certificate),
        ..Enrol::default()
    };
    proven(population, device, &mut enrol)
}

/// The time at which a certificate ends, in milliseconds since 1970, by its own words.
pub(crate) fn ends_ms(certificate: &Signed) -> Option<u64> {
    let read: Certificate = read("the certificate", &certificate.body, limits::MAX_MESSAGE).ok()?;
    Some(read.not_after_ms)
}

/// An enrolment with the proof that the device holds its key.
fn proven(population: &str, device: &Signer, enrol: &mut Enrol) -> Request {
    enrol.proof = device.proof(Label::Enrolment, &enrolment_body(enrol));
    let mut request = post(format!("/v1/p/{population}/enrol"), write(enrol));
    // A machine adds the version to the requests of its session, and an enrolment belongs to none.
    request
        .headers
        .push((PROTOCOL_HEADER.0, PROTOCOL_HEADER.1.to_owned()));
    request
}

/// The certificate in a reply to an enrolment.
pub(crate) fn enrolled(body: &[u8]) -> Result<Signed, Refusal> {
    let enrolled: Enrolled = read("the reply to the enrolment", body, limits::MAX_MESSAGE)?;
    enrolled
        .certificate
        .ok_or_else(|| Refusal::value("the reply to the enrolment", "a certificate", "none"))
}

/// The request for certificates of keys. Its signature is added when it is sent.
pub(crate) fn session_keys(population: &str, keys: &[Digest32], certificate: Option<Signed>) -> Request {
    let message = SessionKeys {
        keys: keys.iter().map(|key| key.to_vec()).collect(),
        certificate,
    };
    post(format!("/v1/p/{population}/session-keys"), write(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn certificate(issuer: &Signer, change: impl Fn(&mut Certificate)) -> Signed {
        let mut certificate = Certificate {
            population: "p".to_owned(),
            subject: vec![5; 32],
            device_key: vec![6; 32],
            not_before_ms: NOW - 1,
            not_after_ms: NOW + 1,
        };
        change(&mut certificate);
        issuer.sign(Label::Certificate, write(&certificate))
    }

    #[test]
    fn a_certificate_fits_one_population_key_and_time() {
        let (issuer, other) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let trusted = TrustedKeys::new([issuer.public()]);
        let check = |signed: &Signed| check_certificate(signed, &trusted, "p", &[6; 32], NOW);
        check(&certificate(&issuer, |_| ())).unwrap();
        assert!(check(&certificate(&other, |_| ())).is_err());
        type Change = fn(&mut Certificate);
        let changes: [Change; 6] = [
            |certificate| certificate.subject = vec![5; 31],
            |certificate| certificate.population = "p".repeat(1100),
            |certificate| certificate.population = "q".to_owned(),
            |certificate| certificate.device_key = vec![7; 32],
            |certificate| certificate.not_after_ms = NOW,
            |certificate| certificate.not_before_ms = NOW + 1,
        ];
        for change in changes {
            assert!(check(&certificate(&issuer, change)).is_err());
        }
    }

    #[test]
    fn neighbours_need_a_session_certificate_for_their_own_key() {
        let (issuer, other) = (Signer::from_seed(&[1; 32]), Signer::from_seed(&[2; 32]));
        let issuers = Issuers {
            keys: TrustedKeys::new([issuer.public()]),
            population: "p".to_owned(),
            now_ms: NOW,
        };
        let certificate = |signer: &Signer, population: &str, key: u8, end: u64| {
            let body = SessionCertificate {
                population: population.to_owned(),
                not_before_ms: NOW,
                not_after_ms: end,
                session_key: vec![key; 32],
            };
            write(&signer.sign(Label::SessionCertificate, write(&body)))
        };
        let good = certificate(&issuer, "p", 3, NOW + 1);
        assert!(issuers.vouches(&[3; 32], &good));
        assert!(!issuers.vouches(&[4; 32], &good), "the key of another");
        assert!(!issuers.vouches(&[3; 32], &[]));
        assert!(!issuers.vouches(&[3; 32], &certificate(&other, "p", 3, NOW + 1)));
        assert!(!issuers.vouches(&[3; 32], &certificate(&issuer, "q", 3, NOW + 1)));
        assert!(!issuers.vouches(&[3; 32], &certificate(&issuer, "p", 3, NOW)));
        // A certificate of a device names a subject and is none of a session key.
        let device = Certificate {
            device_key: vec![3; 32],
            ..Certificate::default()
        };
        let device = write(&issuer.sign(Label::Certificate, write(&device)));
        assert!(!issuers.vouches(&[3; 32], &device));
    }

    #[test]
    fn the_proof_of_an_enrolment_covers_all_other_fields() {
        use undertone_protocol::verify_proof;
        let device = Signer::from_seed(&[9; 32]);
        let request = enrolment("p", &device, "an invitation", Some([4; 32]));
        assert_eq!(request.headers, [("undertone-protocol", "1".to_owned())]);
        let enrol: Enrol = read("the enrolment", &request.body, limits::MAX_MESSAGE).unwrap();
        let fits = |enrol: &Enrol| {
            verify_proof(
                Label::Enrolment,
                &device.public(),
                &enrolment_body(enrol),
                &enrol.proof,
            )
            .is_ok()
        };
        assert!(fits(&enrol));
        for changed in [
            Enrol {
                invitation: "another".to_owned(),
                ..enrol.clone()
            },
            Enrol {
                subject: vec![5; 32],
                ..enrol.clone()
            },
            Enrol {
                device_key: vec![1; 32],
                ..enrol.clone()
            },
        ] {
            assert!(!fits(&changed));
        }
    }
}
