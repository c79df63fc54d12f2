//! The speed of a strategy's noise on this machine.

use std::time::Instant;

use undertone_mechanisms::{
    History, NoiseKey, NoiseStream, Recurrence, Strategy, StreamOptions, StreamShape,
};

use super::run::Run;

/// Largest memory of a stream that is timed.
const MAX_BYTES: u64 = 256 << 20;

/// Largest dimension that is timed.
const MAX_COORDINATES: u64 = 1 << 20;

/// Rounds that are timed: a pass over a long history serves sixteen.
const TIMED: usize = 16;

/// Seconds of a round of `dim` coordinates on all threads, at a late round, where the history is full.
///
/// Timed on fewer coordinates where `dim` is large, and scaled.
pub(super) fn seconds_per_round(strategy: &Strategy, run: &Run, dim: u64) -> anyhow::Result<f64> {
    let recurrence = strategy.recurrence(run.rounds)?;
    let history =
        matches!(recurrence, Recurrence::Taps { .. } | Recurrence::Dense { .. }).then_some(History::Remake);
    let kept = strategy.kept_vectors(run.rounds) as u64;
    let timed = (MAX_BYTES / (4 * (kept + 1)))
        .min(MAX_COORDINATES)
        .min(dim)
        .max(1);
    let shape = StreamShape {
        rounds: run.rounds,
        dim: usize::try_from(timed)?,
    };
    let options = StreamOptions {
        history,
        ..StreamOptions::default()
    };
    // The noise is thrown away: its key need not be secret.
    let mut stream = NoiseStream::new(&recurrence, shape, 1.0, NoiseKey::from_bytes([0; 32]), options)?;
    let mut row = vec![0.0; shape.dim];
    let filled = strategy
        .kept_vectors(run.rounds)
        .min(run.rounds.saturating_sub(TIMED));
    for _ in 0..filled {
        stream.next(&mut row)?;
    }
    let rounds = TIMED.min(run.rounds - filled);
    let start = Instant::now();
    for _ in 0..rounds {
        stream.next(&mut row)?;
    }
    Ok(start.elapsed().as_secs_f64() / rounds as f64 * (dim as f64 / timed as f64))
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;
    use undertone_mechanisms::{BandedToeplitz, InverseToeplitz, Tree};

    use super::*;

    #[test]
    fn every_recurrence_is_timed() {
        let run = Run::new(40, Participation::single()).unwrap();
        for strategy in [
            Strategy::Tree(Tree::new()),
            Strategy::BandedToeplitz(BandedToeplitz::fhu(7).unwrap()),
            Strategy::InverseToeplitz(InverseToeplitz::square_root(3).unwrap()),
        ] {
            let seconds = seconds_per_round(&strategy, &run, 5000).unwrap();
            assert!(seconds > 0.0 && seconds.is_finite());
        }
        let short = Run::new(1, Participation::single()).unwrap();
        assert!(seconds_per_round(&Strategy::Tree(Tree::new()), &short, 10).unwrap() >= 0.0);
    }
}
