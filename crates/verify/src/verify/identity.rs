//! The party that vouched for the users of a task.

use super::Check;
use undertone_coordinator::record::Issuer;
use undertone_coordinator::task::{IdentityLevel, TaskFile};
use undertone_present::numbers::hex;
use undertone_run_directory::files::names::{SERVICE_FILE, TASK_FILE};
use undertone_run_directory::ledger::Ledger;
use undertone_run_directory::task::ServiceRecord;

/// The fault of exports whose ledger names no issuer.
const NOT_IN_THE_LEDGER: &str = "no line of the ledger names the issuer, so nothing but this file says who vouched for the users. An \
    earlier version made the rounds";

/// The fault of exports of tasks whose first rounds an earlier version made.
const LATER_IN_THE_LEDGER: &str = "the first lines of the ledger name no issuer, so nothing but this file says who vouched for the users of \
    their rounds. An earlier version made them";

/// States who vouched for the pseudonyms of a task, checks that its record is one of this task, and that the ledger names the same issuer.
///
/// No file proves that two pseudonyms are two people: that is the word of the issuer, or with `dev` that of the devices.
pub(super) fn stated(file: &TaskFile, record: &ServiceRecord, ledger: Option<&Ledger>) -> Check {
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
    if !are_keys(&record.issuers) {
        check.problem(format!(
            "{SERVICE_FILE}, issuers: expected public keys of 64 lower-case hexadecimal digits, ascending"
        ));
    }
    if (level == IdentityLevel::Dev) != record.issuers.is_empty() {
        let expected = match level {
            IdentityLevel::Dev => "an empty list",
            IdentityLevel::Certificate | IdentityLevel::Attested => "the key of an issuer",
        };
        check.problem(format!(
            "{SERVICE_FILE}, issuers: expected {expected} with identity = \"{}\", got {}",
            level.name(),
            record.issuers.len()
        ));
    }
    let keys = ledger.map_or_else(Vec::new, |ledger| in_ledger(level, record, ledger, &mut check));
    let statement = level.statement().trim_start_matches("Identity: ");
    check.found = match &record.issuers[..] {
        [] => statement.to_owned(),
        [one] => format!("{statement} Issuer: {one}."),
        several => format!("{statement} Issuers: {}.", several.join(", ")),
    };
    for (round, keys) in keys {
        check.found += &format!(
            " Certificates counted from round {round} on: {}.",
            keys.join(", ")
        );
    }
    check
}

/// `true` for public keys in ascending order, each once.
fn are_keys(keys: &[String]) -> bool {
    let is_key =
        |key: &String| key.len() == 64 && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    keys.iter().all(is_key) && keys.is_sorted_by(|a, b| a < b)
}

/// Checks that the lines of the ledger name the issuer of the record. Returns the rounds from which on other keys counted, with the keys.
fn in_ledger<'l>(
    level: IdentityLevel,
    record: &ServiceRecord,
    ledger: &'l Ledger,
    check: &mut Check,
) -> Vec<(u64, &'l [String])> {
    let rounds = ledger.entries.iter().map(|entry| entry.issuer.as_ref());
    let lines: Vec<Option<&Issuer>> = rounds
        .chain(ledger.end.iter().map(|end| end.issuer.as_ref()))
        .collect();
    let unnamed = lines.iter().take_while(|issuer| issuer.is_none()).count();
    if level != IdentityLevel::Dev && unnamed > 0 {
        let fault = match unnamed == lines.len() {
            true => NOT_IN_THE_LEDGER,
            false => LATER_IN_THE_LEDGER,
        };
        check.warning(format!("{SERVICE_FILE}, issuers: {fault}"));
    }
    let mut changes: Vec<(u64, &[String])> = Vec::new();
    for ((issuer, round), line) in lines.into_iter().zip(0..).zip(1..).skip(unnamed) {
        let place = format!("the ledger, line {line}, issuer");
        let Some(issuer) = issuer else {
            check.problem(format!("{place}: expected one, as in the line before, got none"));
            continue;
        };
        if level == IdentityLevel::Dev {
            check.problem(format!("{place}: expected none with identity = \"dev\", got one"));
            continue;
        }
        if record.issuers != [issuer.name.as_str()] {
            let expected = format!("the issuer of {SERVICE_FILE}, {}", record.issuers.join(", "));
            check.wrong(format!("{place}.name"), expected, super::quoted(&issuer.name));
        }
        if issuer.keys.is_empty() || !are_keys(&issuer.keys) {
            check.problem(format!(
                "{place}.keys: expected public keys of 64 lower-case hexadecimal digits, ascending"
            ));
        }
        if changes.last().is_none_or(|(_, keys)| **keys != *issuer.keys) {
            changes.push((round, &issuer.keys));
        }
    }
    changes
}
