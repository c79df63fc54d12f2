//! Noise of the server on residues: the same numbers as by lifting first, and no more trust in the others.

use undertone_mechanisms::{IndependentGaussian, RawResidues};

use super::*;

const SEED: [u8; 32] = [1; 32];

fn rotated(dim: usize, clients: u64) -> Encoding {
    Encoding::new(
        EncodingKind::RotatedRounding { scale: 1e4 },
        size(dim, 1.0, clients),
    )
    .unwrap()
}

fn shared() -> Encoding {
    let kind = EncodingKind::Skellam {
        scale: 100.0,
        noise_multiplier: 1.0,
    };
    Encoding::new(kind, size(300, 1.0, 5)).unwrap()
}

fn identity(dim: usize, clients: u64) -> Encoding {
    Encoding::new(EncodingKind::Identity, size(dim, 1.0, clients)).unwrap()
}

/// With little noise on it, a release is the average of the updates, but for the rounding of the encoding.
#[test]
fn residues_are_released_as_the_average_of_the_updates() {
    for (encoding, rounding) in [(rotated(300, 5), 1e-4), (identity(300, 5), 0.0)] {
        let domain = encoding.noise_domain().unwrap();
        let round = encoding.for_round(&NoiseKey::from_bytes(SEED), 3).unwrap();
        let updates: Vec<_> = (0..5).map(|client| update(client, 300, 0.9)).collect();
        let residues = round
            .residues(encoded_sum(&round, &encoding, &updates, 7), 5)
            .unwrap();
        let noise = IndependentGaussian::new(2000.0, NoiseKey::from_bytes([3; 32])).unwrap();
        let noised = noise.privatize_residues(0, residues).unwrap();
        let released = round.release(noised, 5, 4.0).unwrap();
        let std = 2000.0 * domain.step / 4.0;
        assert!((released.noise_std() - std).abs() < 1e-20);
        for (i, released) in released.values().iter().enumerate() {
            let truth: f64 = updates.iter().map(|update| f64::from(update[i])).sum();
            // The rounding of a client has a deviation of at most half a step. Nine deviations (rate 1e-15 over 600
            // coordinates), and the last digits of single precision.
            let room = 9.0 * (std + rounding * 0.5 * 5f64.sqrt() / 4.0) + 1e-6;
            assert!(
                (truth / 4.0 - f64::from(*released)).abs() < room,
                "{truth} {released}"
            );
        }
    }
}

/// Correlated noise needs one rotation for all rounds; noise of the clients has another one in each.
#[test]
fn the_rotation_is_that_of_the_run_where_the_server_adds_the_noise() {
    let shared = shared();
    for (encoding, of_run) in [(rotated(300, 5), true), (shared, false)] {
        let rotation = |round| {
            encoding
                .for_round(&NoiseKey::from_bytes(SEED), round)
                .unwrap()
                .rotation
        };
        assert!(rotation(0).is_some());
        assert_eq!(rotation(0) == rotation(5), of_run);
    }
}

/// The integers of a client with a clipped update are never longer than the stated sensitivity.
#[test]
fn the_integers_of_a_client_keep_to_the_sensitivity() {
    for encoding in [rotated(1000, 40), identity(1000, 40)] {
        let domain = encoding.noise_domain().unwrap();
        let round = encoding.for_round(&NoiseKey::from_bytes(SEED), 0).unwrap();
        for client in 0..20 {
            let one = encoded_sum(&round, &encoding, &[update(client, 1000, 0.999_999)], client);
            let modulus = i128::from(encoding.modulus().get());
            let squared: i128 = one
                .iter()
                .map(|residue| {
                    let value = (i128::from(residue) - i128::from(encoding.centre)).rem_euclid(modulus);
                    let value = if value > modulus / 2 {
                        value - modulus
                    } else {
                        value
                    };
                    (value << domain.fraction_bits).pow(2)
                })
                .sum();
            assert!(
                (squared as f64).sqrt() <= domain.l2,
                "{}",
                (squared as f64).sqrt() / domain.l2
            );
        }
        // Of the order of the clip norm, so that the bound is not an empty one.
        assert!(domain.l2 * domain.step < 1.02);
    }
}

/// A participant who sends residues next to half the modulus: with fixed noise, one client more moves the noised residues by exactly the
/// residues of that client, whatever was sent beside them.
#[test]
fn residues_near_half_the_modulus_move_nothing_of_the_others() {
    let encoding = rotated(60, 6);
    let domain = encoding.noise_domain().unwrap();
    let round = encoding.for_round(&NoiseKey::from_bytes(SEED), 0).unwrap();
    let honest: Vec<_> = (0..3).map(|client| update(client, 60, 0.8)).collect();
    let modulus = encoding.modulus();
    let noise = IndependentGaussian::new(1e6, NoiseKey::from_bytes([4; 32])).unwrap();
    let release = |updates: &[Vec<f32>], attack: u64| {
        let mut sum = encoded_sum(&round, &encoding, updates, 9);
        let attack = vec![attack % modulus.get(); encoding.padded_dim()];
        sum.add(&ModularVec::from_residues(modulus, &attack).unwrap())
            .unwrap();
        let residues: RawResidues = round.residues(sum, 5).unwrap();
        noise.privatize_residues(0, residues).unwrap()
    };
    let one = encoded_sum(&round, &encoding, &honest[2..], 9);
    let alone: Vec<u64> = {
        // Rounding follows from the place of a client, so the third is encoded as the third.
        let mut rest = encoded_sum(&round, &encoding, &honest, 9);
        rest.sub(&encoded_sum(&round, &encoding, &honest[..2], 9))
            .unwrap();
        rest.iter()
            .map(|residue| residue << domain.fraction_bits)
            .collect()
    };
    assert_eq!(alone.len(), one.len());
    let half = modulus.get() / 2;
    for attack in [0, half - 1, half, half + 1] {
        let (with, without) = (release(&honest, attack), release(&honest[..2], attack));
        for ((with, without), alone) in with.values().iter().zip(without.values()).zip(&alone) {
            assert_eq!(*with, (without + alone) % domain.modulus);
        }
    }
}

/// Bits of a residue at 1.35 million parameters, scale 10,000 and clip norm 1, with rows of 1.5 times the fresh noise.
#[test]
fn a_modulus_has_room_for_eight_deviations_of_the_noise() {
    let bits = |clients: u64, z: f64| {
        let without = rotated(1_350_000, clients);
        let with = without.clone().with_room_for_noise(1.5 * z).unwrap();
        assert!(with.modulus().get() as f64 >= without.min_modulus().get() as f64 + 16.0 * 1.5 * z * 1e4);
        (without.bits_per_coordinate(), with.bits_per_coordinate())
    };
    assert_eq!(bits(13_000, 7.0), (23, 23));
    assert_eq!(bits(1_400, 7.0), (20, 22));
    assert_eq!(bits(50, 7.0), (15, 21));
    assert_eq!(bits(1_400, 1.0), (20, 20));
    let error = rotated(10, 5).with_room_for_noise(1e15).unwrap_err().to_string();
    assert!(error.contains("room for the noise"), "{error}");
}

#[test]
fn a_step_is_no_finer_than_the_grid_of_the_plain_sum_and_no_coarser_than_fits() {
    for encoding in [rotated(300, 5), identity(300, 5), rotated(1 << 20, 100_000)] {
        let domain = encoding.noise_domain().unwrap();
        assert!(domain.step >= (-40f64).exp2());
        let finer = domain.step / 2.0 < (-40f64).exp2() || domain.modulus > 1 << 61;
        assert!(finer, "{domain:?}");
        assert_eq!(domain.dim, encoding.padded_dim());
    }
    let shared = shared();
    assert!(shared.noise_domain().is_none());
    let round = shared.for_round(&NoiseKey::from_bytes(SEED), 0).unwrap();
    assert!(round.residues(shared.zeros(), 5).is_err());
}
