//! The exact sensitivity of a ledger: over the sets of rounds in which its users took part, instead of all sets that a schema
//! admits.

use std::collections::HashMap;

use undertone_accounting::sensitivity::{SquaredSensitivity, restart};
use undertone_mechanisms::{CertifiedSensitivity, Mechanism, MechanismError, Strategy, TreeLayout, toeplitz};

use super::{ParticipantId, Violation};
use crate::error::{CoordinatorError, Result};

/// Rounds up to which all inner products of columns are kept: 256 MiB at this number. Beyond, sums of columns are formed
/// anew for every user, which takes longer and bounds matrices with negative entries less tightly.
const MAX_PRODUCTS: usize = 8192;

/// The rounds of each user. Memory is proportional to the number of participations, eight bytes each at the peak.
///
/// # Example
/// ```
/// use undertone_coordinator::participation::{ParticipantId, exact::ParticipationSets};
///
/// let [a, b] = [ParticipantId::new(1), ParticipantId::new(2)];
/// let mut sets = ParticipationSets::new();
/// sets.record(0, &[a])?;
/// sets.record(4, &[b, a])?;
/// let grouped = sets.by_user();
/// assert_eq!(grouped.iter().collect::<Vec<_>>(), [&[0, 4][..], &[4]]);
/// # Ok::<(), undertone_coordinator::participation::Violation>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ParticipationSets {
    index: HashMap<ParticipantId, u32>,
    /// A round, and its users by their index.
    rounds: Vec<(u32, Vec<u32>)>,
    /// Participations of each user.
    counts: Vec<u32>,
}

impl ParticipationSets {
    /// No rounds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a round.
    ///
    /// # Errors
    /// [`Violation`] for a round that is not later than the last one, beyond what 32 bits count, or that names a user
    /// twice; nothing is recorded then.
    pub fn record(&mut self, round: u64, cohort: &[ParticipantId]) -> Result<(), Violation> {
        if let Some(&(last, _)) = self.rounds.last().filter(|(last, _)| round <= u64::from(*last)) {
            let last = u64::from(last);
            return Err(Violation::OutOfOrder { round, last });
        }
        let limit = u64::from(u32::MAX);
        let number = u32::try_from(round).map_err(|_| Violation::TooManyRounds { round, limit })?;
        super::observed::check_distinct(round, cohort)?;
        let mut users = Vec::with_capacity(cohort.len());
        for &pseudonym in cohort {
            let next = self.index.len() as u32;
            let user = *self.index.entry(pseudonym).or_insert(next);
            if user == next {
                self.counts.push(0);
            }
            self.counts[user as usize] += 1;
            users.push(user);
        }
        self.rounds.push((number, users));
        Ok(())
    }

    /// The rounds grouped by user.
    #[must_use]
    pub fn by_user(self) -> RoundsByUser {
        let Self { rounds, counts, .. } = self;
        let mut starts = Vec::with_capacity(counts.len() + 1);
        let mut total = 0usize;
        for count in counts {
            starts.push(total);
            total += count as usize;
        }
        let mut by_user = vec![0; total];
        // Where the user's next round goes; at the end, where the next user begins.
        for (round, users) in rounds {
            for user in users {
                let place = &mut starts[user as usize];
                by_user[*place] = round;
                *place += 1;
            }
        }
        RoundsByUser {
            ends: starts,
            rounds: by_user,
        }
    }
}

/// The rounds of every user, ascending; users in the order in which they first took part.
#[derive(Debug, Clone)]
pub struct RoundsByUser {
    ends: Vec<usize>,
    rounds: Vec<u32>,
}

impl RoundsByUser {
    /// The set of rounds of each user.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let set = &self.rounds[start..end];
            start = end;
            set
        })
    }
}

/// The largest squared norm that one of the users can move the run of this mechanism by, given the rounds that each took
/// part in.
///
/// # Guarantee
/// The result holds for every user of the ledger, under the zero-out relation. It is never below the true value, and exact
/// where no two columns of the matrix have a negative inner product (all of the library's strategies except explicit
/// matrices). It is never above the sensitivity of a schema that all users kept to, except by rounding.
///
/// # Errors
/// [`CoordinatorError::ConfigValue`] for a round beyond those of the mechanism; from the mechanism.
pub fn exact_squared_sensitivity(
    mechanism: &Mechanism,
    rounds_made: u64,
    sets: &RoundsByUser,
) -> Result<CertifiedSensitivity> {
    let norm = SetNorm::new(mechanism.strategy(), rounds_made, mechanism.rounds())?;
    let mut max = 0.0f64;
    let mut scratch = Vec::new();
    for set in sets.iter() {
        let squared = norm.squared(set, &mut scratch)?;
        // PRIVACY: a NaN is kept, and refused below.
        if squared.is_nan() || squared > max {
            max = squared;
        }
    }
    let squared = SquaredSensitivity::new(max)?;
    Ok(if norm.is_exact() {
        CertifiedSensitivity::exact(squared)
    } else {
        CertifiedSensitivity::upper_bound(squared)
    })
}

/// `|| C 1_S ||^2` of sets of rounds `S`; where columns point away from each other, the largest norm that moves in any
/// direction can reach, bounded by `sum_{i, j in S} |<c_i, c_j>|`.
#[derive(Debug)]
enum SetNorm {
    /// Nodes of trees with these numbers of rounds, one after another; the run has `rounds` rounds.
    Trees { trees: Vec<u64>, rounds: u64 },
    /// `|<c_i, c_j>|` for `i <= j`, row `j` after row `j - 1`.
    Products {
        products: Vec<f64>,
        rounds: u32,
        exact: bool,
    },
    /// Columns of `|C|`, each from its diagonal entry down: too many rounds for all products.
    Columns { columns: Columns, rounds: u32 },
}

/// Columns of a lower-triangular matrix, each from its diagonal entry down.
#[derive(Debug)]
enum Columns {
    /// One column, cut at the end of the run, and what each is divided by (nothing if empty).
    Toeplitz { first: Vec<f64>, norms: Vec<f64> },
    /// One column per round.
    Each(Vec<Vec<f64>>),
}

impl SetNorm {
    fn new(strategy: &Strategy, rounds_made: u64, available: usize) -> Result<Self> {
        let rounds = usize::try_from(rounds_made).unwrap_or(usize::MAX);
        if rounds == 0 || rounds > available || u32::try_from(rounds).is_err() {
            let expected = format!("from 1 to the {available} rounds of the mechanism");
            return Err(CoordinatorError::value("rounds", expected, rounds_made));
        }
        let columns = match strategy {
            Strategy::Tree(tree) => {
                return Ok(Self::Trees {
                    trees: tree.tree_rounds(rounds)?,
                    rounds: rounds_made,
                });
            }
            Strategy::TreeFull(tree) => {
                // The releases are those of the tree whose nodes are measured, all of them, even if the run stops early.
                let whole = strategy.rounds().unwrap_or(rounds) as u64;
                let trees = match tree.layout() {
                    TreeLayout::CompleteNodes => vec![whole],
                    TreeLayout::Trees { leaves } => {
                        vec![leaves as u64; whole.div_ceil(leaves as u64) as usize]
                    }
                };
                return Ok(Self::Trees {
                    trees,
                    rounds: rounds_made,
                });
            }
            other => Columns::of(other, rounds)?,
        };
        let count = rounds as u32;
        if rounds > MAX_PRODUCTS {
            return Ok(Self::Columns {
                columns,
                rounds: count,
            });
        }
        let mut products = columns.products(rounds);
        let exact = products.iter().all(|product| *product >= 0.0);
        products.iter_mut().for_each(|product| *product = product.abs());
        Ok(Self::Products {
            products,
            rounds: count,
            exact,
        })
    }

    fn is_exact(&self) -> bool {
        match self {
            Self::Trees { .. } => true,
            Self::Products { exact, .. } => *exact,
            Self::Columns { columns, .. } => columns.are_non_negative(),
        }
    }

    fn squared(&self, set: &[u32], scratch: &mut Vec<f64>) -> Result<f64> {
        let beyond = |rounds: u64| {
            let last = set.iter().copied().max().map(u64::from);
            match last.filter(|last| *last >= rounds) {
                Some(last) => Err(CoordinatorError::value(
                    "round of a participation",
                    format!("less than the {rounds} rounds made"),
                    last,
                )),
                None => Ok(()),
            }
        };
        match self {
            Self::Trees { trees, rounds } => {
                beyond(*rounds)?;
                let set: Vec<u64> = set.iter().map(|&round| u64::from(round)).collect();
                Ok(restart::squared_norm(trees, &set)?.get())
            }
            Self::Products { products, rounds, .. } => {
                beyond(u64::from(*rounds))?;
                let mut sum = 0.0;
                for (place, &late) in set.iter().enumerate() {
                    let late = late as usize;
                    let row = &products[late * (late + 1) / 2..][..=late];
                    let early: f64 = set[..place].iter().map(|&early| row[early as usize]).sum();
                    sum += row[late] + 2.0 * early;
                }
                Ok(sum)
            }
            Self::Columns { columns, rounds } => {
                beyond(u64::from(*rounds))?;
                scratch.clear();
                scratch.resize(*rounds as usize, 0.0);
                for &round in set {
                    columns.add_to(round as usize, scratch);
                }
                Ok(scratch.iter().map(|entry| entry * entry).sum())
            }
        }
    }
}

impl Columns {
    fn of(strategy: &Strategy, rounds: usize) -> Result<Self> {
        let plain = |first: Vec<f64>| Self::Toeplitz {
            first,
            norms: Vec::new(),
        };
        let cut = |coefficients: &[f64]| coefficients[..coefficients.len().min(rounds)].to_vec();
        Ok(match strategy {
            Strategy::Independent(_) => plain(vec![1.0]),
            Strategy::Blt(blt) => plain(blt.coefficients(rounds)),
            Strategy::BandedToeplitz(banded) => plain(cut(banded.coefficients())),
            Strategy::InverseToeplitz(inverse) => plain(inverse.strategy_coefficients(rounds)?),
            // Norms are those of the whole run's columns: that is the matrix whose noise was added.
            Strategy::NormalisedBlt(normalised) => Self::Toeplitz {
                first: normalised.blt().coefficients(rounds),
                norms: normalised.column_norms()?,
            },
            Strategy::NormalisedToeplitz(normalised) => Self::Toeplitz {
                first: cut(normalised.coefficients()),
                norms: normalised.column_norms(),
            },
            Strategy::NormalisedInverseToeplitz(normalised) => Self::Toeplitz {
                first: toeplitz::inverse(normalised.coefficients(), rounds)?,
                norms: normalised.column_norms()?,
            },
            Strategy::Banded(banded) => Self::from_rows((0..rounds).map(|t| banded.row(t))),
            Strategy::Dense(dense) => Self::from_rows((0..rounds).map(|t| dense.row(t))),
            // PRIVACY: a strategy that this file does not know has no sensitivity here.
            other => {
                return Err(CoordinatorError::Mechanism(MechanismError::Description {
                    message: format!("no columns are known of the strategy {}", other.name()),
                }));
            }
        })
    }

    /// The columns of a matrix given as rows that end on the diagonal.
    fn from_rows<'a>(rows: impl ExactSizeIterator<Item = &'a [f64]>) -> Self {
        let mut columns = vec![Vec::new(); rows.len()];
        for (t, row) in rows.enumerate() {
            for (entry, column) in row.iter().zip(&mut columns[t + 1 - row.len()..]) {
                column.push(*entry);
            }
        }
        Self::Each(columns)
    }

    /// Inner products of columns `i <= j`, row `j` after row `j - 1`.
    fn products(&self, rounds: usize) -> Vec<f64> {
        let mut products = vec![0.0; rounds * (rounds + 1) / 2];
        match self {
            Self::Toeplitz { first, norms } => {
                let norm = |round: usize| norms.get(round).copied().unwrap_or(1.0);
                for lag in 0..first.len() {
                    // One more term for every round that the later column starts earlier.
                    let mut sum = 0.0;
                    for late in (lag..rounds).rev() {
                        let place = rounds - 1 - late;
                        if let (Some(x), Some(y)) = (first.get(place), first.get(place + lag)) {
                            sum += x * y;
                        }
                        products[late * (late + 1) / 2 + late - lag] = sum / (norm(late) * norm(late - lag));
                    }
                }
            }
            Self::Each(columns) => {
                for late in 0..rounds {
                    for early in 0..=late {
                        let tail = columns[early].get(late - early..).unwrap_or(&[]);
                        products[late * (late + 1) / 2 + early] =
                            tail.iter().zip(&columns[late]).map(|(x, y)| x * y).sum();
                    }
                }
            }
        }
        products
    }

    fn are_non_negative(&self) -> bool {
        match self {
            Self::Toeplitz { first, .. } => first.iter().all(|entry| *entry >= 0.0),
            Self::Each(columns) => columns.iter().flatten().all(|entry| *entry >= 0.0),
        }
    }

    /// Adds the absolute values of a column.
    fn add_to(&self, round: usize, sum: &mut [f64]) {
        let (column, scale) = match self {
            Self::Toeplitz { first, norms } => (first, 1.0 / norms.get(round).copied().unwrap_or(1.0)),
            Self::Each(columns) => (&columns[round], 1.0),
        };
        for (entry, value) in sum[round..].iter_mut().zip(column) {
            *entry += value.abs() * scale;
        }
    }
}

#[cfg(test)]
mod tests;
