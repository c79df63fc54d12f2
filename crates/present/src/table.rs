//! Tables as text.

use comfy_table::{CellAlignment, Table, presets};

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
