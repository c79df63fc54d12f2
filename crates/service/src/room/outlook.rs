//! The outlook of a task, and the windows in which its devices come back.

use undertone_protocol::{Code, Next, Problem, RetryWindow, Verdict, Wait, next};
use undertone_store::{Millis, SessionId};

use super::devices::{Claims, step};
use super::{Inner, Room};
use crate::pace::{self, Cause, Demand, Outlook};

/// The population is estimated anew after this time, in milliseconds: an estimate reads the sketches of up to a week.
const ESTIMATE: Millis = 1000;

impl Room {
    pub(super) fn min_sep(&self) -> u64 {
        let schema = self.task.file.task.participation.as_ref();
        schema.map_or(1, |schema| schema.min_sep)
    }

    pub(super) fn outlook(&self, inner: &Inner, now: Millis) -> Outlook {
        let service = &self.task.file.service;
        let demand = Demand {
            goal: u32::try_from(self.task.file.goal()).unwrap_or(u32::MAX),
            over_selection: service.over_selection,
            checkins_per_needed: service.pace.checkins_per_needed,
            min_interval: service.pace.min_interval.millis(),
        };
        let round = inner.round_time.expected();
        let population = match inner.estimate.get() {
            Some((made, population)) if (made..made + ESTIMATE).contains(&now) => population,
            _ => {
                let population = inner.population.estimate(now, demand.offered(round));
                inner.estimate.set(Some((now, population)));
                population
            }
        };
        Outlook {
            demand,
            population,
            round,
            next_attempt: match &inner.current {
                Some(current) if current.machine.free() > 0 => 0,
                Some(current) => (current.opened_at + round).saturating_sub(now),
                None => inner.not_before.saturating_sub(now),
            },
        }
    }

    /// The window for a device that the board finds ineligible, or that has reported.
    #[must_use]
    pub fn window(&self) -> RetryWindow {
        let now = self.now();
        let inner = self.lock();
        pace::window(&self.outlook(&inner, now), Cause::Later)
    }

    /// A refusal with the window in which the device comes back.
    pub(super) fn later(&self, inner: &Inner, code: Code, why: &str, cause: Cause) -> Problem {
        let window = pace::window(&self.outlook(inner, self.now()), cause);
        Problem::new(code, why).with_retry(window)
    }

    /// The answer to a session whose attempt has its sum: it waits while the release is made, and has its verdict then.
    pub(super) fn settled(&self, inner: &Inner, claims: &Claims) -> Option<Next> {
        match inner.releasing.is_some_and(|id| id.0 == claims.attempt) {
            true => Some(step(next::Step::Wait(Wait {}))),
            false => self.ended(inner, SessionId(claims.session)),
        }
    }

    /// The verdict of a session of an earlier attempt.
    pub(super) fn ended(&self, inner: &Inner, session: SessionId) -> Option<Next> {
        let (verdict, _) = inner.ended.get(&session)?;
        Some(self.verdict(inner, *verdict))
    }

    /// A verdict, with the window in which the device comes back.
    pub(super) fn verdict(&self, inner: &Inner, verdict: Verdict) -> Next {
        let cause = match verdict {
            Verdict::Late | Verdict::Unspecified => Cause::Later,
            // The subject counts as having taken part.
            Verdict::Included | Verdict::Abandoned => Cause::TooSoon {
                rounds: self.min_sep(),
            },
        };
        Next {
            step: Some(next::Step::Verdict(verdict.into())),
            retry: Some(pace::window(&self.outlook(inner, self.now()), cause)),
        }
    }
}
