//! Results of the laboratory on standard output, as tables or as one JSON document; progress on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use undertone_present::terminal;

/// The form in which the caller wants to see results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// `true` to print one JSON document and nothing else.
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result as JSON.
    pub(crate) fn print_json<T: Serialize>(&self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value).context("a result that JSON cannot hold")?;
        write_out(&terminal::json(&text))
    }

    /// Prints tables and sentences.
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        write_out(&terminal::lines(text))
    }

    /// Prints an error with its causes on standard error, in one line; as JSON if the caller asked for JSON.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let message = format!("{error:#}");
        if self.json {
            let document = serde_json::json!({ "error": message }).to_string();
            eprintln!("{}", terminal::json(&document));
        } else {
            eprintln!("error: {}", terminal::line(&message));
        }
    }

    /// Shows what is being done and for how long, if a person looks at standard error.
    pub(crate) fn spinner(&self, message: &str) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(terminal::line(message).into_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

fn write_out(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        // A closed pipe (`undertone-lab ... | head`) is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to standard output"),
    }
}
