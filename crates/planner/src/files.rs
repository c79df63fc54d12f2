//! Files that an option names.

use std::path::Path;

use anyhow::{Context, anyhow};
use undertone_present::place;

/// The text of a file.
pub(crate) fn text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The value of a TOML text; the error names the file, what was expected and the place.
pub(crate) fn parsed<T: serde::de::DeserializeOwned>(
    file: &Path,
    text: &str,
    expected: &str,
) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let place = error.span().and_then(|span| place(text, span.start));
        let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
        anyhow!(
            "{}: {expected}: {place}{}",
            file.display(),
            error.message().replace('\n', " ")
        )
    })
}
