//! Places below the top of a JSON value, as RFC 6901 writes them.

use crate::error::{Result, SettingsError};
use undertone_text::quoted;

/// The parts of a place, from the top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    parts: Vec<String>,
}

impl Pointer {
    /// The place of a field. A name that begins with `/` is a pointer; any other is the name of a field at the top, dots included.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        Self::parse(name).unwrap_or_else(|| Self {
            parts: vec![name.to_owned()],
        })
    }

    /// A pointer, such as `/message/body` or `/messages/0`; `None` for text that does not begin with `/` or has an unknown escape.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.strip_prefix('/')?.split('/');
        let parts = parts.map(|part| {
            let plain = part.replace("~1", "").replace("~0", "");
            (!plain.contains('~')).then(|| part.replace("~1", "/").replace("~0", "~"))
        });
        parts.collect::<Option<_>>().map(|parts| Self { parts })
    }

    /// The place of the records of a JSON document.
    ///
    /// # Errors
    /// An error that names the key, for text that is no pointer.
    pub fn of_records(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| not_a_pointer(text))
    }

    /// Number of parts.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a pointer has at least one part
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// A part by its depth, from 0.
    #[must_use]
    pub fn part(&self, depth: usize) -> Option<&str> {
        self.parts.get(depth).map(String::as_str)
    }

    /// The parts, from the top.
    #[must_use]
    pub fn parts(&self) -> &[String] {
        &self.parts
    }
}

/// The error for the place of records that is no pointer.
fn not_a_pointer(text: &str) -> SettingsError {
    SettingsError::invalid(
        "data.source.records (--records)",
        "a place such as /messages or /data/posts",
        quoted(text),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_those_of_rfc_6901() {
        let parts = |text: &str| Pointer::parse(text).map(|pointer| pointer.parts);
        let of = |parts: &[&str]| Some(parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
        assert_eq!(parts("/a"), of(&["a"]));
        assert_eq!(parts("/a/0/b"), of(&["a", "0", "b"]));
        assert_eq!(parts("/"), of(&[""]));
        assert_eq!(parts("/a~1b/m~0n/~01"), of(&["a/b", "m~n", "~1"]));
        assert_eq!(parts("/a.b/ c"), of(&["a.b", " c"]));
        assert_eq!(parts("a/b"), None);
        assert_eq!(parts("/a~2"), None);
        assert_eq!(parts("/~"), None);
        assert_eq!(Pointer::of_name("message.body").parts, ["message.body"]);
        assert_eq!(Pointer::of_name("a/b").parts, ["a/b"]);
    }
}
