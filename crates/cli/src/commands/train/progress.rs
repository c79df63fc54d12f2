//! The progress of a run: one bar on a terminal, a line per ten seconds elsewhere, and a line per evaluation.

mod course;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::share;
use undertone_run::Observer;
use undertone_run_directory::metrics::{EvaluationRecord, RoundRecord, StartRecord};

use super::super::stopped;
use super::{assumptions, guarantee};
use crate::output::{Output, value};
use crate::signals;
use course::Course;

/// Shows a run's events.
pub(in crate::commands) struct Progress {
    output: Output,
    course: Arc<Mutex<Course>>,
    /// `true` if there is a terminal for a bar.
    has_bar: bool,
    /// The bar, from the first event on.
    bar: OnceLock<ProgressBar>,
    began: Instant,
    /// `true` from the start of a round until its end.
    in_round: AtomicBool,
    /// `true` after a user who asked for an end was told when it comes.
    told: AtomicBool,
}

impl Progress {
    /// Shows rounds under the name `unit`.
    pub(in crate::commands) fn new(output: &Output, unit: &'static str) -> Self {
        Self {
            output: *output,
            course: Arc::new(Mutex::new(Course::of(unit))),
            has_bar: output.shows_progress(),
            bar: OnceLock::new(),
            began: Instant::now(),
            in_round: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    pub(in crate::commands) fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    /// One line; above the bar, where there is one.
    pub(in crate::commands) fn say(&self, line: &str) {
        match self.bar.get() {
            Some(bar) => bar.println(value(line)),
            None => self.output.note(line),
        }
    }

    /// The sentence about the rounds that a run keeps after a signal has ended it.
    pub(in crate::commands) fn kept(&self) -> String {
        let course = self.course();
        stopped::kept(course.unit, course.rounds())
    }

    /// Enters an event into the course, and shows it.
    fn event(&self, enter: impl FnOnce(&mut Course, Duration)) {
        let now = self.began.elapsed();
        let mut course = self.course();
        enter(&mut course, now);
        if self.has_bar {
            // The bar draws the course by itself.
            drop(course);
            self.bar.get_or_init(|| self.drawn());
        } else if let Some(line) = course.log(now) {
            drop(course);
            self.output.note(&line);
        }
    }

    fn drawn(&self) -> ProgressBar {
        let (course, began) = (self.course.clone(), self.began);
        self.output.live(move |width| {
            let course = course.lock().unwrap_or_else(PoisonError::into_inner);
            course.bar(began.elapsed(), width)
        })
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Progress {
    fn stop(&self) -> bool {
        // The round that has begun is finished, and committed.
        signals::asked_to_end() && !self.in_round.load(Ordering::Acquire)
    }

    fn on_corpus(&self, stage: &str, done: u64, total: Option<u64>) {
        self.event(|course, _| course.corpus(stage, done, total));
    }

    fn on_start(&self, start: &StartRecord, planned: Option<&GuaranteeRecord>, resumed_at: u64) {
        self.event(|course, now| course.start(start.rounds, resumed_at, now));
        self.say(&format!(
            "{}: {} with {}, {} users, {} tokens, {} rounds{}",
            start.run,
            start.model,
            start.counts(),
            start.train_users,
            start.train_tokens.unwrap_or(0),
            start.rounds,
            if resumed_at > 0 {
                format!(", resumed after {resumed_at} rounds")
            } else {
                String::new()
            },
        ));
        match planned {
            Some(planned) => {
                self.say(&format!("planned: {}", guarantee(planned)));
                self.say(&format!("         {}", assumptions(planned)));
            }
            None => self.say("planned: this run has no guarantee"),
        }
        if let Some(warning) = &start.warning {
            self.say(&format!("warning: {warning}"));
        }
    }

    fn on_round_start(&self, _round: u64, cohort: usize) {
        self.in_round.store(true, Ordering::Release);
        self.event(|course, _| course.start_round(cohort as u64));
    }

    fn on_user(&self) {
        self.event(|course, _| course.user());
        if signals::asked_to_end() && !self.told.swap(true, Ordering::Relaxed) {
            let unit = self.course().unit;
            self.say(&format!(
                "stopping after this {unit}; a second Ctrl-C ends at once, without the {unit}s since the last checkpoint"
            ));
        }
    }

    fn on_round(&self, round: &RoundRecord) {
        let rate = round.tokens.map(|tokens| tokens as f64 / round.seconds.max(1e-9));
        self.event(|course, _| course.end_round(round.train_loss, round.epsilon, rate));
        self.in_round.store(false, Ordering::Release);
    }

    fn on_evaluation(&self, evaluation: &EvaluationRecord) {
        // Every line is of equal targets, the first and the last one too.
        let metrics = evaluation.metrics.on_curve();
        self.say(&format!(
            "round {:>5}  {:>6.0} s  {} top-1 {}  top-3 {}  perplexity {:.1}",
            evaluation.round,
            evaluation.train_seconds,
            evaluation.split,
            share(metrics.top1, metrics.top1_standard_error),
            share(metrics.top3, metrics.top3_standard_error),
            metrics.perplexity,
        ));
    }
}
