//! The functions that a page in a browser calls. The page writes the words of a command line as a JSON list into [`planner_question`], and reads a JSON
//! document back: `{"json": ..., "text": ...}`, or `{"error": ...}`.
#![expect(
    unsafe_code,
    reason = "a function that JavaScript finds by its name needs an unsafe attribute; no function here has an unsafe body"
)]

use std::cell::RefCell;

use anyhow::Context;
use serde_json::json;

thread_local! {
    static QUESTION: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The place for a question of `length` bytes.
#[unsafe(no_mangle)]
extern "C" fn planner_question(length: usize) -> *mut u8 {
    QUESTION.with_borrow_mut(|question| {
        question.clear();
        question.resize(length, 0);
        question.as_mut_ptr()
    })
}

/// Answers the question, and gives the length of the answer in bytes.
#[unsafe(no_mangle)]
extern "C" fn planner_solve() -> usize {
    let document = QUESTION.with_borrow(|question| match answer(question) {
        Ok(shown) => json!({ "json": shown.json, "text": shown.text }),
        Err(error) => json!({ "error": format!("{error:#}") }),
    });
    ANSWER.with_borrow_mut(|answer| {
        *answer = document.to_string().into_bytes();
        answer.len()
    })
}

/// The place of the answer.
#[unsafe(no_mangle)]
extern "C" fn planner_answer() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}

fn answer(question: &[u8]) -> anyhow::Result<crate::Shown> {
    let words: Vec<String> = serde_json::from_slice(question).context("expected a JSON list of words")?;
    crate::answer(words.iter().map(String::as_str))
}
