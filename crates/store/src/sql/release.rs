//! The commit of a release.

use undertone_coordinator::participation::ParticipantId;

use super::facts::{FoundTask, led, user};
use super::tasks::{Line, append_line, append_metrics_at};
use super::{Bits, Name, Sql, Time, Tx, change, first};
use crate::failpoint::failpoint;
use crate::rules::{self, Receipt};
use crate::{AttemptId, AttemptState, Lease, Millis, Release, SessionState};

pub(crate) fn commit(conn: &dyn Sql, lease: &Lease, release: &Release, now: Millis) -> Tx<()> {
    let (task, attempt) = led(conn, lease, release.attempt)?;
    if let Some(receipt) = receipt(conn, release.attempt)? {
        return Ok(receipt.repeats(release)?);
    }
    task.facts.may_commit(&attempt, lease, release)?;
    let users = rules::distinct(release)?;
    failpoint!("commit: before the users are checked");
    for &name in &users {
        // PRIVACY: the gate of admission, again. A user that it stops is a bug of admission.
        let (last, _) = user(conn, task.row, name)?;
        rules::keeps_to_schema(task.facts.participation, last, release.round, name)?;
    }
    failpoint!("commit: after the users are checked");
    change(
        conn,
        "INSERT INTO releases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        (
            task.row,
            Bits(release.round),
            Bits(release.attempt.0),
            Bits(release.included.len() as u64),
            Bits(release.lost.len() as u64),
            &release.digest,
            release.model,
            release.state,
            &release.noise_key,
            Time(now),
        ),
    )?;
    failpoint!("commit: after the release");
    let line = Line {
        round: Some(release.round),
        bytes: &release.line,
        digest: &release.digest,
        previous: &release.previous,
    };
    append_line(conn, task.row, &line)?;
    failpoint!("commit: after the ledger");
    let round = release.round + 1;
    change(
        conn,
        "INSERT INTO models VALUES (?1, ?2, ?3, 0)",
        (task.row, Bits(round), release.model),
    )?;
    failpoint!("commit: after the model");
    count(conn, &task, release, &users)?;
    failpoint!("commit: after the users");
    append_metrics_at(conn, task.row, &release.metrics)?;
    change(
        conn,
        "UPDATE attempts SET state = ?2, fence = ?3, included = ?4, closed = ?5 WHERE id = ?1",
        (
            Bits(release.attempt.0),
            Name(AttemptState::Committed),
            Bits(lease.fence),
            Bits(release.included.len() as u64),
            Time(now),
        ),
    )?;
    failpoint!("commit: after the attempt");
    change(
        conn,
        "UPDATE tasks SET head_round = ?2, head_model = ?3, head_state = ?4, chain = ?5 WHERE id = ?1",
        (
            task.row,
            Bits(round),
            release.model,
            release.state,
            &release.digest,
        ),
    )?;
    failpoint!("commit: after the head");
    Ok(())
}

/// Counts the participations, ends the holds of the attempt, and closes its sessions.
fn count(conn: &dyn Sql, task: &FoundTask, release: &Release, users: &[ParticipantId]) -> Tx<()> {
    let attempt = Bits(release.attempt.0);
    change(
        conn,
        "UPDATE users SET holds_until = NULL WHERE task = ?2 AND user IN \
         (SELECT user FROM sessions WHERE attempt = ?1 AND state <> 'lost_before_ready')",
        (attempt, task.row),
    )?;
    let sql = "INSERT INTO users VALUES (?1, ?2, ?3, 1, NULL) ON CONFLICT (task, user) DO UPDATE SET \
         last_round = excluded.last_round, participations = users.participations + 1, holds_until = NULL";
    for user in users {
        change(conn, sql, (task.row, Bits(user.get()), Bits(release.round)))?;
    }
    failpoint!("commit: between users and sessions");
    let sql =
        "UPDATE sessions SET state = ?3 WHERE attempt = ?1 AND user = ?2 AND state <> 'lost_before_ready'";
    for (listed, state) in [
        (&release.included, SessionState::Included),
        (&release.lost, SessionState::Lost),
    ] {
        for user in listed {
            change(conn, sql, (attempt, Bits(user.get()), Name(state)))?;
        }
    }
    Ok(())
}

/// The release that an attempt made.
fn receipt(conn: &dyn Sql, attempt: AttemptId) -> Tx<Option<Receipt>> {
    let sql = "SELECT round, line, model, state, noise_key FROM releases WHERE attempt = ?1";
    Ok(first(conn, sql, [Bits(attempt.0)], |row| {
        Ok(Receipt {
            round: row.get::<Bits>(0)?.0,
            digest: row.get(1)?,
            model: row.get(2)?,
            state: row.get(3)?,
            noise_key: row.get(4)?,
        })
    })?)
}
