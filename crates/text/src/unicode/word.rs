//! The words of a sentence.

use std::borrow::Cow;
use std::sync::LazyLock;

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_segmenter::options::WordBreakInvariantOptions;
use icu_segmenter::{WordSegmenter, WordSegmenterBorrowed};
use zeroize::Zeroizing;

use super::kind::{
    is_digit, is_invisible, is_letter, is_punctuation, is_space, is_unspaced, is_within_words,
};
use crate::tokenize::{self, EDGE};

/// Dictionaries rather than neural networks: equal words on every machine, because no rounding decides.
static DICTIONARIES: LazyLock<WordSegmenterBorrowed<'static>> =
    LazyLock::new(|| WordSegmenter::new_dictionary(WordBreakInvariantOptions::default()));

/// Calls `word` with every word of a sentence. `scratch` is reused between calls.
pub(crate) fn words(sentence: &str, scratch: &mut String, mut word: impl FnMut(&str)) {
    if sentence.is_ascii() {
        return tokenize::words(sentence, scratch, word);
    }
    for piece in sentence.split(is_space) {
        match piece.is_ascii() {
            true => tokenize::words(piece, scratch, &mut word),
            false => words_of(&spelled(piece), &mut word),
        }
    }
}

/// The words of a piece between white space, which is spelled as the words of a vocabulary are.
fn words_of(piece: &str, word: &mut impl FnMut(&str)) {
    runs(piece, |run, unspaced| match unspaced {
        true => segments(run, word),
        false => {
            let run = run.trim_matches(is_edge);
            match is_compound(run) {
                true => run.split('-').for_each(&mut *word),
                false if run.is_empty() => {}
                false => word(run),
            }
        }
    });
}

/// Calls `run` with every stretch without inner punctuation, and with `true` if its script is written without spaces.
fn runs(piece: &str, mut run: impl FnMut(&str, bool)) {
    let (mut start, mut unspaced, mut before) = (0, false, None);
    let mut rest = piece.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let after = rest.peek().map(|&(_, next)| next);
        if divides(before, c, after) {
            if start < at {
                run(&piece[start..at], unspaced);
            }
            start = at + c.len_utf8();
        } else if is_unspaced(c) != unspaced {
            if start < at {
                run(&piece[start..at], unspaced);
            }
            (start, unspaced) = (at, !unspaced);
        }
        before = Some(c);
    }
    if start < piece.len() {
        run(&piece[start..], unspaced);
    }
}

/// `true` for punctuation beyond ASCII between words. Between two digits it is part of a number.
fn divides(before: Option<char>, c: char, after: Option<char>) -> bool {
    is_punctuation(c) && !is_within_words(c) && !(before.is_some_and(is_digit) && after.is_some_and(is_digit))
}

/// Calls `word` with the words of a stretch without spaces.
fn segments(run: &str, word: &mut impl FnMut(&str)) {
    let mut start = 0;
    for end in DICTIONARIES.segment_str(run) {
        if start < end {
            word(&run[start..end]);
        }
        start = end;
    }
}

fn is_edge(c: char) -> bool {
    EDGE.contains(&c) || matches!(c, '\u{200c}' | '\u{200d}') || is_punctuation(c)
}

fn is_compound(word: &str) -> bool {
    word.contains('-')
        && word
            .split('-')
            .all(|part| !part.is_empty() && part.chars().all(is_letter))
}

/// Text as the words of a vocabulary spell it: composed (NFC), with plain apostrophes and hyphens, without characters that have no
/// shape, and in lower case.
pub(crate) fn spelled(text: &str) -> Zeroizing<String> {
    let composed = composed(text);
    // No character becomes longer, so the text is never copied to a larger place.
    let mut folded = Zeroizing::new(String::with_capacity(composed.len()));
    folded.extend(composed.chars().filter(|&c| !is_invisible(c)).map(plain));
    let lower = Zeroizing::new(folded.to_lowercase());
    // A letter in lower case may compose where its capital does not.
    self::composed(&lower)
}

fn composed(text: &str) -> Zeroizing<String> {
    Zeroizing::new(match ComposingNormalizerBorrowed::new_nfc().normalize(text) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    })
}

/// The plain form of a typographic apostrophe or hyphen.
fn plain(c: char) -> char {
    match c {
        '’' | '‘' | '‛' | 'ʼ' | '´' | '＇' => '\'',
        '\u{2010}' | '\u{2011}' => '-',
        _ => c,
    }
}

/// Number of pieces of a text between white space; a stretch of a script without spaces counts its words.
pub(crate) fn pieces(text: &str) -> u64 {
    let mut count = 0;
    for piece in text.split(is_space).filter(|piece| !piece.is_empty()) {
        let mut found = 0;
        if piece.contains(is_unspaced) {
            words_of(piece, &mut |_| found += 1);
        }
        count += found.max(1);
    }
    count
}

/// `true` if a space stands between two neighbouring words.
pub(crate) fn is_spaced(before: &str, after: &str) -> bool {
    !(before.ends_with(is_unspaced) && after.starts_with(is_unspaced))
}
