//! The checked form of a recurrence, which streams run.

use sha2::{Digest, Sha256};

use crate::error::{MechanismError, Result, ensure, setting};
use crate::recurrence::Recurrence;
use crate::stream::engine::History;

/// The recipe of a round's noise: a checked [`Recurrence`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecurrenceProgram {
    /// Fresh noise alone.
    Identity,
    /// [`Recurrence::Buffers`].
    Buffers {
        complement: Vec<f64>,
        output: Vec<f64>,
        scale: Vec<f64>,
    },
    /// Fresh noise and a weighted sum of earlier vectors.
    History {
        weights: Weights,
        source: Source,
        scale: Vec<f64>,
    },
    /// [`Recurrence::Tree`]: Honaker's estimates.
    Tree { restarts: Vec<usize> },
    /// [`Recurrence::Blocks`].
    Blocks {
        leaves: usize,
        diagonal: Vec<f64>,
        /// Index at which the weights of each round begin.
        begins: Vec<usize>,
        weights: Vec<f64>,
    },
}

/// The earlier vectors that are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Outputs of earlier rounds, before the round's factor: `C` is banded.
    Outputs,
    /// Fresh noise of earlier rounds: `C^-1` is given.
    Fresh,
}

/// `value_t = lead(t) z_t + sum_{lag >= 1} later(t, lag) earlier_{t - lag}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Weights {
    /// Weights that are equal in every round.
    Toeplitz { lead: f64, later: Vec<f64> },
    /// Row `t` has `bands` numbers: the lead, then by lag.
    Rows { bands: usize, entries: Vec<f64> },
    /// The lower triangle, row after row.
    Lower { rounds: usize, entries: Vec<f64> },
}

impl Weights {
    /// Largest lag that can have a weight, plus one.
    pub(crate) fn bands(&self) -> usize {
        match self {
            Weights::Toeplitz { later, .. } => later.len() + 1,
            Weights::Rows { bands, .. } => *bands,
            Weights::Lower { rounds, .. } => *rounds,
        }
    }

    pub(crate) fn lead(&self, round: usize) -> f64 {
        match self {
            Weights::Toeplitz { lead, .. } => *lead,
            Weights::Rows { bands, entries } => entries[round * bands],
            Weights::Lower { entries, .. } => entries[round * (round + 1) / 2 + round],
        }
    }

    /// The weight of `round - lag`, for `1 <= lag < bands` and `lag <= round`.
    pub(crate) fn later(&self, round: usize, lag: usize) -> f64 {
        match self {
            Weights::Toeplitz { later, .. } => later[lag - 1],
            Weights::Rows { bands, entries } => entries[round * bands + lag],
            Weights::Lower { entries, .. } => entries[round * (round + 1) / 2 + round - lag],
        }
    }
}

impl RecurrenceProgram {
    /// Checks that every number a stream of `rounds` rounds needs is there and finite.
    pub(crate) fn new(recurrence: &Recurrence, rounds: usize) -> Result<Self> {
        ensure(rounds != 0, "rounds", "at least 1", 0.0)?;
        Ok(match recurrence {
            Recurrence::Identity => RecurrenceProgram::Identity,
            Recurrence::Buffers {
                decay_complement,
                output,
                scale,
            } => {
                all(decay_complement, "decay complement", "in [0, 1]", |value| {
                    (0.0..=1.0).contains(&value)
                })?;
                finite(output, "output weight")?;
                enough(output, "number of output weights", decay_complement.len())?;
                RecurrenceProgram::Buffers {
                    complement: decay_complement.clone(),
                    output: output[..decay_complement.len()].to_vec(),
                    scale: factors(scale, rounds)?,
                }
            }
            Recurrence::Bands { coefficients, scale } | Recurrence::Taps { coefficients, scale } => {
                finite(coefficients, "coefficient")?;
                let first = coefficients.first().copied().unwrap_or(0.0);
                ensure(first != 0.0, "first coefficient", "not 0", first)?;
                let rest = &coefficients[1..coefficients.len().min(rounds)];
                let (source, lead, later) = match recurrence {
                    Recurrence::Taps { .. } => (Source::Fresh, first, rest.to_vec()),
                    _ => {
                        let later = rest.iter().map(|c| -c / first).collect();
                        (Source::Outputs, first.recip(), later)
                    }
                };
                RecurrenceProgram::History {
                    weights: Weights::Toeplitz { lead, later },
                    source,
                    scale: factors(scale, rounds)?,
                }
            }
            Recurrence::Rows { bands, entries } => rows(*bands, entries, rounds)?,
            Recurrence::Dense {
                rounds: available,
                entries,
            } => {
                let (holds, expected) = (*available >= rounds, "at least the number of rounds");
                ensure(holds, "rows of the matrix", expected, *available as f64)?;
                let length = rounds * (rounds + 1) / 2;
                enough(entries, "entries of the matrix", length)?;
                let entries = &entries[..length];
                finite(entries, "entry of the matrix")?;
                let diagonal = |t: usize| entries[t * (t + 1) / 2 + t];
                all_rounds(rounds, diagonal)?;
                RecurrenceProgram::History {
                    weights: Weights::Lower {
                        rounds,
                        entries: entries.to_vec(),
                    },
                    source: Source::Fresh,
                    scale: Vec::new(),
                }
            }
            Recurrence::Tree { restarts } => {
                let ordered = restarts.windows(2).all(|pair| pair[0] < pair[1]);
                let (holds, got) = (ordered && restarts.first() != Some(&0), restarts.len() as f64);
                ensure(holds, "rounds of restarts", "increasing, from 1 on", got)?;
                RecurrenceProgram::Tree {
                    restarts: restarts.clone(),
                }
            }
            Recurrence::Blocks {
                leaves,
                diagonal,
                weights,
            } => blocks(*leaves, diagonal, weights, rounds)?,
        })
    }

    /// Returns true if memory holds everything that later rounds need of earlier ones, as requested. Without a request
    /// it does, except for whole matrices, whose history is the run.
    ///
    /// # Errors
    /// [`MechanismError::HistoryNotRemade`] where it cannot be made again from keys.
    pub(crate) fn keeps(&self, history: Option<History>) -> Result<bool> {
        let remakes = matches!(
            self,
            RecurrenceProgram::Tree { .. }
                | RecurrenceProgram::History {
                    source: Source::Fresh,
                    ..
                }
        );
        let whole = matches!(
            self,
            RecurrenceProgram::History {
                weights: Weights::Lower { .. },
                ..
            }
        );
        match history {
            Some(History::Remake) if !remakes => Err(MechanismError::HistoryNotRemade),
            Some(history) => Ok(history == History::Keep),
            None => Ok(!whole),
        }
    }

    /// Vectors that a round of a run of `rounds` looks back on at most.
    pub(crate) fn look_back(&self, rounds: usize) -> usize {
        match self {
            RecurrenceProgram::History { weights, .. } => weights.bands().min(rounds) - 1,
            _ => 0,
        }
    }

    /// Everything in the program, for telling programs apart.
    pub(crate) fn hash(&self, hash: &mut Sha256) {
        let mut numbers = |values: &[f64]| {
            hash.update((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| hash.update(value.to_le_bytes()));
        };
        match self {
            RecurrenceProgram::Identity => numbers(&[0.0]),
            RecurrenceProgram::Buffers {
                complement,
                output,
                scale,
            } => {
                numbers(&[1.0]);
                [complement, output, scale]
                    .into_iter()
                    .for_each(|values| numbers(values));
            }
            RecurrenceProgram::History {
                weights,
                source,
                scale,
            } => {
                numbers(&[2.0, f64::from(u8::from(*source == Source::Fresh))]);
                match weights {
                    Weights::Toeplitz { lead, later } => {
                        numbers(&[0.0, *lead]);
                        numbers(later);
                    }
                    Weights::Rows { bands, entries } => {
                        numbers(&[1.0, *bands as f64]);
                        numbers(entries);
                    }
                    Weights::Lower { rounds, entries } => {
                        numbers(&[2.0, *rounds as f64]);
                        numbers(entries);
                    }
                }
                numbers(scale);
            }
            RecurrenceProgram::Tree { restarts } => {
                numbers(&[3.0]);
                numbers(&restarts.iter().map(|&round| round as f64).collect::<Vec<_>>());
            }
            RecurrenceProgram::Blocks {
                leaves,
                diagonal,
                weights,
                ..
            } => {
                numbers(&[4.0, *leaves as f64]);
                [diagonal, weights].into_iter().for_each(|values| numbers(values));
            }
        }
    }

    /// The factor of a round's output; 1 where the program has none.
    pub(crate) fn scale(&self, round: usize) -> f64 {
        match self {
            RecurrenceProgram::Buffers { scale, .. } | RecurrenceProgram::History { scale, .. } => {
                scale.get(round).copied().unwrap_or(1.0)
            }
            _ => 1.0,
        }
    }
}

/// Rows of a banded `C` as the weights of its inverse's recurrence.
fn rows(bands: usize, entries: &[f64], rounds: usize) -> Result<RecurrenceProgram> {
    ensure(bands != 0, "bands", "at least 1", 0.0)?;
    let length = rounds
        .checked_mul(bands)
        .ok_or_else(|| setting("bands", "fewer", bands as f64))?;
    enough(entries, "entries of the matrix", length)?;
    let entries = &entries[..length];
    finite(entries, "entry of the matrix")?;
    all_rounds(rounds, |t| entries[t * bands])?;
    let row = |row: &[f64]| {
        let diagonal = row[0];
        let later = row[1..].iter().map(move |entry| -entry / diagonal);
        std::iter::once(diagonal.recip())
            .chain(later)
            .collect::<Vec<f64>>()
    };
    Ok(RecurrenceProgram::History {
        weights: Weights::Rows {
            bands,
            entries: entries.chunks_exact(bands).flat_map(row).collect(),
        },
        source: Source::Outputs,
        scale: Vec::new(),
    })
}

fn blocks(leaves: usize, diagonal: &[f64], weights: &[f64], rounds: usize) -> Result<RecurrenceProgram> {
    let holds = leaves.is_power_of_two();
    ensure(holds, "leaves", "a power of two", leaves as f64)?;
    enough(diagonal, "diagonal factors", rounds)?;
    let diagonal = &diagonal[..rounds];
    finite(diagonal, "diagonal factor")?;
    all_rounds(rounds, |t| diagonal[t])?;
    let mut begins = Vec::with_capacity(rounds);
    let mut begin = 0;
    for t in 0..rounds {
        begins.push(begin);
        begin += (t % leaves).count_ones() as usize;
    }
    enough(weights, "block weights", begin)?;
    finite(weights, "block weight")?;
    Ok(RecurrenceProgram::Blocks {
        leaves,
        diagonal: diagonal.to_vec(),
        begins,
        weights: weights[..begin].to_vec(),
    })
}

/// One factor per round, all positive; empty stays empty.
fn factors(scale: &[f64], rounds: usize) -> Result<Vec<f64>> {
    if scale.is_empty() {
        return Ok(Vec::new());
    }
    enough(scale, "number of round factors", rounds)?;
    all(scale, "round factor", "positive and finite", |value| {
        value > 0.0 && value.is_finite()
    })?;
    Ok(scale[..rounds].to_vec())
}

/// Diagonal entries that can be divided by.
fn all_rounds(rounds: usize, diagonal: impl Fn(usize) -> f64) -> Result<()> {
    match (0..rounds).map(diagonal).find(|entry| *entry == 0.0) {
        Some(got) => Err(setting("diagonal entry", "not 0", got)),
        None => Ok(()),
    }
}

fn finite(values: &[f64], name: &'static str) -> Result<()> {
    all(values, name, "finite", f64::is_finite)
}

fn all(values: &[f64], name: &'static str, expected: &'static str, test: impl Fn(f64) -> bool) -> Result<()> {
    match values.iter().copied().find(|&value| !test(value)) {
        Some(got) => Err(setting(name, expected, got)),
        None => Ok(()),
    }
}

fn enough(values: &[f64], name: &'static str, min: usize) -> Result<()> {
    let (got, expected) = (values.len(), "at least as many as the rounds need");
    ensure(got >= min, name, expected, got as f64)?;
    Ok(())
}
