//! Shamir's secret sharing of 32-byte secrets, and recovery from shares of which some are false.
//!
//! Source: Shamir, "How to share a secret", CACM 1979. The holder with index `i` has the value at `i + 1`.

mod decode;

use rand_core::CryptoRng;
use zeroize::{Zeroize, Zeroizing};

use crate::error::Result;
use crate::field::Element;
use decode::decode;

/// Elements of a shared secret: five limbs of 7, 7, 7, 7 and 4 bytes.
const LIMBS: usize = 5;
/// Bytes of a limb.
const LIMB_BYTES: usize = 7;
/// Bytes of a share.
pub(crate) const SHARE_BYTES: usize = 8 * LIMBS;
/// Subsets of shares that are tried where decoding finds nothing: all of them, or none where there are more.
const MAX_SUBSETS: u128 = 500;

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
    /// Holders whose shares are not on its polynomial; empty where they are so many that honest ones could be among them.
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

/// Lagrange interpolation through the points of some holders, which must differ.
struct Basis {
    points: Vec<Element>,
    /// `1 / prod_{j != i} (x_i - x_j)`.
    scales: Vec<Element>,
}

impl Basis {
    fn new(holders: impl Iterator<Item = u32>) -> Self {
        let points: Vec<Element> = holders.map(point).collect();
        let product = |i: usize| {
            let others = points[..i].iter().chain(&points[i + 1..]);
            others.fold(Element::ONE, |product, x| product.times(points[i].minus(*x)))
        };
        let products: Vec<Element> = (0..points.len()).map(product).collect();
        Self {
            scales: inverses(&products),
            points,
        }
    }

    /// The value at `x` of the polynomial through `shares`, which are in the order of the holders.
    fn value<'a>(&self, shares: impl Iterator<Item = &'a Share>, x: Element) -> Share {
        // prod_{j != i} (x - x_j) is the product over the points before times that over the points behind.
        let mut behind = vec![Element::ONE; self.points.len()];
        for i in (1..self.points.len()).rev() {
            behind[i - 1] = behind[i].times(x.minus(self.points[i]));
        }
        let (mut value, mut before) = (Share::default(), Element::ONE);
        for (i, share) in shares.enumerate() {
            let weight = before.times(behind[i]).times(self.scales[i]);
            for (sum, limb) in value.0.iter_mut().zip(&share.0) {
                *sum = sum.plus(weight.times(*limb));
            }
            before = before.times(x.minus(self.points[i]));
        }
        value
    }
}

/// The inverses of `elements`, none of them 0, for one inversion: from the running products.
fn inverses(elements: &[Element]) -> Vec<Element> {
    let mut found = Vec::with_capacity(elements.len());
    let product = elements.iter().fold(Element::ONE, |product, element| {
        found.push(product);
        product.times(*element)
    });
    let mut inverse = product.inverse();
    for (found, element) in found.iter_mut().zip(elements).rev() {
        *found = found.times(inverse);
        inverse = inverse.times(*element);
    }
    found
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

/// The secret that the polynomial through `chosen` opens, if it passes `check`, and the holders of `all` that are off it.
fn open(
    chosen: &[(u32, &Share)],
    all: &[(u32, &Share)],
    check: &dyn Fn(&[u8; 32]) -> bool,
) -> Option<Recovered> {
    let basis = Basis::new(chosen.iter().map(|(holder, _)| *holder));
    let at = |x| basis.value(chosen.iter().map(|(_, share)| *share), x);
    let secret = secret_of(&at(Element::ZERO)).filter(|secret| check(secret))?;
    let off = |(holder, share): &&(u32, &Share)| at(point(*holder)) != **share;
    let mut culprits: Vec<u32> = all.iter().filter(off).map(|(holder, _)| *holder).collect();
    // So many could have chosen their shares such that honest ones are off a polynomial with the same secret.
    if 2 * culprits.len() > all.len().saturating_sub(chosen.len()) {
        culprits.clear();
    }
    Some(Recovered { secret, culprits })
}

/// The secret that the first `threshold` of `shares` open, where it passes `check`. No other share is looked at.
pub(crate) fn recover_first(
    shares: &[(u32, &Share)],
    threshold: u32,
    check: &dyn Fn(&[u8; 32]) -> bool,
) -> Option<Recovered> {
    let threshold = threshold as usize;
    if threshold == 0 || shares.len() < threshold {
        return None;
    }
    open(&shares[..threshold], &[], check)
}

/// The secret behind `threshold` or more shares of distinct holders, of which some may be false.
///
/// # Guarantee
/// With `m` shares it is found if at most `(m - threshold) / 2` of them are false, or if there are at most 500 subsets of
/// `threshold` shares and one of them holds no false share. What comes out passed `check`. All the holders of false shares are
/// named, and nobody else, if they are at most half of the surplus; otherwise nobody is.
///
/// The work is bounded whatever the shares are: about `10 m^2` field products for one decoding, and 500 interpolations. It
/// ends at once where all shares lie on one polynomial whose secret does not pass: no subset has another secret.
pub(crate) fn recover(
    shares: &[(u32, &Share)],
    threshold: u32,
    check: &dyn Fn(&[u8; 32]) -> bool,
) -> Option<Recovered> {
    let threshold = threshold as usize;
    if threshold == 0 || shares.len() < threshold {
        return None;
    }
    let first = open(&shares[..threshold], shares, check);
    if first.is_some() || on_one_polynomial(shares, threshold) {
        return first;
    }
    if let Some(honest) = decode(shares, threshold) {
        let chosen: Vec<(u32, &Share)> = honest.iter().map(|place| shares[*place]).collect();
        if let Some(found) = open(&chosen[..threshold], shares, check) {
            return Some(found);
        }
    }
    if subsets(shares.len(), threshold) > MAX_SUBSETS {
        return None;
    }
    let mut places: Vec<usize> = (0..threshold).collect();
    while advance(&mut places, shares.len()) {
        let chosen: Vec<(u32, &Share)> = places.iter().map(|place| shares[*place]).collect();
        let found = open(&chosen, shares, check);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns `true` if the polynomial through the first `threshold` shares goes through all the others.
fn on_one_polynomial(shares: &[(u32, &Share)], threshold: usize) -> bool {
    let (first, others) = shares.split_at(threshold);
    let basis = Basis::new(first.iter().map(|(holder, _)| *holder));
    others
        .iter()
        .all(|(holder, share)| basis.value(first.iter().map(|(_, share)| *share), point(*holder)) == **share)
}

/// Subsets of `size` out of `places`, or `u64::MAX` where there are more.
fn subsets(places: usize, size: usize) -> u128 {
    (0..size.min(places - size)).fold(1u128, |count, i| {
        (count * (places - i) as u128 / (i as u128 + 1)).min(u64::MAX.into())
    })
}

/// Moves to the next subset of `places` in lexicographic order; false after the last one.
fn advance(subset: &mut [usize], places: usize) -> bool {
    let size = subset.len();
    let Some(place) = (0..size).rev().find(|i| subset[*i] < places - size + i) else {
        return false;
    };
    subset[place] += 1;
    for i in place + 1..size {
        subset[i] = subset[i - 1] + 1;
    }
    true
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
                let recovered = recover(&some, threshold, &|found| *found == secret);
                assert_eq!(recovered.is_some(), some.len() >= threshold as usize);
                if !some.is_empty() && some.len() < threshold as usize {
                    // Interpolated as if they were enough, they give something else: probability 2^-61 a limb.
                    let basis = Basis::new(some.iter().map(|(holder, _)| *holder));
                    let value = basis.value(some.iter().map(|(_, share)| *share), Element::ZERO);
                    assert!(secret_of(&value).is_none_or(|s| *s != secret));
                }
            }
        }
    }

    #[test]
    fn extreme_secrets_come_back() {
        for secret in [[0; 32], [255; 32]] {
            let holders: Vec<u32> = (0..10).collect();
            let shares = split(&secret, 4, &holders, &mut rng(1));
            let recovered = recover(&pairs(&holders, &shares), 4, &|_| true).unwrap();
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
        assert!(recover(&forged, 3, &|found| *found == other).is_some());
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
        let recovered = recover(&pairs(&holders, &shares), 12, &|found| *found == secret).unwrap();
        assert_eq!((*recovered.secret, recovered.culprits), (secret, liars.to_vec()));
    }

    /// Every number of false shares up to half of the surplus, at every place, among many holders: more subsets than could
    /// be tried. One false share more is an end.
    #[test]
    fn half_of_the_surplus_shares_may_be_false() {
        for (m, threshold) in [(30u32, 15u32), (31, 16), (60, 40), (41, 2), (12, 12), (13, 12)] {
            let holders: Vec<u32> = (0..m).map(|i| 3 * i + 5).collect();
            for false_shares in 0..=(m - threshold) / 2 {
                let (secret, mut shares) = shared(threshold, &holders, false_shares as u8);
                // From the first places on, or spread; in one limb or in all.
                let spread = if false_shares % 2 == 0 {
                    1
                } else {
                    m / false_shares
                };
                let liars: Vec<u32> = (0..false_shares).map(|i| i * spread).collect();
                for liar in &liars {
                    let limbs = if liar % 3 == 0 { 1 } else { LIMBS };
                    for limb in &mut shares[*liar as usize].0[..limbs] {
                        *limb = limb.plus(Element::from_small(1 + u64::from(*liar)));
                    }
                }
                let recovered = recover(&pairs(&holders, &shares), threshold, &|found| *found == secret)
                    .unwrap_or_else(|| panic!("{false_shares} of {m} false, threshold {threshold}"));
                let named: Vec<u32> = liars.iter().map(|place| holders[*place as usize]).collect();
                assert_eq!((*recovered.secret, recovered.culprits), (secret, named));
            }
        }
    }

    /// A client that commits to another seed than it shares costs one check, however many subsets there are: all its shares
    /// lie on one polynomial.
    #[test]
    fn a_false_commitment_costs_one_check() {
        let holders: Vec<u32> = (0..119).collect();
        let (_, shares) = shared(61, &holders, 8);
        for given in [61, 62, 119] {
            let checks = std::cell::Cell::new(0);
            let recovered = recover(&pairs(&holders, &shares)[..given], 61, &|_| {
                checks.set(checks.get() + 1);
                false
            });
            assert!(
                recovered.is_none() && checks.get() == 1,
                "{} checks",
                checks.get()
            );
        }
    }

    /// Shares of no polynomial at all, which nothing decodes: the search ends after a bounded number of checks.
    #[test]
    fn shares_of_no_polynomial_end_the_search() {
        let holders: Vec<u32> = (0..100).collect();
        let mut rng = rng(6);
        let shares: Vec<Share> = holders
            .iter()
            .map(|_| split(&[1; 32], 2, &[0], &mut rng).remove(0))
            .collect();
        assert!(recover(&pairs(&holders, &shares), 50, &|_| true).is_none());
        let few = pairs(&holders, &shares)[..6].to_vec();
        assert!(recover(&few, 4, &|_| false).is_none());
    }

    #[test]
    fn too_many_false_shares_are_an_end_not_a_wrong_answer() {
        let holders: Vec<u32> = (0..8).collect();
        let (secret, mut shares) = shared(6, &holders, 4);
        for share in &mut shares[..3] {
            share.0[0] = share.0[0].plus(Element::ONE);
        }
        assert!(recover(&pairs(&holders, &shares), 6, &|found| *found == secret).is_none());
    }

    #[test]
    fn subsets_are_all_there_are() {
        let mut subset = vec![0, 1, 2];
        let mut seen = std::collections::BTreeSet::from([subset.clone()]);
        while advance(&mut subset, 6) {
            assert!(seen.insert(subset.clone()));
        }
        assert_eq!((seen.len(), subsets(6, 3)), (20, 20));
        assert_eq!(subsets(200, 100), u64::MAX.into());
    }

    /// Vectors by hand: f(x) = s + c x over GF(2^61 - 1) limb by limb, at x = 1 and x = 2, through x = 0.
    #[test]
    fn a_line_by_hand_gives_its_secret() {
        let share = |limbs: [u64; LIMBS]| Share(limbs.map(Element::from_small));
        let (one, two) = (share([5, 7, 9, 11, 13]), share([8, 12, 16, 20, 24]));
        // 2 f(1) - f(2): 2, 2, 2, 2, 2.
        let secret = recover(&[(0, &one), (1, &two)], 2, &|_| true).unwrap().secret;
        let mut expected = [0u8; 32];
        for limb in 0..LIMBS {
            expected[limb * LIMB_BYTES] = 2;
        }
        assert_eq!(*secret, expected);
    }
}
