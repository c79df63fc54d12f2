//! Keys: lasting identities, fresh agreement keys, and what is derived from them for one purpose each.

use std::collections::BTreeSet;
use std::sync::Arc;

use ed25519_dalek::{Signature, Signer, SigningKey};
use hkdf::Hkdf;
use rand_core::CryptoRng;
use sha2::Sha256;
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

use crate::certificate::{Certificate, Vouch};
use crate::context::{Digest32, SessionId, labelled};
use crate::error::{Result, SecAggError};
use crate::roster::Entry;

/// A secret of 32 bytes, wiped when dropped. It has no `Debug`.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// 32 fresh random bytes.
pub(crate) fn fresh<R: CryptoRng + ?Sized>(rng: &mut R) -> Secret {
    let mut secret = Secret::default();
    rng.fill_bytes(secret.as_mut());
    secret
}

/// A client's signing key (Ed25519): a lasting one, or one of a single session with an issuer's certificate. It cannot be printed:
///
/// ```compile_fail,E0277
/// fn printable<T: std::fmt::Debug>() {}
/// printable::<undertone_secagg::SigningIdentity>();
/// ```
// PRIVACY: in a box, because a value that moves leaves its bytes behind; the box is wiped where it lies.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "PRIVACY: a secret key")]
pub struct SigningIdentity {
    key: Box<SigningKey>,
    certificate: Option<Certificate>,
}

impl SigningIdentity {
    /// A new identity.
    #[must_use]
    pub fn generate<R: CryptoRng + ?Sized>(rng: &mut R) -> Self {
        Self::from_seed(&fresh(rng))
    }

    /// The identity of a seed that the device keeps.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self {
            key: Box::new(SigningKey::from_bytes(seed)),
            certificate: None,
        }
    }

    /// Attaches the certificate that the client shows beside this identity. [`Trust::Issuer`] demands one of every client.
    ///
    /// It is not checked here: a certificate that does not vouch for this identity is refused by the server and the neighbours.
    #[must_use]
    pub fn with_certificate(self, certificate: Certificate) -> Self {
        Self {
            certificate: Some(certificate),
            ..self
        }
    }

    /// The certificate, if one is attached.
    #[must_use]
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The public part, by which others know the client.
    #[must_use]
    pub fn public(&self) -> Digest32 {
        self.key.verifying_key().to_bytes()
    }

    pub(crate) fn sign(&self, message: &Digest32) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

/// The identities that a machine accepts in a session.
#[derive(Clone)]
#[non_exhaustive]
pub enum Trust {
    /// No identity is accepted. [`Floors::COMPILED`](crate::Floors::COMPILED) starts from this value, so that a device
    /// without a list refuses every session.
    Nobody,
    /// Any identity is accepted: the choice of a server whose clients were authenticated elsewhere, and of simulations.
    ///
    /// PRIVACY: a client must not use it, because the server could then invent the client's neighbours.
    /// [`Floors`](crate::Floors) refuse it.
    Anyone,
    /// Only the identities on this list are accepted. A client must receive its list by another channel than the server.
    Listed(Arc<BTreeSet<Digest32>>),
    /// Only identities are accepted for which an issuer vouches by a certificate in their entry.
    ///
    /// # Guarantee
    /// A server that lies cannot invent clients, as far as server and issuer do not collude. An issuer must bound the number of
    /// certificates per person: each one is a client that a server and this person can corrupt.
    Issuer(Arc<dyn Vouch>),
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nobody => f.write_str("Nobody"),
            Self::Anyone => f.write_str("Anyone"),
            Self::Listed(known) => f.debug_tuple("Listed").field(known).finish(),
            Self::Issuer(_) => f.write_str("Issuer(..)"),
        }
    }
}

impl Trust {
    pub(crate) fn check(&self, index: u32, entry: &Entry) -> Result<()> {
        let accepted = match self {
            Self::Nobody => false,
            Self::Anyone => true,
            Self::Listed(known) => known.contains(&entry.identity),
            Self::Issuer(issuer) => return check_certificate(issuer.as_ref(), index, entry),
        };
        if accepted {
            Ok(())
        } else {
            Err(SecAggError::UnknownIdentity { index })
        }
    }
}

/// The issuer vouches for the identity of `entry`; `index` is for the error.
fn check_certificate(issuer: &dyn Vouch, index: u32, entry: &Entry) -> Result<()> {
    let got = match &entry.certificate {
        None => "no certificate",
        Some(certificate) if issuer.vouches(&entry.identity, certificate.as_bytes()) => return Ok(()),
        Some(_) => "a certificate that does not vouch for it",
    };
    Err(SecAggError::Certificate { index, got })
}

/// The public part of an identity.
pub(crate) struct VerifyingKey(ed25519_dalek::VerifyingKey);

impl VerifyingKey {
    pub(crate) fn new(bytes: &Digest32) -> Option<Self> {
        ed25519_dalek::VerifyingKey::from_bytes(bytes).ok().map(Self)
    }

    /// Strictly: no key or commitment of small order, no second encoding of one signature.
    pub(crate) fn verifies(&self, message: &Digest32, signature: &[u8; 64]) -> bool {
        self.0
            .verify_strict(message, &Signature::from_bytes(signature))
            .is_ok()
    }
}

/// The digest that an identity signs when its client joins.
pub(crate) fn signed_keys(
    context: &Digest32,
    identity: &Digest32,
    sealing: &Digest32,
    masking: &Digest32,
) -> Digest32 {
    labelled("signed keys", &[context, identity, sealing, masking])
}

/// A fresh X25519 key pair of one session. It has no `Debug`, and is wiped when dropped; in a box, as [`SigningIdentity`] is.
pub(crate) struct AgreementKey(Box<StaticSecret>);

impl AgreementKey {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(Box::new(StaticSecret::from(**secret)))
    }

    pub(crate) fn public(&self) -> Digest32 {
        x25519_dalek::PublicKey::from(&*self.0).to_bytes()
    }

    pub(crate) fn secret(&self) -> Secret {
        Secret::new(self.0.to_bytes())
    }

    /// The agreed secret; none where the other key is not canonical, or is a point of small order, which would fix the
    /// secret.
    pub(crate) fn agree(&self, public: &Digest32) -> Option<Secret> {
        if !PublicKey::is_canonical(public) {
            return None;
        }
        let shared = self.0.diffie_hellman(&x25519_dalek::PublicKey::from(*public));
        shared.was_contributory().then(|| Secret::new(shared.to_bytes()))
    }
}

/// Public X25519 keys, which are plain bytes.
pub(crate) struct PublicKey;

impl PublicKey {
    /// Returns `true` if `key` is the only encoding of its coordinate: below 2^255 - 19, with the top bit clear.
    ///
    /// X25519 ignores the top bit and reduces the rest, so other encodings would let one point pass for two keys.
    pub(crate) fn is_canonical(key: &Digest32) -> bool {
        // 2^255 - 19 is 0xed, thirty times 0xff and 0x7f, from the lowest byte on.
        let near_prime = key[31] == 0x7f && key[1..31].iter().all(|byte| *byte == 0xff);
        key[31] < 0x80 && !(near_prime && key[0] >= 0xed)
    }

    /// Returns `true` if `key` is canonical and an agreement with it depends on the other side's key.
    pub(crate) fn is_acceptable(key: &Digest32) -> bool {
        // Multiplied by the cofactor, which clamping puts into every scalar, points of small order become zero and no
        // others do: one agreement with any fixed scalar finds them.
        AgreementKey::new(&Secret::new([1; 32])).agree(key).is_some()
    }
}

/// The key from `secret` for one purpose and an ordered pair of clients, in one session.
pub(crate) fn derive(secret: &Secret, session: &SessionId, purpose: &str, from: u32, to: u32) -> Secret {
    let mut key = Secret::default();
    let info = [
        b"undertone/secagg/1/".as_slice(),
        purpose.as_bytes(),
        &[0],
        &from.to_le_bytes(),
        &to.to_le_bytes(),
    ];
    // One block of HKDF-SHA256, far below its limit of 255.
    if Hkdf::<Sha256>::new(Some(session.as_bytes()), secret.as_ref())
        .expand_multi_info(&info, key.as_mut())
        .is_err()
    {
        unreachable!("32 bytes are within HKDF's limit");
    }
    key
}

/// Key of the mask that clients `a` and `b` share, from either side.
pub(crate) fn pairwise_mask_key(agreed: &Secret, session: &SessionId, a: u32, b: u32) -> Secret {
    derive(agreed, session, "pairwise mask", a.min(b), a.max(b))
}

/// Key of a client's own mask.
pub(crate) fn self_mask_key(seed: &Secret, session: &SessionId, index: u32) -> Secret {
    derive(seed, session, "self mask", index, index)
}

/// The commitment to a client's own mask, by which the server knows that it recovered the right one.
pub(crate) fn commitment(seed: &[u8; 32], session: &SessionId, index: u32) -> Digest32 {
    labelled(
        "self mask commitment",
        &[session.as_bytes(), &index.to_le_bytes(), seed],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let mut bytes = [0; N];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        bytes
    }

    /// RFC 7748, section 5.2, first vector.
    #[test]
    fn x25519_agrees_as_in_rfc_7748() {
        let scalar = hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
        let point = hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
        let agreed = AgreementKey::new(&Secret::new(scalar)).agree(&point).unwrap();
        assert_eq!(
            *agreed,
            hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
        );
    }

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn ed25519_signs_as_in_rfc_8032() {
        let identity = SigningIdentity::from_seed(&hex(
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        ));
        assert_eq!(
            identity.public(),
            hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
        );
        let signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b\
                         d25bf5f0595bbe24655141438e7a100b";
        assert_eq!(identity.key.sign(b"").to_bytes(), hex(signature));
    }

    /// The expected key was computed as in RFC 5869 with Python's `hmac`, by a program that also gives appendix A.1. No vector of
    /// the RFC has the info of a derivation.
    #[test]
    fn keys_are_derived_by_hkdf_of_rfc_5869() {
        let session = SessionId(std::array::from_fn(|i| i as u8));
        assert_eq!(
            *derive(&Secret::new([0x0b; 32]), &session, "seal", 3, 5),
            hex("3eeb596356864907cc0982f14dcba630fd6e15b93ee1a78ddf4169c049608563")
        );
    }

    #[test]
    fn both_sides_agree_and_purposes_do_not() {
        let (a, b) = (
            AgreementKey::new(&Secret::new([1; 32])),
            AgreementKey::new(&Secret::new([2; 32])),
        );
        let agreed = a.agree(&b.public()).unwrap();
        assert_eq!(*agreed, *b.agree(&a.public()).unwrap());
        let (one, two) = (SessionId([1; 32]), SessionId([2; 32]));
        let keys = [
            pairwise_mask_key(&agreed, &one, 3, 5),
            pairwise_mask_key(&agreed, &two, 3, 5),
            pairwise_mask_key(&agreed, &one, 3, 6),
            self_mask_key(&agreed, &one, 3),
            derive(&agreed, &one, "seal", 3, 5),
            derive(&agreed, &one, "seal", 5, 3),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().map(|key| **key).collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(*keys[0], *pairwise_mask_key(&agreed, &one, 5, 3));
    }

    #[test]
    fn points_of_small_order_are_refused() {
        // u = 0, 1 and -1 of orders 2 and 4, one of the two of order 8, and a second encoding of 0: the prime itself.
        let small = |first: u8| hex(&format!("{first:02x}{}", "0".repeat(62)));
        let near_prime = |first: u8| hex(&format!("{first:02x}{}7f", "f".repeat(60)));
        let order_eight = hex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
        for key in [
            small(0),
            small(1),
            near_prime(0xec),
            order_eight,
            near_prime(0xed),
        ] {
            assert!(!PublicKey::is_acceptable(&key));
        }
        assert!(PublicKey::is_acceptable(
            &AgreementKey::new(&Secret::new([7; 32])).public()
        ));
    }

    #[test]
    fn a_point_has_one_acceptable_encoding() {
        let key = AgreementKey::new(&Secret::new([7; 32])).public();
        let mut flipped = key;
        flipped[31] |= 0x80;
        // The same point to X25519: both encodings agree on one secret.
        let own = StaticSecret::from([9; 32]);
        let shared = |bytes: [u8; 32]| {
            own.diffie_hellman(&x25519_dalek::PublicKey::from(bytes))
                .to_bytes()
        };
        assert_eq!(shared(key), shared(flipped));
        assert!(PublicKey::is_acceptable(&key) && !PublicKey::is_acceptable(&flipped));
        assert!(AgreementKey::new(&Secret::new([9; 32])).agree(&flipped).is_none());
        // u = 9, the base point, and the same coordinate plus the prime, which fits below 2^255.
        let mut base = [0; 32];
        base[0] = 9;
        let mut raised = [0xff; 32];
        (raised[0], raised[31]) = (0xf6, 0x7f);
        assert_eq!(shared(base), shared(raised));
        assert!(PublicKey::is_acceptable(&base) && !PublicKey::is_acceptable(&raised));
        // The largest coordinate is canonical, the prime itself is not.
        let mut near = [0xff; 32];
        near[31] = 0x7f;
        for (first, canonical) in [(0xec, true), (0xed, false), (0xff, false)] {
            near[0] = first;
            assert_eq!(PublicKey::is_canonical(&near), canonical, "{first:x}");
        }
    }
}
