//! The address of the database in a file, so that its password stands in no argument.

use std::path::Path;

use anyhow::{Context, bail};

/// Max bytes of the file.
const MAX: u64 = 4096;

/// The address in a file that not everybody can read.
pub(super) fn address(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("--store-file: cannot read {}", path.display());
    let metadata = std::fs::metadata(path).with_context(cannot)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // PRIVACY: the address may hold a password. The group is that of a secret which Kubernetes mounts.
        if metadata.permissions().mode() & 0o007 != 0 {
            bail!(
                "--store-file: everybody can read {}; set its mode to 0400, or to 0440 with a group of the server",
                path.display()
            );
        }
    }
    if !metadata.is_file() || metadata.len() > MAX {
        bail!(
            "--store-file: expected a file with one line of at most {MAX} bytes, such as postgres://USER:PASSWORD@HOST/DATABASE, got {}",
            match metadata.is_file() {
                true => format!("{} bytes in {}", metadata.len(), path.display()),
                false => format!("something else at {}", path.display()),
            }
        );
    }
    let text = std::fs::read_to_string(path).with_context(cannot)?;
    match text.trim() {
        "" => bail!(
            "--store-file: expected one line such as postgres://USER:PASSWORD@HOST/DATABASE, got an empty {}",
            path.display()
        ),
        line if line.lines().count() > 1 => bail!(
            "--store-file: expected one line, got {} in {}",
            line.lines().count(),
            path.display()
        ),
        line => Ok(line.to_owned()),
    }
}
