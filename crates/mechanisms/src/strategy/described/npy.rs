//! Arrays as `numpy.save` writes them.
//!
//! Source: NEP 1 of numpy, "A Simple File Format for NumPy Arrays".

use super::{Described, Result, coefficients, form};
use crate::strategy::Strategy;

/// The first bytes of every file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// The strategy of an array of one dimension (coefficients) or two (rows).
pub(super) fn strategy(bytes: &[u8]) -> Result<Strategy> {
    let damaged = || form("expected an array of numpy; got a damaged file");
    let (header, data) = parts(bytes).ok_or_else(damaged)?;
    let field = |name: &str| {
        let rest = header.split_once(&format!("'{name}':"))?.1.trim_start();
        Some(rest.split_once('}').map_or(rest, |(rest, _)| rest))
    };
    let order = field("descr").ok_or_else(damaged)?;
    if !order.starts_with("'<f8'") {
        let got = order.split(',').next().unwrap_or_default();
        return Err(form(format!(
            "expected numbers of type '<f8'; got {got}; save it by numpy.save(file, matrix.astype('<f8'))"
        )));
    }
    let by_columns = field("fortran_order").ok_or_else(damaged)?.starts_with("True");
    let shape = field("shape").and_then(|text| text.strip_prefix('(')?.split_once(')'));
    let sizes = shape
        .ok_or_else(damaged)?
        .0
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty());
    let sizes: Vec<usize> = sizes
        .map(|size| size.parse().map_err(|_| damaged()))
        .collect::<Result<_>>()?;
    let expected = sizes.iter().try_fold(8usize, |all, size| all.checked_mul(*size));
    if expected != Some(data.len()) {
        return Err(damaged());
    }
    let (numbers, _) = data.as_chunks::<8>();
    let values: Vec<f64> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    match sizes[..] {
        [_] => coefficients(values),
        [rows, columns] if rows == columns => {
            let at = |row: usize, column: usize| match by_columns {
                true => values[column * rows + row],
                false => values[row * columns + column],
            };
            let row = |row| (0..columns).map(|column| at(row, column)).collect();
            Described::of_rows(&(0..rows).map(row).collect::<Vec<Vec<f64>>>())
        }
        _ => Err(form(format!(
            "expected a list or a square matrix; got an array of the shape {sizes:?}"
        ))),
    }
}

/// The header, a text, and the bytes of the numbers; `None` for a file that ends before them.
fn parts(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => rest
            .split_first_chunk::<2>()
            .map(|(length, rest)| (u16::from_le_bytes(*length).into(), rest))?,
        _ => rest
            .split_first_chunk::<4>()
            .map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest))?,
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(header).ok()?, data))
}
