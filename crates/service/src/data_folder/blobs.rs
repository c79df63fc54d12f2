//! The place of a service's blobs: a folder in its data folder, or a store of objects.

use std::path::Path;
use std::sync::Arc;

use undertone_store::{Blobs, FolderBlobs};

use super::{BLOBS, remember, remembered};
use crate::error::{Result, ServiceError};

/// The name of the file in the data folder that holds the address of blobs elsewhere.
pub(crate) const BLOBS_ADDRESS: &str = "blobs.url";

/// The name of the file in the data folder that may hold the credentials of that store. It must have mode 0600.
#[cfg(feature = "s3")]
pub(crate) const BLOBS_CREDENTIALS: &str = "blobs.credentials";

/// Keeps the blobs of a data folder in a store of objects from now on: `address` is `s3://BUCKET/PREFIX?region=NAME&endpoint=URL&ca=FILE`.
/// The folder remembers it. Credentials come from the file `blobs.credentials` or from the environment.
///
/// # Errors
/// [`ServiceError::Value`] for a folder that has its blobs elsewhere, and for an address of another kind.
pub fn keep_blobs_in(folder: &Path, address: &str) -> Result<()> {
    let refused = |expected: &str, got: &str| ServiceError::Value {
        key: "the place of the blobs".to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    };
    if !address.starts_with("s3://") || address.contains('@') {
        // PRIVACY: somebody may have put a secret before the `@`.
        return Err(refused("s3://BUCKET/PREFIX without credentials", "another form"));
    }
    if remembered(folder, BLOBS_ADDRESS)?.is_none() && folder.join(BLOBS).is_dir() {
        return Err(refused(
            "the folder `blobs` of the data folder, where the service was begun",
            "a store of objects",
        ));
    }
    remember(folder, BLOBS_ADDRESS, address)?
        .then_some(())
        .ok_or_else(|| refused("the store of objects that the data folder names", "another one"))
}

/// `true` if a data folder holds its blobs itself.
///
/// # Errors
/// [`ServiceError::Run`] naming a file that cannot be read.
pub fn keeps_in_folder(folder: &Path) -> Result<bool> {
    Ok(remembered(folder, BLOBS_ADDRESS)?.is_none())
}

/// Opens the blobs of a data folder.
///
/// # Errors
/// A place that cannot hold heads; missing credentials; an address of another kind.
pub fn open(folder: &Path) -> Result<Arc<dyn Blobs>> {
    match remembered(folder, BLOBS_ADDRESS)? {
        None => Ok(Arc::new(FolderBlobs::open(&folder.join(BLOBS))?)),
        Some(address) => objects(folder, &address),
    }
}

#[cfg(feature = "s3")]
fn objects(folder: &Path, address: &str) -> Result<Arc<dyn Blobs>> {
    use undertone_store::{Credentials, Patience, S3Blobs};
    let credentials = Credentials::find(&folder.join(BLOBS_CREDENTIALS))?;
    Ok(Arc::new(S3Blobs::open(
        address,
        credentials,
        Patience::default(),
    )?))
}

#[cfg(not(feature = "s3"))]
fn objects(_folder: &Path, _address: &str) -> Result<Arc<dyn Blobs>> {
    Err(ServiceError::Value {
        key: "the place of the blobs".to_owned(),
        expected: "a folder, since this program was built without the feature `s3`".to_owned(),
        got: "a store of objects".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_folder;

    #[test]
    fn a_folder_keeps_its_blobs_where_they_were_begun() {
        let above = tempfile::tempdir().unwrap();
        let (here, there) = (above.path().join("here"), above.path().join("there"));
        drop(data_folder::open(&here, None).unwrap());
        let says = |result: Result<()>| result.unwrap_err().to_string();
        assert!(says(keep_blobs_in(&here, "s3://models")).contains("where the service was begun"));
        keep_blobs_in(&there, "s3://models").unwrap();
        keep_blobs_in(&there, "s3://models").unwrap();
        assert!(says(keep_blobs_in(&there, "s3://others")).contains("got another one"));
        for address in ["https://models", "s3://id:hunter2@models"] {
            let error = says(keep_blobs_in(&there, address));
            assert!(
                error.contains("without credentials") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }

    #[test]
    #[cfg(feature = "s3")]
    fn credentials_that_others_can_read_open_no_blobs() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        keep_blobs_in(folder.path(), "s3://models").unwrap();
        let path = folder.path().join(BLOBS_CREDENTIALS);
        std::fs::write(&path, "AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=hunter2\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = data_folder::open(folder.path(), None).err().unwrap().to_string();
        assert!(
            error.contains("mode 0600") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
