use super::engine::History;
use super::reference::{SAMPLE_ROUNDS, bands, buffers, check_covariance, matrix, samples, taps};
use super::*;
use crate::testing::{says, with_threads};

const BLOCK: usize = crate::sampler::gaussian32::BLOCK;

fn key() -> NoiseKey {
    NoiseKey::from_bytes([3; 32])
}

fn stream(recurrence: &Recurrence, rounds: usize, dim: usize, options: StreamOptions) -> NoiseStream {
    NoiseStream::new(recurrence, StreamShape { rounds, dim }, 1.0, key(), options).unwrap()
}

/// The recurrence of [`samples`] of this name.
fn sample(name: &str) -> Recurrence {
    let found = samples().into_iter().find(|(other, _)| *other == name);
    found.unwrap().1
}

fn rows(stream: &mut NoiseStream, count: usize) -> Vec<Vec<f32>> {
    let mut row = vec![0.0; stream.shape.dim];
    (0..count)
        .map(|_| {
            stream.next(&mut row).unwrap();
            row.clone()
        })
        .collect()
}

/// Rows of `Z`.
fn identity(count: usize, dim: usize) -> Vec<Vec<f32>> {
    let options = StreamOptions::default();
    rows(&mut stream(&Recurrence::Identity, count, dim, options), count)
}

fn all_options() -> Vec<StreamOptions> {
    let mut all = Vec::new();
    for history in [None, Some(History::Keep), Some(History::Remake)] {
        for look_ahead in [None, Some(true), Some(false)] {
            all.push(StreamOptions {
                history,
                look_ahead,
                cumulative: false,
            });
        }
    }
    all
}

/// Every recurrence with every option that suits it.
fn each(mut test: impl FnMut(&str, &Recurrence, StreamOptions)) {
    for (name, recurrence) in samples() {
        for options in all_options() {
            let shape = StreamShape { rounds: 1, dim: 1 };
            match NoiseStream::new(&recurrence, shape, 1.0, key(), options) {
                Ok(_) => test(name, &recurrence, options),
                Err(error) => {
                    assert_eq!(error, MechanismError::HistoryNotRemade);
                    assert_eq!(options.history, Some(History::Remake));
                }
            }
        }
    }
}

/// Largest difference between a stream and `matrix * Z`, whose rows come from the stream of the identity.
fn difference(recurrence: &Recurrence, rounds: usize, dim: usize, options: StreamOptions) -> f64 {
    let z = identity(2 * rounds, dim);
    let noise = rows(&mut stream(recurrence, rounds, dim, options), rounds);
    let mut largest = 0.0f64;
    let mut expected = vec![0.0; dim];
    for (weights, noise) in matrix(recurrence, rounds).iter().zip(&noise) {
        expected.fill(0.0);
        for (weight, z) in weights.iter().zip(&z).filter(|(weight, _)| **weight != 0.0) {
            for (expected, z) in expected.iter_mut().zip(z) {
                *expected += weight * f64::from(*z);
            }
        }
        for (noise, expected) in noise.iter().zip(&expected) {
            largest = largest.max((f64::from(*noise) - expected).abs());
        }
    }
    largest
}

#[test]
fn rows_are_those_of_the_matrix() {
    each(|name, recurrence, options| {
        let difference = difference(recurrence, SAMPLE_ROUNDS, 70, options);
        assert!(difference < 5e-6, "{name}, {options:?}: {difference}");
    });
}

#[test]
#[ignore = "slow"]
fn errors_do_not_grow_over_thousands_of_rounds() {
    // Decays as of the optimum at 2000 rounds, the largest so near 1 that an f32 theta would be 1.
    let decays = vec![1e-11, 0.004, 0.05, 0.4];
    let buffers = buffers(decays, vec![0.03, 0.06, 0.12, 0.25], vec![]);
    let tree = Recurrence::Tree { restarts: vec![] };
    let root = |i| 1.0 / (1.0 + f64::from(i)).sqrt();
    let bands = bands((0..100).map(root).collect(), vec![]);
    for (recurrence, rounds) in [(buffers, 2000), (tree, 700), (bands, 1500)] {
        let difference = difference(&recurrence, rounds, 24, StreamOptions::default());
        assert!(difference < 1e-5, "{recurrence:?}: {difference}");
    }
}

#[test]
#[ignore = "slow"]
fn bytes_do_not_depend_on_threads() {
    each(|name, recurrence, options| {
        let run = |threads: usize| {
            with_threads(threads, || {
                rows(&mut stream(recurrence, 20, 2 * BLOCK + 77, options), 20)
            })
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3), "{name}, {options:?}");
        assert!(
            one[3][..50] == rows(&mut stream(recurrence, 20, 50, options), 4)[3],
            "{name}"
        );
    });
}

#[test]
#[ignore = "slow"]
fn a_resumed_stream_goes_on_with_the_same_bytes() {
    each(|name, recurrence, options| {
        for (cumulative, begun) in [(false, 19), (true, 33)] {
            let options = StreamOptions {
                cumulative,
                ..options
            };
            let dim = BLOCK + 130;
            let fresh = || stream(recurrence, SAMPLE_ROUNDS, dim, options);
            let mut first = fresh();
            rows(&mut first, 3);
            first.restart();
            rows(&mut first, begun - 3);
            let mut bytes = Vec::new();
            first.save(&mut bytes).unwrap();
            let mut second = fresh();
            second.load(&mut &bytes[..]).unwrap();
            assert_eq!(second.round(), begun);
            let rest = with_threads(3, || rows(&mut second, 21));
            assert!(rest == rows(&mut first, 21), "{name}, {options:?}");
        }
    });
}

#[test]
fn a_foreign_state_is_refused_by_name() {
    let (taps, buffers) = (&sample("scaled taps"), &sample("buffers"));
    let options = StreamOptions::default();
    let mut bytes = Vec::new();
    let mut saved = stream(buffers, 9, 30, options);
    rows(&mut saved, 4);
    saved.save(&mut bytes).unwrap();
    let check = |recurrence: &Recurrence, dim, rounds, std, key, bytes: &[u8], message: &str| {
        let make = || {
            let key = NoiseKey::from_bytes([key; 32]);
            NoiseStream::new(recurrence, StreamShape { rounds, dim }, std, key, options).unwrap()
        };
        let mut stream = make();
        rows(&mut stream, 2);
        says(stream.load(&mut &bytes[..]), message);
        // It is as new, and makes the first round's noise.
        assert_eq!(rows(&mut stream, 5), rows(&mut make(), 5));
    };
    check(taps, 30, 9, 1.0, 3, &bytes, "different mechanism");
    check(buffers, 30, 8, 1.0, 3, &bytes, "different mechanism");
    check(buffers, 30, 9, 2.0, 3, &bytes, "different mechanism");
    let message = "different dimension: expected 31, got 30";
    check(buffers, 31, 9, 1.0, 3, &bytes, message);
    check(buffers, 30, 9, 1.0, 4, &bytes, "different key");
    check(buffers, 30, 9, 1.0, 3, &bytes[..200], "ends too early");
    let mut changed = bytes.clone();
    changed[150] ^= 1;
    check(buffers, 30, 9, 1.0, 3, &changed, "checksum");
    changed[8] = 9;
    let message = "different version: expected 2, got 9";
    check(buffers, 30, 9, 1.0, 3, &changed, message);
}

#[test]
fn cumulative_noise_is_the_running_sum() {
    each(|name, recurrence, options| {
        let cumulative = StreamOptions {
            cumulative: true,
            ..options
        };
        let residual = rows(&mut stream(recurrence, 30, 90, options), 30);
        let sums = rows(&mut stream(recurrence, 30, 90, cumulative), 30);
        let mut sum = vec![0.0f32; 90];
        for (row, expected) in residual.iter().zip(&sums) {
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            assert_eq!(&sum, expected, "{name}");
        }
    });
}

#[test]
fn a_restart_forgets_and_brings_fresh_noise() {
    each(|name, recurrence, options| {
        // What is Toeplitz starts again from its first row, with noise of later rows of Z.
        let toeplitz = ["identity", "buffers", "bands", "two taps", "tree"];
        if !toeplitz.contains(&name) {
            return;
        }
        let (rounds, dim, begin) = (20, 40, 6);
        let mut restarted = stream(recurrence, begin + rounds, dim, options);
        let before = rows(&mut restarted, begin);
        restarted.restart();
        let after = rows(&mut restarted, rounds);
        let count = 2 * (begin + rounds);
        let z = identity(count, dim);
        let first = if name == "tree" { 2 * begin } else { begin };
        for (t, weights) in matrix(recurrence, rounds).iter().enumerate() {
            for c in 0..dim {
                let terms = weights.iter().zip(&z[first..]);
                let expected: f64 = terms.map(|(weight, z)| weight * f64::from(z[c])).sum();
                assert!(
                    (f64::from(after[t][c]) - expected).abs() < 5e-6,
                    "{name}, {options:?}, {t}"
                );
            }
        }
        assert_eq!(
            before,
            rows(&mut stream(recurrence, begin + rounds, dim, options), begin)
        );
    });
}

#[test]
fn rows_of_the_callers_go_the_same_way() {
    each(|name, recurrence, options| {
        let mut given = stream(recurrence, 30, 60, options);
        let mut own = stream(recurrence, 30, 60, options);
        let mut identity = stream(&Recurrence::Identity, 30, 60, StreamOptions::default());
        for (t, row) in rows(&mut own, 30).into_iter().enumerate() {
            let mut z = rows(&mut identity, 1).remove(0);
            match given.correlate(&mut z) {
                Ok(()) => assert_eq!(z, row, "{name}, {options:?}, {t}"),
                Err(error) => {
                    assert_eq!(error, MechanismError::HistoryNotRemade);
                    assert!(name.starts_with("tree") || !matches!(options.history, Some(History::Keep)));
                    assert!(t > 0);
                    return;
                }
            }
        }
    });
}

#[test]
fn covariance_over_rounds_is_that_of_the_matrix() {
    for (name, recurrence) in samples() {
        let mut stream = stream(&recurrence, 8, 60_000, StreamOptions::default());
        let wide = |row: Vec<f32>| row.into_iter().map(f64::from).collect();
        let noise: Vec<Vec<f64>> = rows(&mut stream, 8).into_iter().map(wide).collect();
        check_covariance(name, &recurrence, &noise);
    }
}

#[test]
fn coordinates_are_independent() {
    // Neighbours, coordinates half a block apart and whole blocks apart, in the last of 20 rounds: 14 * 4 correlations
    // beyond 5.8 sigmas with probability 7e-9 each: false-alarm rate 4e-7.
    let dim = 6 * BLOCK;
    for (name, recurrence) in samples() {
        let row = rows(&mut stream(&recurrence, 20, dim, StreamOptions::default()), 20).remove(19);
        let variance = row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / dim as f64;
        for shift in [1, BLOCK / 2, BLOCK, 2 * BLOCK] {
            let products = row[shift..]
                .iter()
                .zip(&row)
                .map(|(a, b)| f64::from(*a) * f64::from(*b));
            let sigmas = products.sum::<f64>() / variance / ((dim - shift) as f64).sqrt();
            assert!(sigmas.abs() < 5.8, "{name}, {shift} apart: {sigmas}");
        }
    }
}

#[test]
fn memory_is_as_promised() {
    let kept = |name: &str, options| stream(&sample(name), SAMPLE_ROUNDS, 10, options).kept_vectors();
    let none = StreamOptions {
        history: Some(History::Remake),
        ..StreamOptions::default()
    };
    let default = StreamOptions::default();
    for (name, options, vectors) in [
        ("identity", default, 0),
        ("buffers", default, 4),
        ("bands", default, 4),
        ("wide rows", default, 39),
        ("two taps", default, 1),
        ("two taps", none, 0),
        ("tree", default, 7),
        ("tree", none, 0),
        ("blocks", default, 5),
        ("dense", default, 0),
    ] {
        assert_eq!(kept(name, options), vectors, "{name}, {options:?}");
    }
}

#[test]
fn recurrences_with_missing_or_infinite_numbers_are_refused() {
    let shape = StreamShape { rounds: 4, dim: 3 };
    let make = |recurrence: &Recurrence, std| {
        NoiseStream::new(recurrence, shape, std, key(), StreamOptions::default())
    };
    for std in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(make(&Recurrence::Identity, std).is_err());
    }
    let rows_of = |bands, entries| Recurrence::Rows { bands, entries };
    let dense = |rounds, entries| Recurrence::Dense { rounds, entries };
    let blocks = |leaves, weights| Recurrence::Blocks {
        leaves,
        diagonal: vec![1.0; 4],
        weights,
    };
    let bad = [
        bands(vec![], vec![]),
        bands(vec![0.0, 1.0], vec![]),
        taps(vec![1.0, f64::NAN], vec![]),
        taps(vec![1.0], vec![1.0; 3]),
        taps(vec![1.0], vec![0.0; 4]),
        buffers(vec![1.1], vec![0.1], vec![]),
        buffers(vec![0.1, 0.2], vec![0.1], vec![]),
        rows_of(2, vec![1.0; 7]),
        rows_of(0, vec![]),
        rows_of(1, vec![1.0, 1.0, 0.0, 1.0]),
        dense(3, vec![1.0; 6]),
        dense(4, vec![1.0; 9]),
        Recurrence::Tree { restarts: vec![2, 2] },
        Recurrence::Tree { restarts: vec![0] },
        blocks(3, vec![1.0; 9]),
        blocks(4, vec![1.0; 3]),
    ];
    for recurrence in &bad {
        assert!(make(recurrence, 1.0).is_err(), "{recurrence:?}");
    }
    let mut stream = make(&Recurrence::Identity, 1.0).unwrap();
    let error = stream.next(&mut [0.0; 4]).unwrap_err();
    assert_eq!(error, MechanismError::WrongDimension { expected: 3, got: 4 });
    rows(&mut stream, 4);
    let error = stream.next(&mut [0.0; 3]).unwrap_err();
    assert_eq!(error, MechanismError::NoMoreRounds { rounds: 4 });
    let none = StreamShape { rounds: 0, dim: 3 };
    let options = StreamOptions::default();
    assert!(NoiseStream::new(&Recurrence::Identity, none, 1.0, key(), options).is_err());
    let large = StreamShape {
        rounds: 4,
        dim: usize::MAX / 2,
    };
    assert!(NoiseStream::new(&sample("buffers"), large, 1.0, key(), options).is_err());
}

/// Rows that are added are the rows that are written, for whole and cut blocks, cumulative or not, in turns.
#[test]
#[ignore = "slow"]
fn added_rows_are_the_rows_that_are_written() {
    for dim in [1, BLOCK, 2 * BLOCK + 77] {
        each(|name, recurrence, options| {
            for cumulative in [false, true] {
                let options = StreamOptions {
                    cumulative,
                    ..options
                };
                let mut written = stream(recurrence, 6, dim, options);
                let mut added = stream(recurrence, 6, dim, options);
                let (mut row, mut sum) = (vec![0.0; dim], vec![0.0f32; dim]);
                for round in 0..6 {
                    written.next(&mut row).unwrap();
                    if round == 2 {
                        added.next(&mut sum).unwrap();
                        assert_eq!(sum, row, "{name}");
                        continue;
                    }
                    sum.iter_mut().for_each(|value| *value = 0.5 * *value + 1.0);
                    let want: Vec<f32> = sum.iter().zip(&row).map(|(sum, row)| sum + row).collect();
                    added.add_next(&mut sum).unwrap();
                    assert_eq!(sum, want, "{name}");
                }
                assert!(added.add_next(&mut sum).is_err());
            }
        });
    }
    let mut stream = stream(&Recurrence::Identity, 2, 5, StreamOptions::default());
    assert!(stream.add_next(&mut [0.0; 4]).is_err());
    assert_eq!(stream.round(), 0);
}
