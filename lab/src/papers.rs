//! `undertone-lab reproduce [ID]`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use comfy_table::{CellAlignment, Table as Grid, presets};
use undertone_lab::reproduce::{self, Conditions, Curve, Entry, Figure, Rounding, Table, checks};
use undertone_present::Scale;

use undertone_present::chart::MUTED;
use undertone_present::curves::{COLOURS, Pen, Picture, range};

use crate::output::Output;

/// Arguments of `undertone-lab reproduce`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReproduceArgs {
    /// Name of a check, or `all`; without it the checks are listed.
    id: Option<String>,
    /// Draw the figure into this file, for a check that recomputes one of a single panel.
    #[arg(long, value_name = "FILE", requires = "id")]
    svg: Option<PathBuf>,
    /// Write every panel of every figure into this folder: ID.svg and ID.csv, or ID-1.svg, ID-1.csv, ID-2.svg, ...
    #[arg(long, value_name = "FOLDER", requires = "id")]
    figures: Option<PathBuf>,
    /// Run the checks that take minutes, in full: optimal banded matrices, 128 trials of mean estimation, trainings.
    #[arg(long, requires = "id")]
    slow: bool,
}

/// Lists the checks or runs them; an entry that does not match is an error once everything is shown.
pub(crate) fn run(args: ReproduceArgs, output: &Output) -> anyhow::Result<()> {
    let Some(id) = args.id else {
        return list(output);
    };
    let start = Instant::now();
    let clock = || start.elapsed().as_secs_f64();
    let data = std::env::var_os("UNDERTONE_DATA").map(PathBuf::from);
    let conditions = Conditions::new(&clock)
        .with_slow(args.slow)
        .with_data(data.as_deref());
    let tables = if id == "all" {
        checks()
            .iter()
            .map(|check| reproduce::run(check.id, &conditions))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        vec![reproduce::run(&id, &conditions)?]
    };
    if let Some(file) = &args.svg {
        let figures: Vec<_> = tables.iter().flat_map(|table| &table.figures).collect();
        let [figure] = figures.as_slice() else {
            bail!(
                "--svg: expected a check that recomputes one panel, got '{id}' with {}",
                figures.len()
            );
        };
        write(file, &svg(figure)?)?;
    }
    if let Some(folder) = &args.figures {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        for table in &tables {
            for (panel, figure) in table.figures.iter().enumerate() {
                let name = match table.figures.len() {
                    1 => table.id.to_owned(),
                    _ => format!("{}-{}", table.id, panel + 1),
                };
                write(&folder.join(format!("{name}.svg")), &svg(figure)?)?;
                write(&folder.join(format!("{name}.csv")), &csv(figure))?;
            }
        }
    }
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
            let fail = table
                .statements
                .iter()
                .filter(|statement| !statement.holds)
                .count();
            let statements = if fail > 0 {
                format!(", {fail} statements fail")
            } else {
                String::new()
            };
            format!(
                "{} ({} of {} entries match{statements})",
                table.id, table.matched, table.total
            )
        })
        .collect();
    if !failed.is_empty() {
        bail!("not reproduced: {}", failed.join(", "));
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

fn svg(figure: &Figure) -> anyhow::Result<String> {
    draw(figure).map_err(|message| anyhow!("drawing the figure: {message}"))
}

/// One line an abscissa, one column a curve; a field is empty where a curve has no value.
fn csv(figure: &Figure) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names = figure.curves.iter().map(name);
    let header = [figure.x_label.to_owned()].into_iter().chain(names);
    let mut text = header.map(|name| quoted(&name)).collect::<Vec<_>>().join(",");
    for (at, x) in figure.x.iter().enumerate() {
        text.push_str(&format!("\n{x}"));
        for curve in &figure.curves {
            match curve.y.get(at).copied().flatten() {
                Some(y) => text.push_str(&format!(",{y}")),
                None => text.push(','),
            }
        }
    }
    text.push('\n');
    text
}

fn name(curve: &Curve) -> String {
    [curve.method, &curve.setting].join(" ").trim().to_owned()
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
    output.print("\nRun one with `undertone-lab reproduce ID`, or all with `undertone-lab reproduce all`.")
}

/// One block of lines for every row of the paper: what it prints, ours in the same form, the tighter value where
/// there is one; below the table, why known differences differ.
fn render(table: &Table) -> String {
    let mut grid = Grid::new();
    grid.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let header = table.parameters.iter().map(|name| (*name).to_owned());
    grid.set_header(header.chain([String::new()]).chain(table.columns.iter().cloned()));
    let source = if table.reference.is_some() {
        "reference"
    } else {
        "paper"
    };
    for row in &table.rows {
        let mut lines = format!("{source}\nours");
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
    let notes = match table.reference {
        Some(reference) => format!("- reference: {reference}\n{notes}"),
        None => notes,
    };
    let statements = table.statements.iter().map(|statement| {
        let sign = if statement.holds { "holds" } else { "FAILS" };
        format!("{sign}: {}\n       {}\n", statement.says, statement.found)
    });
    let statements: String = statements.collect();
    let (numbers, matches) = if table.rows.is_empty() {
        (
            String::new(),
            format!("the {source} prints curves and no numbers\n"),
        )
    } else {
        (
            format!("; printed numbers {}\n{}", rules.join(" or "), grid.trim_fmt()),
            format!(
                "{} of {} entries match the {source} ({mark})\n",
                table.matched, table.total
            ),
        )
    };
    let figures: String = table.figures.iter().map(values).collect();
    format!(
        "{}: {}\n{}; {}{numbers}\n{figures}{matches}{statements}{notes}",
        table.id, table.title, table.source, table.recipe,
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

/// The values of a figure at some of its abscissae, rounded up: they are bounds.
fn values(figure: &Figure) -> String {
    const MOST: usize = 9;
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    let header = [figure.y_label, ""].map(str::to_owned);
    let last = figure.x.len().saturating_sub(1);
    let mut places: Vec<usize> = (0..MOST).map(|i| (i * last).div_ceil(MOST - 1)).collect();
    places.dedup();
    let shown = |at: &usize| figure.x.get(*at).map_or_else(String::new, f64::to_string);
    grid.set_header(header.into_iter().chain(places.iter().map(shown)));
    let up = Rounding::Up { decimals: 3 };
    for curve in &figure.curves {
        let cells = places.iter().map(|at| {
            let y = curve.y.get(*at).copied().flatten();
            y.map_or_else(|| "none".to_owned(), |y| up.print(y))
        });
        grid.add_row(
            [curve.setting.clone(), curve.method.to_owned()]
                .into_iter()
                .chain(cells),
        );
    }
    for column in grid.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let some = if figure.x.len() > places.len() {
        " (some abscissae; all of them with --figures)"
    } else {
        ""
    };
    format!("{}{some}\n{}\n", figure.title, grid.trim_fmt())
}

/// One colour a setting; the first method's curves are solid, the others dashed.
fn draw(figure: &Figure) -> Result<String, String> {
    let (mut settings, mut methods): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut curves = Vec::new();
    for curve in &figure.curves {
        let (setting, method) = (
            place(&mut settings, &curve.setting),
            place(&mut methods, curve.method),
        );
        let pen = Pen {
            colour: COLOURS[setting % COLOURS.len()],
            dashed: method > 0,
        };
        let points = figure
            .x
            .iter()
            .zip(&curve.y)
            .filter_map(|(x, y)| Some((*x, (*y)?)));
        curves.push((pen, points.collect::<Vec<_>>()));
    }
    let colours = settings.iter().zip(COLOURS.iter().cycle());
    let colours = colours.map(|(name, colour)| {
        (
            (*name).to_owned(),
            Pen {
                colour: *colour,
                dashed: false,
            },
        )
    });
    let dashes = methods.iter().enumerate();
    let dashes = dashes.map(|(at, name)| {
        (
            (*name).to_owned(),
            Pen {
                colour: MUTED,
                dashed: at > 0,
            },
        )
    });
    let y = range(curves.iter().flat_map(|(_, points)| points).map(|point| point.1));
    let y = match figure.y_scale {
        Scale::Logarithmic => y.start / 1.3..y.end * 1.3,
        Scale::Linear => {
            let air = 0.05 * (y.end - y.start);
            y.start - air..y.end + air
        }
    };
    let picture = Picture {
        title: figure.title.to_owned(),
        x_label: figure.x_label,
        legend: colours
            .chain(dashes)
            .filter(|(name, _)| !name.is_empty())
            .collect(),
        x: range(figure.x.iter().copied()),
        y,
        curves,
    };
    picture.svg_over(figure.x_scale, figure.y_scale)
}

/// Returns the index of a name in a list, and appends a new name.
fn place<'a>(known: &mut Vec<&'a str>, name: &'a str) -> usize {
    known.iter().position(|other| *other == name).unwrap_or_else(|| {
        known.push(name);
        known.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use undertone_lab::reproduce::Statement;

    use super::*;

    fn quick(id: &str) -> Table {
        reproduce::run(id, &Conditions::new(&|| 0.0)).unwrap()
    }

    #[test]
    fn a_table_looks_like_the_paper() {
        let text = render(&quick("dplm-table-1"));
        let row = "10^6 10^4 1.0 paper 1.73 1.92 2.08 3.06 8.49 32.38 187.01";
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|line| words(line) == row), "{text}");
        assert!(text.contains("42 of 42 entries match"), "{text}");
    }

    #[test]
    fn a_known_difference_is_explained() {
        let text = render(&quick("blt-table-4"));
        assert!(
            text.contains("16 of 20 entries match the paper (4 that cannot carry !="),
            "{text}"
        );
        assert_eq!(text.matches("pt-PT TreeAgg: its labels").count(), 1, "{text}");
        assert!(
            text.contains("es-ES BandMF: its matrix") && text.contains("!= 0.44"),
            "{text}"
        );
    }

    #[test]
    fn figures_and_statements_are_shown() {
        let mut table = quick("dplm-text");
        let curve = |method, setting: &str, y: [Option<f64>; 2]| Curve {
            method,
            setting: setting.to_owned(),
            y: y.to_vec(),
        };
        let figure = Figure {
            title: "a figure",
            x_label: "size",
            y_label: "epsilon",
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            x: vec![1.0, 10.0],
            curves: vec![
                curve("new", "low noise", [Some(1.0001), Some(30.0)]),
                curve("old", "low noise", [Some(2.0), None]),
                curve("new", "high noise", [Some(0.5), Some(7.0)]),
                curve("old", "high noise", [Some(0.5), Some(200.0)]),
            ],
        };
        let svg = draw(&figure).unwrap();
        for word in ["a figure", "low noise", "high noise", "new", "old", "size"] {
            assert!(svg.contains(&format!("\n{word}\n")), "{word}: {svg}");
        }
        // Two solid curves, and a dashed one in many pieces; the first dashed one has a single point.
        assert!(svg.matches("<polyline").count() > 10, "{svg}");
        assert_eq!(
            csv(&figure),
            "\"size\",\"new low noise\",\"old low noise\",\"new high noise\",\"old high noise\"\n1,1.0001,2,0.5,0.5\n10,30,,7,200\n"
        );
        table.figures = vec![figure];
        table.reference = Some("a second source");
        table.statements = vec![Statement {
            says: "it rises",
            found: "it falls".to_owned(),
            holds: false,
        }];
        let text = render(&table);
        for part in [
            "FAILS: it rises",
            "it falls",
            "1.001",
            "none",
            "match the reference",
            "- reference: a second source",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!table.reproduces());
    }

    #[test]
    fn a_difference_is_marked() {
        let mut table = quick("dplm-text");
        table.rows[0].entries[0].matches = false;
        table.matched -= 1;
        let text = render(&table);
        assert!(
            text.contains("!= 1.97") && text.contains("2 of 3 entries match"),
            "{text}"
        );
    }
}
