//! The listener of operators: plain HTTP with JSON on the loopback interface, behind a token that only the owner of the data folder
//! can read.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path as Segment, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use undertone_protocol::{Digest32, digest_of};
use undertone_run_directory::files;
use undertone_service::http::scrub::scrubbed;
use undertone_service::identity::hex;
use undertone_service::keys::random;
use undertone_service::metrics::text;
use undertone_service::server::Service;
use undertone_service::trouble::{Trouble, Troubles};
use undertone_service::{Result, ServiceError};
use undertone_store::StoreError;

use super::dashboard::{self, Dashboard, Doors};
use super::figures::Reader;
use super::guarantees::Guarantees;
use super::{Admin, Answer, Operation};

/// The name of the file in the data folder that tells operators of the machine where the listener is.
pub(crate) const ADMIN_FILE: &str = "admin.json";

/// The name of the file in the data folder that holds the bearer token alone, for a scraper of the metrics.
pub const TOKEN_FILE: &str = "admin.token";

/// The name of the folder in the data folder in which each of several processes has a folder of its own.
const PROCESSES: &str = "processes";

/// The path of the metrics.
pub(crate) const METRICS: &str = "/metrics";

/// The path of the operations.
pub const OPERATIONS: &str = "/admin/v1/operations";

/// Max bytes of an operation, the text of a task file included.
const MAX_OPERATION: usize = 1 << 20;

/// The content of the file in the data folder.
///
/// PRIVACY: the token is the right of an operator, so the file has mode 0600.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "PRIVACY: the token is a secret")]
pub struct AdminFile {
    /// The address, such as `http://127.0.0.1:4000`.
    pub address: String,
    /// The bearer token.
    pub token: String,
}

impl AdminFile {
    /// The path in a data folder.
    #[must_use]
    pub fn path(folder: &Path) -> PathBuf {
        folder.join(ADMIN_FILE)
    }

    /// Reads the file of a data folder; `None` where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, or of another form.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = Self::path(folder);
        match files::exists(&path) {
            true => Ok(Some(files::read_json(&path)?)),
            false => Ok(None),
        }
    }

    /// The folder of the files of one of several processes, in their data folder. It is made where there is none.
    pub(crate) fn folder_of_process(folder: &Path, name: &str) -> Result<PathBuf> {
        let all = folder.join(PROCESSES);
        undertone_service::data_folder::private_folder(&all)?;
        let own = all.join(name);
        undertone_service::data_folder::private_folder(&own)?;
        Ok(own)
    }

    /// The files of all processes that work on a data folder, or have worked on it and were killed.
    ///
    /// # Errors
    /// A file that cannot be read, or of another form.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        Ok(Self::named(folder)?.into_iter().map(|(_, file)| file).collect())
    }

    /// The files of [`all`](Self::all), each with the name of its process. A process without others is `the server`.
    ///
    /// # Errors
    /// A file that cannot be read, or of another form.
    pub fn named(folder: &Path) -> Result<Vec<(String, Self)>> {
        let alone = Self::read(folder)?.map(|file| ("the server".to_owned(), file));
        let mut found: Vec<(String, Self)> = alone.into_iter().collect();
        let entries = match std::fs::read_dir(folder.join(PROCESSES)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(ServiceError::io("read", &folder.join(PROCESSES), error)),
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            found.extend(Self::read(&path)?.map(|file| (name, file)));
        }
        Ok(found)
    }

    /// A file with a fresh token for a listener at this address.
    pub(crate) fn fresh(address: std::net::SocketAddr) -> Result<Self> {
        Ok(Self {
            address: format!("http://{address}"),
            token: hex(&random::<32>()?),
        })
    }

    /// Writes the file and that of the token, which only their owner can read.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = Self::path(folder);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| ServiceError::io("write", &path, error.into()))?;
        write_secret(&path, &text)?;
        write_secret(&folder.join(TOKEN_FILE), self.token.as_bytes())
    }

    /// Removes both files, at the end of the listener. A file that stays is ignored, since the lock of the folder is free.
    pub(crate) fn remove(folder: &Path) {
        let _ = std::fs::remove_file(Self::path(folder));
        let _ = std::fs::remove_file(folder.join(TOKEN_FILE));
    }
}

fn write_secret(path: &Path, text: &[u8]) -> Result<()> {
    files::write_secret_with(path, |file| {
        file.write_all(text)
            .map_err(|source| undertone_run_directory::error::DirectoryError::io("write", path, source))
    })?;
    Ok(())
}

/// The values that all routes share.
struct Access {
    service: Arc<Service>,
    folder: PathBuf,
    /// The digest of the token: comparing digests tells nothing about the token by its time.
    token: Digest32,
    figures: Reader,
}

/// The routes of operators. `guarantees` are computed once for them and for other readers of figures.
pub(crate) fn routes(
    service: Arc<Service>,
    folder: PathBuf,
    file: &AdminFile,
    doors: Arc<Doors>,
    guarantees: Arc<Guarantees>,
) -> Router {
    let token = digest_of(file.token.as_bytes());
    let shown = Dashboard::new(service.clone(), folder.clone(), token, doors, guarantees.clone());
    let access = Arc::new(Access {
        figures: Reader::new(service.clone(), guarantees, &folder),
        service,
        folder,
        token,
    });
    Router::new()
        .route(OPERATIONS, post(operate))
        .route("/admin/v1/tasks", get(list))
        .route("/admin/v1/tasks/{task}", get(show))
        .route(METRICS, get(metrics))
        .layer(DefaultBodyLimit::max(MAX_OPERATION))
        .layer(axum::middleware::from_fn_with_state(access.clone(), authorise))
        .layer(axum::middleware::from_fn(dashboard::from_here))
        // These two say nothing but that the process lives, so they need no token.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(access)
        .merge(dashboard::routes(Arc::new(shown)))
}

/// The routes of probes and scrapers, which may reach this listener from elsewhere: no operation, no dashboard and no token.
///
/// PRIVACY: the figures are counts of ten devices or more, times and sizes, as [`METRICS`] shows them to operators.
pub(crate) fn probe_routes(service: Arc<Service>, figures: Reader) -> Router {
    // Nothing here asks for the folder or the token.
    let access = Access {
        figures,
        service,
        folder: PathBuf::new(),
        token: Digest32::default(),
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route(METRICS, get(metrics))
        .with_state(Arc::new(access))
}

/// A refusal, as JSON travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// One sentence.
    pub error: String,
}

pub(super) fn refused(status: StatusCode, error: String) -> Response {
    (status, Json(Refused { error })).into_response()
}

async fn authorise(State(access): State<Arc<Access>>, request: Request, then: Next) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    match given {
        Some(token) if digest_of(token.as_bytes()) == access.token => then.run(request).await,
        _ => refused(
            StatusCode::UNAUTHORIZED,
            format!("the request needs the bearer token of {ADMIN_FILE} in the data folder"),
        ),
    }
}

async fn operate(State(access): State<Arc<Access>>, body: axum::body::Bytes) -> Response {
    match serde_json::from_slice(&body) {
        Ok(operation) => perform(access, operation).await,
        Err(error) => refused(
            StatusCode::BAD_REQUEST,
            format!("the body must be an operation in JSON: {error}"),
        ),
    }
}

async fn list(State(access): State<Arc<Access>>) -> Response {
    perform(access, Operation::List).await
}

async fn show(State(access): State<Arc<Access>>, Segment(task): Segment<String>) -> Response {
    perform(access, Operation::Show { task }).await
}

async fn metrics(State(access): State<Arc<Access>>) -> Response {
    let work = move || access.figures.read().map(|figures| text(&figures));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Ok(Err(error)) => refused(status(&error), error.to_string()),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the metrics failed".to_owned()),
    }
}

/// `ok` while the store answers, the process takes new work and is in no trouble.
async fn ready(State(access): State<Arc<Access>>) -> Response {
    if !access.service.takes_work() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the process takes no new work\n").into_response();
    }
    let work = move || {
        // A store that fails now is a trouble from now on.
        let answers = access.service.shared().store.tasks().is_ok();
        readiness(access.service.troubles(), answers)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok((true, text)) => text.into_response(),
        Ok((false, text)) => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the look failed\n").into_response(),
    }
}

/// Tells whether a process is ready, and names each trouble in a line. A task that cannot go on keeps the others from nothing.
fn readiness(troubles: &Troubles, answers: bool) -> (bool, String) {
    let counts = troubles.counts();
    let there = || {
        counts
            .iter()
            .filter(|(kind, count)| *count > 0 || (*kind == Trouble::Store && !answers))
    };
    let ready = !there().any(|(kind, _)| kind.is_of_the_process());
    let mut text = String::from(if ready { "ok\n" } else { "not ready\n" });
    for (kind, _) in there() {
        text.push_str(&format!("{}: {}\n", kind.name(), kind.sentence()));
    }
    (ready, text)
}

async fn perform(access: Arc<Access>, operation: Operation) -> Response {
    // PRIVACY: an invitation names a subject.
    let work = move || {
        let answer = scrubbed(|| Admin::new(&access.service, &access.folder).perform(&operation))?;
        if let (Operation::Activate { .. } | Operation::Resume { .. }, Answer::Task(task)) =
            (&operation, &answer)
        {
            access.service.wait_for_board(&task.id);
        }
        Ok::<Answer, ServiceError>(answer)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(answer)) => Json::<Answer>(answer).into_response(),
        Ok(Err(error)) => refused(status(&error), error.to_string()),
        Err(_) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the operation failed; see the log of the server".to_owned(),
        ),
    }
}

pub(super) fn status(error: &ServiceError) -> StatusCode {
    match error {
        ServiceError::Store(StoreError::Missing { .. }) => StatusCode::NOT_FOUND,
        ServiceError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. }) => StatusCode::CONFLICT,
        ServiceError::Store(_) | ServiceError::Io { .. } | ServiceError::Entropy(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::BAD_REQUEST,
    }
}
