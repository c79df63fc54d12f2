//! The party that vouched for the users of a task.

use super::Check;
use crate::files::names::{SERVICE_FILE, TASK_FILE};
use crate::task::ServiceRecord;
use undertone_coordinator::task::{IdentityLevel, TaskFile};
use undertone_present::numbers::hex;

/// States who vouched for the pseudonyms of a task, and checks that its record is one of this task.
///
/// No file proves that two pseudonyms are two people: that is the word of the issuer, or with `dev` that of the devices.
pub(super) fn stated(file: &TaskFile, record: &ServiceRecord) -> Check {
    let mut check = Check::new("identity");
    if record.version != 1 {
        check.wrong(format!("{SERVICE_FILE}, version"), 1, record.version);
    }
    if let Some(id) = check.keep(file.id(&record.population)) {
        let id = hex(&id);
        if record.task != id {
            check.problem(format!(
                "{SERVICE_FILE}, task: expected {id} for the settings of {TASK_FILE} in the population {:?}, got {:?}",
                record.population, record.task
            ));
        }
    }
    let level = file.service.identity;
    let is_key =
        |key: &String| key.len() == 64 && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !record.issuers.iter().all(is_key) || !record.issuers.is_sorted_by(|a, b| a < b) {
        check.problem(format!(
            "{SERVICE_FILE}, issuers: expected public keys of 64 lower-case hexadecimal digits, ascending"
        ));
    }
    if (level == IdentityLevel::Dev) != record.issuers.is_empty() {
        let expected = match level {
            IdentityLevel::Dev => "no issuer",
            IdentityLevel::Certificate | IdentityLevel::Attested => "the key of an issuer",
        };
        check.problem(format!(
            "{SERVICE_FILE}, issuers: expected {expected} with identity = \"{}\", got {}",
            level.name(),
            record.issuers.len()
        ));
    }
    let statement = level.statement().trim_start_matches("Identity: ");
    check.found = match &record.issuers[..] {
        [] => statement.to_owned(),
        [one] => format!("{statement} Issuer: {one}."),
        several => format!("{statement} Issuers: {}.", several.join(", ")),
    };
    check
}
