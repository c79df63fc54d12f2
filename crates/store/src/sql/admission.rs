//! Admission: one statement that checks and holds a subject, and the answer to those it refuses.

use undertone_accounting::participation::{Participation, Spacing};
use undertone_coordinator::participation::policy::Last;
use undertone_protocol::TaskState;

use super::facts::Schema;
use super::{Bits, Found, Name, Row, Sql, Time, Tx, change, first};
use crate::failpoint::failpoint;
use crate::rules::{self, Lost, Standing, missing};
use crate::{Admission, Admitted, AttemptState, Departure, Millis, SessionId, SessionState};

/// The facts that an admission depends on.
struct Terms {
    round: u64,
    participation: Participation,
    report_until: Millis,
    /// `true` if the attempt had a free place and took devices.
    takes: bool,
    /// The answer to a device that may not take part at all.
    gone: Option<Admitted>,
    /// The session that the same check-in opened before.
    before: Option<SessionId>,
    barred: bool,
    /// `true` if the subject or its device lost a session of the attempt.
    has_lost: bool,
    standing: Standing,
}

/// All of it in one statement, since each statement is a message to a server and back.
const TERMS: &str = "SELECT a.round, a.state, a.start, a.select_until, a.report_until, a.target, a.occupied, \
     t.state AS task_state, t.spacing, t.min_sep, t.max_part, \
     (SELECT e.id FROM sessions e WHERE e.device = ?2 AND e.checkin = ?3) AS earlier, \
     (SELECT v.revoked FROM devices v WHERE v.key = ?6) AS revoked, \
     (SELECT d.how FROM departed d WHERE d.population = t.population AND d.person = ?5) AS departure, \
     (SELECT count(*) FROM barred b WHERE b.task = a.task AND b.user = ?4) AS bars, \
     CASE WHEN EXISTS (SELECT 1 FROM sessions l WHERE l.attempt = a.id AND l.user = ?4 AND l.state = 'lost_before_ready') THEN 1 \
       WHEN EXISTS (SELECT 1 FROM sessions l WHERE l.device = ?2 AND +l.attempt = a.id AND l.state = 'lost_before_ready') THEN 1 \
       ELSE 0 END AS lost, \
     (SELECT s.state FROM sessions s WHERE s.attempt = a.id AND s.user = ?4 AND s.state <> 'lost_before_ready') AS session, \
     u.last_round, u.participations, u.holds_until \
     FROM attempts a JOIN tasks t ON t.id = a.task LEFT JOIN users u ON u.task = a.task AND u.user = ?4 WHERE a.id = ?1";

fn terms(conn: &dyn Sql, admission: &Admission, start: u64, now: Millis) -> Tx<Terms> {
    let id = admission.attempt;
    let values = (
        Bits(id.0),
        admission.device,
        admission.checkin,
        Bits(admission.user.get()),
        admission.person,
        rules::device_name(&admission.key),
    );
    let found = first(conn, TERMS, values, |row| {
        let Name::<AttemptState>(state) = row.get("state")?;
        let Name::<TaskState>(task_state) = row.get("task_state")?;
        let (occupied, target): (i64, i64) = (row.get("occupied")?, row.get("target")?);
        let takes = state == AttemptState::Selecting
            && task_state == TaskState::Active
            && row.get::<Bits>("start")?.0 == start
            && now < row.get::<Time>("select_until")?.0
            && occupied < target;
        let last: Option<Bits> = row.get("last_round")?;
        let participations: Option<Bits> = row.get("participations")?;
        let hold: Option<Time> = row.get("holds_until")?;
        let session: Option<Name<SessionState>> = row.get("session")?;
        let revoked: Option<bool> = row.get("revoked")?;
        let departure: Option<Name<Departure>> = row.get("departure")?;
        let before: Option<[u8; 16]> = row.get("earlier")?;
        let terms = Terms {
            round: row.get::<Bits>("round")?.0,
            participation: Participation::single(),
            report_until: row.get::<Time>("report_until")?.0,
            takes,
            gone: rules::gone(revoked == Some(true), departure.map(|Name(how)| how)),
            before: before.map(SessionId),
            barred: row.get::<i64>("bars")? > 0,
            has_lost: row.get("lost")?,
            standing: Standing {
                last: last.map(|Bits(round)| Last {
                    round,
                    participations: participations.map_or(0, |Bits(count)| count),
                }),
                hold: hold.map(|Time(hold)| hold),
                session: session.map(|Name(state)| state),
            },
        };
        Ok((terms, Schema::read(row)?))
    })?;
    let (mut terms, schema) = found.ok_or_else(|| missing("attempt", id.to_string()))?;
    terms.participation = schema.participation()?;
    Ok(terms)
}

/// The terms of an admission, and the answer to one that opens no session.
fn explain(conn: &dyn Sql, admission: &Admission, start: u64, now: Millis) -> Tx<(Terms, Option<Admitted>)> {
    let mut terms = terms(conn, admission, start, now)?;
    if let Some(gone) = terms.gone.take() {
        return Ok((terms, Some(gone)));
    }
    if let Some(session) = terms.before {
        return Ok((terms, Some(Admitted::Before(session))));
    }
    if terms.barred {
        return Ok((terms, Some(Admitted::Barred)));
    }
    let refused = rules::refusal(
        terms.participation,
        terms.round,
        admission.user,
        &terms.standing,
        now,
        terms.report_until,
    );
    let refused = match refused {
        None if terms.has_lost => lost(conn, admission)?.refusal(admission.limits, now),
        refused => refused,
    };
    let refused = refused.or_else(|| (!terms.takes).then_some(Admitted::Full));
    Ok((terms, refused))
}

/// The sessions of the attempt that a subject or its device lost. Few subjects lost one, so the others pay for no such count.
fn lost(conn: &dyn Sql, admission: &Admission) -> Found<Lost> {
    let attempt = Bits(admission.attempt.0);
    let read = |row: &Row<'_>| {
        let last: Option<Time> = row.get(1)?;
        Ok(Lost {
            sessions: row.get(0)?,
            last: last.map(|Time(last)| last),
        })
    };
    let sql = "SELECT count(*), max(assigned) FROM sessions WHERE attempt = ?1 AND user = ?2 AND state = 'lost_before_ready'";
    let subject = first(conn, sql, (attempt, Bits(admission.user.get())), read)?;
    let sql = "SELECT count(*), max(assigned) FROM sessions WHERE device = ?2 AND +attempt = ?1 AND state = 'lost_before_ready'";
    let device = first(conn, sql, (attempt, admission.device), read)?;
    Ok(subject.unwrap_or_default().or(device.unwrap_or_default()))
}

/// PRIVACY: checks and takes the hold in one statement, so that no two admissions of a subject can both succeed. It looks at the
/// attempt, the task, the device and the user as they are now, whatever an earlier look has shown. A negative number stands for one beyond
/// the signed range.
const HOLD: &str = "INSERT INTO users (task, user, last_round, participations, holds_until) \
     SELECT a.task, ?2, NULL, 0, ?3 FROM attempts a JOIN tasks t ON t.id = a.task \
     WHERE a.id = ?1 AND a.state = 'selecting' AND t.state = 'active' AND a.start = ?5 AND ?4 < a.select_until \
     AND a.occupied < a.target AND NOT EXISTS (SELECT 1 FROM sessions s \
       WHERE s.attempt = ?1 AND s.user = ?2 AND s.state <> 'lost_before_ready') \
     AND NOT EXISTS (SELECT 1 FROM barred b WHERE b.task = a.task AND b.user = ?2) \
     AND NOT EXISTS (SELECT 1 FROM departed d \
       WHERE d.population = t.population AND d.person = ?10 AND d.how <> 'withdrawn') \
     AND NOT EXISTS (SELECT 1 FROM devices v WHERE v.key = ?11 AND v.revoked <> 0) \
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
            admission.person,
            rules::device_name(&admission.key),
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
    let opened = change(
        conn,
        "INSERT INTO sessions (id, attempt, user, device, checkin, state, assigned) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT (id) DO NOTHING",
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
    if opened == 0 {
        return Err(rules::session_taken().into());
    }
    failpoint!("admit: after the session");
    change(
        conn,
        "UPDATE attempts SET occupied = occupied + 1 WHERE id = ?1",
        [attempt],
    )?;
    Ok(Admitted::Yes)
}
