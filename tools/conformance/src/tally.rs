use std::fmt;

/// Counts of checks; failures and skips are printed as they happen.
#[derive(Debug, Default)]
pub struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    /// One check over pairs of numbers, relative to the largest expected magnitude; prints the worst pair if it fails.
    pub(crate) fn numbers(&mut self, name: &str, expected: &[f64], got: &[f64], tolerance: f64) {
        if expected.len() != got.len() {
            return self.fail(
                name,
                &format!("expected {} numbers, got {}", expected.len(), got.len()),
            );
        }
        let scale = expected.iter().fold(0.0f64, |top, value| top.max(value.abs()));
        let allowed = tolerance * scale;
        let mut worst: Option<(f64, usize, f64, f64)> = None;
        for (index, (&expected, &got)) in expected.iter().zip(got).enumerate() {
            let error = (expected - got).abs();
            let beyond = error.is_nan() || error > allowed;
            if beyond && worst.is_none_or(|(worst, ..)| error.is_nan() || error > worst) {
                worst = Some((error, index, expected, got));
            }
        }
        match worst {
            None => self.passed += 1,
            Some((error, index, expected, got)) => {
                let relative = error / scale;
                let detail =
                    format!("[{index}]: expected {expected:e}, got {got:e} (relative {relative:.1e})");
                self.fail(name, &detail);
            }
        }
    }

    /// One check that two lists of ids are equal.
    pub(crate) fn ids(&mut self, name: &str, expected: &[u64], got: &[u64]) {
        if expected == got {
            self.passed += 1;
        } else {
            self.fail(name, &format!(": expected {expected:?}, got {got:?}"));
        }
    }

    /// One case with everything that was found wrong with it.
    pub(crate) fn case(&mut self, name: &str, wrong: &[String]) {
        for detail in wrong {
            println!("FAIL {name}: {detail}");
        }
        if wrong.is_empty() {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }

    /// `N passed, M failed`.
    #[must_use]
    pub fn verdict(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }

    fn fail(&mut self, name: &str, detail: &str) {
        println!("FAIL {name}{detail}");
        self.failed += 1;
    }

    /// A case that cannot be checked yet.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("SKIP {name}: {reason}");
        self.skipped += 1;
    }

    /// Returns true if a check has failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed > 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} skipped", self.verdict(), self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[f64], got: &[f64], failed: bool) {
        let mut tally = Tally::default();
        tally.numbers("case", expected, got, 1e-6);
        assert_eq!(tally.failed(), failed, "{expected:?} {got:?}");
    }

    #[test]
    fn tolerance_is_relative_to_the_largest() {
        check(&[1.0, 100.0], &[1.00005, 100.0], false);
        check(&[1.0, 100.0], &[1.0002, 100.0], true);
        check(&[1.0], &[f64::NAN], true);
        check(&[1.0, 2.0], &[1.0], true);
        check(&[0.0], &[0.0], false);
        check(&[0.0], &[1e-300], true);
    }

    #[test]
    fn a_tally_counts_passed_failed_and_skipped_cases() {
        let mut tally = Tally::default();
        tally.ids("a", &[1, 2], &[1, 2]);
        tally.ids("b", &[1, 2], &[2, 1]);
        tally.skip("c", "not built");
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        tally.case("d", &["one".to_owned(), "two".to_owned()]);
        tally.case("e", &[]);
        assert_eq!(tally.verdict(), "2 passed, 2 failed");
    }
}
