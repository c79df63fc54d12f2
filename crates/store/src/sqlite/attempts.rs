//! Transactions on attempts and their sessions.

use rusqlite::Connection;
use undertone_coordinator::participation::ParticipantId;

use super::facts::{attempt, led, led_task, open_attempt};
use super::tx::{Bits, Name, Time, Tx, change, first, one};
use crate::failpoint::failpoint;
use crate::rules::{self, AttemptFacts, missing};
use crate::{AttemptId, AttemptState, Lease, Millis, NewAttempt, Outcome, Reason, SessionId, SessionState};

pub(super) fn open(
    conn: &Connection,
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
    change(
        conn,
        "INSERT INTO attempts (task, round, attempt, state, fence, start, opened, select_until, report_until, target, \
         occupied, swept) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0)",
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
    Ok(AttemptId(conn.last_insert_rowid().cast_unsigned()))
}

fn move_to(conn: &Connection, id: AttemptId, state: AttemptState, fence: u64) -> Tx<()> {
    let sql = "UPDATE attempts SET state = ?2, fence = ?3 WHERE id = ?1";
    change(conn, sql, (Bits(id.0), Name(state), Bits(fence)))?;
    Ok(())
}

pub(super) fn close_selection(conn: &Connection, lease: &Lease, id: AttemptId) -> Tx<()> {
    let (_, attempt) = led(conn, lease, id)?;
    attempt.may_close_selection()?;
    move_to(conn, id, AttemptState::Reporting, lease.fence)
}

pub(super) fn reserve(conn: &Connection, lease: &Lease, id: AttemptId, included: u64, start: u64) -> Tx<()> {
    let (task, attempt) = led(conn, lease, id)?;
    task.facts.may_reserve(&attempt, start, included)?;
    failpoint!("reserve: before the move");
    move_to(conn, id, AttemptState::Releasing, lease.fence)
}

pub(super) fn abandon(
    conn: &Connection,
    lease: &Lease,
    id: AttemptId,
    reason: Reason,
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
pub(super) fn close_abandoned(
    conn: &Connection,
    task: i64,
    attempt: &AttemptFacts,
    fence: u64,
    reason: Reason,
    users: &[ParticipantId],
    now: Millis,
) -> Tx<()> {
    let id = Bits(attempt.id.0);
    change(
        conn,
        "INSERT INTO abandoned SELECT attempt, user FROM sessions WHERE attempt = ?1 AND state <> 'lost_before_ready'",
        [id],
    )?;
    let mut insert = conn.prepare_cached("INSERT OR IGNORE INTO abandoned VALUES (?1, ?2)")?;
    for user in users {
        insert.execute((id, Bits(user.get())))?;
    }
    failpoint!("abandon: before the counts");
    // PRIVACY: nothing was released, but what the server saw of these users counts all the same, and at once.
    change(
        conn,
        "INSERT INTO users (task, user, last_round, participations, holds_until) \
         SELECT ?2, user, ?3, 1, NULL FROM abandoned WHERE attempt = ?1 \
         ON CONFLICT (task, user) DO UPDATE SET last_round = max(ifnull(last_round, 0), excluded.last_round), \
         participations = participations + 1, holds_until = NULL",
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

pub(super) fn outcome(conn: &Connection, id: AttemptId) -> Tx<Outcome> {
    let sql = "SELECT state, reason, fence FROM attempts WHERE id = ?1";
    let found = first(conn, sql, [Bits(id.0)], |row| {
        let Name(state) = row.get(0)?;
        let reason: Option<Name<Reason>> = row.get(1)?;
        Ok(Outcome {
            state,
            reason: reason.map(|Name(reason)| reason),
            fence: row.get::<_, Bits>(2)?.0,
        })
    })?;
    Ok(found.ok_or_else(|| missing("attempt", id.to_string()))?)
}

pub(super) fn note_sessions(conn: &Connection, states: &[(SessionId, SessionState)]) -> Tx<()> {
    for &(id, to) in states {
        let sql = "SELECT attempt, user, state FROM sessions WHERE id = ?1";
        let found = first(conn, sql, [id.0], |row| {
            let (Bits(id), Name(state)) = (row.get(0)?, row.get(2)?);
            Ok((AttemptId(id), row.get::<_, Bits>(1)?, state))
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

/// Deletes the sessions of an attempt, which ended long ago.
pub(super) fn sweep(conn: &Connection, id: i64) -> Tx<()> {
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
