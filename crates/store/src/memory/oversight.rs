//! The figures of operators, in memory.

use std::collections::BTreeMap;

use super::Memory;
use crate::audit::AuditRow;
use crate::oversight::about;
use crate::{AttemptRow, LeaseRow, Oversight, Result, Store, TaskId};

impl Oversight for Memory {
    fn attempts(&self, task: TaskId, limit: u32) -> Result<Vec<AttemptRow>> {
        let state = self.state();
        let kept = !state.task(task).is_ok_and(|found| found.deleted);
        let of_task = state.attempts.iter().rev();
        let of_task = of_task.filter(|attempt| kept && attempt.facts.task == task);
        let row = |attempt: &super::Attempt| AttemptRow {
            round: attempt.facts.round,
            attempt_of_round: attempt.number,
            state: attempt.facts.state,
            reason: attempt.reason,
            opened: attempt.opened,
            closed: attempt.closed,
            included: attempt.included,
        };
        Ok(of_task.take(limit as usize).map(row).collect())
    }

    fn leases(&self) -> Result<Vec<LeaseRow>> {
        let now = self.now();
        let state = self.state();
        let lease = |task: &super::Task| {
            let process = task.facts.owner.clone()?;
            (task.facts.until > now).then_some(LeaseRow {
                task: task.facts.id,
                process,
                fence: task.facts.fence,
                until: task.facts.until,
            })
        };
        Ok(state.tasks.iter().filter_map(lease).collect())
    }

    fn enrolments(&self, population: &str, from: u64) -> Result<Vec<(u64, u64)>> {
        let mut days = BTreeMap::<u64, u64>::new();
        for device in self.state().devices.values().map(|device| &device.row) {
            if device.population == population && device.enrolled_day >= from {
                *days.entry(device.enrolled_day).or_default() += 1;
            }
        }
        Ok(days.into_iter().collect())
    }

    fn acts(&self, task: TaskId, limit: u32) -> Result<Vec<AuditRow>> {
        let about = about(task);
        let state = self.state();
        let rows = state.audit.iter().rev();
        let rows = rows.filter(|row| row.detail.starts_with(&about));
        Ok(rows.take(limit as usize).cloned().collect())
    }

    fn note_act(&self, task: TaskId, actor: &str, action: &str, note: &str) -> Result<()> {
        let now = self.now();
        let detail = format!("{}{note}", about(task));
        self.state().note(now, actor, action, &detail);
        Ok(())
    }
}
