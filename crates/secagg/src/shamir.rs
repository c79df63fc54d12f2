//! Shamir's secret sharing of 32-byte secrets, and recovery from shares of which some are false.
//!
//! Source: Shamir, "How to share a secret", CACM 1979. The holder with index `i` has the value at `i + 1`.

use std::cmp::Ordering;

use rand_core::CryptoRng;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use crate::error::Result;
use crate::field::Element;

/// Elements of a shared secret: five limbs of 7, 7, 7, 7 and 4 bytes.
const LIMBS: usize = 5;
/// Bytes of a limb.
const LIMB_BYTES: usize = 7;
/// Bytes of a share.
pub(crate) const SHARE_BYTES: usize = 8 * LIMBS;
/// Subsets of shares that are tried before a secret is given up.
const ATTEMPTS: usize = 20_000;

/// One holder's part of a secret, without the holder's index. PRIVACY: no `Debug`, wiped when dropped.
#[derive(Clone, PartialEq, Eq, Default, Zeroize)]
#[zeroize(drop)]
pub(crate) struct Share([Element; LIMBS]);

impl Share {
    pub(crate) fn from_bytes(bytes: &[u8; SHARE_BYTES]) -> Result<Self> {
        let mut limbs = [Element::ZERO; LIMBS];
        for (limb, bytes) in limbs.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *limb = Element::from_bytes(*bytes)?;
        }
        Ok(Self(limbs))
    }

    pub(crate) fn to_bytes(&self) -> Zeroizing<[u8; SHARE_BYTES]> {
        let mut bytes = Zeroizing::new([0; SHARE_BYTES]);
        for (bytes, limb) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&self.0) {
            *bytes = limb.to_bytes();
        }
        bytes
    }
}

/// A secret put together again.
pub(crate) struct Recovered {
    /// The secret, which passed its check.
    pub(crate) secret: Zeroizing<[u8; 32]>,
    /// Holders whose shares are not on its polynomial.
    pub(crate) culprits: Vec<u32>,
}

fn point(holder: u32) -> Element {
    Element::from_small(u64::from(holder) + 1)
}

/// One share for each of `holders`, any `threshold` of which determine the secret; fewer tell nothing of it.
pub(crate) fn split<R: CryptoRng + ?Sized>(
    secret: &[u8; 32],
    threshold: u32,
    holders: &[u32],
    rng: &mut R,
) -> Vec<Share> {
    // The polynomial's coefficients from the constant on, each a row of limbs.
    let mut rows = Zeroizing::new(vec![[Element::ZERO; LIMBS]; threshold as usize]);
    for (limb, bytes) in rows[0].iter_mut().zip(secret.chunks(LIMB_BYTES)) {
        let mut word = Zeroizing::new([0; 8]);
        word[..bytes.len()].copy_from_slice(bytes);
        *limb = Element::from_small(u64::from_le_bytes(*word));
    }
    for row in &mut rows[1..] {
        row.fill_with(|| Element::random(rng));
    }
    let value = |holder: &u32| {
        let x = point(*holder);
        let mut share = Share::default();
        for row in rows.iter().rev() {
            for (sum, coefficient) in share.0.iter_mut().zip(row) {
                *sum = sum.times(x).plus(*coefficient);
            }
        }
        share
    };
    holders.iter().map(value).collect()
}

/// Lagrange's weights at `x` of the values at the points of `holders`, which must differ.
fn weights(holders: &[u32], x: Element) -> Vec<Element> {
    // w_i = prod_{j != i} (x - x_j) / (x_i - x_j); one inversion for all the denominators, from their running products.
    let (mut numerators, mut denominators) = (Vec::new(), Vec::new());
    for &i in holders {
        let (mut above, mut below) = (Element::ONE, Element::ONE);
        for j in holders.iter().filter(|j| **j != i) {
            above = above.times(x.minus(point(*j)));
            below = below.times(point(i).minus(point(*j)));
        }
        numerators.push(above);
        denominators.push(below);
    }
    let mut before = Vec::with_capacity(holders.len());
    let product = denominators.iter().fold(Element::ONE, |product, below| {
        before.push(product);
        product.times(*below)
    });
    let mut inverse = product.inverse();
    for i in (0..holders.len()).rev() {
        numerators[i] = numerators[i].times(inverse).times(before[i]);
        inverse = inverse.times(denominators[i]);
    }
    numerators
}

/// The value at `x` of the polynomial through `shares`.
fn interpolate(shares: &[(u32, &Share)], x: Element) -> Share {
    let holders: Vec<u32> = shares.iter().map(|(holder, _)| *holder).collect();
    let mut value = Share::default();
    for ((_, share), weight) in shares.iter().zip(weights(&holders, x)) {
        for (sum, limb) in value.0.iter_mut().zip(&share.0) {
            *sum = sum.plus(weight.times(*limb));
        }
    }
    value
}

/// The bytes behind a polynomial's constant; none where a limb is too large for any secret.
fn secret_of(constant: &Share) -> Option<Zeroizing<[u8; 32]>> {
    let mut secret = Zeroizing::new([0; 32]);
    for (bytes, limb) in secret.chunks_mut(LIMB_BYTES).zip(&constant.0) {
        if limb.get() >> (8 * bytes.len()) != 0 {
            return None;
        }
        bytes.copy_from_slice(&limb.to_bytes()[..bytes.len()]);
    }
    Some(secret)
}

/// The secret behind `threshold` or more shares of distinct holders, of which some may be false: subsets are tried until
/// one opens a secret that passes `check`.
///
/// All subsets where there are at most 20,000, otherwise the first one and then 20,000 pseudo-random ones. The holders off
/// the polynomial that was found are named; several liars who know one another's shares can arrange for others to be named
/// with them, but never without being off the polynomial of the honest holders themselves.
pub(crate) fn recover(
    shares: &[(u32, &Share)],
    threshold: u32,
    check: impl Fn(&[u8; 32]) -> bool,
) -> Option<Recovered> {
    let threshold = threshold as usize;
    if threshold == 0 || shares.len() < threshold {
        return None;
    }
    let mut subsets = Subsets::new(shares.len(), threshold);
    for attempt in 0..ATTEMPTS {
        let chosen: Vec<(u32, &Share)> = subsets.current.iter().map(|&place| shares[place]).collect();
        let opened = secret_of(&interpolate(&chosen, Element::ZERO)).filter(|secret| check(secret));
        if let Some(secret) = opened {
            // Where the first subset opens the secret, no share in it was false; the others were not needed.
            let suspects = if attempt == 0 { &[] } else { shares };
            let off = |(holder, share): &&(u32, &Share)| interpolate(&chosen, point(*holder)) != **share;
            let culprits = suspects.iter().filter(off).map(|(holder, _)| *holder).collect();
            return Some(Recovered { secret, culprits });
        }
        if !subsets.advance() {
            break;
        }
    }
    None
}

/// Subsets of places, the first ones first.
struct Subsets {
    places: usize,
    exhaustive: bool,
    drawn: u64,
    current: Vec<usize>,
}

impl Subsets {
    fn new(places: usize, size: usize) -> Self {
        let mut count = 1u128;
        for i in 0..size.min(places - size) {
            count = (count * (places - i) as u128 / (i as u128 + 1)).min(1 << 64);
        }
        Self {
            places,
            exhaustive: count <= ATTEMPTS as u128,
            drawn: 0,
            current: (0..size).collect(),
        }
    }

    /// Moves to another subset; false after the last one.
    fn advance(&mut self) -> bool {
        if !self.exhaustive {
            self.draw();
            return true;
        }
        let size = self.current.len();
        let Some(place) = (0..size)
            .rev()
            .find(|i| self.current[*i] < self.places - size + i)
        else {
            return false;
        };
        self.current[place] += 1;
        for i in place + 1..size {
            self.current[i] = self.current[i - 1] + 1;
        }
        true
    }

    /// The places of the smallest hashes: as good as random to whoever lies, the same on every run.
    fn draw(&mut self) {
        self.drawn += 1;
        let key = |place: usize| {
            let digest = Sha256::new()
                .chain_update(self.drawn.to_le_bytes())
                .chain_update((place as u64).to_le_bytes())
                .finalize();
            (<[u8; 32]>::from(digest), place)
        };
        let mut keys: Vec<_> = (0..self.places).map(key).collect();
        keys.sort_unstable_by(|a, b| match a.0.cmp(&b.0) {
            Ordering::Equal => a.1.cmp(&b.1),
            other => other,
        });
        let size = self.current.len();
        self.current = keys[..size].iter().map(|(_, place)| *place).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    fn rng(seed: u8) -> ChaCha20Rng {
        ChaCha20Rng::from_seed([seed; 32])
    }

    fn shared(threshold: u32, holders: &[u32], seed: u8) -> ([u8; 32], Vec<Share>) {
        let mut rng = rng(seed);
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        let shares = split(&secret, threshold, holders, &mut rng);
        (secret, shares)
    }

    fn pairs<'a>(holders: &[u32], shares: &'a [Share]) -> Vec<(u32, &'a Share)> {
        holders.iter().copied().zip(shares).collect()
    }

    #[test]
    fn every_large_enough_subset_opens_the_secret_and_no_smaller_one() {
        let holders = [0, 3, 4, 9, 1_000_000];
        for threshold in 1..=5 {
            let (secret, shares) = shared(threshold, &holders, threshold as u8);
            for subset in 0u32..32 {
                let all = pairs(&holders, &shares);
                let some: Vec<_> = (0..5).filter(|i| subset >> i & 1 == 1).map(|i| all[i]).collect();
                let recovered = recover(&some, threshold, |found| *found == secret);
                assert_eq!(recovered.is_some(), some.len() >= threshold as usize);
                if !some.is_empty() && some.len() < threshold as usize {
                    // Interpolated as if they were enough, they give something else: probability 2^-61 a limb.
                    assert!(secret_of(&interpolate(&some, Element::ZERO)).is_none_or(|s| *s != secret));
                }
            }
        }
    }

    #[test]
    fn extreme_secrets_come_back() {
        for secret in [[0; 32], [255; 32]] {
            let holders: Vec<u32> = (0..10).collect();
            let shares = split(&secret, 4, &holders, &mut rng(1));
            let recovered = recover(&pairs(&holders, &shares), 4, |_| true).unwrap();
            assert_eq!(*recovered.secret, secret);
            for share in shares {
                assert!(Share::from_bytes(&share.to_bytes()).unwrap() == share);
            }
        }
    }

    #[test]
    fn fewer_shares_than_the_threshold_fit_every_secret() {
        // For any t - 1 shares and any secret there is a polynomial: here for two shares of t = 3 and the wrong secret.
        let holders = [1, 2, 3];
        let (_, shares) = shared(3, &holders, 9);
        let (other, _) = shared(3, &holders, 10);
        let zero = split(&other, 1, &[0], &mut rng(0));
        // The point 0 has no holder, so the polynomial through it is solved for directly at the third holder's point.
        let x = [Element::ZERO, point(1), point(2)];
        let y = [&zero[0], &shares[0], &shares[1]];
        let at = |target: Element| {
            let mut value = Share::default();
            for i in 0..3 {
                let mut weight = Element::ONE;
                for j in (0..3).filter(|j| *j != i) {
                    weight = weight.times(target.minus(x[j])).times(x[i].minus(x[j]).inverse());
                }
                for (sum, limb) in value.0.iter_mut().zip(&y[i].0) {
                    *sum = sum.plus(weight.times(*limb));
                }
            }
            value
        };
        let third = at(point(3));
        let forged = [(1, &shares[0]), (2, &shares[1]), (3, &third)];
        assert!(recover(&forged, 3, |found| *found == other).is_some());
    }

    #[test]
    fn false_shares_are_worked_around_and_named() {
        let holders: Vec<u32> = (10..34).collect();
        let (secret, mut shares) = shared(12, &holders, 3);
        let liars = [10, 13, 20, 33];
        for (holder, share) in holders.iter().zip(&mut shares) {
            if liars.contains(holder) {
                share.0[4] = share.0[4].plus(Element::ONE);
            }
        }
        let recovered = recover(&pairs(&holders, &shares), 12, |found| *found == secret).unwrap();
        assert_eq!((*recovered.secret, recovered.culprits), (secret, liars.to_vec()));
    }

    #[test]
    fn too_many_false_shares_are_an_end_not_a_wrong_answer() {
        let holders: Vec<u32> = (0..8).collect();
        let (secret, mut shares) = shared(6, &holders, 4);
        for share in &mut shares[..3] {
            share.0[0] = share.0[0].plus(Element::ONE);
        }
        assert!(recover(&pairs(&holders, &shares), 6, |found| *found == secret).is_none());
    }

    #[test]
    fn subsets_are_all_there_are() {
        let mut subsets = Subsets::new(6, 3);
        let mut seen = std::collections::BTreeSet::from([subsets.current.clone()]);
        while subsets.advance() {
            assert!(seen.insert(subsets.current.clone()));
        }
        assert_eq!(seen.len(), 20);
        assert!(!Subsets::new(48, 27).exhaustive);
    }

    /// Vectors by hand: f(x) = s + c x over GF(2^61 - 1) limb by limb, at x = 1 and x = 2, through x = 0.
    #[test]
    fn a_line_by_hand() {
        let share = |limbs: [u64; LIMBS]| Share(limbs.map(Element::from_small));
        let (one, two) = (share([5, 7, 9, 11, 13]), share([8, 12, 16, 20, 24]));
        // 2 f(1) - f(2): 2, 2, 2, 2, 2.
        let secret = recover(&[(0, &one), (1, &two)], 2, |_| true).unwrap().secret;
        let mut expected = [0u8; 32];
        for limb in 0..LIMBS {
            expected[limb * LIMB_BYTES] = 2;
        }
        assert_eq!(*secret, expected);
    }
}
