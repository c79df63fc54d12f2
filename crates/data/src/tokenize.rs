//! Text to sentences, sentences to words.
//!
//! The convention (docs/DATA.md): an example is a sentence; text is cut at newlines, then after `.`, `!` or `?` where
//! white space and a capital letter or a quotation mark follow. Words are cut at white space, stripped of punctuation at
//! both edges, lower-cased, and purely alphabetic compounds `a-b` are cut at the hyphen.

/// Characters stripped from the edges of a word. `$`, `%`, `&`, `+` and `@` stay: they carry meaning (`c++`, `&mut`).
const EDGE: &[char] = &[
    '.', ',', ';', ':', '!', '?', '(', ')', '[', ']', '{', '}', '<', '>', '"', '\'', '`', '*', '_', '-', '=',
    '/', '\\', '|', '~', '^', '#',
];

/// Calls `sentence` with every sentence of a text.
pub(crate) fn sentences<'a>(text: &'a str, mut sentence: impl FnMut(&'a str)) {
    for line in text.lines() {
        let bytes = line.as_bytes();
        let mut start = 0;
        let mut at = 0;
        while at < bytes.len() {
            if matches!(bytes[at], b'.' | b'!' | b'?') {
                let rest = &line[at + 1..];
                let next = rest.trim_start();
                let gap = rest.len() - next.len();
                if gap > 0 && next.chars().next().is_some_and(opens_sentence) {
                    sentence(&line[start..=at]);
                    start = at + 1 + gap;
                    at = start;
                    continue;
                }
            }
            at += 1;
        }
        if start < bytes.len() {
            sentence(&line[start..]);
        }
    }
}

fn opens_sentence(c: char) -> bool {
    c.is_ascii_uppercase() || matches!(c, '"' | '\'')
}

/// Calls `word` with every word of a sentence. `scratch` is reused between calls.
pub(crate) fn words(sentence: &str, scratch: &mut String, mut word: impl FnMut(&str)) {
    for piece in sentence.split_whitespace() {
        let piece = piece.trim_matches(EDGE);
        if piece.is_empty() {
            continue;
        }
        scratch.clear();
        if piece.is_ascii() {
            scratch.push_str(piece);
            scratch.make_ascii_lowercase();
        } else {
            scratch.extend(piece.chars().flat_map(char::to_lowercase));
        }
        if is_compound(scratch) {
            scratch.split('-').for_each(&mut word);
        } else {
            word(scratch);
        }
    }
}

fn is_compound(word: &str) -> bool {
    word.contains('-')
        && word
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase()))
}
