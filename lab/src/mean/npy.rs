//! Matrices in numpy's file format, as far as they hold one vector a row: little-endian f32 or f64, row after row.

use anyhow::{Context, bail, ensure};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Length of a row, and the rows one after the other.
pub(super) fn rows(bytes: &[u8]) -> anyhow::Result<(usize, Vec<f32>)> {
    ensure!(
        bytes.starts_with(MAGIC),
        "expected numpy's file format, got something else"
    );
    // Version 1 has a length of two bytes, later ones of four.
    let (start, length) = match bytes.get(6..12) {
        Some([1, _, a, b, ..]) => (10usize, usize::from(u16::from_le_bytes([*a, *b]))),
        Some([2 | 3, _, a, b, c, d]) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        Some([version, ..]) => bail!("expected version 1, 2 or 3 of numpy's file format, got {version}"),
        _ => bail!("expected a header, got {} bytes in all", bytes.len()),
    };
    let end = start.checked_add(length);
    let header = end
        .and_then(|end| bytes.get(start..end))
        .and_then(|header| std::str::from_utf8(header).ok());
    let (Some(header), Some(end)) = (header, end) else {
        bail!("expected a header of {length} bytes of text, the file ends before");
    };
    let (rows, columns) = shape(header)?;
    ensure!(
        header.contains("'fortran_order': False"),
        "expected rows one after the other, got Fortran's order"
    );
    let data = &bytes[end..];
    let values = |size: usize| {
        let need = rows
            .checked_mul(columns)
            .and_then(|values| values.checked_mul(size));
        ensure!(
            need == Some(data.len()),
            "expected {rows} x {columns} values of {size} bytes, got {} bytes",
            data.len()
        );
        Ok(())
    };
    match entry(header, "descr")?.trim_matches('\'') {
        "<f4" => {
            values(4)?;
            let words = data.as_chunks::<4>().0.iter();
            Ok((columns, words.map(|word| f32::from_le_bytes(*word)).collect()))
        }
        "<f8" => {
            values(8)?;
            let words = data.as_chunks::<8>().0.iter();
            Ok((
                columns,
                words.map(|word| f64::from_le_bytes(*word) as f32).collect(),
            ))
        }
        other => bail!("expected values of type <f4 or <f8, got {other}"),
    }
}

/// Returns the text behind a key of the header, up to the next comma outside of brackets.
fn entry<'a>(header: &'a str, key: &str) -> anyhow::Result<&'a str> {
    let (_, rest) = header
        .split_once(&format!("'{key}':"))
        .with_context(|| format!("expected '{key}' in the header"))?;
    let rest = rest.trim_start();
    let end = if rest.starts_with('(') {
        rest.find(')').map(|at| at + 1)
    } else {
        rest.find([',', '}'])
    };
    Ok(rest[..end.unwrap_or(rest.len())].trim())
}

fn shape(header: &str) -> anyhow::Result<(usize, usize)> {
    let text = entry(header, "shape")?;
    let sizes: Vec<usize> = text
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("expected a shape of integers, got {text}"))?;
    match sizes.as_slice() {
        [rows, columns] => Ok((*rows, *columns)),
        _ => bail!("expected 2 dimensions, one vector a row, got shape {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn rows_of_both_types_are_read() {
        let header =
            |descr, shape| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let narrow: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let (dim, values) = rows(&file(&header("<f4", "(2, 3)"), &narrow)).unwrap();
        assert_eq!((dim, values), (3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let wide: Vec<u8> = [0.5f64, -1.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(
            rows(&file(&header("<f8", "(2,1)"), &wide)).unwrap(),
            (1, vec![0.5, -1.0])
        );
        for (bytes, word) in [
            (b"PK".to_vec(), "format"),
            (MAGIC.to_vec(), "header"),
            (file(&header("<f4", "(2, 3)"), &wide), "2 x 3 values"),
            (file(&header("<f4", "(6,)"), &narrow), "2 dimensions"),
            (file(&header("<i4", "(2, 3)"), &narrow), "<i4"),
            (file(&header("<f4", "(2, x)"), &narrow), "integers"),
            (
                file(
                    "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}",
                    &narrow,
                ),
                "Fortran",
            ),
            (
                file("{'shape': (2, 3), 'fortran_order': False}", &narrow),
                "descr",
            ),
            (
                file(&header("<f4", "(18446744073709551615, 3)"), &narrow),
                "values",
            ),
        ] {
            let message = rows(&bytes).unwrap_err().to_string();
            assert!(message.contains(word), "{word}: {message}");
        }
    }
}
