//! Blobs in a store of objects that speaks S3.

mod address;
mod client;
mod connector;
mod credentials;

use std::io::Read;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{BackoffConfig, Error as ObjectError, RetryConfig};
use tokio::runtime::Runtime;
use undertone_protocol::Digest32;

use super::{
    BlobError, BlobReader, Blobs, Created, Result, Stored, check_head, check_name, damaged, digest, missing,
    number,
};
use crate::audit::hex;
use crate::{AttemptId, TaskId};
use address::Address;
use client::{Client, of, shown};
use connector::Connector;

pub use credentials::Credentials;

/// Max bytes of an answer: a range, or a page of names.
const MAX_ANSWER: usize = 8 << 20;

/// Limits of time for requests.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time to connect.
    pub connect: Duration,
    /// Time for a request and its answer, without the bytes that it sends.
    pub answer: Duration,
    /// Bytes that are sent per second at least.
    pub rate: u64,
    /// Number of repetitions after an error that may pass.
    pub retries: usize,
    /// The first pause before a repetition; later ones are longer.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(30),
            rate: 256 << 10,
            retries: 4,
            pause: Duration::from_millis(100),
        }
    }
}

impl Patience {
    /// The time for a request that sends this many bytes.
    fn of(&self, bytes: usize) -> Duration {
        self.answer + Duration::from_secs(bytes as u64 / self.rate.max(1))
    }
}

/// Blobs in a bucket: `staged/ATTEMPT/NAME`, `blobs/DIGEST` and `heads/TASK/ROUND` below a prefix.
///
/// # Guarantee
/// A name is made by one request with the whole content, and read back. Heads and staged files are created with
/// `If-None-Match: *`, and opening checks that the store obeys it. An answer is bounded in size and in time. Its length and digest are
/// compared with what was asked for, so a store that lies causes errors. PRIVACY: a store that hides the newest heads hides that a
/// database went back in time; the folder of the witness shows it.
pub struct S3Blobs {
    client: Client,
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for S3Blobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Blobs")
            .field("place", &self.client.place)
            .finish_non_exhaustive()
    }
}

impl Drop for S3Blobs {
    fn drop(&mut self) {
        // The value may end inside an asynchronous program, which must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl S3Blobs {
    /// Opens the blobs at `s3://BUCKET/PREFIX?region=NAME&endpoint=URL&ca=FILE`. Checks that the store creates a name only where it is
    /// absent.
    ///
    /// # Errors
    /// [`BlobError::Address`]; [`BlobError::Unfit`] for a store that replaces a name; [`BlobError::Io`].
    pub fn open(address: &str, credentials: Credentials, patience: Patience) -> Result<Self> {
        let address = Address::read(address)?;
        let refused = |source: ObjectError| BlobError::Address {
            expected: "settings that name a store of objects".to_owned(),
            got: shown(&source),
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&address.bucket)
            .with_region(&address.region)
            .with_access_key_id(credentials.id)
            .with_secret_access_key(credentials.secret)
            .with_allow_http(true)
            .with_disable_bulk_delete(true)
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: patience.pause,
                    max_backoff: patience.pause * 20,
                    base: 2.0,
                },
                max_retries: patience.retries,
                retry_timeout: Duration::from_secs(120),
            })
            .with_http_connector(Connector::new(address.authority.as_deref(), patience)?);
        if let Some(token) = credentials.token {
            builder = builder.with_token(token);
        }
        if let Some(endpoint) = &address.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("undertone-blobs")
            .enable_all()
            .build()
            .map_err(|source| BlobError::Io {
                action: "starting a thread for",
                path: address.place(),
                source,
            })?;
        let client = Client {
            store: builder.build().map_err(refused)?,
            prefix: address.prefix.clone(),
            place: address.place(),
            handle: runtime.handle().clone(),
        };
        client.check_create_if_absent()?;
        Ok(Self {
            client,
            runtime: Some(runtime),
        })
    }
}

fn blob(digest: &Digest32) -> String {
    format!("blobs/{}", hex(digest))
}

fn staged(attempt: AttemptId, name: &str) -> String {
    format!("staged/{attempt}/{name}")
}

fn head_of(task: TaskId, round: u64) -> String {
    format!("heads/{task}/{round}")
}

impl S3Blobs {
    fn read_all(&self, bytes: &mut dyn Read) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        bytes.read_to_end(&mut all).map_err(|source| BlobError::Io {
            action: "reading the bytes for",
            path: self.client.place.clone(),
            source,
        })?;
        Ok(all)
    }

    fn store(&self, bytes: Vec<u8>) -> Result<Stored> {
        let stored = of(&bytes);
        let name = blob(&stored.digest);
        if self.client.digest(&name)? != Some(stored) {
            self.client.replace(&name, bytes, stored)?;
        }
        Ok(stored)
    }
}

impl Blobs for S3Blobs {
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored> {
        check_name(name)?;
        let bytes = self.read_all(bytes)?;
        let (name, stored) = (staged(attempt, name), of(&bytes));
        if self.client.create(&name, &bytes, stored)? {
            return Ok(stored);
        }
        match self.client.digest(&name)? {
            Some(there) if there == stored => Ok(stored),
            Some(there) => Err(BlobError::Exists {
                path: self.client.shown(&name),
                expected: hex(&stored.digest),
                got: hex(&there.digest),
            }),
            None => Err(missing(self.client.shown(&name))),
        }
    }

    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<()> {
        check_name(name)?;
        if self
            .client
            .digest(&blob(digest))?
            .is_some_and(|there| there.digest == *digest)
        {
            return Ok(());
        }
        let name = staged(attempt, name);
        let Some(length) = self.client.length(&name)? else {
            return Err(missing(self.client.shown(&name)));
        };
        let bytes = self.read_all(&mut self.client.reader(&name, 0, length))?;
        let got = of(&bytes);
        match got.digest == *digest {
            true => self.client.replace(&blob(digest), bytes, got),
            false => Err(damaged(self.client.shown(&name), digest, &got.digest)),
        }
    }

    fn put(&self, bytes: &mut dyn Read) -> Result<Stored> {
        let bytes = self.read_all(bytes)?;
        self.store(bytes)
    }

    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader> {
        let name = blob(digest);
        let Some(length) = self.client.length(&name)? else {
            return Err(missing(self.client.shown(&name)));
        };
        if offset > length {
            let path = self.client.shown(&name);
            return Err(BlobError::Range { path, length, offset });
        }
        Ok(BlobReader {
            length,
            bytes: Box::new(self.client.reader(&name, offset, length)),
        })
    }

    fn list(&self) -> Result<Vec<Digest32>> {
        let names = self.client.names("blobs")?;
        Ok(names.objects.iter().filter_map(|name| digest(name)).collect())
    }

    fn remove(&self, digest: &Digest32) -> Result<bool> {
        let name = blob(digest);
        if self.client.length(&name)?.is_none() {
            return Ok(false);
        }
        self.client.delete(&name).map(|()| true)
    }

    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created> {
        let name = head_of(task, round);
        check_head(&self.client.shown(&name), bytes.len() as u64)?;
        if self.client.create(&name, bytes, of(bytes))? {
            return Ok(Created::Created);
        }
        match self.head(task, round)? {
            Some(there) if there == bytes => Ok(Created::Same),
            Some(there) => Ok(Created::Other(there)),
            None => Err(missing(self.client.shown(&name))),
        }
    }

    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>> {
        let name = head_of(task, round);
        let Some(length) = self.client.length(&name)? else {
            return Ok(None);
        };
        check_head(&self.client.shown(&name), length)?;
        self.read_all(&mut self.client.reader(&name, 0, length)).map(Some)
    }

    fn last_head(&self, task: TaskId) -> Result<Option<u64>> {
        let names = self.client.names(&format!("heads/{task}"))?;
        Ok(names.objects.iter().filter_map(|name| number(name)).max())
    }

    fn staged(&self) -> Result<Vec<AttemptId>> {
        let names = self.client.names("staged")?;
        let mut attempts: Vec<AttemptId> = names
            .folders
            .iter()
            .filter_map(|name| number(name))
            .map(AttemptId)
            .collect();
        attempts.sort_unstable();
        Ok(attempts)
    }

    fn sweep(&self, attempt: AttemptId) -> Result<()> {
        for name in self.client.names(&format!("staged/{attempt}"))?.objects {
            self.client.delete(&staged(attempt, &name))?;
        }
        Ok(())
    }
}
