//! `undertone plan`.

use std::cell::RefCell;

use indicatif::ProgressBar;
use undertone_planner::population::PlanArgs;

use crate::output::Output;

/// Answers the question, with a spinner for each matrix that is made.
pub(crate) fn run(args: &PlanArgs, output: &Output) -> anyhow::Result<()> {
    let spinner: RefCell<Option<ProgressBar>> = RefCell::new(None);
    let shown = args.answer(&|made| {
        if let Some(done) = spinner.replace(made.map(|made| output.spinner(made))) {
            done.finish_and_clear();
        }
    })?;
    output.print_shown(&shown)
}
