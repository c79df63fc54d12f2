//! The dashboard: a page for operators, and the JSON behind it.
//!
//! PRIVACY: everything shown is a count, a time, or made from releases. Counts of devices and subjects move in steps of ten, and are
//! hidden below ten. The number of users in a release is exact, since the ledger names it.
//!
//! | file | part |
//! |---|---|
//! | `access` | links, sessions, and the requests that are let in |
//! | `feed` | the stream of events |
//! | `overview`, `task_view`, `privacy_view`, `model_view`, `population_view` | the answers |
//! | `acts` | pause, resume, stop |
//! | `assets` | the files of the page |

mod access;
mod acts;
mod assets;
mod feed;
mod model_view;
mod overview;
mod population_view;
mod privacy_view;
mod task_view;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path as Segment, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use undertone_protocol::Digest32;
use undertone_service::Result;
use undertone_service::server::Service;
use undertone_store::{Millis, TaskRow};

use super::Admin;
use super::guarantees::Guarantees;
use super::listener::{refused, status};

pub(crate) use access::Doors;
pub(super) use access::from_here;

/// Max bytes of a request of the page.
const MAX_REQUEST: usize = 16 << 10;

/// The values that all routes of the dashboard share.
pub(crate) struct Dashboard {
    service: Arc<Service>,
    folder: PathBuf,
    /// The digest of the token of operators.
    token: Digest32,
    doors: Arc<Doors>,
    guarantees: Arc<Guarantees>,
    feed: feed::Feed,
    /// The start of this process, by the clock of the store.
    started: Millis,
}

impl Dashboard {
    /// A dashboard of a service.
    pub(crate) fn new(
        service: Arc<Service>,
        folder: PathBuf,
        token: Digest32,
        doors: Arc<Doors>,
        guarantees: Arc<Guarantees>,
    ) -> Self {
        Self {
            started: service.shared().store.now(),
            service,
            folder,
            token,
            doors,
            guarantees,
            feed: feed::Feed::default(),
        }
    }

    fn now(&self) -> Millis {
        self.service.shared().store.now()
    }

    fn admin(&self) -> Admin<'_> {
        Admin::new(&self.service, &self.folder)
    }

    /// The task with this identifier, or with this name.
    fn find(&self, task: &str) -> Result<TaskRow> {
        self.admin().find(task)
    }
}

/// The routes of the page and of its JSON.
pub(crate) fn routes(dashboard: Arc<Dashboard>) -> Router {
    let private = Router::new()
        .route("/api/overview", get(overview))
        .route("/api/events", get(feed::events))
        .route("/api/tasks/{task}", get(task))
        .route("/api/tasks/{task}/privacy", get(privacy))
        .route("/api/tasks/{task}/model", get(model))
        .route("/api/tasks/{task}/{act}", post(acts::act))
        .route("/api/populations/{population}", get(population))
        .route("/api/session", axum::routing::delete(access::leave))
        .layer(axum::middleware::from_fn_with_state(
            dashboard.clone(),
            access::authorise,
        ));
    Router::new()
        .route("/api/session", post(access::enter))
        .merge(private)
        .route("/", get(assets::page))
        .route("/assets/{name}", get(assets::asset))
        .layer(DefaultBodyLimit::max(MAX_REQUEST))
        .layer(axum::middleware::from_fn(access::from_here))
        .layer(axum::middleware::map_response(guarded))
        .with_state(dashboard)
}

/// Adds the headers that keep a browser from doing more with an answer than showing it.
async fn guarded(mut response: Response) -> Response {
    const HEADERS: [(header::HeaderName, &str); 6] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            header::HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            header::HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Answers with the value that `work` makes on a thread of its own.
async fn answer<T: Serialize + Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(error)) => refused(status(&error), error.to_string()),
        Err(_) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the answer could not be made; see the log of the server".to_owned(),
        ),
    }
}

async fn overview(State(dashboard): State<Arc<Dashboard>>) -> Response {
    answer(move || overview::Timed::now(&dashboard)).await
}

async fn task(State(dashboard): State<Arc<Dashboard>>, Segment(task): Segment<String>) -> Response {
    answer(move || task_view::TaskView::of(&dashboard, &task)).await
}

async fn privacy(State(dashboard): State<Arc<Dashboard>>, Segment(task): Segment<String>) -> Response {
    answer(move || privacy_view::PrivacyView::of(&dashboard, &task)).await
}

async fn model(State(dashboard): State<Arc<Dashboard>>, Segment(task): Segment<String>) -> Response {
    answer(move || model_view::ModelView::of(&dashboard, &task)).await
}

async fn population(
    State(dashboard): State<Arc<Dashboard>>,
    Segment(population): Segment<String>,
) -> Response {
    answer(move || population_view::PopulationView::of(&dashboard, &population)).await
}
