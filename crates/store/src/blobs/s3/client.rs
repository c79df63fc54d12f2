//! The requests of one bucket, each waited for.

use std::future::Future;
use std::io::{self, Read};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    Error as ObjectError, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::super::{BlobError, Result, Stored, damaged, missing};

/// Bytes of a blob that one request asks for.
const RANGE: u64 = 4 << 20;

/// Max pages of a list of names: a million names.
const MAX_PAGES: u32 = 1000;

/// Tries to create a name where another writer is about to.
const TRIES: u32 = 5;

/// Max characters of the begin, and of the end, of an error that is shown.
const SHOWN: usize = 200;

/// The requests of one bucket.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) store: AmazonS3,
    pub(super) prefix: String,
    pub(super) place: String,
    pub(super) handle: Handle,
}

impl Client {
    /// The name of an object below the prefix.
    fn path(&self, name: &str) -> Path {
        match self.prefix.as_str() {
            "" => Path::from(name),
            prefix => Path::from(format!("{prefix}/{name}")),
        }
    }

    /// The name of an object in messages.
    pub(super) fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }

    fn failed(&self, action: &'static str, name: &str, text: String) -> BlobError {
        BlobError::Io {
            action,
            path: self.shown(name),
            source: io::Error::other(text),
        }
    }

    /// Waits for a request. The thread of the caller may belong to an asynchronous program, so the request has a thread of its own.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // The receiver waits, or its thread has ended.
            let _ = answer.send(work.await);
        });
        answered.recv().unwrap_or_else(|_| {
            Err(ObjectError::Generic {
                store: "S3",
                source: "the program ends".into(),
            })
        })
    }

    /// The length of an object; `None` where it is absent.
    pub(super) fn length(&self, name: &str) -> Result<Option<u64>> {
        let (store, path) = (self.store.clone(), self.path(name));
        match self.wait(async move { store.head(&path).await }) {
            Ok(found) => Ok(Some(found.size)),
            Err(ObjectError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("reading", name, shown(&error))),
        }
    }

    /// The bytes of an object of a known length, range by range.
    pub(super) fn reader(&self, name: &str, offset: u64, length: u64) -> Ranges {
        Ranges {
            client: self.clone(),
            name: name.to_owned(),
            next: offset,
            length,
            held: io::Cursor::new(Vec::new()),
        }
    }

    /// The digest of an object; `None` where it is absent.
    pub(super) fn digest(&self, name: &str) -> Result<Option<Stored>> {
        let Some(length) = self.length(name)? else {
            return Ok(None);
        };
        let mut reader = self.reader(name, 0, length);
        let mut hash = Sha256::new();
        while let Some(range) = reader
            .range()
            .map_err(|error| self.failed("reading", name, error))?
        {
            hash.update(&range);
        }
        Ok(Some(Stored {
            digest: hash.finalize().into(),
            length,
        }))
    }

    fn put(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> object_store::Result<()> {
        let (store, path) = (self.store.clone(), self.path(name));
        let options = PutOptions::from(mode);
        self.wait(async move { store.put_opts(&path, PutPayload::from(bytes), options).await })
            .map(drop)
    }

    /// Creates an object unless there is one, and reads it back; `false` where there was one.
    pub(super) fn create(&self, name: &str, bytes: &[u8], written: Stored) -> Result<bool> {
        for _ in 0..TRIES {
            match self.put(name, bytes.to_vec(), PutMode::Create) {
                Ok(()) => return self.read_back(name, written).map(|()| true),
                // Some stores say so of a writer that has not finished. It may also be this very request, whose first answer was lost.
                Err(ObjectError::AlreadyExists { .. }) => match self.length(name)? {
                    Some(_) => return Ok(false),
                    None => std::thread::sleep(Duration::from_millis(50)),
                },
                Err(error) => return Err(self.failed("creating", name, shown(&error))),
            }
        }
        Err(self.failed("creating", name, "another writer did not finish".to_owned()))
    }

    /// Stores an object whose name is its digest, and reads it back.
    pub(super) fn replace(&self, name: &str, bytes: Vec<u8>, written: Stored) -> Result<()> {
        self.put(name, bytes, PutMode::Overwrite)
            .map_err(|error| self.failed("writing", name, shown(&error)))?;
        self.read_back(name, written)
    }

    fn read_back(&self, name: &str, written: Stored) -> Result<()> {
        match self.digest(name)? {
            Some(back) if back == written => Ok(()),
            Some(back) => Err(damaged(self.shown(name), &written.digest, &back.digest)),
            None => Err(missing(self.shown(name))),
        }
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let (store, path) = (self.store.clone(), self.path(name));
        match self.wait(async move { store.delete(&path).await }) {
            Ok(()) | Err(ObjectError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("deleting", name, shown(&error))),
        }
    }

    /// The names directly below a name.
    pub(super) fn names(&self, folder: &str) -> Result<Names> {
        let prefix = format!("{}/", self.path(folder));
        let mut names = Names::default();
        let direct = |path: &Path| {
            let name = path.as_ref().strip_prefix(&prefix)?;
            (!name.contains('/')).then(|| name.to_owned())
        };
        let mut token = None;
        for _ in 0..MAX_PAGES {
            let (store, below, page_token) = (self.store.clone(), prefix.clone(), token.clone());
            let page = self.wait(async move {
                let options = PaginatedListOptions {
                    delimiter: Some("/".into()),
                    page_token,
                    ..PaginatedListOptions::default()
                };
                store.list_paginated(Some(&below), options).await
            });
            let page = page.map_err(|error| self.failed("listing", folder, shown(&error)))?;
            let objects = page
                .result
                .objects
                .iter()
                .filter_map(|found| direct(&found.location));
            names.objects.extend(objects);
            names
                .folders
                .extend(page.result.common_prefixes.iter().filter_map(direct));
            if page.page_token.is_none() {
                return Ok(names);
            }
            if page.page_token == token {
                break;
            }
            token = page.page_token;
        }
        Err(self.failed(
            "listing",
            folder,
            format!("expected an end within {MAX_PAGES} pages, got none"),
        ))
    }

    /// PRIVACY: a head that could be replaced would hide that a database went back in time.
    pub(super) fn check_create_if_absent(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("tmp/{}-{}", std::process::id(), now.as_nanos());
        let unfit = |reason: &str| BlobError::Unfit {
            path: self.place.clone(),
            reason: reason.to_owned(),
        };
        let result = (|| {
            if !self.create(&name, b"first", of(b"first"))? {
                return Err(unfit("a name that nobody has used was there"));
            }
            if self
                .create(&name, b"second", of(b"second"))
                .is_ok_and(|created| created)
            {
                return Err(unfit(
                    "a second object replaced the first (it ignores If-None-Match)",
                ));
            }
            match self.digest(&name)? {
                Some(kept) if kept == of(b"first") => Ok(()),
                _ => Err(unfit("the second of two objects changed the first")),
            }
        })();
        // The first error is the one to report.
        let deleted = self.delete(&name);
        result.and(deleted)
    }
}

/// The names directly below a name.
#[derive(Default)]
pub(super) struct Names {
    pub(super) objects: Vec<String>,
    pub(super) folders: Vec<String>,
}

/// An object that is read range by range.
pub(super) struct Ranges {
    client: Client,
    name: String,
    next: u64,
    length: u64,
    held: io::Cursor<Vec<u8>>,
}

impl Ranges {
    /// The next range; `None` at the end.
    fn range(&mut self) -> Result<Option<Vec<u8>>, String> {
        let end = self.length.min(self.next.saturating_add(RANGE));
        if self.next >= end {
            return Ok(None);
        }
        let (store, path, asked) = (
            self.client.store.clone(),
            self.client.path(&self.name),
            self.next..end,
        );
        let wanted = asked.clone();
        let bytes = self
            .client
            .wait(async move { store.get_range(&path, asked).await })
            .map_err(|error| shown(&error))?;
        if bytes.len() as u64 != wanted.end - wanted.start {
            return Err(format!(
                "expected {} bytes from {}, got {}",
                wanted.end - wanted.start,
                wanted.start,
                bytes.len()
            ));
        }
        self.next = end;
        Ok(Some(bytes.to_vec()))
    }
}

impl Read for Ranges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.held.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        let path = self.client.shown(&self.name);
        match self.range() {
            Ok(None) => Ok(0),
            Ok(Some(bytes)) => {
                self.held = io::Cursor::new(bytes);
                self.held.read(buffer)
            }
            Err(error) => Err(io::Error::other(format!("reading {path}: {error}"))),
        }
    }
}

/// The text of an error: its begin, which names the request, and its end, which has the reason. The server may have written a part of
/// it, so it is without control characters.
pub(super) fn shown(error: &ObjectError) -> String {
    let plain = |letter: char| match letter.is_control() {
        true => ' ',
        false => letter,
    };
    let text: Vec<char> = error.to_string().chars().map(plain).collect();
    match text.len() > 2 * SHOWN {
        true => [
            &text[..SHOWN],
            &[' ', '.', '.', '.', ' '],
            &text[text.len() - SHOWN..],
        ]
        .concat()
        .into_iter()
        .collect(),
        false => text.into_iter().collect(),
    }
}

pub(super) fn of(bytes: &[u8]) -> Stored {
    Stored {
        digest: Sha256::digest(bytes).into(),
        length: bytes.len() as u64,
    }
}
