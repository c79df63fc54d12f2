//! Paths in settings: environment variables, and the folder they are relative to.

use std::path::{Path, PathBuf};

use crate::error::{DataError, Result, invalid};

/// Expands `$NAME` and `${NAME}`, takes `$$` for a dollar sign, and resolves the result against `base`.
pub(crate) fn expand(key: &'static str, value: &str, base: &Path) -> Result<PathBuf> {
    expand_with(key, value, base, &|name| std::env::var(name).ok())
}

fn expand_with(
    key: &'static str,
    value: &str,
    base: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<PathBuf> {
    let mut path = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(dollar) = rest.find('$') {
        path.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            path.push('$');
            rest = tail;
            continue;
        }
        let (name, tail) = match after.strip_prefix('{') {
            Some(inner) => inner
                .split_once('}')
                .ok_or_else(|| invalid(key, "a closing brace after ${", format!("\"{value}\"")))?,
            None => after.split_at(
                after
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(after.len()),
            ),
        };
        if name.is_empty() {
            let expected = "the name of an environment variable after $, or $$ for the letter".to_owned();
            return Err(invalid(key, expected, format!("\"{value}\"")));
        }
        let found = lookup(name).filter(|found| !found.is_empty());
        path.push_str(&found.ok_or_else(|| DataError::UnsetVariable {
            key,
            value: value.to_owned(),
            variable: name.to_owned(),
        })?);
        rest = tail;
    }
    path.push_str(rest);
    if path.is_empty() {
        let expected = "a path".to_owned();
        return Err(invalid(key, expected, "nothing"));
    }
    Ok(base.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_path_are_expanded() {
        fn check(value: &str, expected: Result<&str, &str>) {
            let lookup = |name: &str| (name == "DIR").then(|| "/data".to_owned());
            let got = expand_with("data.source.path", value, Path::new("/run"), &lookup);
            match (got, expected) {
                (Ok(path), Ok(expected)) => assert_eq!(path, Path::new(expected)),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, _) => panic!("{value}: {got:?}"),
            }
        }
        check("a.csv", Ok("/run/a.csv"));
        check("/x/a.csv", Ok("/x/a.csv"));
        check("$DIR/a.csv", Ok("/data/a.csv"));
        check("${DIR}more/a.csv", Ok("/datamore/a.csv"));
        check("$DIR", Ok("/data"));
        let unset = "data.source.path = \"$OTHER/a\" needs the environment variable OTHER, but it is not set";
        check("$OTHER/a", Err(unset));
        check("${DIR/a", Err("closing brace"));
        check("a/$/b", Err("name of an environment variable"));
        check("/ü$$1/$$$DIR/a", Ok("/ü$1/$/data/a"));
        check("", Err("expected a path"));
    }
}
