//! How results reach people and machines: tables on standard output, progress on standard error, or JSON alone.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// How the caller wants to see results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// One JSON document on standard output, and nothing else there.
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result as JSON.
    pub(crate) fn print_json<T: Serialize>(&self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value).context("a result that JSON cannot hold")?;
        self.print(&text)
    }

    /// Prints a line; a closed pipe (`undertone ... | head`) is not an error.
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        match writeln!(std::io::stdout().lock(), "{text}") {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("writing to standard output"),
        }
    }

    /// Prints an error with its causes on standard error, as JSON where asked for.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let mut message = error.to_string();
        for cause in error.chain().skip(1) {
            let cause = cause.to_string();
            // Libraries put their source into their own message; say nothing twice.
            if !message.contains(&cause) {
                message = format!("{message}: {cause}");
            }
        }
        if self.json {
            eprintln!("{}", serde_json::json!({ "error": message }));
        } else {
            eprintln!("error: {message}");
        }
    }

    /// Whether progress bars are of use: somebody looks at standard error, and JSON was not asked for.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }

    /// A progress bar, or an invisible one.
    pub(crate) fn bar(&self, length: u64, template: &str) -> ProgressBar {
        if !self.shows_progress() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }

    /// What is being done and for how long, for work whose length is not known; or nothing.
    pub(crate) fn spinner(&self, message: &str) -> ProgressBar {
        let bar = if self.shows_progress() {
            ProgressBar::new_spinner()
        } else {
            return ProgressBar::hidden();
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

/// A table of names and values.
pub(crate) fn facts<N: ToString, V: ToString>(rows: impl IntoIterator<Item = (N, V)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name.to_string(), value.to_string()]);
    }
    if let Some(column) = table.column_mut(0) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    table.trim_fmt()
}
