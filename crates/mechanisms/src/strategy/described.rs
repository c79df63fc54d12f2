//! A strategy as people write it down: our JSON, numbers as text or JSON, and arrays of numpy.

mod npy;

use serde_json::Value;

use super::Strategy;
use super::banded_toeplitz::BandedToeplitz;
use super::dense::Dense;
use crate::error::MechanismError;
use crate::mechanism::Mechanism;

/// The content of a file that describes a noise matrix.
///
/// | file | strategy |
/// |---|---|
/// | JSON object with `kind` | that strategy |
/// | JSON object with `strategy` | that mechanism: a strategy with its run and its noise |
/// | a list of numbers: JSON, text with one number per line or all in one line, `.npy` of one dimension | banded Toeplitz with these coefficients |
/// | rows of numbers: JSON, text with one row per line, `.npy` of two dimensions | dense |
///
/// A row has all numbers up to the diagonal, and either nothing or zeros beyond it. Lines of text that begin with `#` are comments.
///
/// # Guarantee
/// None by itself: [`Strategy::squared_sensitivity`] computes the sensitivity of whatever matrix was read.
///
/// # Example
/// ```
/// use undertone_mechanisms::Described;
///
/// let read = Described::read(b"1 0 0\n0.5 1 0\n0.25 0.5 1\n")?;
/// assert_eq!(read.strategy().rounds(), Some(3));
/// let wrong = Described::read(b"[[1, 2], [0, 1]]").unwrap_err();
/// assert!(wrong.to_string().contains("row 0, column 1"));
/// # Ok::<(), undertone_mechanisms::Undescribed>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Described {
    /// A strategy alone.
    Strategy(Strategy),
    /// A strategy with its run and its noise.
    Mechanism(Box<Mechanism>),
}

/// Bytes that describe no strategy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Undescribed {
    /// The form is none of those that are read.
    #[error("{0}")]
    Form(String),
    /// The matrix cannot be used.
    #[error(transparent)]
    Matrix(#[from] MechanismError),
}

type Result<T> = std::result::Result<T, Undescribed>;

/// The forms that a reader of an error may choose from.
const FORMS: &str = "expected JSON with `kind` or `strategy`, a list of coefficients, the rows of a lower-triangular matrix, or an array of \
                     numpy (.npy)";

fn form(text: impl Into<String>) -> Undescribed {
    Undescribed::Form(text.into())
}

impl Described {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`Undescribed`], which names the forms that are read and the one that was found.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(npy::MAGIC) {
            return npy::strategy(bytes).map(Self::Strategy);
        }
        let text =
            std::str::from_utf8(bytes).map_err(|_| form(format!("{FORMS}; got bytes that are no text")))?;
        match text.trim_start().chars().next() {
            Some('{' | '[') => Self::of_json(text),
            _ => of_text(text).map(Self::Strategy),
        }
    }

    /// The strategy, with or without a run.
    #[must_use]
    pub fn strategy(&self) -> &Strategy {
        match self {
            Self::Strategy(strategy) => strategy,
            Self::Mechanism(mechanism) => mechanism.strategy(),
        }
    }

    /// The dense strategy with these rows, each up to its diagonal or with zeros beyond it.
    ///
    /// # Errors
    /// [`Undescribed`] for rows that are no lower-triangular matrix with a positive diagonal.
    pub fn of_rows(rows: &[Vec<f64>]) -> Result<Strategy> {
        let rounds = rows.len();
        let mut entries = Vec::new();
        for (t, row) in rows.iter().enumerate() {
            if row.len() != t + 1 && row.len() != rounds {
                return Err(form(format!(
                    "expected {} numbers in row {t} (counted from 0), up to the diagonal, or {rounds} with zeros beyond it; got {}",
                    t + 1,
                    row.len()
                )));
            }
            let (below, above) = row.split_at(t + 1);
            if let Some(column) = above.iter().position(|entry| *entry != 0.0) {
                return Err(form(format!(
                    "expected a lower-triangular matrix, with zeros above the diagonal; got {} in row {t}, column {} (counted from 0)",
                    above[column],
                    t + 1 + column
                )));
            }
            entries.extend_from_slice(below);
        }
        Ok(Strategy::Dense(Dense::new(rounds, entries)?))
    }

    fn of_json(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| form(format!("{FORMS}; got {error}")))?;
        let read_as = |what: &str, error: serde_json::Error| {
            form(format!("expected {what} that this version can read: {error}"))
        };
        match &value {
            Value::Object(fields) if fields.contains_key("strategy") => serde_json::from_value(value)
                .map(Self::Mechanism)
                .map_err(|error| read_as("a mechanism", error)),
            Value::Object(fields) if fields.contains_key("kind") => serde_json::from_value(value)
                .map(Self::Strategy)
                .map_err(|error| read_as("a strategy", error)),
            Value::Object(fields) => {
                let keys: Vec<&str> = fields.keys().map(String::as_str).take(5).collect();
                Err(form(format!(
                    "{FORMS}; got an object with the keys [{}]",
                    keys.join(", ")
                )))
            }
            Value::Array(rows) if rows.iter().any(Value::is_array) => serde_json::from_value(value)
                .map_err(|error| read_as("rows of numbers", error))
                .and_then(|rows: Vec<Vec<f64>>| Self::of_rows(&rows))
                .map(Self::Strategy),
            _ => serde_json::from_value(value)
                .map_err(|error| read_as("a list of numbers", error))
                .and_then(coefficients)
                .map(Self::Strategy),
        }
    }
}

/// Numbers between spaces and commas. One row is a list, and so is one column.
fn of_text(text: &str) -> Result<Strategy> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut rows = lines.map(row_of_text).collect::<Result<Vec<_>>>()?;
    match rows.len() {
        0 => Err(form(format!("{FORMS}; got an empty file"))),
        1 => coefficients(rows.swap_remove(0)),
        _ if rows.iter().all(|row| row.len() == 1) => coefficients(rows.concat()),
        _ => Described::of_rows(&rows),
    }
}

fn row_of_text(line: &str) -> Result<Vec<f64>> {
    let words = line.split(|c: char| c.is_whitespace() || "[],;".contains(c));
    let words = words.filter(|word| !word.is_empty());
    let number = |word: &str| {
        let shown: String = word.chars().take(40).collect();
        word.parse::<f64>()
            .map_err(|_| form(format!("{FORMS}; got {shown:?} in the place of a number")))
    };
    words.map(number).collect()
}

fn coefficients(values: Vec<f64>) -> Result<Strategy> {
    Ok(Strategy::BandedToeplitz(BandedToeplitz::new(values)?))
}

#[cfg(test)]
mod tests;
