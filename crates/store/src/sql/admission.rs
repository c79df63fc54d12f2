//! Admission: one statement that checks and holds a subject, and the answer to those it refuses.

use undertone_accounting::participation::{Participation, Spacing};
use undertone_protocol::TaskState;

use super::facts::{Schema, user};
use super::{Bits, Name, Sql, Time, Tx, change, first, one};
use crate::failpoint::failpoint;
use crate::rules::{self, Standing, missing};
use crate::{Admission, Admitted, AttemptState, Millis, SessionId, SessionState};

/// The columns that an admission depends on, and that no transaction changes while the attempt is open.
struct Terms {
    task: i64,
    round: u64,
    participation: Participation,
    report_until: Millis,
    /// `true` if the attempt had a free place and took devices.
    takes: bool,
}

const TERMS: &str = "SELECT a.task, a.round, a.state, a.start, a.select_until, a.report_until, a.target, a.occupied, \
     t.state AS task_state, t.spacing, t.min_sep, t.max_part \
     FROM attempts a JOIN tasks t ON t.id = a.task WHERE a.id = ?1";

fn terms(conn: &dyn Sql, admission: &Admission, start: u64, now: Millis) -> Tx<Terms> {
    let id = admission.attempt;
    let found = first(conn, TERMS, [Bits(id.0)], |row| {
        let Name::<AttemptState>(state) = row.get("state")?;
        let Name::<TaskState>(task_state) = row.get("task_state")?;
        let (occupied, target): (i64, i64) = (row.get("occupied")?, row.get("target")?);
        let takes = state == AttemptState::Selecting
            && task_state == TaskState::Active
            && row.get::<Bits>("start")?.0 == start
            && now < row.get::<Time>("select_until")?.0
            && occupied < target;
        let terms = Terms {
            task: row.get("task")?,
            round: row.get::<Bits>("round")?.0,
            participation: Participation::single(),
            report_until: row.get::<Time>("report_until")?.0,
            takes,
        };
        Ok((terms, Schema::read(row)?))
    })?;
    let (mut terms, schema) = found.ok_or_else(|| missing("attempt", id.to_string()))?;
    terms.participation = schema.participation()?;
    Ok(terms)
}

/// The terms of an admission, and the answer to one that opens no session.
fn explain(conn: &dyn Sql, admission: &Admission, start: u64, now: Millis) -> Tx<(Terms, Option<Admitted>)> {
    let terms = terms(conn, admission, start, now)?;
    let sql = "SELECT id FROM sessions WHERE device = ?1 AND checkin = ?2";
    let before = first(conn, sql, (admission.device, admission.checkin), |row| row.get(0))?;
    if let Some(session) = before {
        return Ok((terms, Some(Admitted::Before(SessionId(session)))));
    }
    let (last, hold) = user(conn, terms.task, admission.user)?;
    let sql = "SELECT state FROM sessions WHERE attempt = ?1 AND user = ?2 AND state <> 'lost_before_ready'";
    let session = first(
        conn,
        sql,
        (Bits(admission.attempt.0), Bits(admission.user.get())),
        |row| row.get(0),
    )?;
    let standing = Standing {
        last,
        hold,
        session: session.map(|Name(state)| state),
    };
    let refused = rules::refusal(
        terms.participation,
        terms.round,
        admission.user,
        &standing,
        now,
        terms.report_until,
    );
    let refused = refused.or_else(|| (!terms.takes).then_some(Admitted::Full));
    Ok((terms, refused))
}

/// PRIVACY: checks and takes the hold in one statement, so that no two admissions of a subject can both succeed. It looks at the
/// attempt, the task and the user as they are now, whatever an earlier look has shown. A negative number stands for one beyond
/// the signed range.
const HOLD: &str = "INSERT INTO users (task, user, last_round, participations, holds_until) \
     SELECT a.task, ?2, NULL, 0, ?3 FROM attempts a JOIN tasks t ON t.id = a.task \
     WHERE a.id = ?1 AND a.state = 'selecting' AND t.state = 'active' AND a.start = ?5 AND ?4 < a.select_until \
     AND a.occupied < a.target AND NOT EXISTS (SELECT 1 FROM sessions s \
       WHERE s.attempt = ?1 AND s.user = ?2 AND s.state <> 'lost_before_ready') \
     ON CONFLICT (task, user) DO UPDATE SET holds_until = excluded.holds_until \
     WHERE (users.holds_until IS NULL OR users.holds_until <= ?4) \
     AND (?6 < 0 OR users.participations < ?6) \
     AND (users.last_round IS NULL OR (?7 >= 0 AND \
       CASE ?8 WHEN 'at_least' THEN ?9 - users.last_round >= ?7 ELSE ?9 - users.last_round = ?7 END)) \
     RETURNING 1";

/// Admits a device, in a transaction of the writer.
pub(crate) fn admit(conn: &dyn Sql, admission: &Admission, start: u64, now: Millis) -> Tx<Admitted> {
    let (terms, refused) = explain(conn, admission, start, now)?;
    if let Some(refused) = refused {
        return Ok(refused);
    }
    let sql = "SELECT count(*) FROM sessions WHERE id = ?1";
    if one::<bool>(conn, sql, [admission.session.0])? {
        return Err(rules::session_taken().into());
    }
    let schema = terms.participation;
    let spacing: Spacing = schema.spacing();
    let (attempt, user) = (Bits(admission.attempt.0), Bits(admission.user.get()));
    let held: Option<i64> = first(
        conn,
        HOLD,
        (
            attempt,
            user,
            Time(admission.hold_until),
            Time(now),
            Bits(start),
            Bits(schema.max_participation()),
            Bits(schema.gap().get()),
            Name(spacing),
            Bits(terms.round),
        ),
        |row| row.get(0),
    )?;
    if held.is_none() {
        // The statement is the judge: it refused what the look before it would have admitted.
        tracing::error!(
            attempt = admission.attempt.0,
            "admission and its statement disagree"
        );
        return Ok(Admitted::Full);
    }
    failpoint!("admit: after the hold");
    change(
        conn,
        "INSERT INTO sessions (id, attempt, user, device, checkin, state, assigned) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (
            admission.session.0,
            attempt,
            user,
            admission.device,
            admission.checkin,
            Name(SessionState::Assigned),
            Time(now),
        ),
    )?;
    failpoint!("admit: after the session");
    change(
        conn,
        "UPDATE attempts SET occupied = occupied + 1 WHERE id = ?1",
        [attempt],
    )?;
    Ok(Admitted::Yes)
}
