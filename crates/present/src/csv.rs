//! Lines of comma-separated values, as RFC 4180 has them.

/// The lines of a table, each ended by a line feed. A cell with a comma, a quote or a line end stands in quotes.
///
/// # Example
/// ```
/// let text = undertone_present::csv::lines([vec!["name".to_owned()], vec!["a, \"b\"".to_owned()]]);
/// assert_eq!(text, "name\n\"a, \"\"b\"\"\"\n");
/// ```
pub fn lines(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
        text += &cells.join(",");
        text.push('\n');
    }
    text
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}
