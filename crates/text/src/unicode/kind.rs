//! Kinds of characters.

use icu_properties::props::{GeneralCategory, SentenceTerminal};
use icu_properties::{CodePointMapData, CodePointSetData};

/// The general category.
fn category(c: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(c)
}

/// `true` for a decimal digit of any script.
pub(super) fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && category(c) == GeneralCategory::DecimalNumber)
}

/// `true` for a letter or a mark that combines with one: the characters of an alphabetic word.
pub(super) fn is_letter(c: char) -> bool {
    use GeneralCategory as G;
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    matches!(
        category(c),
        G::UppercaseLetter
            | G::LowercaseLetter
            | G::TitlecaseLetter
            | G::ModifierLetter
            | G::OtherLetter
            | G::NonspacingMark
            | G::SpacingMark
            | G::EnclosingMark
    )
}

/// `true` for letters, their marks, and punctuation beyond ASCII.
pub(crate) fn is_prose(c: char) -> bool {
    c.is_alphabetic() || (!c.is_ascii() && (is_letter(c) || is_punctuation(c)))
}

/// `true` for punctuation beyond ASCII, but for signs that carry meaning, like their ASCII twins `%`, `&` and `@`.
pub(super) fn is_punctuation(c: char) -> bool {
    use GeneralCategory as G;
    !c.is_ascii()
        && !matches!(c, '§' | '‰' | '‱' | '٪' | '؉' | '؊' | '％' | '＆' | '＠')
        && matches!(
            category(c),
            G::ConnectorPunctuation
                | G::DashPunctuation
                | G::OpenPunctuation
                | G::ClosePunctuation
                | G::InitialPunctuation
                | G::FinalPunctuation
                | G::OtherPunctuation
        )
}

/// `true` for punctuation that stands inside words: the dots of Catalan and of dictionaries, and the marks of Hebrew abbreviations.
pub(super) fn is_within_words(c: char) -> bool {
    matches!(c, '·' | '‧' | '׳' | '״')
}

/// `true` for characters without a shape: soft hyphens, byte-order marks and the marks of the direction of writing.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}' | '\u{feff}'
    )
}

/// `true` for what divides words: white space, and the space without width of Khmer and its neighbours.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || c == '\u{200b}'
}

/// `true` for the ends of lines.
pub(super) fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The effect of a character at the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The character ends no sentence.
    No,
    /// The sentence ends if white space and the opening of another one follow.
    Possible,
    /// The sentence ends.
    Sure,
}

/// The effect of a character at the end of a sentence.
pub(super) fn mark(c: char) -> Mark {
    match c {
        '.' | '!' | '?' | '…' | '․' | '‼' | '‽' | '⁇' | '⁈' | '⁉' | '⸮' => Mark::Possible,
        // Khmer.
        '\u{17d4}' | '\u{17d5}' => Mark::Sure,
        _ if !c.is_ascii() && CodePointSetData::new::<SentenceTerminal>().contains(c) => Mark::Sure,
        _ => Mark::No,
    }
}

/// `true` for full stops that also stand in numbers and addresses.
pub(super) fn is_wide_point(c: char) -> bool {
    matches!(c, '．' | '﹒')
}

/// `true` for closing quotation marks and brackets after a mark. `sure` is `true` after a mark that always ends a sentence. After it an
/// opening quotation mark begins the next sentence, but German closes with the marks by which English opens.
pub(super) fn closes(c: char, sure: bool) -> bool {
    use GeneralCategory as G;
    if c.is_ascii() {
        return sure && matches!(c, '"' | '\'' | ')' | ']' | '}');
    }
    match category(c) {
        G::ClosePunctuation | G::FinalPunctuation => true,
        G::InitialPunctuation => !sure,
        _ => false,
    }
}

/// The effect of a character behind the end of a possible sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The character opens a sentence.
    Yes,
    /// The sentence goes on.
    No,
    /// The next character decides.
    Next,
}

/// The effect of a character behind white space and a mark.
pub(super) fn opening(c: char) -> Opening {
    use GeneralCategory as G;
    let opens = match c {
        '"' | '\'' | '¿' | '¡' => true,
        _ if is_invisible(c) || c.is_whitespace() => return Opening::Next,
        _ if c.is_ascii() => c.is_ascii_uppercase(),
        // Georgian has capitals, but no sentence begins with one.
        '\u{10d0}'..='\u{10ff}' => true,
        _ => match category(c) {
            G::DashPunctuation => return Opening::Next,
            G::UppercaseLetter | G::TitlecaseLetter | G::OtherLetter => true,
            G::InitialPunctuation | G::FinalPunctuation | G::OpenPunctuation => true,
            _ => false,
        },
    };
    match opens {
        true => Opening::Yes,
        false => Opening::No,
    }
}

/// `true` for letters and marks of scripts that are written without spaces and have a dictionary: Chinese, Japanese, Thai, Lao, Burmese
/// and Khmer.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(
        c,
        // Thai and Lao.
        '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' | '\u{e81}'..='\u{ecf}' | '\u{edc}'..='\u{edf}'
        // Burmese and its neighbours.
        | '\u{1000}'..='\u{103f}' | '\u{1050}'..='\u{108f}' | '\u{109a}'..='\u{109d}'
        | '\u{a9e0}'..='\u{a9ef}' | '\u{a9fa}'..='\u{a9fe}' | '\u{aa60}'..='\u{aa76}' | '\u{aa7a}'..='\u{aa7f}'
        // Khmer.
        | '\u{1780}'..='\u{17d3}' | '\u{17d7}' | '\u{17dc}' | '\u{17dd}'
        // Radicals and ideographs.
        | '\u{2e80}'..='\u{2fd5}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3038}'..='\u{303c}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}'
        // Hiragana and katakana.
        | '\u{3041}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}'
        | '\u{ff66}'..='\u{ff9f}' | '\u{1aff0}'..='\u{1b16f}'
    )
}

/// `true` for characters that the tables know.
#[cfg(test)]
pub(super) fn is_assigned(c: char) -> bool {
    category(c) != GeneralCategory::Unassigned
}
