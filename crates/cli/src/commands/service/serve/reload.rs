//! `undertone serve --reload`: a running server reads its certificate again.

use std::path::Path;

use undertone_operate::admin::Operation;

use super::super::operator::perform_at;
use crate::output::{Output, facts};

/// Asks the server that works on a data folder, or one of its several processes, to read its certificate again. Nobody else hears of it.
pub(super) fn run(data: &Path, process: Option<&str>, output: &Output) -> anyhow::Result<()> {
    let answered = perform_at(data, process, &Operation::Reload)?;
    output.show(&serde_json::json!({ "reloaded": answered }), || {
        facts(
            answered
                .iter()
                .map(|name| ("certificate read again by", name.clone())),
        )
    })
}
