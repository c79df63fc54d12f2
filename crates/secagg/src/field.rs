//! The field GF(2^61 - 1), in time that does not depend on the elements.
//!
//! A Mersenne prime reduces by a shift and an addition, an element fits a word with room to spare, and 7 bytes of a secret
//! fit an element: a 32-byte secret is five elements.

use rand_core::CryptoRng;
use zeroize::Zeroize;

use crate::error::{Result, SecAggError};

/// The prime 2^61 - 1.
pub(crate) const PRIME: u64 = (1 << 61) - 1;

/// An element, below the prime. It has no `Debug`: elements are parts of secrets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Zeroize)]
pub(crate) struct Element(u64);

impl Element {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const ONE: Self = Self(1);

    /// An integer below the prime, as lengths and 56-bit limbs are.
    pub(crate) const fn from_small(value: u64) -> Self {
        debug_assert!(value < PRIME);
        Self(value)
    }

    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Result<Self> {
        let value = u64::from_le_bytes(bytes);
        if value < PRIME {
            Ok(Self(value))
        } else {
            Err(SecAggError::ShareRange)
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// Uniform: words of 61 bits until one is not the prime, which all but one word in 2^61 are.
    pub(crate) fn random<R: CryptoRng + ?Sized>(rng: &mut R) -> Self {
        loop {
            let word = rng.next_u64() >> 3;
            if word != PRIME {
                return Self(word);
            }
        }
    }

    /// `value - p` where that is not negative, for values up to `2 p`; a mask instead of a branch.
    const fn reduced(value: u64) -> Self {
        let less = value.wrapping_sub(PRIME);
        let borrowed = (less >> 63).wrapping_neg();
        Self(less.wrapping_add(PRIME & borrowed))
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self::reduced(self.0 + other.0)
    }

    pub(crate) const fn minus(self, other: Self) -> Self {
        Self::reduced(self.0 + (PRIME - other.0))
    }

    pub(crate) const fn times(self, other: Self) -> Self {
        let product = self.0 as u128 * other.0 as u128;
        // 2^61 = 1: the high part is added to the low one.
        Self::reduced((product as u64 & PRIME) + (product >> 61) as u64)
    }

    /// `1 / self`, and 0 for 0: the power `p - 2`, by the same multiplications whatever the element.
    pub(crate) fn inverse(self) -> Self {
        // p - 2 = 2^61 - 3 has the bits 1...101.
        let mut power = Self::ONE;
        for bit in (0..61).rev() {
            power = power.times(power);
            if (PRIME - 2) >> bit & 1 == 1 {
                power = power.times(self);
            }
        }
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    fn naive(a: u64, b: u64) -> u64 {
        (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
    }

    #[test]
    fn arithmetic_is_that_of_integers_modulo_the_prime() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let edges = [0, 1, 2, PRIME - 2, PRIME - 1, 1 << 60, (1 << 60) - 1].map(Element::from_small);
        let mut values: Vec<Element> = edges.into();
        values.extend((0..200).map(|_| Element::random(&mut rng)));
        for &a in &values {
            for &b in &values {
                assert_eq!(a.plus(b).get(), (a.get() + b.get()) % PRIME);
                assert_eq!(a.minus(b).get(), (a.get() + PRIME - b.get()) % PRIME);
                assert_eq!(a.times(b).get(), naive(a.get(), b.get()));
            }
            let one = if a == Element::ZERO {
                Element::ZERO
            } else {
                Element::ONE
            };
            assert!(a.times(a.inverse()) == one);
            assert!(Element::from_bytes(a.to_bytes()).unwrap() == a);
        }
        assert!(Element::from_bytes(PRIME.to_le_bytes()).is_err());
        assert!(Element::from_bytes([255; 8]).is_err());
    }
}
