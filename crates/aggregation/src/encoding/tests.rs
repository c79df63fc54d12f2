//! Encodings against the plain sum, their formulas and their bounds.
//!
//! Statistical checks use fixed keys, so they cannot flake; their false-alarm rate over random keys is below 1e-6 each.

mod range;
mod refusals;
mod server_noise;

use proptest::prelude::*;
use undertone_accounting::binomial::{
    exact::ShiftedBinomial, theorem::BinomialNoise, theorem::Sensitivities,
};
use undertone_accounting::{Accountant, Adjacency, Delta, Event, Recipe};
use undertone_mechanisms::{Denominator, NoiseKey, NonPrivate};

use super::*;
use crate::ModularVec;
use crate::sum::FixedPointSum;

const PLAIN_LEVELS: Levels = Levels {
    levels: 33,
    trials: 2000,
    success_probability: (1, 2),
    x_max: None,
    rotate: true,
    delta: 1e-5,
};

fn size(dim: usize, clip_norm: f64, clients: u64) -> EncodingSize {
    EncodingSize {
        dim,
        clip_norm,
        min_clients: clients,
        max_clients: clients,
    }
}

/// A client's update: a smooth direction with a sign that looks random, of norm `norm`.
fn update(client: u64, dim: usize, norm: f64) -> Vec<f32> {
    let value = |i: usize| ((client * 7919 + i as u64 * 104_729) % 20_011) as f64 / 10_007.0 - 1.0;
    let length = (0..dim).map(|i| value(i).powi(2)).sum::<f64>().sqrt();
    (0..dim).map(|i| (value(i) * norm / length) as f32).collect()
}

fn encoded_sum(
    round: &RoundEncoding<'_>,
    encoding: &Encoding,
    updates: &[Vec<f32>],
    salt: u64,
) -> ModularVec {
    let (mut encoder, mut sum, mut one) = (round.encoder(), encoding.zeros(), encoding.zeros());
    for (client, update) in updates.iter().enumerate() {
        let key = NoiseKey::from_insecure_seed(salt)
            .for_client(client as u64)
            .unwrap();
        encoder.encode(update, 1.0, &key, &mut one).unwrap();
        sum.add(&one).unwrap();
    }
    sum
}

/// The sum as numbers: with the noise of the clients, or without the noise that the server would add.
fn read(round: &RoundEncoding<'_>, sum: ModularVec, clients: u64) -> Vec<f64> {
    let released = match round.encoding.client_noise() {
        Some(noise) => noise.release(round.decode(sum, clients).unwrap(), 1.0),
        None => {
            let residues = round.residues(sum, clients).unwrap();
            Ok(round
                .release(NonPrivate.privatize_residues(0, residues), clients, 1.0)
                .unwrap())
        }
    };
    released.unwrap().values().iter().map(|&x| f64::from(x)).collect()
}

fn decoded_sum(encoding: &Encoding, updates: &[Vec<f32>], salt: u64) -> Vec<f64> {
    let round = encoding.for_round(&NoiseKey::from_bytes([1; 32]), salt).unwrap();
    let sum = encoded_sum(&round, encoding, updates, salt);
    read(&round, sum, updates.len() as u64)
}

fn released(plain: FixedPointSum) -> Vec<f64> {
    let average = plain
        .into_raw()
        .unwrap()
        .average(Denominator::Fixed(1.0))
        .unwrap();
    let released = NonPrivate.privatize(0, average).unwrap();
    released.values().iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn identity_is_the_plain_sum_bit_for_bit() {
    let dim = 1500;
    let encoding = Encoding::new(EncodingKind::Identity, size(dim, 1.0, 10)).unwrap();
    assert_eq!(encoding.modulus().get(), 1 << 45); // 2 10 2^40, rounded up
    let round = encoding.for_round(&NoiseKey::from_bytes([1; 32]), 0).unwrap();
    let (mut encoder, mut sum, mut one) = (round.encoder(), encoding.zeros(), encoding.zeros());
    let plain = FixedPointSum::new(dim);
    for client in 0..10u64 {
        // So small that every bit of the grid shows in an f32; the last client is large.
        let update = update(client, dim, if client == 9 { 0.99 } else { 1e-4 });
        let weight = (client + 1) as f64 / 10.0;
        plain.add(&update, weight).unwrap();
        encoder
            .encode(&update, weight, &NoiseKey::from_bytes([2; 32]), &mut one)
            .unwrap();
        sum.add(&one).unwrap();
        if client == 8 {
            let again = FixedPointSum::new(dim);
            for client in 0..9u64 {
                again
                    .add(&self::update(client, dim, 1e-4), (client + 1) as f64 / 10.0)
                    .unwrap();
            }
            let mut copy = encoding.zeros();
            copy.add(&sum).unwrap();
            assert_eq!(read(&round, copy, 9), released(again));
        }
    }
    assert_eq!(read(&round, sum, 10), released(plain));
}

#[test]
fn identity_takes_the_finest_grid_that_fits() {
    let bits = |clip_norm, clients| {
        let encoding = Encoding::new(EncodingKind::Identity, size(4, clip_norm, clients));
        encoding.map(|encoding| encoding.bits_per_coordinate())
    };
    assert_eq!(bits(1.0, 1000).unwrap(), 51);
    assert_eq!(bits(1.0, 1 << 20).unwrap(), 62);
    // Beyond, the grid gets coarser instead.
    assert_eq!(bits(4.0, 1 << 21).unwrap(), 62);
}

/// `C_inflated` as printed, at the padded dimension; before noise modulo `M` the floor onto the grid of averages came on top.
#[test]
fn the_inflation_is_the_formula() {
    for (dim, clip_norm, scale) in [
        (1000usize, 1.0, 100.0),
        (1 << 14, 0.3, 5000.0),
        (4_000_000, 5.0, 2f64.powi(14)),
    ] {
        let encoding =
            Encoding::new(EncodingKind::RotatedRounding { scale }, size(dim, clip_norm, 100)).unwrap();
        let d = dim.next_power_of_two() as f64;
        let inflated = clip_norm.powi(2)
            + d / (4.0 * scale * scale)
            + (2.0f64 * 0.5).sqrt() * (clip_norm / scale + d.sqrt() / (2.0 * scale * scale));
        let got = encoding.sensitivity().l2;
        // The squared norm of the integers is a whole number.
        let whole = 1.0 - (inflated * scale * scale).recip();
        assert!(
            got <= inflated.sqrt() * (1.0 + 1e-15) && got > inflated.sqrt() * whole,
            "{got}"
        );
        let floored = inflated.sqrt() + (dim as f64).sqrt() * 2f64.powi(-40);
        assert!((encoding.lifted_sensitivity() / floored - 1.0).abs() < 1e-12);
        let cap = (2.0 * scale * clip_norm * d.ln() / d.sqrt()).ceil();
        assert_eq!(encoding.min_modulus().get(), 2 * cap as u64 * 100 + 1);
    }
}

/// Random and adversarial updates: what one client adds, as decoded, is never longer than the sensitivity.
#[test]
fn one_client_moves_the_sum_by_at_most_the_sensitivity() {
    for (dim, scale) in [(1usize, 3.0), (5, 2.0), (700, 20.0), (4096, 30.0)] {
        let encoding = Encoding::new(EncodingKind::RotatedRounding { scale }, size(dim, 1.0, 3)).unwrap();
        let bound = encoding.sensitivity().l2;
        let mut one_hot = vec![0.0; dim];
        one_hot[dim / 2] = 1.0;
        let root = (dim as f64).sqrt();
        let others = [update(1, dim, 0.7), update(2, dim, 0.9)];
        let adversaries = [
            update(0, dim, 1.0),
            update(0, dim, 1e6),
            update(0, dim, 1e-6),
            one_hot,
            vec![(1.0 / root) as f32; dim],
            vec![f32::MAX / 1e20; dim],
            (0..dim)
                .map(|i| if i % 2 == 0 { 0.5 } else { -0.5 } / scale as f32)
                .collect(),
            vec![0.0; dim],
        ];
        for (salt, adversary) in adversaries.into_iter().enumerate() {
            for salt in [salt as u64, 100 + salt as u64] {
                let with = [others[0].clone(), others[1].clone(), adversary.clone()];
                let (with, without) = (
                    decoded_sum(&encoding, &with, salt),
                    decoded_sum(&encoding, &others, salt),
                );
                let distance = with
                    .iter()
                    .zip(&without)
                    .map(|(a, b)| (a - b).powi(2))
                    .sum::<f64>()
                    .sqrt();
                // The release is in single precision.
                assert!(
                    distance <= bound * (1.0 + 1e-6),
                    "{dim} {scale}: {distance} > {bound}"
                );
            }
        }
    }
}

/// The other norms' worst case: every coordinate half way between two grid points, where rounding adds most.
#[test]
fn the_sensitivity_is_not_far_from_what_happens() {
    let (dim, scale) = (4096, 30.0);
    let encoding = Encoding::new(EncodingKind::RotatedRounding { scale }, size(dim, 1.0, 1)).unwrap();
    let moved = decoded_sum(&encoding, &[update(0, dim, 1.0)], 0);
    let norm = moved.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(
        norm > 0.8 * encoding.sensitivity().l2,
        "{norm} of {}",
        encoding.sensitivity().l2
    );
    assert!(
        encoding.sensitivity().l2 > 1.3,
        "rounding of {dim} coordinates counts here"
    );
}

/// Mean over 8 clients, 20 rounds: squared errors against two thirds of the rounding bound plus the noise.
#[test]
fn errors_are_those_of_the_formulas() {
    let (dim, clients) = (1000usize, 8u64);
    let scale = 100.0;
    let kinds = [
        EncodingKind::RotatedRounding { scale },
        EncodingKind::DiscreteGaussian {
            scale,
            noise_multiplier: 0.05,
        },
        EncodingKind::Skellam {
            scale,
            noise_multiplier: 0.05,
        },
        EncodingKind::Binomial(PLAIN_LEVELS),
        EncodingKind::Binomial(Levels {
            levels: 1 << 12,
            trials: 8000,
            success_probability: (1, 4),
            rotate: false,
            ..PLAIN_LEVELS
        }),
    ];
    let updates: Vec<Vec<f32>> = (0..clients).map(|client| update(client, dim, 0.9)).collect();
    let truth: Vec<f64> = (0..dim)
        .map(|i| updates.iter().map(|u| f64::from(u[i])).sum())
        .collect();
    for kind in kinds {
        let encoding = Encoding::new(kind, size(dim, 1.0, clients)).unwrap();
        let rounds = 20;
        let squares: f64 = (0..rounds)
            .map(|salt| {
                let sum = decoded_sum(&encoding, &updates, salt);
                sum.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>()
            })
            .sum();
        let samples = (rounds as usize * dim) as f64;
        let measured = squares / samples / (clients as f64).powi(2);
        let formula = encoding.mean_squared_error(clients);
        let expected = formula.noise + formula.rounding * 2.0 / 3.0;
        // Squares of near-Gaussian errors have variance 2: 5.5 standard deviations, and 1 % for fractions that are not
        // quite evenly spread.
        let tolerance = 5.5 * (2.0 / samples).sqrt() + 0.01;
        assert!(
            (measured / expected - 1.0).abs() < tolerance,
            "{kind:?}: {measured:e} against {expected:e}"
        );
        assert!(measured < formula.total() * (1.0 + tolerance));
    }
}

/// Updates of zeros at an odd number of levels: what arrives is `Bin(n m, p)` on top of the middle level.
#[test]
#[ignore = "slow"]
fn the_clients_noise_adds_up_to_one_binomial() {
    for success_probability in [(1, 2), (1, 4)] {
        let (clients, trials, dim) = (5u64, 40u64, 30_000usize);
        let levels = Levels {
            levels: 5,
            trials,
            success_probability,
            x_max: Some(1.0),
            rotate: false,
            delta: 0.5,
        };
        // One coordinate at a time has no theorem to satisfy, so many rounds of a vector of one.
        let encoding = Encoding::new(EncodingKind::Binomial(levels), size(1, 1.0, clients)).unwrap();
        let total = clients * trials;
        let mut counts = vec![0u64; total as usize + 1];
        let mut one = encoding.zeros();
        for round_number in 0..dim as u64 {
            let round = encoding
                .for_round(&NoiseKey::from_bytes([1; 32]), round_number)
                .unwrap();
            let (mut encoder, mut sum) = (round.encoder(), encoding.zeros());
            for client in 0..clients {
                let key = NoiseKey::from_insecure_seed(77).for_client(client).unwrap();
                encoder.encode(&[0.0], 1.0, &key, &mut one).unwrap();
                sum.add(&one).unwrap();
            }
            let value = sum.iter().next().unwrap() - 2 * clients;
            counts[value as usize] += 1;
        }
        let p = success_probability.0 as f64 / success_probability.1 as f64;
        let mut mass = vec![(1.0 - p).powi(total as i32)];
        for x in 0..total {
            let last = mass[x as usize];
            mass.push(last * (total - x) as f64 / (x + 1) as f64 * p / (1.0 - p));
        }
        // Pearson's chi-square over bins that expect 20, by Wilson and Hilferty, one-sided at 5 standard deviations (3e-7).
        let (mut chi, mut bins, mut seen, mut expected) = (0.0, 0.0f64, 0.0, 0.0);
        for (count, mass) in counts.iter().zip(&mass) {
            (seen, expected) = (seen + *count as f64, expected + mass * dim as f64);
            if expected >= 20.0 {
                chi += (seen - expected) * (seen - expected) / expected;
                (bins, seen, expected) = (bins + 1.0, 0.0, 0.0);
            }
        }
        let freedom = bins - 1.0;
        let spread = 2.0 / (9.0 * freedom);
        let z = ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
        assert!(
            freedom > 20.0 && z < 5.0,
            "chi-square {chi} with {freedom} degrees: {z}"
        );
    }
}

#[test]
fn noise_in_shares_needs_enough_clients_and_is_accounted() {
    let size = EncodingSize {
        dim: 100,
        clip_norm: 2.0,
        min_clients: 4,
        max_clients: 6,
    };
    let (scale, noise_multiplier) = (50.0, 1.5);
    for kind in [
        EncodingKind::DiscreteGaussian {
            scale,
            noise_multiplier,
        },
        EncodingKind::Skellam {
            scale,
            noise_multiplier,
        },
    ] {
        let encoding = Encoding::new(kind, size).unwrap();
        let noise = encoding.client_noise().unwrap();
        // Shares for the floor, not for the cap.
        assert!((noise.share_std() * 2.0 / (noise_multiplier * 2.0) - 1.0).abs() < 1e-4);
        let mut accountant = Accountant::under(Recipe::Rdp, Adjacency::ZeroOut);
        accountant.compose(noise.event(), 1).unwrap();
        let epsilon = accountant
            .guarantee(Delta::new(1e-6).unwrap())
            .unwrap()
            .epsilon
            .get();
        // A Gaussian of noise multiplier 1.5 has 3.3 at this delta by RDP; rounding adds to the sensitivity.
        assert!((3.0..4.5).contains(&epsilon), "{epsilon}");
        let round = encoding.for_round(&NoiseKey::from_bytes([1; 32]), 0).unwrap();
        let updates = vec![update(0, 100, 1.0); 3];
        let sum = encoded_sum(&round, &encoding, &updates, 0);
        assert!(noise.release(round.decode(sum, 3).unwrap(), 3.0).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// One coordinate: the exact divergence that the event stands for is never above Theorem 1, where that holds.
    #[test]
    fn exact_accounting_is_never_above_the_theorem(
        levels in 2u64..40, trials in 50u64..5000, clients in 1u64..20, log_delta in -9.0f64..-3.0,
    ) {
        let delta = 10f64.powf(log_delta);
        let settings = Levels { levels, trials, success_probability: (1, 2), x_max: None, rotate: false, delta };
        let encoding = Encoding::new(EncodingKind::Binomial(settings), size(1, 1.0, clients)).unwrap();
        let Event::Binomial { trials: total, success_probability, shift } =
            encoding.client_noise().unwrap().event().clone() else { panic!("exact in one dimension") };
        prop_assert_eq!(total, trials * clients);
        let half = Delta::new(0.5 * delta).unwrap();
        let norms = Sensitivities::of_quantization(1, levels, 1.0, 1.0, half).unwrap();
        let noise = BinomialNoise::new(1, total, success_probability, 1.0).unwrap();
        if let Ok(bound) = noise.epsilon(&norms, half) {
            // Equation 10 is for replacing a client, which moves twice as far, but not past the last level.
            let moved = (2 * shift).min(levels - 1);
            let exact = ShiftedBinomial::new(total, success_probability, moved).unwrap();
            prop_assert!(exact.epsilon(half).unwrap() <= bound);
        }
    }
}
