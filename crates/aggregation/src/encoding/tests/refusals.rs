//! Bad settings and bad vectors.

use undertone_mechanisms::NoiseKey;

use super::{PLAIN_LEVELS, size};
use crate::encoding::*;
use crate::error::check_message;
use crate::{ModularVec, Modulus};

#[test]
fn bad_settings_are_refused_by_name() {
    let good = size(10, 1.0, 5);
    let check = |kind: EncodingKind, size: EncodingSize, expected: &str| {
        check_message(Encoding::new(kind, size), expected);
    };
    let sized = |change: fn(&mut EncodingSize), expected| {
        let mut size = good;
        change(&mut size);
        check(EncodingKind::Identity, size, expected);
    };
    let rotated = |scale| EncodingKind::RotatedRounding { scale };
    sized(|size| size.dim = 0, "dim");
    sized(|size| size.clip_norm = 0.0, "clip_norm");
    sized(|size| size.clip_norm = f64::NAN, "clip_norm");
    sized(|size| size.max_clients = 0, "max_clients");
    sized(|size| size.min_clients = 0, "min_clients");
    sized(|size| size.min_clients = 6, "min_clients");
    sized(|size| size.clip_norm = 1e30, "below 2^62");
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        check(rotated(scale), good, "scale must be positive and finite");
    }
    check(rotated(1e12), good, "choose a smaller scale");
    let noisy = |noise_multiplier| EncodingKind::Skellam {
        scale: 10.0,
        noise_multiplier,
    };
    for multiplier in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let expected = "noise_multiplier must be positive and finite";
        check(noisy(multiplier), good, expected);
    }
    let gaussian = EncodingKind::DiscreteGaussian {
        scale: 1.0,
        noise_multiplier: 0.1,
    };
    check(gaussian, good, "at least half the granularity");
    let binomial = |change: fn(&mut Levels), expected| {
        let mut levels = PLAIN_LEVELS;
        change(&mut levels);
        check(EncodingKind::Binomial(levels), good, expected);
    };
    binomial(|levels| levels.levels = 1, "levels must be from 2");
    binomial(|levels| levels.trials = 0, "trials must be from 1");
    binomial(|levels| levels.trials = 1, "Theorem 1 needs");
    binomial(|levels| levels.x_max = Some(0.0), "x_max must be");
    binomial(|levels| levels.delta = 0.0, "delta");
    binomial(|levels| levels.delta = 1.5, "delta");
    for success_probability in [(0, 2), (2, 2), (3, 2), (1, 0)] {
        let levels = Levels {
            success_probability,
            ..PLAIN_LEVELS
        };
        check(EncodingKind::Binomial(levels), good, "probability");
    }
}

#[test]
fn bad_vectors_are_refused_by_name() {
    for kind in [
        EncodingKind::Identity,
        EncodingKind::RotatedRounding { scale: 100.0 },
    ] {
        let encoding = Encoding::new(kind, size(3, 1.0, 5)).unwrap();
        let key = NoiseKey::from_bytes([1; 32]);
        let round = encoding.for_round(&key, 0).unwrap();
        let check = |update: &[f32], weight, expected: &str| {
            let mut out = encoding.zeros();
            check_message(round.encoder().encode(update, weight, &key, &mut out), expected);
        };
        check(&[0.0; 4], 1.0, "update: expected 3 values, got 4");
        check(&[0.0, f32::NAN, 0.0], 1.0, "index 1 is not finite");
        check(&[0.0, 0.0, f32::INFINITY], 1.0, "index 2 is not finite");
        check(&[0.0; 3], 1.1, "weight must be between 0 and 1");
        check(&[0.0; 3], f64::NAN, "weight must be between 0 and 1");
        let mut short = ModularVec::zeros(encoding.modulus(), 2);
        assert!(round.encoder().encode(&[0.0; 3], 1.0, &key, &mut short).is_err());
        let mut other = ModularVec::zeros(Modulus::new(17).unwrap(), encoding.padded_dim());
        assert!(round.encoder().encode(&[0.0; 3], 1.0, &key, &mut other).is_err());
        let refused = |sum, clients, expected| check_message(round.residues(sum, clients), expected);
        refused(encoding.zeros(), 6, "at most 5 clients, got 6");
        refused(encoding.zeros(), 0, "clients must be at least 1");
        refused(other, 5, "got residues modulo 17");
        refused(short, 5, "got 2");
        assert!(encoding.for_round(&key, 1 << 48).is_err());
    }
    let encoding = Encoding::new(EncodingKind::Identity, size(2, 1.0, 5)).unwrap();
    let (key, mut out) = (NoiseKey::from_bytes([1; 32]), encoding.zeros());
    let round = encoding.for_round(&key, 0).unwrap();
    let unclipped = round.encoder().encode(&[0.8, 0.8], 1.0, &key, &mut out);
    check_message(unclipped, "above its bound");
}
