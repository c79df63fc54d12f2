//! `privacy.json` and `privacy.md` against the report that ledger and configuration give.

use serde_json::Value;

use super::mechanism::keys_of;
use super::same::{Precision, exactly};
use super::wording;
use super::{Check, Run};
use crate::driver::{MECHANISM_FILE, PRIVACY_FILE, PRIVACY_PAGE};
use crate::error::{Result, RunError};
use undertone_coordinator::account::Account;
use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_present::numbers::epsilon_delta;

/// Recomputes the whole report, as a run makes it, and compares each leaf with the written one.
pub(super) fn agree(run: &Run<'_>) -> (Check, Option<PrivacyReport>) {
    let mut check = Check::new("guarantee");
    let claims = match check.keep(run.claims()) {
        Some(claims) => claims,
        None => return (check, None),
    };
    let made = check.keep(claims.report(&run.entries, run.end.as_ref()));
    let path = run.folder.join(PRIVACY_FILE);
    let Some(bytes) = check.keep(crate::files::read(&path)) else {
        return (check, None);
    };
    let bytes = wording::current(&bytes);
    let made = made.map(|made| wording::of_version(made, &bytes));
    let damaged = |error: serde_json::Error| RunError::damaged(&path, error);
    let written: Result<Value> = serde_json::from_slice(&bytes).map_err(damaged);
    if let (Some(made), Some(written)) = (&made, check.keep(written)) {
        check.agree(PRIVACY_FILE, made, &written);
        matrix(run, made, &written, &mut check);
    }
    match exactly::<PrivacyReport>(PRIVACY_FILE, &bytes) {
        Ok(written) => page(run, &written, &mut check),
        // What differs from the report that was made has been named.
        Err(problems) if check.problems.is_empty() => check.problems(problems),
        Err(_) => {}
    }
    check.keep(budget(run)).unwrap_or_default();
    check.found = match &made {
        Some(made) if !made.private => "no noise, no guarantee".to_owned(),
        Some(PrivacyReport {
            selected: Some(selected),
            ..
        }) => format!("selected {}", stated(selected)),
        Some(made) => match &made.observed {
            Some(observed) => format!("observed {}", stated(observed)),
            None => "the noise is too small for any guarantee to be stated".to_owned(),
        },
        None => String::new(),
    };
    (check, made)
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
fn page(run: &Run<'_>, report: &PrivacyReport, check: &mut Check) {
    let Some(got) = check.keep(crate::files::read(&run.folder.join(PRIVACY_PAGE))) else {
        return;
    };
    let expected = crate::privacy_page::document(&run.task().name, report);
    let got = wording::current(&got);
    let got = String::from_utf8_lossy(&got);
    if *got == crate::privacy_page::earlier_document(&run.task().name, report) {
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
