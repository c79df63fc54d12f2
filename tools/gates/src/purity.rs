//! Crates that do no I/O, read no clock and own no randomness.

use crate::reference::references;
use crate::source::{Finding, Source};

/// Paths below which a pure crate uses nothing.
const IMPURE: [&str; 8] = [
    "std::fs",
    "std::net",
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::process",
    "std::time",
    "getrandom",
];

/// Macros that print.
const PRINTING: [&str; 5] = ["println", "eprintln", "print", "eprint", "dbg"];

/// The uses of files, networks, the environment, processes, clocks, random numbers of the system and printed text in a file.
#[must_use]
pub fn impurities(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut judge = |items: &[syn::Item]| {
        let references = references(items);
        for (path, span) in references.all() {
            let path = path.join("::");
            let is_below = |impure: &&&str| {
                path.strip_prefix(**impure)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            };
            let prints = PRINTING.contains(&path.as_str());
            if let Some(what) = IMPURE.iter().find(is_below).or(prints.then_some(&"printing")) {
                found.push(source.finding(span, format!("{path} ({what})")));
            }
        }
    };
    each_module(&source.file.items, &mut judge);
    found.sort();
    found.dedup();
    found
}

/// Calls `judge` with the items of a file and with those of each inline module.
pub(crate) fn each_module(items: &[syn::Item], judge: &mut impl FnMut(&[syn::Item])) {
    judge(items);
    for item in items {
        if let syn::Item::Mod(module) = item
            && let Some((_, items)) = &module.content
        {
            each_module(items, judge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TESTS, lines, source};

    #[test]
    fn what_is_impure_below_the_tests_of_a_file_is_found() {
        let text = format!(
            "{TESTS}use std::{{fmt, fs::File}};\nfn f() {{ std::time::Instant::now(); }}\nfn g() {{ assert!(std::env::var(\"A\").is_ok()); \
             }}\nmod inner {{ fn h() {{ println!(); }} }}\nfn i() {{ getrandom::fill(&mut []) }}\n"
        );
        assert_eq!(lines(&impurities(&source(&text))), [3, 4, 5, 6, 7]);
    }

    #[test]
    fn names_that_only_look_impure_are_right() {
        let text = "use std::fmt;\n/// Uses `std::fs` nowhere.\nfn f(fs: u8, time: u8) -> String { format!(\"std::fs {fs} {time}\") }\n\
                    #[cfg(test)]\nmod tests { use std::fs; }\nconst FILE: &str = \"std::net\";\nuse crate::std_fs;\n";
        assert!(impurities(&source(text)).is_empty());
    }
}
