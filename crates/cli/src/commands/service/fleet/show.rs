//! The sessions of a fleet, as a funnel.

use serde::Serialize;
use undertone_fleet::Statistics;
use undertone_present::numbers::{grouped, number};
use undertone_present::table::ruled;

use crate::output::facts;

/// The document that `--json` prints.
#[derive(Serialize)]
pub(super) struct FleetView {
    pub(super) devices: usize,
    pub(super) seconds: f64,
    pub(super) ended: &'static str,
    pub(super) statistics: Statistics,
}

/// Ends of sessions whose whole update was accepted by the service.
const REPORTED: [&str; 4] = ["included", "late", "abandoned", "reported"];

impl FleetView {
    /// The number of sessions that came to each step.
    fn funnel(&self) -> [(&'static str, u64); 5] {
        let total = &self.statistics.total;
        let assigned: u64 = self
            .statistics
            .rounds
            .iter()
            .map(|round| round.tally.sessions)
            .sum();
        [
            ("sessions", total.sessions),
            ("assigned to a round", assigned),
            ("trained", total.trainings),
            ("reported", REPORTED.iter().map(|end| total.ended(end)).sum()),
            ("included in a release", total.ended("included")),
        ]
    }

    pub(super) fn text(&self) -> String {
        let total = &self.statistics.total;
        let share = |number: u64| match total.sessions {
            0 => String::new(),
            all => format!("{:.1} %", 100.0 * number as f64 / all as f64),
        };
        let steps = self.funnel();
        let funnel = steps
            .iter()
            .map(|(name, number)| vec![(*name).to_owned(), grouped(*number), share(*number)]);
        let mut parts = vec![ruled(["funnel", "sessions", "share"], funnel, 1)];
        let mut ends: Vec<(&String, &u64)> = total.ends.iter().collect();
        ends.sort_by_key(|(name, number)| (std::cmp::Reverse(**number), *name));
        let rows = ends.into_iter().map(|(name, number)| {
            let reason = self.statistics.reasons.get(name).cloned().unwrap_or_default();
            vec![name.replace('_', " "), reason, grouped(*number)]
        });
        parts.push(ruled(["end", "last reason", "sessions"], rows, 2));
        if !total.faults.is_empty() {
            let rows = total.faults.iter();
            let rows = rows.map(|(name, number)| vec![name.replace('_', " "), grouped(*number)]);
            parts.push(ruled(["fault", "requests"], rows, 1));
        }
        parts.push(facts([
            ("devices", grouped(self.devices as u64)),
            (
                "rounds with a session",
                grouped(self.statistics.rounds.len() as u64),
            ),
            ("requests", grouped(total.requests)),
            ("bytes sent", grouped(total.up_bytes)),
            ("bytes received", grouped(total.down_bytes)),
            ("seconds of training", number(total.training_seconds)),
            ("seconds", number(self.seconds)),
            ("ended because", self.ended.to_owned()),
        ]));
        parts.join("\n\n")
    }
}
