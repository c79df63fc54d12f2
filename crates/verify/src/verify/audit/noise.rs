//! Tests of the noise of a rehearsal. Their statistics are taken as they stand: which tests there are follows from the numbers of rounds and
//! columns, and p-values follow from statistics.

use super::super::Run;
use super::{Place, short};
use undertone_accounting::audit::noise::{MIN_PAIRS, TestResult, holm};
use undertone_audit::noise::{MAX_REHEARSED, NoiseTest, NoiseTests, of_repeated};
use undertone_coordinator::sampling::Sampling;
use undertone_run_directory::error::{DirectoryError, Result};

/// The probability below which cohorts of a Poisson sample do not all have one size.
const NEVER: f64 = 1e-9;

/// The smallest number of canaries of a rehearsal, which is the population of its cohorts.
const SMALLEST: i32 = 10;

/// The tests that follow from the written statistics.
///
/// # Errors
/// [`DirectoryError`] for numbers of values and for tests that no rehearsal of this run has; from the estimators.
pub(super) fn made_again(run: &Run<'_>, written: &NoiseTests, place: Place) -> Result<NoiseTests> {
    let rounds = usize::try_from(run.task().rounds).unwrap_or(usize::MAX);
    let columns = written.values.checked_div(rounds).unwrap_or(0);
    let whole = columns >= 2 && columns.checked_mul(rounds) == Some(written.values);
    if !whole || written.values as u64 > MAX_REHEARSED {
        let expected =
            format!("at least two columns in each of {rounds} rounds, and at most {MAX_REHEARSED} values");
        return Err(DirectoryError::value(
            &place.key("noise.values"),
            expected,
            written.values,
        ));
    }
    let mut made = asked(rounds, columns, sizes_vary(run, rounds, written))?;
    let names = |tests: &NoiseTests| -> String {
        let tests = tests.tests.iter();
        let names: Vec<String> = tests
            .map(|test| format!("{} ({})", test.name, test.property))
            .collect();
        names.join(", ")
    };
    if names(&made) != names(written) {
        let key = place.key("noise.tests");
        return Err(DirectoryError::value(&key, names(&made), short(&names(written))));
    }
    for (number, (made, written)) in made.tests.iter_mut().zip(&written.tests).enumerate() {
        match tested(written, rounds, columns) {
            Some(tested) => (made.statistic, made.p) = (tested.statistic, tested.p),
            None => {
                let key = place.key(&format!("noise.tests[{number}].name"));
                return Err(DirectoryError::value(&key, "`N1` to `N7`", short(&written.name)));
            }
        }
    }
    let p: Vec<f64> = made.tests.iter().map(|test| test.p).collect();
    let corrected = holm(&p);
    for (test, &p_holm) in made.tests.iter_mut().zip(&corrected) {
        test.p_holm = p_holm;
    }
    made.smallest_p_holm = corrected.iter().copied().fold(1.0, f64::min);
    (made.values, made.seed) = (written.values, written.seed);
    Ok(made)
}

/// The tests of a rehearsal of so many rounds and columns, with the figures of other values.
fn asked(rounds: usize, columns: usize, sizes_vary: bool) -> Result<NoiseTests> {
    // Beyond so many, no test is left out.
    let enough = MIN_PAIRS + 100;
    let (rounds, columns) = (rounds.min(enough), columns.min(enough));
    let value = |place: usize| (place * 7919 % 10_007) as f64 / 5003.0 - 1.0;
    let values: Vec<f64> = (0..rounds * columns).map(value).collect();
    let size = |round: usize| if sizes_vary { round as f64 } else { 1.0 };
    let sizes: Vec<f64> = (0..rounds).map(size).collect();
    Ok(NoiseTests::of(&values, columns, &sizes)?)
}

/// `true` where N7 was asked, which needs cohorts of several sizes. Those of a Poisson sample may all have one size where few canaries are drawn
/// in few rounds; all others do.
fn sizes_vary(run: &Run<'_>, rounds: usize, written: &NoiseTests) -> bool {
    if run.task().cohort.sampling != Sampling::Poisson {
        return false;
    }
    let is_seventh = |name: &str| name.starts_with("N7");
    let is_stated = written.tests.iter().any(|test| is_seventh(&test.name))
        || written.left_out.iter().any(|name| is_seventh(name));
    is_stated || !may_be_equal(run.plan.sampling_probability(), rounds)
}

/// `true` if the cohorts of so many rounds may all have one size: the probability is at most a power of that of the likeliest size.
fn may_be_equal(probability: f64, rounds: usize) -> bool {
    let (mut choices, mut likeliest) = (1.0, 0.0f64);
    for size in 0..=SMALLEST {
        let others = SMALLEST - size;
        likeliest = likeliest.max(choices * probability.powi(size) * (1.0 - probability).powi(others));
        choices *= f64::from(others) / f64::from(size + 1);
    }
    likeliest.powf(rounds.saturating_sub(1) as f64) >= NEVER
}

/// The written statistic of a test of so many rows and columns, with its p-value; `None` for another test.
fn tested(test: &NoiseTest, rounds: usize, columns: usize) -> Option<TestResult> {
    let values = rounds * columns;
    let statistic = match test.name.as_str() {
        // Sums of squares, distances and numbers of pairs.
        "N1" | "N2" | "N5" => test.statistic.max(0.0),
        _ => test.statistic,
    };
    Some(match (test.name.as_str(), test.property.as_str()) {
        ("N1", _) => TestResult::of_sum_of_squares(statistic, values),
        ("N2", "shape") => TestResult::of_distance(statistic, values),
        ("N2", "largest value") => TestResult::of_largest(statistic, values),
        ("N3" | "N4" | "N6" | "N7", _) => TestResult::of_normal(statistic),
        ("N5", _) => of_repeated(statistic, rounds, columns),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_follow_from_their_statistics() {
        let (rounds, columns) = (40, 64);
        let value = |place: usize| 1.7 * ((place * 3571 % 1009) as f64 / 504.0 - 1.0);
        let values: Vec<f64> = (0..rounds * columns).map(value).collect();
        let sizes: Vec<f64> = (0..rounds).map(|round| (round % 7) as f64).collect();
        let tests = NoiseTests::of(&values, columns, &sizes).unwrap();
        for test in &tests.tests {
            let again = tested(test, rounds, columns).unwrap();
            assert_eq!((again.statistic, again.p), (test.statistic, test.p), "{test:?}");
        }
        assert!(tests.tests.len() >= 12);
        // Beyond the numbers that are looked at, the same tests are asked.
        let names = |tests: &NoiseTests| -> Vec<String> {
            let names = tests.tests.iter().map(|test| test.property.clone());
            names.chain(tests.left_out.clone()).collect()
        };
        assert_eq!(names(&asked(rounds, columns, true).unwrap()), names(&tests));
        assert_eq!(
            names(&asked(4000, 4000, true).unwrap()),
            names(&asked(1000, 1000, true).unwrap())
        );
        assert_eq!(asked(10, 2, true).unwrap().left_out.len(), 7);
        assert_eq!(asked(10, 2, false).unwrap().left_out.len(), 6);
    }

    #[test]
    fn cohorts_of_many_rounds_have_several_sizes() {
        assert!(may_be_equal(0.01, 50) && !may_be_equal(0.01, 400));
        assert!(may_be_equal(0.1, 3) && !may_be_equal(0.1, 100));
        assert!(may_be_equal(1.0, 10_000));
        assert!(may_be_equal(0.0, 10_000));
    }
}
