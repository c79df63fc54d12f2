//! The course of a run in one line: as a bar that fits a terminal, and as a line of a log.

use std::time::Duration;

use undertone_present::numbers::upper_bound;

/// Columns of the bar itself.
const BAR: std::ops::RangeInclusive<usize> = 6..=40;
/// The shortest time between two lines of a log.
const PAUSE: Duration = Duration::from_secs(10);

/// The part of a line about the course of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Users,
    Loss,
    Epsilon,
    Elapsed,
    Left,
    Rate,
}

/// Parts that leave the line in turn where the terminal is too narrow.
const LEAVE: [Part; 6] = [
    Part::Rate,
    Part::Elapsed,
    Part::Epsilon,
    Part::Loss,
    Part::Left,
    Part::Users,
];

/// The progress of a run, as its events tell it. Times count from any moment, the same for all.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    /// The word for a round.
    pub(super) unit: &'static str,
    /// The work on the corpus: its stage, the amount that is done, and the total where it is known.
    corpus: (String, u64, Option<u64>),
    /// The time at which the rounds began, and the time of the last line of the log.
    times: Option<(Duration, Duration)>,
    total: u64,
    /// Rounds that were done when this process began.
    resumed: u64,
    done: u64,
    /// Users of the round that are done, and all of them. There are none between two rounds.
    users: Option<(u64, u64)>,
    loss: Option<f64>,
    /// The last epsilon that was stated, and the number of rounds that it holds for.
    epsilon: Option<(f64, u64)>,
    tokens_per_second: Option<f64>,
}

impl Course {
    pub(super) fn of(unit: &'static str) -> Self {
        Self {
            unit,
            ..Self::default()
        }
    }

    pub(super) fn corpus(&mut self, stage: &str, done: u64, total: Option<u64>) {
        self.corpus = (stage.to_owned(), done, total);
    }

    /// The rounds begin.
    pub(super) fn start(&mut self, total: u64, resumed: u64, now: Duration) {
        (self.total, self.resumed, self.done) = (total, resumed, resumed);
        self.times = Some((now, now));
    }

    pub(super) fn start_round(&mut self, users: u64) {
        self.users = Some((0, users));
    }

    pub(super) fn user(&mut self) {
        self.users = self.users.map(|(done, all)| (done + 1, all));
    }

    /// A round is done.
    pub(super) fn end_round(
        &mut self,
        loss: Option<f64>,
        epsilon: Option<f64>,
        tokens_per_second: Option<f64>,
    ) {
        self.users = None;
        self.done += 1;
        self.loss = loss.filter(|loss| loss.is_finite());
        // Not every round states it: the last one that did is shown.
        self.epsilon = epsilon.map(|epsilon| (epsilon, self.done)).or(self.epsilon);
        self.tokens_per_second = tokens_per_second;
    }

    /// The rounds that are done and all rounds, once they are known.
    pub(super) fn rounds(&self) -> Option<(u64, u64)> {
        self.times.map(|_| (self.done, self.total))
    }

    /// The line of a log, if the last one is ten seconds old.
    pub(super) fn log(&mut self, now: Duration) -> Option<String> {
        let (_, last) = self.times.as_mut()?;
        if self.done == self.total || now.saturating_sub(*last) < PAUSE {
            return None;
        }
        *last = now;
        let mut line = format!("{} {} of {}", self.unit, self.done, self.total);
        if let Some((done, all)) = self.users {
            line += &format!(", {done} of {all} users of the next one");
        }
        for part in [Part::Loss, Part::Epsilon, Part::Left] {
            line += &self
                .part(part, now)
                .map_or(String::new(), |text| format!(", {text}"));
        }
        Some(line)
    }

    /// The bar in at most `width` columns.
    pub(super) fn bar(&self, now: Duration, width: usize) -> String {
        if self.times.is_none() {
            let (stage, done, total) = &self.corpus;
            let all = total.unwrap_or(*done);
            return self::bar(stage, *done, all, &[], width).unwrap_or_else(|| cut(stage, width));
        }
        let unit = format!("{}s", self.unit);
        let shown = |left_out: &[Part]| -> Vec<String> {
            [
                Part::Users,
                Part::Loss,
                Part::Epsilon,
                Part::Elapsed,
                Part::Left,
                Part::Rate,
            ]
            .into_iter()
            .filter(|part| !left_out.contains(part))
            .filter_map(|part| self.part(part, now))
            .collect()
        };
        (0..=LEAVE.len())
            .find_map(|left_out| self::bar(&unit, self.done, self.total, &shown(&LEAVE[..left_out]), width))
            .unwrap_or_else(|| cut(&format!("{}/{}", self.done, self.total), width))
    }

    fn part(&self, part: Part, now: Duration) -> Option<String> {
        let elapsed = now.saturating_sub(self.times?.0).as_secs_f64();
        match part {
            Part::Users => self.users.map(|(done, all)| format!("users {done}/{all}")),
            Part::Loss => self.loss.map(|loss| format!("loss {loss:.2}")),
            Part::Epsilon => self.epsilon.map(|(epsilon, rounds)| {
                let epsilon = upper_bound(epsilon);
                match rounds == self.done {
                    true => format!("epsilon {epsilon}"),
                    false => format!("epsilon {epsilon} after {} {rounds}", self.unit),
                }
            }),
            Part::Elapsed => Some(format!("{} elapsed", time(elapsed))),
            Part::Left => {
                let done = self.done.saturating_sub(self.resumed);
                let rounds = self.total.saturating_sub(self.done);
                (done > 0).then(|| format!("{} left", time(elapsed / done as f64 * rounds as f64)))
            }
            Part::Rate => self.tokens_per_second.map(|rate| format!("{rate:.0} tokens/s")),
        }
    }
}

/// `rounds ━━━━╸    120/400  users 41/81`, if the width has room for it.
fn bar(name: &str, done: u64, all: u64, parts: &[String], width: usize) -> Option<String> {
    let count = format!("{done}/{all}");
    let rest: String = parts.iter().map(|part| format!("  {part}")).collect();
    let taken = [name, &count, &rest].map(|text| text.chars().count());
    let room = width.checked_sub(taken.iter().sum::<usize>() + 2)?;
    if room < *BAR.start() {
        return None;
    }
    let columns = room.min(*BAR.end());
    let full = (done.min(all) as f64 / all.max(1) as f64 * columns as f64) as usize;
    let head = if full < columns { "╸" } else { "" };
    let line = format!("{}{head}", "━".repeat(full));
    Some(format!("{name} {line:columns$} {count}{rest}"))
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// A time as a person would say it: `80 s`, `34 min`, `5.2 h`.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 99.5 => format!("{seconds:.0} s"),
        seconds if seconds < 99.5 * 60.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Round 121 of 400 after 24 minutes.
    fn course() -> Course {
        let mut course = Course::of("round");
        course.start(400, 0, 5 * SECOND);
        for _ in 0..120 {
            course.end_round(Some(4.321), Some(2.1), Some(1234.5));
        }
        course.start_round(81);
        (0..41).for_each(|_| course.user());
        course
    }

    #[test]
    fn parts_leave_the_bar_in_turn_until_it_fits() {
        let now = (5 + 24 * 60) * SECOND;
        for (width, expected) in [
            (
                120,
                "rounds ━━━━━━━╸                 120/400  users 41/81  loss 4.32  epsilon 2.1  24 min elapsed  56 min left  1234 tokens/s",
            ),
            (
                80,
                "rounds ━━━━╸           120/400  users 41/81  loss 4.32  epsilon 2.1  56 min left",
            ),
            (60, "rounds ━━╸      120/400  users 41/81  loss 4.32  56 min left"),
            (40, "rounds ━━━╸         120/400  users 41/81"),
            (20, "120/400"),
            (3, "120"),
        ] {
            let line = course().bar(now, width);
            assert_eq!(line, expected, "{width}");
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }

    #[test]
    fn the_bar_is_never_wider_than_the_terminal() {
        let wide = course().bar(1440 * SECOND, 500);
        for width in 0..200 {
            let line = course().bar(1440 * SECOND, width);
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        assert!(wide.chars().count() < 150, "{wide}");
    }

    #[test]
    fn before_the_rounds_the_bar_shows_the_corpus() {
        let mut course = Course::of("round");
        course.corpus("reading", 3, Some(6));
        assert_eq!(course.bar(SECOND, 20), "reading ━━━━╸    3/6");
        assert_eq!(course.bar(SECOND, 10), "reading");
        assert_eq!(course.rounds(), None);
    }

    #[test]
    fn a_log_has_at_most_a_line_per_ten_seconds() {
        let mut course = Course::of("round");
        assert_eq!(course.log(100 * SECOND), None, "no round has begun");
        course.start(400, 100, 100 * SECOND);
        let mut lines = Vec::new();
        for second in 101..=125 {
            course.start_round(9);
            course.end_round(Some(4.321), (second == 101).then_some(2.1), None);
            lines.extend(course.log(second * SECOND));
        }
        assert_eq!(
            lines,
            [
                "round 110 of 400, loss 4.32, epsilon 2.1 after round 101, 5 min left",
                "round 120 of 400, loss 4.32, epsilon 2.1 after round 101, 5 min left",
            ]
        );
    }

    #[test]
    fn a_long_round_shows_its_users_and_the_end_of_a_run_no_line() {
        let mut course = Course::of("step");
        course.start(2, 0, SECOND);
        course.start_round(81);
        course.user();
        assert_eq!(course.log(5 * SECOND), None);
        assert_eq!(
            course.log(20 * SECOND).as_deref(),
            Some("step 0 of 2, 1 of 81 users of the next one")
        );
        for _ in 0..2 {
            course.end_round(Some(f64::NAN), None, None);
        }
        assert_eq!(course.log(90 * SECOND), None);
    }

    #[test]
    fn times_are_short() {
        for (seconds, expected) in [(80.4, "80 s"), (2040.0, "34 min"), (18_720.0, "5.2 h")] {
            assert_eq!(time(seconds), expected);
        }
    }
}
