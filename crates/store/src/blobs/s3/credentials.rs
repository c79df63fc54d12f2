//! The credentials of a store of objects: from the environment, or from a file of its owner alone.

use std::path::Path;

use super::super::{BlobError, Result};

/// The names of the credentials, in the environment and in the file.
const NAMES: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Max bytes of the file.
const MAX_FILE: u64 = 16 << 10;

/// The right to use a bucket.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: secrets must not be printable"
)]
pub struct Credentials {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl Credentials {
    /// Credentials of a file with lines `AWS_ACCESS_KEY_ID=...`, `AWS_SECRET_ACCESS_KEY=...` and, where there is one,
    /// `AWS_SESSION_TOKEN=...`. Where the file is absent, the variables of these names in the environment.
    ///
    /// # Errors
    /// [`BlobError::Credentials`] for a file that others can read, another line, and missing names; [`BlobError::Io`].
    pub fn find(file: &Path) -> Result<Self> {
        let place = file.display().to_string();
        match std::fs::File::open(file) {
            Ok(opened) => {
                let text = read(&opened, file)?;
                Self::from_lines(&place, &text)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Self::from_values("the environment", |name| std::env::var(name).ok())
            }
            Err(source) => Err(BlobError::Io {
                action: "opening",
                path: place,
                source,
            }),
        }
    }

    /// Credentials by value.
    #[must_use]
    pub fn new(id: String, secret: String, token: Option<String>) -> Self {
        Self { id, secret, token }
    }

    fn from_lines(place: &str, text: &str) -> Result<Self> {
        let mut values = [None, None, None];
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let found = line.split_once('=').and_then(|(name, value)| {
                Some((
                    NAMES.iter().position(|known| *known == name.trim())?,
                    value.trim(),
                ))
            });
            match found {
                Some((place, value)) if values[place].is_none() => values[place] = Some(value.to_owned()),
                // PRIVACY: the line may hold a secret.
                _ => {
                    return Err(BlobError::Credentials {
                        place: format!("{place}, line {number}"),
                        expected: format!("one of {} with '=' and its value, each once", NAMES.join(", ")),
                    });
                }
            }
        }
        Self::from_values(place, |name| {
            NAMES
                .iter()
                .position(|known| *known == name)
                .and_then(|at| values[at].clone())
        })
    }

    fn from_values(place: &str, value: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // Each of them travels in a header.
        let fit = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let wanted = |name: &str| {
            value(name).filter(fit).ok_or_else(|| BlobError::Credentials {
                place: place.to_owned(),
                expected: format!("{name} with printable characters"),
            })
        };
        Ok(Self {
            id: wanted(NAMES[0])?,
            secret: wanted(NAMES[1])?,
            token: match value(NAMES[2]).filter(|token| !token.is_empty()) {
                None => None,
                Some(_) => Some(wanted(NAMES[2])?),
            },
        })
    }
}

/// The text of a file that its owner alone can read.
fn read(file: &std::fs::File, path: &Path) -> Result<String> {
    use std::io::Read as _;
    let io = |source| BlobError::Io {
        action: "reading",
        path: path.display().to_string(),
        source,
    };
    let refused = |expected: &str| BlobError::Credentials {
        place: path.display().to_string(),
        expected: expected.to_owned(),
    };
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return Err(refused("a file of at most 16 KiB"));
    }
    if !crate::volume::is_private(path, &metadata) {
        return Err(refused("a file that its owner alone can read (mode 0600)"));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blobs.credentials");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_gives_an_identifier_a_secret_and_a_token() {
        let text = "# of the bucket\nAWS_ACCESS_KEY_ID = id\nAWS_SECRET_ACCESS_KEY=se=cret\n\nAWS_SESSION_TOKEN=token\n";
        let (_folder, path) = file(text, 0o600);
        let found = Credentials::find(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.id.as_str(), found.secret.as_str()), ("id", "se=cret"));
        assert_eq!(found.token.as_deref(), Some("token"));
    }

    #[test]
    fn open_files_other_lines_and_missing_names_are_refused_without_their_secrets() {
        let whole = "AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=hunter2\n";
        for (text, mode, words) in [
            (whole, 0o604, "mode 0600"),
            (whole, 0o644, "mode 0600"),
            (
                "AWS_ACCESS_KEY_ID=id\n",
                0o600,
                "AWS_SECRET_ACCESS_KEY with printable",
            ),
            (
                "AWS_SECRET_ACCESS_KEY=hunter2\n",
                0o600,
                "AWS_ACCESS_KEY_ID with printable",
            ),
            ("AWS_ACCESS_KEY_ID=id\nhunter2\n", 0o600, "line 2"),
            (
                "AWS_ACCESS_KEY_ID=id\nAWS_ACCESS_KEY_ID=hunter2\n",
                0o600,
                "line 2",
            ),
            ("AWS_ACCESS_KEY_ID=id\nSECRET=hunter2\n", 0o600, "line 2"),
            (
                "AWS_ACCESS_KEY_ID=i\u{7f}d\nAWS_SECRET_ACCESS_KEY=hunter2\n",
                0o600,
                "printable",
            ),
        ] {
            let (_folder, path) = file(text, mode);
            let error = Credentials::find(&path).err().unwrap().to_string();
            assert!(
                error.contains(words) && error.contains("blobs.credentials"),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn without_a_file_the_environment_is_asked() {
        let (_folder, path) = file("", 0o600);
        std::fs::remove_file(&path).unwrap();
        // The machine of the test may have credentials of its own.
        if let Err(error) = Credentials::find(&path) {
            assert!(error.to_string().contains("the environment"), "{error}");
        }
    }
}
