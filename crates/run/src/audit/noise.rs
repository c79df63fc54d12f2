//! N1 to N7: tests of the noise of probes, to which nobody contributes.

use serde::{Deserialize, Serialize};
use undertone_accounting::AccountingError;
use undertone_accounting::audit::noise::{self, Tested};

/// The p-value after Holm's correction below which a report calls the noise contradicted.
pub const FAILURE: f64 = 0.001;

/// The largest lag over rounds that is tested.
const LAGS: usize = 5;

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseTest {
    /// `N1` to `N7`.
    pub name: String,
    /// The property that is tested.
    pub property: String,
    /// The statistic.
    pub statistic: f64,
    /// The p-value before correction.
    pub p: f64,
    /// The p-value after Holm's correction over all tests of the report.
    pub p_holm: f64,
}

/// The source of the tested values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A rehearsal of the mechanism, without users or model.
    #[default]
    Rehearsal,
    /// Coordinates of the run itself, to which no user contributes.
    ThisRun,
}

impl Source {
    fn is_rehearsal(&self) -> bool {
        *self == Self::Rehearsal
    }
}

/// All tests of one audit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseTests {
    /// The source of the values: a rehearsal of the mechanism, or the run itself.
    #[serde(default, skip_serializing_if = "Source::is_rehearsal")]
    pub source: Source,
    /// Number of values of pure noise.
    pub values: usize,
    /// The tests.
    pub tests: Vec<NoiseTest>,
    /// The smallest corrected p-value.
    pub smallest_p_holm: f64,
}

impl NoiseTests {
    /// Tests whitened standard normal values, one row of `columns` per round, made in cohorts of these sizes.
    ///
    /// # Errors
    /// From the estimators: no values, or one that is not finite.
    pub fn of(values: &[f64], columns: usize, cohort_sizes: &[f64]) -> Result<Self, AccountingError> {
        let rows: Vec<&[f64]> = values.chunks(columns.max(1)).collect();
        let mut tests: Vec<(String, &'static str, Tested)> = Vec::new();
        let mut add = |name: &str, property, tested| tests.push((name.to_owned(), property, tested));
        add("N1", "variance", noise::variance(values)?);
        add("N2", "shape", noise::shape(values)?);
        add("N2", "largest value", noise::largest(values)?);
        for lag in 1..=LAGS.min(rows.len().saturating_sub(1)) {
            let later = rows.iter().skip(lag);
            let pairs = rows.iter().zip(later);
            let pairs = pairs.flat_map(|(a, b)| a.iter().copied().zip(b.iter().copied()));
            add("N3", LAG_NAMES[lag - 1], noise::correlation(pairs)?);
        }
        if columns > 1 {
            let pairs = rows
                .iter()
                .flat_map(|row| row.windows(2).map(|pair| (pair[0], pair[1])));
            add("N4", "neighbouring columns", noise::correlation(pairs)?);
        }
        add("N5", "repeated rows", repeated(&rows));
        add("N6", "mean", noise::mean(values)?);
        let square = |row: &&[f64]| row.iter().map(|value| value * value).sum::<f64>() / row.len() as f64;
        let squares: Vec<f64> = rows.iter().map(square).collect();
        if let Some(tested) = noise::cohort(&squares, cohort_sizes, columns)? {
            add("N7", "cohort size", tested);
        }
        let p: Vec<f64> = tests.iter().map(|(_, _, tested)| tested.p).collect();
        let corrected = noise::holm(&p);
        let tests: Vec<NoiseTest> = tests
            .into_iter()
            .zip(&corrected)
            .map(|((name, property, tested), &p_holm)| NoiseTest {
                name,
                property: property.to_owned(),
                statistic: tested.statistic,
                p: tested.p,
                p_holm,
            })
            .collect();
        Ok(Self {
            source: Source::Rehearsal,
            values: values.len(),
            smallest_p_holm: corrected.iter().copied().fold(1.0, f64::min),
            tests,
        })
    }

    /// The tests of values of the run itself.
    #[must_use]
    pub(crate) fn of_this_run(self) -> Self {
        Self {
            source: Source::ThisRun,
            ..self
        }
    }

    /// `true` if a corrected p-value is below [`FAILURE`].
    #[must_use]
    pub fn contradicts(&self) -> bool {
        self.smallest_p_holm < FAILURE
    }
}

const LAG_NAMES: [&str; LAGS] = [
    "rounds 1 apart",
    "rounds 2 apart",
    "rounds 3 apart",
    "rounds 4 apart",
    "rounds 5 apart",
];

/// Two rows whose values differ by less than this are one row: releases are rounded to `f32` before they are whitened.
const SAME: f64 = 1e-4;

/// The number of rows that occur twice. Two independent rows of `c` columns agree with a probability below `SAME^c`, so one is taken for
/// proof of reuse.
fn repeated(rows: &[&[f64]]) -> Tested {
    let mut sorted: Vec<&[f64]> = rows.iter().copied().filter(|row| !row.is_empty()).collect();
    sorted.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let equal = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < SAME);
    let again = |(place, row): (usize, &&[f64])| {
        let near = sorted[place + 1..]
            .iter()
            .take_while(|other| other[0] - row[0] < SAME);
        near.filter(|other| equal(row, other)).count()
    };
    let twice: usize = sorted.iter().enumerate().map(again).sum();
    Tested {
        statistic: twice as f64,
        p: if twice > 0 { 0.0 } else { 1.0 },
    }
}
