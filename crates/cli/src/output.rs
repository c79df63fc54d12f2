//! The output of results: tables on standard output, progress on standard error, or JSON alone.
//!
//! Every byte that this program prints passes through here (only clap prints its own usage errors), and whatever a terminal
//! would obey is escaped on the way: results and errors quote files that may be hostile.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;

use undertone_planner::Shown;
pub(crate) use undertone_present::table::facts;
use undertone_present::terminal;

use crate::asked;

/// The form of results that the caller asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// One JSON document on standard output, and nothing else there.
    pub(crate) json: bool,
}

impl Output {
    /// Prints a result as JSON.
    pub(crate) fn print_json<T: Serialize>(&self, value: &T) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(value).context("cannot write the result as JSON")?;
        write_out(&terminal::json(&text))
    }

    /// Prints tables and sentences. Line feeds are taken for layout: a value that came from a file is put into [`facts`] or
    /// through [`value`] first.
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        write_out(&terminal::lines(text))
    }

    /// Prints a result in the form that was asked for: as JSON, or as the text that `text` makes.
    pub(crate) fn show<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.json {
            true => self.print_json(value),
            false => self.print(&text()),
        }
    }

    /// Prints an answer of the planner in the form that was asked for.
    pub(crate) fn print_shown(&self, shown: &Shown) -> anyhow::Result<()> {
        match self.json {
            true => write_out(&terminal::json(&shown.json)),
            false => self.print(&shown.text),
        }
    }

    /// `true` if a person reads the output on a terminal.
    pub(crate) fn is_read(&self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }

    /// The terminal on standard output, for a command that draws its own lines.
    pub(crate) fn screen() -> console::Term {
        console::Term::stdout()
    }

    /// Prints more of a text that grows.
    pub(crate) fn continue_with(&self, text: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let written = write!(out, "{}", terminal::lines(text)).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write to standard output"),
        }
    }

    /// Prints one line on standard error, for users who wait; nothing where JSON was asked for.
    pub(crate) fn note(&self, line: &str) {
        if !self.json {
            eprintln!("{}", terminal::line(line));
        }
    }

    /// Prints a warning on standard error, also beside JSON.
    pub(crate) fn warn(&self, warning: &str) {
        if asked::warn(warning) {
            return;
        }
        eprintln!("warning: {}", terminal::line(warning));
    }

    /// Prints what the guarantee of a model does not cover, each obstacle once.
    pub(crate) fn warn_of(&self, obstacles: &[String]) {
        for obstacle in obstacles {
            self.warn(&format!("the guarantee does not cover the model: {obstacle}"));
        }
    }

    /// Prints an error with its causes on standard error, in one line; as JSON where asked for.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        let message = message(error);
        if self.json {
            let message = terminal::shortened(&message).unwrap_or(message);
            let document = serde_json::json!({ "error": message }).to_string();
            eprintln!("{}", terminal::json(&document));
        } else {
            eprintln!("error: {}", terminal::line(&message));
        }
    }

    /// Prints the sentence of a command that was asked to end; as the error of a JSON document where asked for.
    pub(crate) fn stopped(&self, stopped: &anyhow::Error) {
        match self.json {
            true => self.error(stopped),
            false => self.note(&stopped.to_string()),
        }
    }

    /// `true` if progress bars are of use: standard error is a terminal, and JSON was not asked for.
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

    /// One line that `draw` makes anew several times a second, for so many columns; hidden where progress is not shown.
    pub(crate) fn live(&self, draw: impl Fn(usize) -> String + Clone + Send + Sync + 'static) -> ProgressBar {
        if !self.shows_progress() {
            return ProgressBar::hidden();
        }
        let line = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let (_, columns) = console::Term::stderr().size();
            // A full last column would make some terminals begin a new line.
            let text = draw(usize::from(columns).saturating_sub(1));
            // A line that cannot be drawn is drawn the next time.
            let _ = out.write_str(&terminal::line(&text));
        };
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{line}") {
            bar.set_style(style.with_key("line", line));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }

    /// A spinner that shows the current work and its time, for work of unknown length; hidden where progress is not shown.
    pub(crate) fn spinner(&self, message: &str) -> ProgressBar {
        let bar = if self.shows_progress() {
            ProgressBar::new_spinner()
        } else {
            return ProgressBar::hidden();
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(terminal::line(message).into_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

/// Prints the error of a command line, or the help that it asks for, and returns the exit status.
pub(crate) fn of_arguments(error: &clap::Error) -> u8 {
    // Where nothing can be printed, the status alone says it.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// An error with its causes.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Libraries put their source into their own message; say nothing twice.
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

fn write_out(text: &str) -> anyhow::Result<()> {
    if asked::keep(text) {
        return Ok(());
    }
    match writeln!(std::io::stdout().lock(), "{text}") {
        // A closed pipe (`undertone ... | head`) is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// A value as it may stand in a table or a sentence: in one line of bounded length.
pub(crate) fn value(text: &str) -> Cow<'_, str> {
    terminal::line(text)
}

/// Writer of log messages to standard error, escaped.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, message: &[u8]) -> std::io::Result<usize> {
        // The logger hands over one whole message at a time, with its line feed.
        let text = String::from_utf8_lossy(message);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        writeln!(std::io::stderr().lock(), "{}", terminal::line(text))?;
        Ok(message.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}
