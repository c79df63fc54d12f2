//! Search for the shares that lie on one polynomial, where the false ones are at most half of the surplus.
//!
//! Shares of one secret are a Reed-Solomon codeword, so a decoder finds the false ones with certainty, for a work that is
//! quadratic in their number.
//!
//! Source: Gao, "A new algorithm for decoding Reed-Solomon codes", 2003.

use super::{LIMBS, Share, inverses, point};
use crate::field::Element;

/// A polynomial's coefficients from the constant on, the last one not 0.
type Polynomial = Vec<Element>;

/// The places of the shares on the one polynomial of degree below `threshold` that at most `(m - threshold) / 2` of the `m`
/// shares are off; none where there is no such polynomial.
pub(super) fn decode(shares: &[(u32, &Share)], threshold: usize) -> Option<Vec<usize>> {
    let points: Vec<Element> = shares.iter().map(|(holder, _)| point(*holder)).collect();
    let (vanishing, interpolants) = interpolate(&points, shares);
    let mut honest = vec![true; points.len()];
    for (limb, interpolant) in interpolants.into_iter().enumerate() {
        let found = correct(&vanishing, interpolant, threshold)?;
        for ((honest, x), (_, share)) in honest.iter_mut().zip(&points).zip(shares) {
            *honest &= evaluate(&found, *x) == share.0[limb];
        }
    }
    let honest: Vec<usize> = (0..points.len()).filter(|place| honest[*place]).collect();
    (2 * (points.len() - honest.len()) <= points.len() - threshold).then_some(honest)
}

/// The polynomial that is 0 at all points, and each limb's polynomial through all shares.
fn interpolate(points: &[Element], shares: &[(u32, &Share)]) -> (Polynomial, [Polynomial; LIMBS]) {
    let mut vanishing = vec![Element::ONE];
    for x in points {
        vanishing.insert(0, Element::ZERO);
        for i in 0..vanishing.len() - 1 {
            vanishing[i] = vanishing[i].minus(vanishing[i + 1].times(*x));
        }
    }
    // Lagrange: each basis polynomial is the vanishing one without its own root, over its value there.
    let mut quotient = vec![Element::ZERO; points.len()];
    let mut divide = |x: Element| {
        let mut carry = Element::ZERO;
        for (quotient, coefficient) in quotient.iter_mut().zip(&vanishing[1..]).rev() {
            carry = carry.times(x).plus(*coefficient);
            *quotient = carry;
        }
        quotient.clone()
    };
    let values: Vec<Element> = points.iter().map(|x| evaluate(&divide(*x), *x)).collect();
    let mut limbs: [Polynomial; LIMBS] = std::array::from_fn(|_| vec![Element::ZERO; points.len()]);
    for ((x, scale), (_, share)) in points.iter().zip(inverses(&values)).zip(shares) {
        let quotient = divide(*x);
        for (limb, value) in limbs.iter_mut().zip(&share.0) {
            let factor = scale.times(*value);
            for (sum, coefficient) in limb.iter_mut().zip(&quotient) {
                *sum = sum.plus(factor.times(*coefficient));
            }
        }
    }
    (vanishing, limbs.map(trimmed))
}

/// Gao's step: the extended Euclidean algorithm up to the middle leaves message times locator, and the locator.
fn correct(vanishing: &Polynomial, interpolant: Polynomial, threshold: usize) -> Option<Polynomial> {
    let end = vanishing.len() - 1 + threshold;
    let (mut above, mut below) = (vanishing.clone(), interpolant);
    let (mut before, mut locator) = (Vec::new(), vec![Element::ONE]);
    // The degree is one less than the number of coefficients: stop where it is below (m + threshold) / 2.
    while 2 * below.len() >= end + 2 {
        let (quotient, rest) = divided(above, &below);
        (above, below) = (below, rest);
        let next = minus_product(before, &quotient, &locator);
        (before, locator) = (locator, next);
    }
    let (message, rest) = divided(below, &locator);
    (rest.is_empty() && message.len() <= threshold).then_some(message)
}

fn evaluate(polynomial: &[Element], x: Element) -> Element {
    let step = |value: Element, coefficient: &Element| value.times(x).plus(*coefficient);
    polynomial.iter().rev().fold(Element::ZERO, step)
}

fn trimmed(mut polynomial: Polynomial) -> Polynomial {
    while polynomial.pop_if(|last| *last == Element::ZERO).is_some() {}
    polynomial
}

/// Quotient and rest; `divisor` is not 0.
fn divided(mut dividend: Polynomial, divisor: &Polynomial) -> (Polynomial, Polynomial) {
    let Some((leading, lower)) = divisor.split_last() else {
        return (Vec::new(), dividend);
    };
    let inverse = leading.inverse();
    let places = (dividend.len() + 1).saturating_sub(divisor.len());
    let mut quotient = vec![Element::ZERO; places];
    for place in (0..places).rev() {
        let factor = dividend[place + lower.len()].times(inverse);
        for (coefficient, other) in dividend[place..].iter_mut().zip(lower) {
            *coefficient = coefficient.minus(factor.times(*other));
        }
        dividend.truncate(place + lower.len());
        quotient[place] = factor;
    }
    (quotient, trimmed(dividend))
}

/// `minuend - a b`.
fn minus_product(mut minuend: Polynomial, a: &[Element], b: &[Element]) -> Polynomial {
    let needed = (a.len() + b.len()).saturating_sub(1);
    if minuend.len() < needed {
        minuend.resize(needed, Element::ZERO);
    }
    for (place, factor) in a.iter().enumerate() {
        for (coefficient, other) in minuend[place..].iter_mut().zip(b) {
            *coefficient = coefficient.minus(factor.times(*other));
        }
    }
    trimmed(minuend)
}
