//! The linear recurrences that turn independent noise `Z` into the noise `C^-1 Z` of each round.

/// The recurrence that makes the noise of a round from fresh noise and from memory of earlier rounds. A stream needs to
/// know nothing else of a strategy.
///
/// `z_t` is the independent standard normal row of round `t` (from 0), `n_t` the row that the round's sum receives.
/// Where there is a `scale`, it is one factor per round (column-normalised strategies: `C = T D^-1`, `C^-1 = D T^-1`),
/// and empty stands for 1 in every round.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Recurrence {
    /// Independent noise: `n_t = z_t`.
    Identity,
    /// Buffered linear Toeplitz: `y_t = z_t - sum_j output[j] S_j`, `S_j <- (1 - decay_complement[j]) S_j + y_t`,
    /// `n_t = scale[t] y_t`. Keeps one vector per buffer.
    Buffers {
        /// `1 - theta_j`: theta itself would lose digits near 1.
        decay_complement: Vec<f64>,
        /// `omega_j`.
        output: Vec<f64>,
        /// One factor per round, or empty.
        scale: Vec<f64>,
    },
    /// Banded Toeplitz `T` with first column `coefficients`: `y_t = (z_t - sum_{i>=1} coefficients[i] y_{t-i}) /
    /// coefficients[0]`, `n_t = scale[t] y_t`. Keeps the last `bands - 1` vectors `y`.
    Bands {
        /// First column of `T`.
        coefficients: Vec<f64>,
        /// One factor per round, or empty.
        scale: Vec<f64>,
    },
    /// Banded lower-triangular `C` with entries that change from round to round: row `t` holds `bands` numbers,
    /// `C[t][t], C[t][t-1], ...` (0 where the column does not exist). Keeps the last `bands - 1` vectors `n`.
    Rows {
        /// Numbers per row.
        bands: usize,
        /// Row after row.
        entries: Vec<f64>,
    },
    /// Banded Toeplitz inverse: `n_t = scale[t] sum_i coefficients[i] z_{t-i}`. Earlier `z` are made again from their
    /// keys, or kept.
    Taps {
        /// First column of the inverse.
        coefficients: Vec<f64>,
        /// One factor per round, or empty.
        scale: Vec<f64>,
    },
    /// The online binary tree: the sum of the noises since the last restart is Honaker's estimate from the nodes that are
    /// complete by then; nodes are made again from their keys, or kept. A new tree leaves the noise of the sums before it
    /// as it is.
    Tree {
        /// Rounds in which a new tree begins, after round 0, increasing; empty for one tree.
        restarts: Vec<usize>,
    },
    /// Binary blocks of earlier noise (the tree with its full decoder): with `u = t mod leaves`,
    /// `n_t = diagonal[t] z_t - sum_h weights[..] N_h` over the set bits `h` of `u`, the highest first, where `N_h` is
    /// the sum of the noises `n` over the block of `2^h` rounds that the bit stands for (the blocks of all set bits,
    /// the highest first, are the last `u` rounds in order). Weights follow one another, one per set bit, round after
    /// round. Keeps one vector per set bit, at most `log2(leaves)`: a binary counter of sums.
    Blocks {
        /// Rounds after which all blocks are forgotten: a power of two.
        leaves: usize,
        /// One factor per round.
        diagonal: Vec<f64>,
        /// One factor per set bit of each round's place in its tree.
        weights: Vec<f64>,
    },
    /// Any lower-triangular `C^-1`, given whole: `n_t = sum_{s<=t} entries[t (t + 1) / 2 + s] z_s`. Earlier `z` are made
    /// again from their keys.
    Dense {
        /// Rows of the matrix.
        rounds: usize,
        /// The lower triangle, row after row.
        entries: Vec<f64>,
    },
}
