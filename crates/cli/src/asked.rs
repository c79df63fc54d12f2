//! Answers to another program: the JSON document that a command would print, and its warnings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An answer to a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The JSON document that the command prints with `--json`.
    pub document: String,
    /// The warnings that it prints on standard error.
    pub warnings: Vec<String>,
}

/// The answer that is being made, and the wish of its reader that the work end.
struct Asked {
    answer: Answer,
    stop: Arc<AtomicBool>,
}

static ASKED: Mutex<Option<Asked>> = Mutex::new(None);

/// Held while an answer is made, so that there is one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Reads or changes the answer that is being made; `None` where a person at a terminal asks.
fn with<T>(with: impl FnOnce(&mut Asked) -> T) -> Option<T> {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    asked.as_mut().map(with)
}

/// `true` while an answer is being made.
pub(crate) fn is_on() -> bool {
    with(|_| ()).is_some()
}

/// `true` if the reader of the answer has asked for an end.
pub(crate) fn stops() -> bool {
    with(|asked| asked.stop.load(Ordering::Relaxed)).unwrap_or(false)
}

/// Keeps a document for the answer; `false` where a person asks.
pub(crate) fn keep(document: &str) -> bool {
    with(|asked| asked.answer.document.push_str(document)).is_some()
}

/// Keeps a warning for the answer; `false` where a person asks.
pub(crate) fn warn(warning: &str) -> bool {
    with(|asked| asked.answer.warnings.push(warning.to_owned())).is_some()
}

/// Runs `work`, and gives what it has printed meanwhile. `stop` becomes `true` where the work is to end early.
pub(crate) fn answer(
    stop: Arc<AtomicBool>,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Answer> {
    /// Ends the answer whatever happens, also where the work panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            *ASKED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = Answer::default();
    *ASKED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Asked { answer, stop });
    let _end = End;
    work()?;
    Ok(with(|asked| std::mem::take(&mut asked.answer)).unwrap_or_default())
}
