//! `undertone reproduce [ID]`.

use anyhow::bail;
use comfy_table::{CellAlignment, Table as Grid, presets};
use undertone_reproduce::{Entry, Rounding, Table, checks};

use crate::output::Output;

/// Arguments of `undertone reproduce`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReproduceArgs {
    /// Name of a check, or `all`; without it the checks are listed.
    id: Option<String>,
}

/// Lists the checks or runs them; an entry that does not match is an error once everything is shown.
pub(crate) fn run(args: ReproduceArgs, output: &Output) -> anyhow::Result<()> {
    let Some(id) = args.id else {
        return list(output);
    };
    let tables = if id == "all" {
        checks()
            .iter()
            .map(|check| undertone_reproduce::run(check.id))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        vec![undertone_reproduce::run(&id)?]
    };
    if output.json {
        match tables.as_slice() {
            [table] if id != "all" => output.print_json(table)?,
            tables => output.print_json(&tables)?,
        }
    } else {
        for table in &tables {
            output.print(&render(table))?;
        }
    }
    let failed: Vec<String> = tables
        .iter()
        .filter(|table| !table.reproduces())
        .map(|table| {
            format!(
                "{} ({} of {} entries match)",
                table.id, table.matched, table.total
            )
        })
        .collect();
    if !failed.is_empty() {
        bail!("not reproduced: {}", failed.join(", "));
    }
    Ok(())
}

fn list(output: &Output) -> anyhow::Result<()> {
    if output.json {
        return output.print_json(&checks());
    }
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    grid.set_header(["check", "source", "shows"]);
    for check in checks() {
        grid.add_row([check.id, check.source, check.title]);
    }
    output.print(&grid.trim_fmt())?;
    output.print("\nRun one with `undertone reproduce ID`, or all with `undertone reproduce all`.")
}

/// One block of lines for every row of the paper: what it prints, ours in the same form, the tighter value where
/// there is one; below the table, why known differences differ.
fn render(table: &Table) -> String {
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let header = table.parameters.iter().map(|name| (*name).to_owned());
    grid.set_header(header.chain([String::new()]).chain(table.columns.iter().cloned()));
    for row in &table.rows {
        let mut lines = "paper\nours".to_owned();
        if let Some(tighter) = row.entries.iter().find_map(|entry| entry.tighter) {
            lines = format!("{lines}\n{}", tighter.recipe);
        }
        let cells = row.parameters.iter().cloned().chain([lines]);
        grid.add_row(cells.chain(row.entries.iter().map(cell)));
    }
    for column in grid.column_iter_mut().skip(table.parameters.len() + 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut rules: Vec<String> = table
        .rows
        .iter()
        .flat_map(|row| &row.entries)
        .map(|entry| entry.rounding.to_string())
        .collect();
    rules.sort_unstable();
    rules.dedup();
    let mark = match table.total - table.matched {
        0 => "all match".to_owned(),
        differ if differ == table.explained => format!("{differ} that cannot carry != and are explained"),
        _ => "those that differ carry !=".to_owned(),
    };
    let entries = table.rows.iter().flat_map(|row| &row.entries);
    let mut notes: Vec<&str> = entries.filter_map(|entry| entry.explanation).collect();
    notes.dedup();
    notes.extend(&table.notes);
    let notes: String = notes.iter().map(|note| format!("- {note}\n")).collect();
    format!(
        "{}: {}\n{}; {}; printed numbers {}\n{}\n{} of {} entries match the paper ({mark})\n{notes}",
        table.id,
        table.title,
        table.source,
        table.recipe,
        rules.join(" or "),
        grid.trim_fmt(),
        table.matched,
        table.total
    )
}

fn cell(entry: &Entry) -> String {
    let sign = if entry.matches { "" } else { "!= " };
    let mut cell = format!("{}\n{sign}{}", entry.paper, entry.printed);
    if let Some(tighter) = entry.tighter {
        // A bound that is quoted stays one.
        let up = Rounding::Up {
            decimals: entry.rounding.decimals(),
        };
        cell = format!("{cell}\n{}", up.print(tighter.value));
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_looks_like_the_paper() {
        let text = render(&undertone_reproduce::run("dplm-table-1").unwrap());
        let row = "10^6 10^4 1.0 paper 1.73 1.92 2.08 3.06 8.49 32.38 187.01";
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|line| words(line) == row), "{text}");
        assert!(text.contains("42 of 42 entries match"), "{text}");
    }

    #[test]
    fn a_known_difference_is_explained() {
        let text = render(&undertone_reproduce::run("blt-table-4").unwrap());
        assert!(
            text.contains("14 of 16 entries match the paper (2 that cannot carry !="),
            "{text}"
        );
        assert_eq!(text.matches("pt-PT TreeAgg: its labels").count(), 1, "{text}");
        assert!(text.contains("BandMF") && text.contains("!= 0.44"), "{text}");
    }

    #[test]
    fn a_difference_is_marked() {
        let mut table = undertone_reproduce::run("dplm-text").unwrap();
        table.rows[0].entries[0].matches = false;
        table.matched -= 1;
        let text = render(&table);
        assert!(
            text.contains("!= 1.97") && text.contains("2 of 3 entries match"),
            "{text}"
        );
    }
}
