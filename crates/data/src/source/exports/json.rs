//! Documents of JSON whose long part is one array. Its elements are read one after another.

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::error::{DataError, Place, Result, bad_value, io};
use crate::source::coded::BYTE_ORDER_MARK;
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;

/// Maximum size of a document that is read as a whole.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

const ADVICE: &str = "export less at a time, such as one chat or one year";

/// A document of an export as bytes: without a byte-order mark, and with U+FFFD in place of each half of a character of two halves.
pub(super) fn document(tree: &mut Tree, name: &str, sink: &mut Sink<'_, '_>) -> Result<Vec<u8>> {
    let mut bytes = tree.bytes(name, MAX_DOCUMENT_BYTES, ADVICE)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    sink.note_halves(mend(&mut bytes));
    Ok(bytes)
}

/// The document that a stream holds, as [`document`] gives it.
pub(super) fn whole(path: &Path, content: impl Read, sink: &mut Sink<'_, '_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = content.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(io("read", path))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        let expected = format!("at most {MAX_DOCUMENT_BYTES} bytes in one document: {ADVICE}");
        return Err(bad_value(path, Place::Row(1), "file", expected, "a larger one"));
    }
    sink.note_halves(mend(&mut bytes));
    Ok(bytes)
}

/// An object of a line.
pub(super) fn line<T: DeserializeOwned>(
    path: &Path,
    number: u64,
    line: &[u8],
    expected: &str,
    sink: &mut Sink<'_, '_>,
) -> Result<T> {
    let mut line = line.to_vec();
    sink.note_halves(mend(&mut line));
    serde_json::from_slice(&line).map_err(|error| {
        let got = format!("{} (byte {} of the line)", without_place(&error), error.column());
        bad_value(path, Place::Line(number), "line", expected, got)
    })
}

/// The message of an error without its own place: it stands in front of the message already.
fn without_place(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.rfind(" at line ") {
        text.truncate(at);
    }
    text
}

/// Replaces each `\ud83d` without its partner by `\ufffd`, which has the same length, and counts them.
pub(super) fn mend(bytes: &mut [u8]) -> u64 {
    let unit = |bytes: &[u8], at: usize| -> Option<u32> {
        let escape = bytes.get(at..at + 6)?;
        let digits = escape.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let (mut at, mut count) = (0, 0);
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|&byte| byte == b'\\'))
    {
        at += found;
        match unit(bytes, at) {
            Some(0xd800..=0xdbff) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                bytes[at..at + 6].copy_from_slice(b"\\ufffd");
                count += 1;
                at += 6;
            }
            // A backslash and the letter behind it belong together.
            _ => at += 2,
        }
    }
    count
}

/// Calls `on` with each element of the array under `key`, or of the document itself without a key.
pub(super) fn elements<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    key: Option<&str>,
    on: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut failure = None;
    let mut found = false;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let walk = Walk {
        key,
        found: &mut found,
        each: Each {
            on,
            failure: &mut failure,
        },
    };
    let result = walk
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    finish(path, result, failure)?;
    match (key, found) {
        (Some(key), false) => Err(bad_value(
            path,
            Place::Line(1),
            "document",
            format!("the key \"{key}\""),
            "no such key",
        )),
        _ => Ok(()),
    }
}

/// The error of the receiver, or else that of the document.
pub(super) fn finish(path: &Path, result: serde_json::Result<()>, failure: Option<DataError>) -> Result<()> {
    match (failure, result) {
        (Some(failure), _) => Err(failure),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => {
            let got = format!("{} (byte {} of the line)", without_place(&error), error.column());
            let expected = "a document of this format";
            Err(bad_value(
                path,
                Place::Line(error.line() as u64),
                "JSON",
                expected,
                got,
            ))
        }
    }
}

/// An array whose elements go to a receiver one by one.
pub(super) struct Each<'w, T> {
    pub(super) on: &'w mut dyn FnMut(T) -> Result<()>,
    pub(super) failure: &'w mut Option<DataError>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Each<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            if let Err(error) = (self.on)(item) {
                *self.failure = Some(error);
                return Err(A::Error::custom("given up"));
            }
        }
        Ok(())
    }
}

struct Walk<'w, T> {
    key: Option<&'w str>,
    found: &'w mut bool,
    each: Each<'w, T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Walk<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        match self.key {
            None => self.each.deserialize(deserializer),
            Some(_) => deserializer.deserialize_map(self),
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Walk<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let Walk { key, found, each } = self;
        while let Some(name) = map.next_key::<String>()? {
            if Some(name.as_str()) == key && !*found {
                *found = true;
                map.next_value_seed(Each {
                    on: &mut *each.on,
                    failure: &mut *each.failure,
                })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A value as text: strings, numbers and truth values. Null is empty, and so are arrays and objects, which are passed over.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Scalar(pub(super) String);

impl Scalar {
    pub(super) fn is_true(&self) -> bool {
        self.0 == "true"
    }

    /// The text, if there is one.
    pub(super) fn text(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }

    /// Seconds of a number, written as one or as text: the part before its point.
    pub(super) fn seconds(&self) -> Option<i64> {
        let text = self.0.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let seconds: i64 = whole.parse().ok()?;
        // Times before 1970 are floored, too.
        let is_part = whole.starts_with('-') && fraction.bytes().any(|byte| byte != b'0');
        Some(seconds - i64::from(is_part))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Scalar, D::Error> {
        deserializer.deserialize_any(Leaf { pieces: false }).map(Scalar)
    }
}

/// Text in pieces: a string, or an array of strings and of objects whose field `text` is a piece.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Pieces(pub(super) String);

impl<'de> Deserialize<'de> for Pieces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Pieces, D::Error> {
        deserializer.deserialize_any(Leaf { pieces: true }).map(Pieces)
    }
}

/// Reads a value as text.
struct Leaf {
    pieces: bool,
}

impl<'de> Visitor<'de> for Leaf {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> std::result::Result<String, E> {
        Ok(String::new())
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<String, E> {
        Ok(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<String, A::Error> {
        let mut text = String::new();
        if self.pieces {
            while let Some(Pieces(piece)) = items.next_element()? {
                text.push_str(&piece);
            }
        } else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<String, A::Error> {
        let mut text = String::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.pieces && key == "text" {
                text = map.next_value::<Scalar>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_character_are_replaced_and_pairs_stay() {
        fn check(json: &str, expected: &str, count: u64) {
            let mut bytes = json.as_bytes().to_vec();
            assert_eq!(mend(&mut bytes), count, "{json}");
            assert_eq!(
                serde_json::from_slice::<String>(&bytes).expect("JSON"),
                expected,
                "{json}"
            );
        }
        check(r#""\\ud83d\\ude00""#, r"\ud83d\ude00", 0);
        check(r#""\\ud83d""#, r"\ud83d", 0);
        check(r#""a \"b\" \n""#, "a \"b\" \n", 0);
        check("\"\\ud83d\\ude00\"", "😀", 0);
        check("\"\\ud83d\"", "\u{fffd}", 1);
        check("\"\\ude00\\ud83d\\ud83d\\ude00\"", "\u{fffd}\u{fffd}😀", 2);
        check("\"\\ud83d\\u0041\"", "\u{fffd}A", 1);
    }

    #[test]
    fn elements_come_one_by_one_and_a_wrong_document_names_its_line() {
        let path = Path::new("a.json");
        let read = |json: &str, key| {
            let mut found = Vec::new();
            elements(path, json.as_bytes(), key, &mut |Scalar(text)| {
                found.push(text);
                Ok(())
            })
            .map(|()| found)
            .map_err(|error| error.to_string())
        };
        let expected = vec!["a".to_owned(), "1".to_owned(), String::new(), "true".to_owned()];
        assert_eq!(read(r#"["a", 1, null, true]"#, None), Ok(expected.clone()));
        assert_eq!(
            read(r#"{"x": [[]], "m": ["a", 1, {}, true], "y": 1}"#, Some("m")),
            Ok(expected)
        );
        let error = read("[\n\"a\",\n?]", None).expect_err("no JSON");
        assert!(error.starts_with("a.json, line 3: JSON:"), "{error}");
        let error = read("{\"n\": []}", Some("m")).expect_err("no such key");
        assert!(error.contains("expected the key \"m\""), "{error}");
        let error = read("[] []", None).expect_err("more than one");
        assert!(error.contains("line 1"), "{error}");
        let deep = "[".repeat(100_000);
        assert!(read(&deep, None).is_err());
    }

    #[test]
    fn seconds_are_floored() {
        fn check(text: &str, expected: Option<i64>) {
            assert_eq!(Scalar(text.to_owned()).seconds(), expected, "{text}");
        }
        check("1512085950.000216", Some(1_512_085_950));
        check("12", Some(12));
        check("-1.5", Some(-2));
        check("-1.0", Some(-1));
        check("1.x", None);
        check("", None);
        check("99999999999999999999", None);
    }
}
