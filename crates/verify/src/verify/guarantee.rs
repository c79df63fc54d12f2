//! `privacy.json` and `privacy.md` against the report that ledger and configuration give.

use std::borrow::Cow;

use serde_json::Value;

use super::mechanism::keys_of;
use super::same::{Precision, exactly};
use super::wording;
use super::{Check, Run};
use undertone_coordinator::account::Account;
use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_present::numbers::epsilon_delta;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files::names::{MECHANISM_FILE, PRIVACY_FILE, PRIVACY_PAGE};

/// The report of a run, recomputed.
pub(super) struct Recomputed {
    /// The report as this version makes it.
    pub(super) report: PrivacyReport,
    /// The report as an earlier version made it, where its files state that one.
    pub(super) earlier: Option<PrivacyReport>,
}

impl Recomputed {
    /// The report that the files of the run state.
    pub(super) fn stated(&self) -> &PrivacyReport {
        self.earlier.as_ref().unwrap_or(&self.report)
    }
}

/// Recomputes the whole report, as a run makes it, and compares each leaf with the written one.
pub(super) fn agree(run: &Run<'_>) -> (Check, Option<Recomputed>) {
    let mut check = Check::new("guarantee");
    let claims = match check.keep(run.claims()) {
        Some(claims) => claims,
        None => return (check, None),
    };
    let made = check.keep(claims.report(&run.entries, run.end.as_ref()));
    let path = run.folder.join(PRIVACY_FILE);
    let Some(raw) = check.keep(undertone_run_directory::files::read(&path)) else {
        return (check, None);
    };
    let bytes = wording::current(&raw);
    if made
        .as_ref()
        .is_some_and(|made| wording::lacks_declaration(made, &bytes))
    {
        check.warning(format!("{PRIVACY_FILE}: {}", wording::UNDECLARED));
    }
    let made = made.map(|made| wording::of_version(made, &bytes));
    let damaged = |error: serde_json::Error| DirectoryError::damaged(&path, error);
    let written: Result<Value> = serde_json::from_slice(&bytes).map_err(damaged);
    let written = check.keep(written);
    let is_earlier = made.as_ref().is_some_and(|made| made.stopped.is_some())
        && written
            .as_ref()
            .is_some_and(|written| written.get("stopped").is_none());
    let earlier = is_earlier.then(|| check.keep(claims.earlier_report(&run.entries, run.end.as_ref())));
    let made = made.map(|report| Recomputed {
        report,
        earlier: (earlier.flatten()).map(|report| wording::of_version(report, &bytes)),
    });
    if let (Some(made), Some(written)) = (&made, &written) {
        check.agree(PRIVACY_FILE, made.stated(), written);
        matrix(run, made.stated(), written, &mut check);
    }
    for fault in wording::faults(&raw, run.subject.is_external()) {
        check.warning(format!("{PRIVACY_FILE}: {fault}"));
    }
    match exactly::<PrivacyReport>(PRIVACY_FILE, &bytes) {
        Ok(written) => page(run, &written, &raw, &mut check),
        // What differs from the report that was made has been named.
        Err(problems) if check.problems.is_empty() => check.problems(problems),
        Err(_) => {}
    }
    check.keep(budget(run)).unwrap_or_default();
    if let Some(made) = &made {
        check.found = found(&made.report);
        if made.earlier.is_some() {
            check.warning(claims_the_rounds_so_far(&made.report));
        }
    }
    (check, made)
}

/// The guarantee in a few words.
fn found(made: &PrivacyReport) -> String {
    if !made.private {
        return "no noise, no guarantee".to_owned();
    }
    if let Some(selected) = &made.selected {
        return format!("selected {}", stated(selected));
    }
    let Some(observed) = &made.observed else {
        return "the noise is too small for any guarantee to be stated".to_owned();
    };
    match &made.stopped {
        None => format!("observed {}", stated(observed)),
        Some(stopped) => {
            let claimed = stopped.claimed.as_ref().map_or("none".to_owned(), stated);
            format!(
                "claimed {claimed}, that of all {} rounds of the plan; observed {} for the {} rounds that were made, if no release was \
                 looked at before the stop",
                stopped.planned_rounds,
                stated(observed),
                stopped.rounds
            )
        }
    }
}

/// The fault of a report that an earlier version wrote after a stop.
fn claims_the_rounds_so_far(made: &PrivacyReport) -> String {
    let stopped = made.stopped.as_ref();
    let claimed = stopped.and_then(|stopped| stopped.claimed.as_ref());
    format!(
        "{PRIVACY_FILE}: it claims the epsilon of the {} rounds that were made. The round of the stop may depend on a release, so the \
         claim is that of all {} rounds: {}. An earlier version wrote the file",
        stopped.map_or(0, |stopped| stopped.rounds),
        stopped.map_or(0, |stopped| stopped.planned_rounds),
        claimed.map_or("no guarantee can be stated".to_owned(), stated)
    )
}

/// Checks the sensitivity of an optimised matrix against the claimed one. Its figures cannot be recomputed.
fn matrix(run: &Run<'_>, made: &PrivacyReport, written: &Value, check: &mut Check) {
    let (Some(bounded), Some(planned)) = (run.plan.bounded(), &made.planned) else {
        return;
    };
    let Some(schema) = &planned.schema else { return };
    let claimed = written["planned"]["schema"]["sensitivity"].as_f64();
    if claimed.is_some_and(|claimed| Precision::Recomputed.same("sensitivity", schema.sensitivity, claimed)) {
        return;
    }
    check.problem(format!(
        "{MECHANISM_FILE}, strategy ({}): its sensitivity is {}, {PRIVACY_FILE} says {}",
        keys_of(bounded.mechanism().strategy()),
        schema.sensitivity,
        written["planned"]["schema"]["sensitivity"]
    ));
}

/// Checks that `privacy.md` is the page of this `privacy.json`.
fn page(run: &Run<'_>, report: &PrivacyReport, raw_report: &[u8], check: &mut Check) {
    let Some(raw) = check.keep(undertone_run_directory::files::read(
        &run.folder.join(PRIVACY_PAGE),
    )) else {
        return;
    };
    let expected = undertone_run_directory::privacy_page::document(&run.task().name, report);
    let current = wording::current(&raw);
    let got = match run.subject.is_external() {
        true => wording::page_of_session(&current),
        false => Cow::Borrowed(&*current),
    };
    let got = String::from_utf8_lossy(&got);
    for fault in wording::faults(&raw, run.subject.is_external()) {
        check.warning(format!("{PRIVACY_PAGE}: {fault}"));
    }
    // PRIVACY: in the words of a later version, a page without the checklist is one that somebody has cut.
    if wording::are_before_the_checklist(&raw, raw_report)
        && *got == undertone_run_directory::privacy_page::earlier_document(&run.task().name, report)
    {
        check.warning(format!(
            "{PRIVACY_PAGE}: it has no checklist of hazards. A version before the checklist wrote it"
        ));
        return;
    }
    let mut lines = expected.lines().zip(got.lines()).zip(1..);
    if let Some(((expected, got), line)) = lines.find(|((expected, got), _)| expected != got) {
        let place = format!("{PRIVACY_PAGE}, line {line}");
        check.wrong(place, format!("{expected:?}"), format!("{got:?}"));
    } else if *expected != *got {
        check.problem(format!(
            "{PRIVACY_PAGE}: expected the {} lines that {PRIVACY_FILE} gives, got {} lines",
            expected.lines().count(),
            got.lines().count()
        ));
    }
}

/// Checks that no round was made beyond a budget of the run file.
fn budget(run: &Run<'_>) -> Result<()> {
    let mut account = Account::new(run.task(), &run.plan)?;
    for entry in &run.entries {
        account.add(entry)?;
    }
    if let Some(end) = &run.end {
        account.end(end)?;
    }
    run.plan.check_selected()?;
    Ok(account.running()?.check_spent(&run.plan)?)
}

fn stated(record: &GuaranteeRecord) -> String {
    epsilon_delta(record.epsilon, record.delta)
}
