//! The rules, as functions of one passage.

use super::{
    BEFORE_A_COMMA, COUNTED, FRAGMENTS, HIDDEN, Kind, MAX_HELP, MAX_WORDS, NUMBERS, Passage, STOP_LIST, UNITS,
};

pub(super) fn findings(passage: &Passage) -> Vec<String> {
    let plain = plain(&passage.text);
    let mut found = Vec::new();
    if passage.prose && passage.kind != Kind::Error {
        found.extend(fragment(&plain, passage.kind == Kind::Doc));
    }
    found.extend(rates(&plain));
    found.extend(stop_words(&plain));
    match passage.kind {
        Kind::Error => {
            if plain.to_lowercase().contains("expected no ") {
                found.push("\"expected no\": say what is needed and what was found".to_owned());
            }
        }
        Kind::Help => {
            let length = passage.text.chars().count();
            if length > MAX_HELP {
                found.push(format!("a help line of {length} characters, max {MAX_HELP}"));
            }
        }
        Kind::Page if passage.prose => found.extend(sentences(&plain).iter().flat_map(|text| long(text))),
        Kind::Page | Kind::Doc | Kind::Text => {}
    }
    found
}

fn fragment(text: &str, is_doc: bool) -> Option<String> {
    let sentences = sentences(text);
    let first = sentences.first()?;
    let opens = |starts: &'static [&'static str]| starts.iter().find(|start| text.starts_with(**start));
    let start = match opens(&FRAGMENTS) {
        None if is_doc && first.contains(',') => opens(&HIDDEN),
        None if is_doc => opens(&HIDDEN).or_else(|| opens(&BEFORE_A_COMMA)),
        start => start,
    }?;
    // A question has a subject.
    if first.ends_with('?') {
        return None;
    }
    Some(format!("starts with \"{}\": name the subject", start.trim_end()))
}

/// `true` if a list of words, separated by spaces, has this word.
fn lists(words: &str, word: &str) -> bool {
    words.split(' ').any(|listed| listed == word)
}

fn rates(text: &str) -> Vec<String> {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-');
            word.to_lowercase()
        })
        .collect();
    let ends = |at: usize| {
        let raw = text.split_whitespace().nth(at).unwrap_or_default();
        raw.ends_with(['.', ',', ';', ':', '!', '?', ')'])
    };
    let mut found = Vec::new();
    for at in 1..words.len().saturating_sub(1) {
        if words[at] != "a" || !lists(UNITS, &words[at + 1]) || ends(at - 1) {
            continue;
        }
        let first = words[at - 1].as_str();
        let number = lists(NUMBERS, first) || first.parse::<f64>().is_ok();
        if number || lists(COUNTED, first) || first.starts_with("per-") {
            found.push(format!("\"{first} a {}\": use \"per\"", words[at + 1]));
        }
    }
    found
}

fn stop_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let whole = |word: &str| {
        lower.match_indices(word).any(|(at, _)| {
            let before = lower[..at].chars().next_back();
            !before.is_some_and(char::is_alphanumeric)
        })
    };
    STOP_LIST
        .iter()
        .filter(|word| whole(word))
        .map(|word| format!("\"{word}\" is on the stop list"))
        .collect()
}

fn long(sentence: &str) -> Vec<String> {
    let words = sentence
        .split_whitespace()
        .filter(|word| word.contains(char::is_alphanumeric))
        .count();
    let semicolons = sentence.matches(';').count();
    let mut found = Vec::new();
    if words > MAX_WORDS {
        found.push(format!(
            "a sentence of {words} words, max {MAX_WORDS}: {sentence}"
        ));
    }
    if semicolons > 1 {
        found.push(format!("a sentence with {semicolons} semicolons: {sentence}"));
    }
    found
}

/// Text with code spans as one word, links as their text, and without emphasis.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        plain.push_str(if index % 2 == 1 { "CODE" } else { part });
    }
    let mut shown = String::new();
    let mut rest = plain.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        shown.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    shown.push_str(rest);
    shown.replace(['*', '[', ']'], "")
}

pub(super) fn sentences(text: &str) -> Vec<String> {
    const ABBREVIATIONS: [&str; 8] = ["al.", "e.g.", "i.e.", "vs.", "Alg.", "Thm.", "Prop.", "eq."];
    let mut sentences = vec![String::new()];
    let words: Vec<&str> = text.split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        if let Some(sentence) = sentences.last_mut() {
            sentence.push_str(word);
            sentence.push(' ');
        }
        let bare = word.trim_end_matches([')', '"', '\'']);
        let next = words.get(index + 1).and_then(|next| next.chars().next());
        let ends = bare.ends_with(['.', '!', '?'])
            && !ABBREVIATIONS.contains(&bare)
            && !next.is_some_and(char::is_lowercase);
        if ends {
            sentences.push(String::new());
        }
    }
    sentences
        .into_iter()
        .map(|sentence| sentence.trim_end().to_owned())
        .filter(|sentence| !sentence.is_empty())
        .collect()
}
