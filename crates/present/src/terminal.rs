//! Text that may have come from a file, made fit for a terminal: what a terminal would obey is shown as an escape, such as `\u{1b}`.

use std::borrow::Cow;

/// The longest value and the longest error that are shown whole, in characters.
const LONGEST: usize = 2000;

/// Characters that change what stands around them on a terminal: controls, and marks of writing direction and of lines.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool, write: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let escape = |c: char| is_obeyed(c) && !keep(c);
    if !text.contains(escape) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match escape(c) {
            true => write(&mut visible, c),
            false => visible.push(c),
        }
    }
    Cow::Owned(visible)
}

/// Text whose lines are our own layout: line feeds stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| c == '\n',
        |visible, c| visible.extend(c.escape_default()),
    )
}

/// One value, in one line of bounded length whatever it holds.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    let text = match shortened(text) {
        None => return escaped(text, |_| false, |visible, c| visible.extend(c.escape_default())),
        Some(text) => text,
    };
    let visible = escaped(&text, |_| false, |visible, c| visible.extend(c.escape_default()));
    Cow::Owned(shortened(&visible).unwrap_or_else(|| visible.into_owned()))
}

/// A JSON document: its line feeds stand between values, everything else that a terminal would obey inside of strings.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    // All of these characters have at most four hexadecimal digits, as JSON's escapes do.
    escaped(
        text,
        |c| c == '\n',
        |visible, c| visible.push_str(&format!("\\u{:04x}", u32::from(c))),
    )
}

/// The beginning and the end of a text that is too long; `None` for any other.
#[must_use]
pub fn shortened(text: &str) -> Option<String> {
    if text.len() <= LONGEST {
        return None;
    }
    let length = text.chars().count();
    if length <= LONGEST {
        return None;
    }
    let (head, tail) = (LONGEST * 3 / 4, LONGEST / 4);
    let at = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    Some(format!(
        "{} ... ({} characters left out) ... {}",
        &text[..at(head)],
        length - head - tail,
        &text[at(length - tail)..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_terminal_would_obey_is_shown_as_an_escape() {
        let check = |hostile: &str, visible: &str| {
            assert_eq!(line(hostile), visible);
            assert_eq!(lines(hostile), visible);
        };
        check("\x1b[2J", "\\u{1b}[2J");
        check("a\rb", "a\\rb");
        check("\u{9b}8m", "\\u{9b}8m");
        check("\u{202e}olleh", "\\u{202e}olleh");
        check("\u{7f}\u{8}\0\t", "\\u{7f}\\u{8}\\u{0}\\t");
        check(
            "\u{2066}\u{2069}\u{61c}\u{200e}\u{200f}",
            "\\u{2066}\\u{2069}\\u{61c}\\u{200e}\\u{200f}",
        );
        check("\u{2028}\u{2029}\u{85}", "\\u{2028}\\u{2029}\\u{85}");
        check("naïve 東京 👩‍👩‍👧 \\ \"", "naïve 東京 👩‍👩‍👧 \\ \"");
    }

    #[test]
    fn only_a_layout_has_line_feeds() {
        assert_eq!(line("holds\nall"), "holds\\nall");
        assert_eq!(lines("one\ntwo"), "one\ntwo");
        assert!(matches!(lines("one\ntwo"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_says_the_same_after_escaping() {
        let value = serde_json::json!({ "a\u{9b}": "\x1b\u{202e}\u{7f}\u{2028} é\n" });
        let text = serde_json::to_string_pretty(&value).expect("JSON");
        let visible = json(&text);
        assert!(
            !visible.contains(|c: char| is_obeyed(c) && c != '\n'),
            "{visible}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&visible).expect("JSON"),
            value
        );
    }

    #[test]
    fn values_are_of_bounded_length() {
        for hostile in ["x", "\x1b", "\u{202e}", "é"] {
            let shown = line(&hostile.repeat(1_000_000)).chars().count();
            assert!(shown < LONGEST + 60, "{shown}");
        }
        let whole = "y".repeat(LONGEST);
        assert_eq!(line(&whole), whole);
        let cut = line(&format!("start{}end", "y".repeat(LONGEST))).into_owned();
        assert!(cut.starts_with("start") && cut.ends_with("end"), "{cut}");
    }
}
