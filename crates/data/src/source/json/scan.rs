//! JSON by its syntax: values are passed over without being stored or judged, and strings and numbers are taken where they are wanted.
//!
//! Beyond RFC 8259 it takes `NaN`, `Infinity` and `-Infinity`, which Python writes, and half surrogates in strings, which programs
//! leave that cut texts between the two halves of an emoji. A half becomes U+FFFD and is counted.

use std::borrow::Cow;

/// A fault of syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Offset in the text.
    pub(super) at: usize,
    pub(super) what: &'static str,
}

pub(super) const CUT_OFF: &str = "it ends too early";

/// A string as it stands in the text, without its quotes.
#[derive(Clone, Copy)]
pub(super) struct Quoted<'t> {
    raw: &'t [u8],
    escaped: bool,
    at: usize,
}

/// A place in a text.
pub(super) struct Scanner<'t> {
    pub(super) text: &'t [u8],
    pub(super) at: usize,
    /// Brackets that are open in a value that is passed over: `true` for an object.
    open: Vec<bool>,
}

impl<'t> Scanner<'t> {
    pub(super) fn of(text: &'t [u8]) -> Self {
        Self {
            text,
            at: 0,
            open: Vec::new(),
        }
    }

    pub(super) fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        let what = if self.at >= self.text.len() { CUT_OFF } else { what };
        Err(Fault { at: self.at, what })
    }

    /// Passes white space, and shows the next byte.
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Passes one byte that must be there.
    pub(super) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Fault> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            _ => self.fault(what),
        }
    }

    /// Passes the name of a member and its colon.
    pub(super) fn key(&mut self) -> Result<Quoted<'t>, Fault> {
        match self.peek() {
            Some(b'"') => {}
            _ => return self.fault("expected a name in quotes"),
        }
        let key = self.string()?;
        self.expect(b':', "expected a colon")?;
        Ok(key)
    }

    /// Passes a string, whose opening quote is next.
    pub(super) fn string(&mut self) -> Result<Quoted<'t>, Fault> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at = plain_end(self.text, self.at);
            match self.text.get(self.at) {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Quoted {
                        raw,
                        escaped,
                        at: start,
                    });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.fault("a control character in a string"),
                None => return self.fault(CUT_OFF),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        self.at += 1;
        match self.text.get(self.at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    match self.text.get(self.at) {
                        Some(digit) if digit.is_ascii_hexdigit() => self.at += 1,
                        _ => return self.fault("expected four hexadecimal digits after \\u"),
                    }
                }
            }
            _ => return self.fault("an unknown escape in a string"),
        }
        Ok(())
    }

    /// Passes a number, and gives its text.
    pub(super) fn number(&mut self) -> Result<&'t str, Fault> {
        let start = self.at;
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            Some(b'I') => self.literal()?,
            _ => return self.fault("expected a digit"),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        // It is ASCII by the rules above.
        Ok(std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let digits = self.text[self.at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.at += digits;
        if digits == 0 {
            self.fault("expected a digit")
        } else {
            Ok(())
        }
    }

    /// Passes a literal name.
    pub(super) fn literal(&mut self) -> Result<(), Fault> {
        let names: [&[u8]; 5] = [b"true", b"false", b"null", b"NaN", b"Infinity"];
        match names.iter().find(|name| self.text[self.at..].starts_with(name)) {
            Some(name) => {
                self.at += name.len();
                Ok(())
            }
            None => self.fault("expected a value"),
        }
    }

    /// Passes a value of any depth, without recursion.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        self.open.clear();
        loop {
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                    } else {
                        self.open.push(true);
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if self.peek() == Some(b']') {
                        self.at += 1;
                    } else {
                        self.open.push(false);
                        continue;
                    }
                }
                Some(b'"') => drop(self.string()?),
                Some(b'-' | b'0'..=b'9') => drop(self.number()?),
                _ => self.literal()?,
            }
            // A value has ended: close what it ends, up to the next one.
            loop {
                let Some(&object) = self.open.last() else {
                    return Ok(());
                };
                match (self.peek(), object) {
                    (Some(b','), _) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        self.open.pop();
                    }
                    (_, true) => return self.fault("expected a comma or }"),
                    (_, false) => return self.fault("expected a comma or ]"),
                }
            }
        }
    }

    /// Demands that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fault("more text after the value"),
        }
    }
}

impl<'t> Quoted<'t> {
    /// Returns `true` if this is the given text.
    pub(super) fn is(&self, text: &str) -> bool {
        match self.escaped {
            false => self.raw == text.as_bytes(),
            true => self.text(&mut 0).is_ok_and(|own| own == text),
        }
    }

    /// The text. `replaced` grows by the half surrogates in it.
    pub(super) fn text(&self, replaced: &mut u64) -> Result<Cow<'t, str>, Fault> {
        let raw = std::str::from_utf8(self.raw).map_err(|error| Fault {
            at: self.at + error.valid_up_to(),
            what: "expected UTF-8",
        })?;
        if !self.escaped {
            return Ok(Cow::Borrowed(raw));
        }
        let mut text = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some((before, escape)) = rest.split_once('\\') {
            text.push_str(before);
            rest = unescaped(escape, &mut text, replaced);
        }
        text.push_str(rest);
        Ok(Cow::Owned(text))
    }
}

/// Appends the letter of an escape that was checked, and gives the text after it.
fn unescaped<'t>(escape: &'t str, text: &mut String, replaced: &mut u64) -> &'t str {
    let mut letters = escape.chars();
    let letter = match letters.next() {
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => return unicode(letters.as_str(), text, replaced),
        Some(letter) => letter,
        None => return "",
    };
    text.push(letter);
    letters.as_str()
}

fn unicode<'t>(digits: &'t str, text: &mut String, replaced: &mut u64) -> &'t str {
    let unit = |text: &str| {
        text.get(..4)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
    };
    let (first, rest) = (
        unit(digits).unwrap_or_default(),
        digits.get(4..).unwrap_or_default(),
    );
    if let Some(letter) = char::from_u32(first) {
        text.push(letter);
        return rest;
    }
    let second = rest.strip_prefix("\\u").and_then(unit);
    match (first, second) {
        (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) => {
            let letter = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            text.push(letter.unwrap_or(char::REPLACEMENT_CHARACTER));
            rest.get(6..).unwrap_or_default()
        }
        _ => {
            *replaced += 1;
            text.push(char::REPLACEMENT_CHARACTER);
            rest
        }
    }
}

/// The place of the next quote, backslash or control character, from `at` on. Eight bytes are looked at together.
pub(super) fn plain_end(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGH;
    while let Some((word, _)) = text.get(at..).and_then(<[u8]>::split_first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = quote | backslash | below(word, 0x20);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = text.get(at..).unwrap_or_default();
    let plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1f);
    at + rest.iter().position(|byte| !plain(byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(text: &str) -> Result<(), Fault> {
        let mut scanner = Scanner::of(text.as_bytes());
        scanner.skip()?;
        scanner.end()
    }

    fn string(text: &str) -> (String, u64) {
        let (mut scanner, mut replaced) = (Scanner::of(text.as_bytes()), 0);
        let found = scanner
            .string()
            .expect(text)
            .text(&mut replaced)
            .expect(text)
            .into_owned();
        scanner.end().expect(text);
        (found, replaced)
    }

    #[test]
    fn values_are_passed_over_by_their_syntax_alone() {
        let deep = format!("{}1{}", "[{\"a\": ".repeat(5000), "}]".repeat(5000));
        for text in [
            "null",
            " true ",
            "false",
            "0",
            "-0",
            "12.50",
            "1e999",
            "-1E-7",
            "NaN",
            "Infinity",
            "-Infinity",
            "\"\"",
            "\"\\u00e4\\n\\ud83d\"",
            "[]",
            "{}",
            "[ ]",
            "[1, [2], {}]",
            "{\"a\": [{\"b\": \"}\"}], \"a\": 2}",
            &deep,
        ] {
            assert_eq!(skipped(text), Ok(()), "{text}");
        }
        for text in [
            "",
            " ",
            "nul",
            "+1",
            "01",
            "1.",
            ".5",
            "1e",
            "-",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"a\tb\"",
            "\"a\nb\"",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "[1}",
            "{\"a\":1]",
            "1 2",
            "nan",
            "'a'",
            "--Infinity",
            "[1]]",
        ] {
            assert!(skipped(text).is_err(), "{text}");
        }
        // The strict reader agrees where the text is strict JSON.
        for text in [
            "{\"a\":[1,2,{\"b\":null}],\"c\":\"\\\\\"}",
            "[\"\\\"\",-1.5e+3]",
            "[tru]",
            "{\"a\" : }",
            "[\"\u{7f}ä🙂\"]",
        ] {
            let strict = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(skipped(text).is_ok(), strict, "{text}");
        }
    }

    #[test]
    fn strings_are_those_of_the_strict_reader_and_halves_of_emojis_are_replaced() {
        for text in [
            "\"\"",
            "\"plain ä🙂\"",
            "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
            "\"\\ud83d\\ude00\"",
            "\"a\\u00e4\\u2028z\"",
            "\"\\uFB01 long enough to pass a word\"",
        ] {
            let strict: String = serde_json::from_str(text).expect(text);
            assert_eq!(string(text), (strict, 0), "{text}");
        }
        for (text, expected, count) in [
            ("\"cut \\ud83d\"", "cut \u{fffd}", 1),
            ("\"\\ude00 low\"", "\u{fffd} low", 1),
            ("\"\\ud83d\\ud83d\\ude00\"", "\u{fffd}😀", 1),
            ("\"\\ude00\\ud83d\"", "\u{fffd}\u{fffd}", 2),
            ("\"\\ud83d\\u0041\"", "\u{fffd}A", 1),
            ("\"\\uD83Dx\"", "\u{fffd}x", 1),
        ] {
            assert_eq!(string(text), (expected.to_owned(), count), "{text}");
        }
    }

    #[test]
    fn the_next_special_byte_is_found_at_every_place() {
        for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
            for before in 0..20 {
                for after in 0..20 {
                    let text = [vec![0xc3; before], vec![special], vec![b'!'; after]].concat();
                    assert_eq!(plain_end(&text, 0), before);
                }
            }
        }
        assert_eq!(plain_end(b"\x20\x7f\xff\x80 plain", 0), 10);
        assert_eq!(plain_end(b"", 0), 0);
    }
}
