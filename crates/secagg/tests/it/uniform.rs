//! The server's view of one client is uniform for every vector of the client.

use undertone_aggregation::{ModularVec, Modulus, pack};
use undertone_secagg::{Context, ThreatModel, Topology};

use crate::harness::{Lab, context};

const LENGTH: u64 = 1 << 17;

/// The masked words of client `index` in attempt `attempt` of a session of three, whose vectors are filled with one residue.
fn masked(modulus: u64, fill: u64, seed: u64, attempt: u32, index: u32) -> Vec<u64> {
    let context = Context {
        attempt,
        ..context(LENGTH, modulus, ThreatModel::HonestButCurious)
    };
    let mut lab = Lab::joined(context, Topology::full(3, 2).unwrap(), seed).shared(|_| true);
    let modulus = Modulus::new(modulus).unwrap();
    let mut vector = ModularVec::from_residues(modulus, &vec![fill; LENGTH as usize]).unwrap();
    let message = lab.mask_vector(index, &mut vector).unwrap();
    pack::unpack(modulus, LENGTH as usize, &message.packed)
        .unwrap()
        .iter()
        .collect()
}

/// The z-value of chi-square over 256 cells of equal probability.
fn z(cells: impl Iterator<Item = usize>) -> f64 {
    let mut counts = [0u32; 256];
    cells.for_each(|cell| counts[cell] += 1);
    let total: u32 = counts.iter().sum();
    let expected = f64::from(total) / 256.0;
    let chi_square: f64 = counts
        .iter()
        .map(|count| (f64::from(*count) - expected).powi(2) / expected)
        .sum();
    // Wilson and Hilferty's cube root of chi-square over its 255 degrees of freedom is normal to three digits.
    let ninth = 2.0 / (9.0 * 255.0);
    ((chi_square / 255.0).cbrt() - (1.0 - ninth)) / ninth.sqrt()
}

/// Equal ranges of residues: the high bits. The moduli are multiples of 256, or so large that the ranges differ by less than
/// a millionth.
fn high(words: &[u64], modulus: u64) -> f64 {
    z(words
        .iter()
        .map(|word| (u128::from(*word) * 256 / u128::from(modulus)) as usize))
}

/// The low eight bits.
fn low(words: &[u64]) -> f64 {
    z(words.iter().map(|word| (word % 256) as usize))
}

/// Pairs of words at the same place: a sixteenth of the residues on either side, high bits and then low ones.
fn pairs(one: &[u64], two: &[u64], modulus: u64) -> [f64; 2] {
    let high = |word: u64| (u128::from(word) * 16 / u128::from(modulus)) as usize;
    let cells = |part: &dyn Fn(u64) -> usize| z(one.iter().zip(two).map(|(a, b)| 16 * part(*a) + part(*b)));
    [cells(&high), cells(&|word| (word % 16) as usize)]
}

const MODULI: [u64; 6] = [1 << 20, 256 * 3, (1 << 32) - 5, 1 << 32, 1 << 62, (1 << 61) + 1];
/// The largest z-value of an honest test: false with probability 1e-7 under uniformity (one side).
const LIMIT: f64 = 5.2;

/// Twenty-four tests, 2.4e-6 together; the seeds are fixed.
#[test]
fn high_and_low_bits_of_masked_vectors_are_uniform() {
    for (seed, modulus) in (0..).zip(MODULI) {
        for fill in [0, modulus - 1] {
            let words = masked(modulus, fill, seed, 3, 1);
            let (high, low) = (high(&words, modulus), low(&words));
            assert!(
                high < LIMIT && low < LIMIT,
                "modulus {modulus}, filled with {fill}: {high} and {low} standard deviations"
            );
        }
    }
}

/// Eighteen tests, 1.8e-6 together; the seeds are fixed.
#[test]
fn masked_vectors_of_two_clients_or_two_attempts_are_independent() {
    for modulus in [1 << 20, (1 << 32) - 5, 1 << 62] {
        let one = masked(modulus, 7, 1, 3, 1);
        for (what, other) in [
            ("the next client", masked(modulus, 7, 1, 3, 2)),
            ("another attempt of the same client", masked(modulus, 7, 1, 4, 1)),
            ("the previous client", masked(modulus, 7, 1, 3, 0)),
        ] {
            for z in pairs(&one, &other, modulus) {
                assert!(z < LIMIT, "modulus {modulus}, {what}: {z} standard deviations");
            }
        }
    }
}

/// The tests above can fail. Over 131,072 words they see a bit that is stuck in every 20th word (the expected z-value is
/// about 12), the low 12 of 20 bits left unmasked, and one word in 100 that two vectors share. They do not see a bit that is
/// stuck in every 100th word: faults that small are what the known answers in `mask.rs` are for.
#[test]
fn the_tests_of_uniformity_see_these_faults() {
    let modulus = 1 << 20;
    let words = masked(modulus, 0, 1, 3, 1);
    let stuck = |bit: u32, step: usize| {
        let mut words = words.clone();
        words.iter_mut().step_by(step).for_each(|word| *word |= 1 << bit);
        words
    };
    assert!(high(&stuck(19, 20), modulus) > LIMIT);
    assert!(low(&stuck(0, 20)) > LIMIT);
    assert!(high(&stuck(19, 100), modulus) < LIMIT, "as the comment says");
    let unmasked: Vec<u64> = words.iter().map(|word| word & !0xfff).collect();
    assert!(high(&unmasked, modulus) < LIMIT && low(&unmasked) > LIMIT);
    let mut other = masked(modulus, 0, 1, 3, 2);
    for place in (0..words.len()).step_by(100) {
        other[place] = words[place];
    }
    assert!(pairs(&words, &other, modulus).into_iter().all(|z| z > LIMIT));
}
