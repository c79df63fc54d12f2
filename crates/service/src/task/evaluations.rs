//! Measures of a demonstration in the metrics of its task.

use undertone_run_directory::metrics::{EvaluationRecord, MetricsLine};

use super::damaged;
use crate::error::Result;

/// The lines of metrics with these measures, each behind the line of its last round. The time is that of the rounds before.
pub(super) fn entered(lines: Vec<Vec<u8>>, measured: &[EvaluationRecord]) -> Result<Vec<Vec<u8>>> {
    let unreadable = |error| damaged("the metrics", error);
    let (mut all, mut train_seconds, mut waiting) = (Vec::new(), 0.0, measured.iter().peekable());
    for line in lines {
        let mut done = 0;
        if let MetricsLine::Round(round) = serde_json::from_slice(&line).map_err(unreadable)? {
            done = round.round + 1;
            train_seconds += round.seconds;
        }
        all.push(line);
        while let Some(record) = waiting.next_if(|record| record.round == done) {
            let record = MetricsLine::Evaluation(EvaluationRecord {
                train_seconds,
                ..record.clone()
            });
            all.push(serde_json::to_vec(&record).map_err(unreadable)?);
        }
    }
    Ok(all)
}
