//! The way of an operator's commands: to the data folder itself, or through the server that has it open.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use undertone_operate::admin::listener::{AdminFile, OPERATIONS, Refused};
use undertone_operate::admin::{Admin, Answer, Operation};
use undertone_service::identity::Identity;
use undertone_service::server::Service;
use undertone_service::{ServiceError, data_folder};
use undertone_store::StoreError;

/// Max bytes of an answer.
const MAX_ANSWER: u64 = 64 << 20;

/// The treatment of a folder without a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The command makes a new service.
    Create,
    /// The command needs one.
    Refuse,
}

/// Performs an operation on a data folder, or lets the server that has it open do so.
pub(crate) fn perform(data: &Path, missing: Missing, operation: &Operation) -> anyhow::Result<Answer> {
    if missing == Missing::Refuse && !data_folder::exists(data) {
        bail!(
            "{} holds no service; create a task in it first, with `undertone task create`",
            data.display()
        );
    }
    match data_folder::open(data, None) {
        Ok(shared) => {
            let service = Service::new(shared, Identity::Certificate)?;
            Ok(Admin::new(&service, data).perform(operation)?)
        }
        // The lock decides, not the file of the listener: a server that was killed leaves its file behind.
        Err(ServiceError::Store(StoreError::Locked { .. })) => remote(data, operation),
        Err(error) => Err(error.into()),
    }
}

/// Sends an operation to each process that works on a data folder, or to the one of this name, and names those that have performed it.
pub(crate) fn perform_at(
    data: &Path,
    process: Option<&str>,
    operation: &Operation,
) -> anyhow::Result<Vec<String>> {
    let mut performed = Vec::new();
    let mut unreached = None;
    for (name, file) in AdminFile::named(data)? {
        if process.is_some_and(|wanted| wanted != name) {
            continue;
        }
        match asked(data, &file, operation)? {
            Ok(answer) => {
                answer.with_context(|| name.clone())?;
                performed.push(name);
            }
            // A process that was killed has left its file behind.
            Err(error) => unreached = Some(error),
        }
    }
    match (performed.is_empty(), unreached, process) {
        (false, _, _) => Ok(performed),
        (true, Some(error), _) => Err(error),
        (true, None, Some(name)) => bail!("no process {name} works on {}", data.display()),
        (true, None, None) => bail!("no server works on {}", data.display()),
    }
}

/// Sends an operation to the listener of the server that has the folder open, or to one of its several processes.
fn remote(data: &Path, operation: &Operation) -> anyhow::Result<Answer> {
    let files = AdminFile::all(data)?;
    let Some((last, first)) = files.split_last() else {
        let folder = data.display();
        bail!("another process works on {folder}, and it takes no operations; try again when it has ended");
    };
    // A process that was killed leaves its file behind: nobody listens there, so the operation was not begun.
    for file in first {
        if let Ok(answer) = asked(data, file, operation)? {
            return answer;
        }
    }
    asked(data, last, operation)?.unwrap_or_else(Err)
}

/// Sends an operation to a process. The inner error says that the process cannot be reached.
fn asked(
    data: &Path,
    file: &AdminFile,
    operation: &Operation,
) -> anyhow::Result<Result<anyhow::Result<Answer>, anyhow::Error>> {
    let folder = data.display();
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .build()
        .new_agent();
    let body = serde_json::to_vec(operation).context("cannot write the operation as JSON")?;
    let sent = agent
        .post(format!("{}{OPERATIONS}", file.address))
        .header("authorization", format!("Bearer {}", file.token))
        .header("content-type", "application/json")
        .send(&body[..]);
    let mut response = match sent {
        Ok(response) => response,
        Err(error) => {
            let unreached =
                matches!(&error, ureq::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused);
            let error = anyhow!(
                "the process that works on {folder} takes no operations at {}: {error}; try again when it has started or ended",
                file.address
            );
            return match unreached {
                true => Ok(Err(error)),
                false => Err(error),
            };
        }
    };
    let read = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
    let body = read.with_context(|| format!("the answer of {}", file.address))?;
    if !response.status().is_success() {
        return Ok(Ok(Err(match serde_json::from_slice::<Refused>(&body) {
            Ok(refused) => anyhow!(refused.error),
            Err(_) => anyhow!(
                "the server refused the operation with status {}",
                response.status()
            ),
        })));
    }
    Ok(Ok(
        serde_json::from_slice(&body).context("the answer of the server is not one of this version")
    ))
}

/// The answer that an operation does not have.
pub(crate) fn unexpected() -> anyhow::Error {
    anyhow!("the server gave the answer to another operation; use the same version of `undertone` for both")
}
