//! The ends of sentences.

use super::kind::{Mark, Opening, closes, is_digit, is_line_end, is_wide_point, mark, opening};
use crate::tokenize;

/// Calls `sentence` with every sentence of a text.
pub(crate) fn sentences<'a>(text: &'a str, mut sentence: impl FnMut(&'a str)) {
    if text.is_ascii() {
        return tokenize::sentences(text, sentence);
    }
    for line in text.split(is_line_end) {
        cut(line, &mut |found, _| sentence(found));
    }
}

/// The sentence that a text ends in; empty where the text ends between two sentences.
pub(crate) fn open_sentence(text: &str) -> &str {
    if text.is_ascii() {
        return tokenize::open_sentence(text);
    }
    let line = text.rsplit(is_line_end).next().unwrap_or(text);
    let (mut last, mut over) = ("", false);
    cut(line, &mut |found, ended| (last, over) = (found, ended));
    match over || last.trim().is_empty() {
        true => "",
        false => last,
    }
}

/// Calls `sentence` with every sentence of a line, and with `true` if it is known to be over.
fn cut<'a>(line: &'a str, sentence: &mut impl FnMut(&'a str, bool)) {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let (mut start, mut at) = (0, 0);
    while let Some(c) = line[at..].chars().next() {
        let first = found(line, at, c);
        at += c.len_utf8();
        if first == Mark::No {
            continue;
        }
        let mut sure = first == Mark::Sure;
        while let Some(next) = line[at..].chars().next() {
            match found(line, at, next) {
                Mark::Sure => sure = true,
                Mark::Possible => {}
                Mark::No if closes(next, sure) => {}
                Mark::No => break,
            }
            at += next.len_utf8();
        }
        let rest = line[at..].trim_start();
        let gap = line.len() - at - rest.len();
        if sure || (gap > 0 && opens(rest)) {
            sentence(&line[start..at], true);
            at += gap;
            start = at;
        } else if gap > 0 && rest.is_empty() {
            // The line ends in white space, as one whose next sentence is not there yet.
            sentence(&line[start..], true);
            return;
        }
    }
    if start < line.len() {
        sentence(&line[start..], false);
    }
}

/// The mark at a place of a line. A full stop inside a number or an address is none.
fn found(line: &str, at: usize, c: char) -> Mark {
    let next = || line[at + c.len_utf8()..].chars().next();
    let inside = |c: char| is_digit(c) || c.is_ascii_alphabetic() || matches!(c, 'Ａ'..='Ｚ' | 'ａ'..='ｚ');
    match is_wide_point(c) && next().is_some_and(inside) {
        true => Mark::No,
        false => mark(c),
    }
}

/// `true` if a sentence begins with this text.
fn opens(rest: &str) -> bool {
    let decided = rest.chars().map(opening).find(|&kind| kind != Opening::Next);
    decided == Some(Opening::Yes)
}
