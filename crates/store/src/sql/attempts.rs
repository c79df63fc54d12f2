//! Transactions on attempts and their sessions.

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::TaskState;

use super::facts::{attempt, led, led_task, open_attempt};
use super::{Bits, Name, Sql, Time, Tx, all, change, first, one};
use crate::failpoint::failpoint;
use crate::rules::{self, AttemptFacts, missing};
use crate::{
    AbandonReason, AttemptId, AttemptState, Lease, Millis, NewAttempt, Outcome, SessionId, SessionState,
    TaskId,
};

pub(crate) fn open(
    conn: &dyn Sql,
    lease: &Lease,
    new: &NewAttempt,
    start: u64,
    now: Millis,
) -> Tx<AttemptId> {
    let task = led_task(conn, lease)?;
    let open = open_attempt(conn, task.row)?.map(|(attempt, _)| attempt);
    task.facts.may_open(open, new)?;
    let sql = "SELECT count(*) FROM attempts WHERE task = ?1 AND round = ?2";
    let number: i64 = one(conn, sql, (task.row, Bits(new.round)))?;
    let id: Bits = one(
        conn,
        "INSERT INTO attempts (task, round, attempt, state, fence, start, opened, select_until, report_until, target, \
         occupied, swept) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0) \
         RETURNING id",
        (
            task.row,
            Bits(new.round),
            number,
            Name(AttemptState::Selecting),
            Bits(lease.fence),
            Bits(start),
            Time(now),
            Time(new.select_until),
            Time(new.report_until),
            new.target,
        ),
    )?;
    Ok(AttemptId(id.0))
}

fn move_to(conn: &dyn Sql, id: AttemptId, state: AttemptState, fence: u64) -> Tx<()> {
    let sql = "UPDATE attempts SET state = ?2, fence = ?3 WHERE id = ?1";
    change(conn, sql, (Bits(id.0), Name(state), Bits(fence)))?;
    Ok(())
}

pub(crate) fn close_selection(conn: &dyn Sql, lease: &Lease, id: AttemptId) -> Tx<()> {
    let (_, attempt) = led(conn, lease, id)?;
    attempt.may_close_selection()?;
    move_to(conn, id, AttemptState::Reporting, lease.fence)
}

pub(crate) fn reserve(conn: &dyn Sql, lease: &Lease, id: AttemptId, included: u64, start: u64) -> Tx<()> {
    let (task, attempt) = led(conn, lease, id)?;
    task.facts.may_reserve(&attempt, start, included)?;
    failpoint!("reserve: before the move");
    move_to(conn, id, AttemptState::Releasing, lease.fence)
}

pub(crate) fn abandon(
    conn: &dyn Sql,
    lease: &Lease,
    id: AttemptId,
    reason: AbandonReason,
    users: &[ParticipantId],
    now: Millis,
) -> Tx<()> {
    let (task, attempt) = led(conn, lease, id)?;
    if attempt.may_abandon()? {
        close_abandoned(conn, task.row, &attempt, lease.fence, reason, users, now)?;
    }
    Ok(())
}

/// Abandons an attempt that has not ended.
pub(crate) fn close_abandoned(
    conn: &dyn Sql,
    task: i64,
    attempt: &AttemptFacts,
    fence: u64,
    reason: AbandonReason,
    users: &[ParticipantId],
    now: Millis,
) -> Tx<()> {
    let id = Bits(attempt.id.0);
    change(
        conn,
        "INSERT INTO abandoned SELECT attempt, user FROM sessions WHERE attempt = ?1 AND state <> 'lost_before_ready'",
        [id],
    )?;
    for user in users {
        let sql = "INSERT INTO abandoned VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        change(conn, sql, (id, Bits(user.get())))?;
    }
    failpoint!("abandon: before the counts");
    // PRIVACY: nothing was released, but what the server saw of these users counts all the same, and at once.
    change(
        conn,
        "INSERT INTO users (task, user, last_round, participations, holds_until) \
         SELECT ?2, user, ?3, 1, NULL FROM abandoned WHERE attempt = ?1 \
         ON CONFLICT (task, user) DO UPDATE SET last_round = \
         CASE WHEN users.last_round > excluded.last_round THEN users.last_round ELSE excluded.last_round END, \
         participations = users.participations + 1, holds_until = NULL",
        (id, task, Bits(attempt.round)),
    )?;
    failpoint!("abandon: before the attempt");
    change(
        conn,
        "UPDATE attempts SET state = ?2, fence = ?3, reason = ?4, closed = ?5 WHERE id = ?1",
        (
            id,
            Name(AttemptState::Abandoned),
            Bits(fence),
            Name(reason),
            Time(now),
        ),
    )?;
    Ok(())
}

/// The opening of the first attempt at a round.
pub(crate) fn round_opened(conn: &dyn Sql, task: TaskId, round: u64) -> Tx<Option<Millis>> {
    let sql = "SELECT a.opened FROM attempts a JOIN tasks t ON t.id = a.task \
         WHERE t.digest = ?1 AND a.round = ?2 ORDER BY a.id LIMIT 1";
    let opened = first(conn, sql, (task.0, Bits(round)), |row| row.get(0))?;
    Ok(opened.map(|Time(opened)| opened))
}

pub(crate) fn outcome(conn: &dyn Sql, id: AttemptId) -> Tx<Outcome> {
    let sql = "SELECT state, reason, fence FROM attempts WHERE id = ?1";
    let found = first(conn, sql, [Bits(id.0)], |row| {
        let Name(state) = row.get(0)?;
        let reason: Option<Name<AbandonReason>> = row.get(1)?;
        Ok(Outcome {
            state,
            reason: reason.map(|Name(reason)| reason),
            fence: row.get::<Bits>(2)?.0,
        })
    })?;
    Ok(found.ok_or_else(|| missing("attempt", id.to_string()))?)
}

pub(crate) fn note_sessions(conn: &dyn Sql, states: &[(SessionId, SessionState)]) -> Tx<()> {
    for &(id, to) in states {
        let sql = "SELECT attempt, user, state FROM sessions WHERE id = ?1";
        let found = first(conn, sql, [id.0], |row| {
            let (Bits(id), Name(state)) = (row.get(0)?, row.get(2)?);
            Ok((AttemptId(id), row.get::<Bits>(1)?, state))
        })?;
        let Some((of, user, from)) = found else { continue };
        if !rules::moves(from, to) || !rules::is_open(attempt(conn, of)?.state) {
            continue;
        }
        let sql = "UPDATE sessions SET state = ?2 WHERE id = ?1";
        change(conn, sql, (id.0, Name(to)))?;
        if !rules::takes_place(to) {
            let sql = "UPDATE attempts SET occupied = occupied - 1 WHERE id = ?1";
            change(conn, sql, [Bits(of.0)])?;
        }
        if to == SessionState::LostBeforeReady {
            let sql = "UPDATE users SET holds_until = NULL \
                 WHERE task = (SELECT task FROM attempts WHERE id = ?1) AND user = ?2";
            change(conn, sql, (Bits(of.0), user))?;
        }
    }
    Ok(())
}

/// The attempts whose sessions nobody needs any more: they ended long ago, or their task has ended.
pub(crate) fn to_sweep(conn: &dyn Sql, now: Millis) -> Tx<Vec<i64>> {
    // No attempt has ended by a time before 1970.
    let until = now.saturating_sub(rules::KEEP_SESSIONS);
    let sql = "SELECT a.id FROM attempts a JOIN tasks t ON t.id = a.task \
         WHERE a.swept = 0 AND (a.closed <= ?1 OR (a.closed IS NOT NULL AND t.state = ?2))";
    let values = (Time(until), Name(TaskState::Completed));
    Ok(all(conn, sql, values, |row| row.get(0))?)
}

/// Deletes the sessions of an attempt, which nobody needs any more.
pub(crate) fn sweep(conn: &dyn Sql, id: i64) -> Tx<()> {
    change(
        conn,
        "DELETE FROM sessions WHERE attempt = ?1 AND state <> 'lost_before_ready'",
        [id],
    )?;
    change(
        conn,
        "DELETE FROM sessions WHERE attempt = ?1 AND state = 'lost_before_ready'",
        [id],
    )?;
    change(conn, "UPDATE attempts SET swept = 1 WHERE id = ?1", [id])?;
    Ok(())
}
