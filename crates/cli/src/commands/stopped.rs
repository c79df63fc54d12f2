//! Commands that Ctrl-C or SIGTERM has ended in order.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use undertone_data::DataError;
use undertone_run::{Observer, RunError};

use crate::signals;

/// The end of a command that was asked to end. Its sentence says what is kept, and how to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stopped(pub(crate) String);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stopped {}

/// `true` if a run ended because its observer asked for it.
pub(crate) fn was_ended(error: &RunError) -> bool {
    matches!(
        error,
        RunError::Interrupted | RunError::Data(DataError::Interrupted)
    )
}

/// Ends the work at once where a signal asks for it, and shows nothing.
pub(crate) struct AtOnce;

impl Observer for AtOnce {
    fn stop(&self) -> bool {
        signals::asked_to_end()
    }
}

/// The sentence about the rounds that are kept: those that are done and all, where they are known.
pub(crate) fn kept(unit: &str, rounds: Option<(u64, u64)>) -> String {
    match rounds {
        Some((done, total)) if done > 0 => {
            format!("stopped after {unit} {done} of {total}; {done} are kept")
        }
        _ => format!("stopped before a {unit} began"),
    }
}

/// The words of the command line that runs.
static GIVEN: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// Keeps the words of the command line, for a sentence that says how to go on.
pub(crate) fn remember(words: Vec<OsString>) {
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = words;
}

/// The words behind the name of the program.
fn given() -> Vec<String> {
    let words = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let behind = words.iter().skip(1);
    behind.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The command line as a shell reads it. `flag` is added where it is missing.
pub(crate) fn same_again(flag: Option<&str>) -> String {
    again(given(), flag)
}

/// The command line that trains the same run without privacy.
pub(crate) fn without_privacy() -> String {
    let mut kept = given();
    kept.retain(|word| !["--resume", "--json"].contains(&word.as_str()));
    again(kept, Some("--without-privacy"))
}

fn again(mut words: Vec<String>, flag: Option<&str>) -> String {
    // Words after `--` are no flags.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    if let Some(flag) = flag
        && !words[..end].iter().any(|word| word == flag)
    {
        words.insert(end, flag.to_owned());
    }
    let mut line = "undertone".to_owned();
    for word in &words {
        line += " ";
        line += &quoted(word);
    }
    line
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_comes_back_with_its_flag_once() {
        let line = |words: &[&str], flag| again(words.iter().map(|&word| word.to_owned()).collect(), flag);
        let resume = Some("--resume");
        assert_eq!(
            line(&["train", "run.toml"], resume),
            "undertone train run.toml --resume"
        );
        assert_eq!(
            line(
                &["train", "run.toml", "--resume", "--set", "clip.norm=0.5"],
                resume
            ),
            "undertone train run.toml --resume --set clip.norm=0.5"
        );
        assert_eq!(
            line(&["train", "--", "--resume"], resume),
            "undertone train --resume -- --resume"
        );
        assert_eq!(
            line(&["sweep", "my sweep.toml"], None),
            "undertone sweep 'my sweep.toml'"
        );
        assert_eq!(line(&["eval", "it's", ""], None), "undertone eval 'it'\\''s' ''");
    }

    #[test]
    fn the_sentence_counts_rounds_that_are_done() {
        assert_eq!(
            kept("round", Some((151, 400))),
            "stopped after round 151 of 400; 151 are kept"
        );
        assert_eq!(kept("step", Some((0, 400))), "stopped before a step began");
        assert_eq!(kept("round", None), "stopped before a round began");
    }
}
