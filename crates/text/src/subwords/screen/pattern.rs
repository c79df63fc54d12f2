//! The pattern of a part of a tokenizer: a text, or a regular expression that is matched in linear time.

use regex::RegexBuilder;
use serde_json::Value;

use crate::tokens::file::{MAX_INSERTED, shown};

/// Maximum length of a regular expression, and size of the automaton it becomes, in bytes.
const MAX_PATTERN_BYTES: usize = 2048;
const MAX_AUTOMATON_BYTES: usize = 1 << 20;

/// The one look-around that is accepted, between alternatives: GPT-2 and its successors cut white space by it. It looks one
/// letter ahead.
const LAST_SPACES: &str = r"|\s+(?!\S)|";

pub(super) enum Pattern<'a> {
    Literal(&'a str),
    Regex,
}

/// The pattern of a part, if it is accepted.
pub(super) fn of(part: &Value) -> Result<Pattern<'_>, String> {
    let pattern = part.get("pattern").unwrap_or(&Value::Null);
    let literal = pattern.get("String").and_then(Value::as_str);
    let regex = pattern.get("Regex").and_then(Value::as_str);
    match (literal, regex) {
        (Some(text), None) if (1..=MAX_INSERTED).contains(&text.len()) => Ok(Pattern::Literal(text)),
        (Some(text), None) => Err(format!(
            "pattern: expected between 1 and {MAX_INSERTED} bytes, got {}",
            text.len()
        )),
        (None, Some(regex)) => check(regex).map(|()| Pattern::Regex),
        _ => Err(format!(
            "pattern: expected a String or a Regex, got {}",
            shown(pattern)
        )),
    }
}

/// Each side of the look-ahead must be an expression by itself, so that it stands between whole alternatives.
fn check(regex: &str) -> Result<(), String> {
    if regex.len() > MAX_PATTERN_BYTES {
        return Err(format!(
            "pattern: expected at most {MAX_PATTERN_BYTES} bytes, got {}",
            regex.len()
        ));
    }
    let unknown = || {
        "pattern: expected a regular expression without look-around, back-references and possessive repetition".to_owned()
    };
    if is_possessive(regex) {
        return Err(unknown());
    }
    for part in regex.split(LAST_SPACES) {
        let checked = RegexBuilder::new(part).size_limit(MAX_AUTOMATON_BYTES).build();
        checked.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "pattern: expected a smaller regular expression".to_owned(),
            _ => unknown(),
        })?;
    }
    Ok(())
}

/// Returns `true` if a repetition is followed by a plus. The library's engine then never gives back a match, and other parts of
/// the expression are tried one by one; to this program's engine it is a repetition of a repetition.
fn is_possessive(regex: &str) -> bool {
    let (mut letters, mut class, mut repeats) = (regex.chars().peekable(), 0_usize, false);
    while let Some(letter) = letters.next() {
        let repeated = repeats;
        repeats = false;
        match letter {
            '\\' => {
                let name = matches!(letters.next(), Some('p' | 'P' | 'x' | 'u' | 'U'));
                if name && letters.peek() == Some(&'{') {
                    letters.by_ref().find(|&letter| letter == '}');
                }
            }
            '[' => class += 1,
            ']' => class = class.saturating_sub(1),
            '+' if repeated => return true,
            '*' | '+' | '?' | '}' => repeats = class == 0,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    #[test]
    fn patterns_of_known_tokenizers_are_accepted_and_backtracking_ones_are_not() {
        for good in [
            GPT_2,
            LLAMA_3,
            O200K,
            r"\p{N}{1,3}",
            r"\s+",
            r"[*+]+\x{20}+\++",
            "[0-9][0-9][0-9]",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            r"(?:a+|\s+(?!\S)|b)+c",
            r"(a*)*\1",
            r"a(?=b)",
            r"(?<!x)y",
            r"a*+b",
            r"(?:a++|a)*c",
            r"x{2}+y",
            r"a?+",
            r"[|\s+(?!\S)|]x(",
            r"(\p{L}{1000}){1000}",
            "(",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&"a".repeat(3000)).is_err());
    }
}
