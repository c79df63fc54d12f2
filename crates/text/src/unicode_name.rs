//! The rule of words for every language in a program that was built to name it and not to cut text by it.
//!
//! Such a program reads the settings of others, as a verifier does. It asks no text of this module.

/// Stops a program that cuts text by a rule it was built without.
fn absent() -> ! {
    panic!("this program was built to read the name of the rule `unicode` and not to cut text by it")
}

pub(crate) fn sentences<'a>(_: &'a str, _: impl FnMut(&'a str)) {
    absent()
}

pub(crate) fn open_sentence(_: &str) -> &str {
    absent()
}

pub(crate) fn words(_: &str, _: &mut String, _: impl FnMut(&str)) {
    absent()
}

pub(crate) fn spelled(_: &str) -> String {
    absent()
}

pub(crate) fn pieces(_: &str) -> u64 {
    absent()
}

pub(crate) fn is_prose(_: char) -> bool {
    absent()
}

pub(crate) fn is_spaced(_: &str, _: &str) -> bool {
    absent()
}
