//! Text to sentences, sentences to words.
//!
//! The convention (docs/guide/data.md): an example is a sentence; text is cut at newlines, then after `.`, `!` or `?` where
//! white space and a capital letter or a quotation mark follow. Words are cut at white space, stripped of punctuation at
//! both edges, lower-cased, and purely alphabetic compounds `a-b` are cut at the hyphen.

/// Characters stripped from the edges of a word. `$`, `%`, `&`, `+`, `@` and `^` stay: they carry meaning (`c++`, `&mut`).
pub(crate) const EDGE: &[char] = &[
    '.', ',', ';', ':', '!', '?', '(', ')', '[', ']', '{', '}', '<', '>', '"', '\'', '`', '*', '_', '-', '=',
    '/', '\\', '|', '~', '#',
];

/// Calls `sentence` with every sentence of a text.
pub fn sentences<'a>(text: &'a str, mut sentence: impl FnMut(&'a str)) {
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

/// The sentence that a text ends in; empty where the text ends between two sentences.
#[must_use]
pub fn open_sentence(text: &str) -> &str {
    let end = text.trim_end();
    let gap = &text[end.len()..];
    if gap.contains('\n') || (!gap.is_empty() && end.ends_with(['.', '!', '?'])) {
        return "";
    }
    let mut last = "";
    sentences(text, |sentence| last = sentence);
    last
}

fn opens_sentence(c: char) -> bool {
    c.is_ascii_uppercase() || matches!(c, '"' | '\'')
}

/// Calls `word` with every word of a sentence. `scratch` is reused between calls.
pub fn words(sentence: &str, scratch: &mut String, mut word: impl FnMut(&str)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        sentences(text, |sentence| {
            let mut found = Vec::new();
            words(sentence, &mut String::new(), |word| found.push(word.to_owned()));
            all.push(found);
        });
        all
    }

    #[test]
    fn sentences_end_at_marks_and_lines() {
        fn check(text: &str, expected: &[&str]) {
            let mut got = Vec::new();
            sentences(text, |sentence| got.push(sentence));
            assert_eq!(got, expected);
        }
        check("One. Two! Three? Four", &["One.", "Two!", "Three?", "Four"]);
        check("e.g. this stays. One", &["e.g. this stays.", "One"]);
        check("Version 1.2 is out.Now", &["Version 1.2 is out.Now"]);
        check("He said. \"Yes.\" 'No'", &["He said.", "\"Yes.\" 'No'"]);
        check("One.\nTwo\r\n\nThree", &["One.", "Two", "Three"]);
        check("Wait...  What", &["Wait...", "What"]);
        check("End. ", &["End. "]);
        check("", &[]);
    }

    #[test]
    fn the_context_is_the_sentence_that_the_text_ends_in() {
        for (text, expected) in [
            ("", ""),
            ("the cat", "the cat"),
            ("One. Two three", "Two three"),
            ("It ends.", "It ends."),
            ("It ends. ", ""),
            ("It ends.\n", ""),
            ("A line\n", ""),
            ("A line\nanother ", "another "),
            ("What? \"Yes", "\"Yes"),
        ] {
            assert_eq!(open_sentence(text), expected, "{text:?}");
        }
    }

    #[test]
    fn words_lose_their_edges_and_capitals() {
        fn check(sentence: &str, expected: &[&str]) {
            assert_eq!(cut(sentence).concat(), expected);
        }
        check("The (quick) \"fox\", it's!", &["the", "quick", "fox", "it's"]);
        check(
            "well-known u-boot's utf-8 git-p4",
            &["well", "known", "u-boot's", "utf-8", "git-p4"],
        );
        check(
            "c++ &mut 100% $HOME HEAD^ _x_",
            &["c++", "&mut", "100%", "$home", "head^", "x"],
        );
        check("a--b -- ---", &["a--b"]);
        check("Über-Ärger STRASSE", &["über-ärger", "strasse"]);
    }

    proptest! {
        #[test]
        fn words_are_clean(text in "[ -~\n\u{e0}-\u{ff}]{0,200}") {
            for word in cut(&text).concat() {
                prop_assert!(!word.is_empty());
                prop_assert!(!word.contains(char::is_whitespace));
                prop_assert!(word.trim_matches(EDGE) == word, "{}", word);
            }
        }

        #[test]
        fn sentences_lose_nothing_but_white_space(text in ".{0,200}") {
            let mut kept = String::new();
            sentences(&text, |sentence| kept.push_str(sentence));
            let dense = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(dense(&kept), dense(&text));
        }

        #[test]
        fn tokenising_again_changes_nothing(text in "[ -~]{0,120}") {
            let once = cut(&text).concat();
            let again = cut(&once.join(" ")).concat();
            prop_assert_eq!(once, again);
        }
    }
}
