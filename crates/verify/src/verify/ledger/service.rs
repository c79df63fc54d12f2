//! The parts of a line that only a service writes.

use super::super::{Check, Run};
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::{AbandonedAttempt, LedgerMode};
use undertone_coordinator::task::{LedgerPlace, TaskFile};

/// Checks mode, lost users and attempts of a line: those of the task's service, and none in a run.
pub(super) fn check_line(run: &Run<'_>, index: usize, check: &mut Check) {
    let entry = &run.entries[index];
    let line = format!("{}, line {}", run.ledger_file(), index + 1);
    let expected = run.subject.file().map(mode_of);
    if entry.mode != expected {
        check.problem(format!(
            "{line}, mode: expected {}, got {}",
            shown(expected),
            shown(entry.mode)
        ));
    }
    let Some(file) = run.subject.file() else {
        for (key, found) in [("lost", entry.lost.len()), ("attempts", entry.attempts.len())] {
            if found > 0 {
                check.problem(format!(
                    "{line}, {key}: a run of `undertone train` has no such value"
                ));
            }
        }
        return;
    };
    if entry.abandoned {
        check.problem(format!(
            "{line}, abandoned: a service writes a line for a release alone, and names abandoned attempts in `attempts`"
        ));
    }
    check_names(file, "participants", &entry.participants, &line, check);
    check_names(file, "lost", &entry.lost, &line, check);
    if entry
        .survivors
        .is_some_and(|survivors| survivors != entry.cohort_size)
    {
        check.problem(format!(
            "{line}, survivors: expected the {} users in the sum, got {}",
            entry.cohort_size,
            entry.survivors.unwrap_or(0)
        ));
    }
    check_attempts(run, &entry.attempts, &line, check);
}

/// Checks that attempts are numbered from 0 without a gap, spent no row of noise, and name their users in order.
pub(super) fn check_attempts(run: &Run<'_>, attempts: &[AbandonedAttempt], line: &str, check: &mut Check) {
    let Some(file) = run.subject.file() else { return };
    for (attempt, number) in attempts.iter().zip(0..) {
        if attempt.attempt != number {
            check.problem(format!(
                "{line}, attempts: expected attempt {number}, got {}; an attempt is missing or out of order",
                attempt.attempt
            ));
        }
        if attempt.row_spent {
            check.problem(format!(
                "{line}, attempts: attempt {}: expected row_spent = false",
                attempt.attempt
            ));
        }
        check_names(file, "attempts", &attempt.participants, line, check);
    }
}

/// PRIVACY: in any order but that of the names, a list would tell who came first, or which of two subjects is the older one.
fn check_names(file: &TaskFile, key: &str, names: &[ParticipantId], line: &str, check: &mut Check) {
    if !names.is_sorted_by(|a, b| a < b) {
        check.problem(format!(
            "{line}, {key}: expected pseudonyms in ascending order, each once"
        ));
    }
    if file.service.ledger == LedgerPlace::Device && !names.is_empty() {
        check.problem(format!(
            "{line}, {key}: expected no pseudonyms with service.ledger = \"device\", got {}",
            names.len()
        ));
    }
}

fn mode_of(file: &TaskFile) -> LedgerMode {
    match (file.seed, file.service.ledger) {
        (Some(_), _) => LedgerMode::ParityTest,
        (None, LedgerPlace::Server) => LedgerMode::Service,
        (None, LedgerPlace::Device) => LedgerMode::DeviceLedger,
    }
}

fn shown(mode: Option<LedgerMode>) -> &'static str {
    match mode {
        None => "no such key",
        Some(LedgerMode::Service) => "service",
        Some(LedgerMode::DeviceLedger) => "device_ledger",
        Some(LedgerMode::ParityTest) => "parity_test",
    }
}
