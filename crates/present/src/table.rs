//! Tables as text.

use comfy_table::{CellAlignment, Table, TableStyle, presets};

use crate::terminal;

/// A table of names and values. Each value is escaped and stands in one line, since it may have come from a file.
pub fn facts<N: ToString, V: ToString>(rows: impl IntoIterator<Item = (N, V)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name.to_string(), value.to_string()].map(|cell| terminal::line(&cell).into_owned()));
    }
    if let Some(column) = table.column_mut(0) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    table.trim_fmt()
}

/// A table whose first `left` columns are aligned to the left and all others to the right. Each cell is escaped and stands in one
/// line.
pub fn grid<H: ToString>(
    header: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = Vec<String>>,
    left: usize,
) -> String {
    aligned(presets::NOTHING, header, rows, left)
}

/// A table like that of [`grid`], with lines between the rows.
pub fn ruled<H: ToString>(
    header: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = Vec<String>>,
    left: usize,
) -> String {
    aligned(presets::UTF8_HORIZONTAL_ONLY, header, rows, left)
}

fn aligned<H: ToString>(
    style: TableStyle,
    header: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = Vec<String>>,
    left: usize,
) -> String {
    let mut table = Table::new();
    table.load_style(style);
    let visible = |cell: String| terminal::line(&cell).into_owned();
    table.set_header(header.into_iter().map(|cell| visible(cell.to_string())));
    for row in rows {
        table.add_row(row.into_iter().map(visible));
    }
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_from_files_cannot_add_lines_to_a_table() {
        let text = facts([("name", "a\nb"), ("other", "\u{1b}[2J")]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("a\\nb") && text.contains("\\u{1b}[2J"), "{text}");
    }
}
