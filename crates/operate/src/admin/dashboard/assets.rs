//! The files of the page, which are part of the program.

use axum::extract::Path as Segment;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::admin::listener::refused;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The files by their names, with their kinds.
pub(super) const FILES: [(&str, &str, &str); 13] = [
    ("palette.css", CSS, undertone_present::PALETTE),
    ("style.css", CSS, include_str!("page/style.css")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("api.js", SCRIPT, include_str!("page/api.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("text.js", SCRIPT, include_str!("page/text.js")),
    ("charts.js", SCRIPT, include_str!("page/charts.js")),
    ("acts.js", SCRIPT, include_str!("page/acts.js")),
    ("tasks.js", SCRIPT, include_str!("page/tasks.js")),
    ("privacy.js", SCRIPT, include_str!("page/privacy.js")),
    ("model.js", SCRIPT, include_str!("page/model.js")),
    ("population.js", SCRIPT, include_str!("page/population.js")),
    ("icon.svg", SVG, include_str!("page/icon.svg")),
];

/// The page.
pub(super) const PAGE: &str = include_str!("page/index.html");

/// Serves the page.
pub(super) async fn page() -> Response {
    file(HTML, PAGE)
}

/// Serves a file of the page.
pub(super) async fn asset(Segment(name): Segment<String>) -> Response {
    match FILES.iter().find(|(found, ..)| *found == name) {
        Some((_, kind, text)) => file(kind, text),
        None => refused(StatusCode::NOT_FOUND, "there is no file of this name".to_owned()),
    }
}

fn file(kind: &'static str, text: &'static str) -> Response {
    // Another version of the program may serve the same address.
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, text).into_response()
}
