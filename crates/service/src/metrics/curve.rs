//! Measures of released models that the caller made on text of its own.

use undertone_store::TaskId;

use super::Metrics;

/// A learning curve of released models, measured on text that is nobody's in the task.
///
/// PRIVACY: the text must not come from people of the population. A demonstration measures on simulated people, and a service of
/// real ones has private evaluation tasks instead.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// The text and the measure, in one sentence.
    pub about: String,
    /// Number of released rounds, and the top-1 accuracy in `[0, 1]` after them.
    pub points: Vec<(u64, f64)>,
    /// Names and values of levels to compare with.
    pub levels: Vec<(String, f64)>,
}

impl Metrics {
    /// Shows this curve on the dashboard, instead of the one before.
    pub fn show_curve(&self, task: TaskId, curve: Curve) {
        self.lock().curves.insert(task, curve);
    }

    /// The curve of a task; `None` where nobody measured.
    pub fn curve_of(&self, task: TaskId) -> Option<Curve> {
        self.lock().curves.get(&task).cloned()
    }
}
