//! Integer recurrences against the proof of their rounding.

use super::arithmetic::tests::random;
use super::step::estimate;
use super::*;
use crate::mechanism::slack;
use crate::stream::reference::{SAMPLE_ROUNDS, matrix, samples};

/// A recurrence on one coordinate whose fresh noise the test chooses.
struct Replay {
    rounded: Rounded,
    integers: Vec<i64>,
    reals: Vec<f64>,
    fresh: Vec<i64>,
}

impl Replay {
    fn new(program: RecurrenceProgram, rounds: usize, steps: f64) -> Self {
        let bits = slack::bound(&program, rounds, steps).unwrap().fraction_bits;
        let rounded = Rounded::new(program, rounds, 1, steps, bits, Some(History::Keep)).unwrap();
        let slots = rounded.kept_vectors();
        Self {
            rounded,
            integers: vec![0; slots],
            reals: vec![0.0; slots],
            fresh: Vec::new(),
        }
    }

    /// The noise of the next round for this fresh noise, without moving on.
    fn try_noise(&self, fresh: i64) -> (i64, Vec<i64>, Vec<f64>) {
        let round = self.fresh.len();
        let (mut integers, mut reals) = (self.integers.clone(), self.reals.clone());
        let mut noise = [0];
        let mut make = |row: u64, out: &mut [i64]| {
            out[0] = self.fresh.get(row as usize).copied().unwrap_or(fresh);
            Ok(())
        };
        let step = self.rounded.step(round);
        let (mut spare, mut space) = (vec![0; 2 * BLOCK], vec![0.0; 2 * BLOCK]);
        match self.rounded.memory {
            Memory::Integers(_) => step.integers(
                round as u64,
                &mut noise,
                &mut integers,
                true,
                &mut spare,
                &mut make,
            ),
            Memory::Reals(_) => step.reals(
                round as u64,
                &mut noise,
                &mut reals,
                &mut space,
                &mut spare,
                &mut make,
            ),
        }
        .unwrap();
        (noise[0], integers, reals)
    }

    fn push(&mut self, fresh: i64) -> i64 {
        let (noise, integers, reals) = self.try_noise(fresh);
        (self.integers, self.reals) = (integers, reals);
        self.fresh.push(fresh);
        noise
    }

    /// Chooses the fresh noise so that the round's noise is this.
    fn push_noise(&mut self, noise: i64) -> i64 {
        let (rest, ..) = self.try_noise(0);
        self.push(noise - rest);
        assert_eq!(self.try_noise_of_last(), noise);
        noise - rest
    }

    fn try_noise_of_last(&self) -> i64 {
        let mut again = Replay::new(
            self.rounded.program.clone(),
            self.rounded.rounds,
            self.rounded.steps,
        );
        self.fresh.iter().map(|&fresh| again.push(fresh)).last().unwrap()
    }
}

/// The exact move of fresh noise between neighbours with equal releases, against the move without rounding.
#[test]
#[ignore = "slow"]
fn neighbours_move_the_fresh_noise_by_no_more_than_the_slack() {
    let rounds = SAMPLE_ROUNDS;
    let mut seed = 7;
    let mut largest_share = 0.0f64;
    for (name, recurrence) in samples() {
        if matches!(recurrence, crate::recurrence::Recurrence::Tree { .. }) {
            continue;
        }
        let program = RecurrenceProgram::new(&recurrence, rounds).unwrap();
        let inverse = matrix(&recurrence, rounds);
        for exponent in [12, 30, 43] {
            let steps = f64::from(exponent).exp2();
            let bound = slack::bound(&program, rounds, steps)
                .unwrap()
                .squared_per_coordinate
                .sqrt();
            for moved_by in [0.0, 1.5, 1e-3 * steps, steps] {
                let (mut one, mut two) = (
                    Replay::new(program.clone(), rounds, steps),
                    Replay::new(program.clone(), rounds, steps),
                );
                // z = C d, by forward substitution in the rows of C^-1.
                let (mut z, mut squared): (Vec<f64>, f64) = (Vec::new(), 0.0);
                for (t, row) in inverse.iter().enumerate() {
                    let factor = fresh_factor(&program, t);
                    let fresh = (3.0 * steps * factor * random(&mut seed)) as i64;
                    let difference = (moved_by * random(&mut seed)) as i64;
                    let noise = one.push(fresh);
                    let other = two.push_noise(noise - difference);
                    let earlier: f64 = row.iter().zip(&z).map(|(weight, z)| weight * z).sum();
                    z.push((difference as f64 - earlier) / row[t]);
                    let rounding = (fresh - other) as f64 / factor * row[t].signum() - z[t];
                    squared += rounding * rounding;
                }
                let arithmetic = 1e-13 * moved_by * rounds as f64;
                assert!(
                    squared.sqrt() <= bound + arithmetic,
                    "{name}, 2^{exponent} steps, moved by {moved_by}: {} beyond {bound}",
                    squared.sqrt()
                );
                largest_share = largest_share.max(squared.sqrt() / bound);
            }
        }
    }
    // The bound is of the right size: some recurrence comes near it.
    assert!(largest_share > 0.3, "{largest_share}");
}

/// Estimates from noised node sums are the sums plus the estimates from the noise alone.
#[test]
fn trees_are_post_processing_of_node_sums() {
    let rounds = 45;
    let program = RecurrenceProgram::new(
        &crate::recurrence::Recurrence::Tree { restarts: vec![19] },
        rounds,
    )
    .unwrap();
    let mut seed = 3;
    let averages: Vec<i64> = (0..rounds).map(|_| (1e9 * random(&mut seed)) as i64).collect();
    let noises: Vec<i64> = (0..2 * rounds)
        .map(|_| (1e6 * random(&mut seed)) as i64)
        .collect();
    let run = |with_sums: bool| {
        let rounded = Rounded::new(program.clone(), rounds, 1, 1e6, 0, Some(History::Keep)).unwrap();
        let mut slots = vec![0; rounded.kept_vectors()];
        let mut results = Vec::new();
        for round in 0..rounds {
            let Step::Tree { place } = rounded.step(round) else {
                panic!("not a tree")
            };
            let mut make = |row: u64, out: &mut [i64]| {
                let height = (row - place.leaf) as usize;
                let below = &averages[round + 1 - (1 << height)..=round];
                let sum: i64 = if with_sums { below.iter().sum() } else { 0 };
                out[0] = noises[row as usize] + sum;
                Ok(())
            };
            let mut noise = [0];
            estimate(place, &mut noise, &mut slots, &mut vec![0; 2 * BLOCK], &mut make).unwrap();
            results.push(noise[0]);
        }
        results
    };
    let released: Vec<i64> = run(false)
        .iter()
        .zip(&averages)
        .map(|(noise, average)| noise + average)
        .collect();
    assert_eq!(released, run(true));
}
