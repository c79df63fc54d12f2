//! Saved states: what goes on from them, under the same key and under a fresh one, and what is refused.

use crate::testing::{says, with_threads};
use undertone_accounting::NoiseMultiplier;
use undertone_accounting::participation::Participation;

use super::Mechanism;
use super::correlated::{CorrelatedGaussian, ReleaseShape};
use super::release_tests::{BLOCK, average, key, mechanism, releases, shape, strategies, values};
use crate::error::MechanismError;
use crate::recurrence::Recurrence;
use crate::release::Denominator;
use crate::sampler::uniform::{KeyOrigin, NoiseKey};
use crate::strategy::Strategy;
use crate::strategy::identity::IdentityMatrix;
use crate::stream::engine::History;
use crate::stream::reference::matrix;
use crate::stream::tree::Place;

fn saved(releases: &CorrelatedGaussian) -> Vec<u8> {
    let mut bytes = Vec::new();
    releases.save(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_resumed_mechanism_goes_on_with_the_same_bytes() {
    for strategy in strategies() {
        let dim = BLOCK + 40;
        let mut first = releases(strategy.clone(), dim);
        values(&mut first, 0..11);
        let bytes = saved(&first);
        let rest = values(&mut first, 11..24);
        for threads in [1, 3] {
            let mut second = releases(strategy.clone(), dim);
            second.load(&mut &bytes[..]).unwrap();
            assert_eq!(second.round(), 11);
            assert!(
                with_threads(threads, || values(&mut second, 11..24)) == rest,
                "{}",
                strategy.name()
            );
        }
        // Not where rounds would come a second time.
        let loaded = first.load(&mut &bytes[..]);
        says(loaded, "different round: expected 24 or later, got 11");
        let refused = first.privatize(11, average(dim, 100.0));
        assert_eq!(refused.unwrap_err(), MechanismError::Interrupted);
    }
}

/// A new key within one process makes the same noise as the same key after a save and a load.
#[test]
fn a_new_key_goes_on_as_after_a_load() {
    for strategy in strategies() {
        let dim = 40;
        let new = |key| {
            let target = ReleaseShape {
                history: Some(History::Keep),
                ..shape(dim)
            };
            CorrelatedGaussian::new(mechanism(strategy.clone(), 24), target, key).unwrap()
        };
        let second_key = || NoiseKey::from_bytes([77; 32]);
        let mut first = new(key());
        values(&mut first, 0..11);
        let bytes = saved(&first);
        first.rekey(second_key()).unwrap();
        let mut loaded = new(second_key());
        loaded.load_with_fresh_key(&mut &bytes[..]).unwrap();
        assert_eq!(first.key_id(), loaded.key_id());
        assert!(
            values(&mut first, 11..24) == values(&mut loaded, 11..24),
            "{}",
            strategy.name()
        );
    }
}

#[test]
fn a_seed_never_goes_on_after_keys_from_entropy() {
    let blt = strategies().remove(4);
    let mut releases = releases(blt, 8);
    let seed = || NoiseKey::from_bytes([5; 32]).with_origin(KeyOrigin::InsecureSeed);
    values(&mut releases, 0..2);
    says(releases.rekey(seed()), "origin of the key");
    assert_eq!(releases.key_id(), key().id().unwrap());
}

#[test]
fn a_foreign_state_is_refused_and_nothing_goes_on_after_it() {
    let bytes = saved(&releases(strategies().remove(4), 30));
    let check = |mut other: CorrelatedGaussian, bytes: &[u8], message: &str| {
        says(other.load(&mut &bytes[..]), message);
        let refused = other.privatize(0, average(other.shape.dim, 100.0));
        assert_eq!(refused.unwrap_err(), MechanismError::Interrupted);
        assert_eq!(other.save(&mut Vec::new()), Err(MechanismError::Interrupted));
        let again = CorrelatedGaussian::new(other.mechanism().clone(), other.shape, key()).unwrap();
        if other.load(&mut &saved(&again)[..]).is_ok() {
            values(&mut other, 0..1);
        }
    };
    let blt = |noise: f64, shape: ReleaseShape, key| {
        let mechanism = mechanism(strategies().remove(4), 24);
        let noise = NoiseMultiplier::new(noise).unwrap();
        let mechanism =
            Mechanism::new(mechanism.strategy().clone(), 24, mechanism.participation(), noise).unwrap();
        CorrelatedGaussian::new(mechanism, shape, key).unwrap()
    };
    let other = ReleaseShape {
        clip_norm: 0.02,
        ..shape(30)
    };
    let floored = ReleaseShape {
        denominator: Denominator::FlooredWeight(100.0),
        ..shape(30)
    };
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    let (same, other_key) = (|| blt(4.0, shape(30), key()), NoiseKey::from_bytes([4; 32]));
    let (differs, dimension) = ("different mechanism", "different dimension: expected 31, got 30");
    says(blt(4.0, floored, key()).load(&mut &bytes[..]), differs);
    for (other, bytes, message) in [
        (releases(strategies().remove(5), 30), &bytes[..], "element type"),
        (releases(strategies().remove(1), 30), &bytes, differs),
        (blt(4.1, shape(30), key()), &bytes, differs),
        (blt(4.0, other, key()), &bytes, differs),
        (blt(4.0, shape(31), key()), &bytes, dimension),
        (blt(4.0, shape(30), other_key), &bytes, "different key"),
        (same(), &bytes[..bytes.len() - 1], "ends too early"),
        (same(), &changed, "checksum"),
    ] {
        check(other, bytes, message);
    }
}

/// Rows of `Z` that rounds before `round` use: those that come after are made later.
fn rows_before(recurrence: &Recurrence, round: usize) -> usize {
    match recurrence {
        Recurrence::Tree { restarts } => Place::new(round, 0, restarts).leaf as usize,
        _ => round,
    }
}

/// Noise after a change of key is, by the definition of the matrix, that of rows under the first key up to the change and
/// under the second from then on.
#[test]
#[ignore = "slow"]
fn a_fresh_key_goes_on_with_the_law_of_the_matrix() {
    let (dim, change, fresh) = (40, 11, || NoiseKey::from_bytes([8; 32]));
    for strategy in strategies() {
        let shape = ReleaseShape {
            history: Some(History::Keep),
            ..shape(dim)
        };
        let new = |key| CorrelatedGaussian::new(mechanism(strategy.clone(), 24), shape, key).unwrap();
        let (mut first, mut second) = (new(key()), new(fresh()));
        values(&mut first, 0..change as u64);
        let bytes = saved(&first);
        second.load_with_fresh_key(&mut &bytes[..]).unwrap();
        assert_eq!(second.round(), change);
        let noise = values(&mut second, change as u64..24);

        let recurrence = strategy.recurrence(24).unwrap();
        let identity = Mechanism::new(
            Strategy::Independent(IdentityMatrix),
            48,
            Participation::single(),
            NoiseMultiplier::new(4.0).unwrap(),
        )
        .unwrap();
        let rows = |key, rounds| {
            let mut fresh = CorrelatedGaussian::new(identity.clone(), shape, key).unwrap();
            values(&mut fresh, rounds)
        };
        let split = rows_before(&recurrence, change) as u64;
        let mut z = rows(key(), 0..split);
        z.extend(rows(fresh(), 0..48).split_off(split as usize));
        for (t, (weights, noise)) in matrix(&recurrence, 24)
            .iter()
            .skip(change)
            .zip(&noise)
            .enumerate()
        {
            for c in 0..dim {
                let terms = weights
                    .iter()
                    .zip(&z)
                    .map(|(weight, z)| weight * (f64::from(z[c]) - 0.01));
                let exact: f64 = terms.clone().sum();
                let size: f64 = terms.map(f64::abs).sum();
                let error = (f64::from(noise[c]) - 0.01 - exact).abs();
                assert!(
                    error < 1e-6 * (size + 0.01),
                    "{}, round {t}: {error}",
                    strategy.name()
                );
            }
        }
        // Without a history the earlier rows would be made again, as other noise.
        let remade = ReleaseShape {
            history: Some(History::Remake),
            ..shape
        };
        if let Ok(mut remade) = CorrelatedGaussian::new(mechanism(strategy.clone(), 24), remade, fresh()) {
            let refused = remade.load_with_fresh_key(&mut &bytes[..]).unwrap_err();
            assert_eq!(refused, MechanismError::HistoryNotRemade);
            let refused = remade.privatize(0, average(dim, 100.0)).unwrap_err();
            assert_eq!(refused, MechanismError::Interrupted);
        }
    }
}

#[test]
fn a_seed_is_never_forgotten_and_never_takes_over() {
    let blt = || strategies().remove(4);
    let new = |key| CorrelatedGaussian::new(mechanism(blt(), 24), shape(9), key).unwrap();
    let mut secret = new(key());
    assert_eq!(secret.key_origin(), KeyOrigin::Entropy);
    values(&mut secret, 0..3);
    let mut seeded = new(NoiseKey::from_insecure_seed(1));
    assert_eq!(seeded.key_origin(), KeyOrigin::InsecureSeed);
    let message = "expected an insecure seed, got entropy";
    says(seeded.load_with_fresh_key(&mut &saved(&secret)[..]), message);
    let mut as_seed = new(key().with_origin(KeyOrigin::InsecureSeed));
    says(as_seed.load(&mut &saved(&secret)[..]), message);

    let mut seeded = new(NoiseKey::from_insecure_seed(1));
    values(&mut seeded, 0..3);
    let mut rescued = new(key());
    rescued.load_with_fresh_key(&mut &saved(&seeded)[..]).unwrap();
    assert_eq!(rescued.key_origin(), KeyOrigin::InsecureSeed);
    let mut again = new(key());
    again.load(&mut &saved(&rescued)[..]).unwrap();
    assert_eq!(again.key_origin(), KeyOrigin::InsecureSeed);
    let own = new(key()).load_with_fresh_key(&mut &saved(&secret)[..]);
    says(own, "a key that it was not made with");
}
