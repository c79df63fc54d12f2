//! The rule that puts a row into one of the partitions.

use crate::error::{Result, quoted};
use crate::hash::keyed_fraction;
use crate::rows::Rows;
use crate::split::Split;
use undertone_settings::SplitSpec;

/// Decides the partition of a row from the row alone, so that sources can be streamed.
#[derive(Debug, Clone)]
pub(crate) enum Splitter {
    Column,
    HeldOutUsers {
        validation: f64,
        test: f64,
        seed: u64,
    },
    Time {
        test_after: i64,
        validation_users: f64,
        seed: u64,
    },
}

impl Splitter {
    pub(crate) fn new(spec: &SplitSpec) -> Result<Splitter> {
        Ok(match spec {
            SplitSpec::Column {} => Splitter::Column,
            SplitSpec::HeldOutUsers {
                validation,
                test,
                seed,
            } => Splitter::HeldOutUsers {
                validation: *validation,
                test: *test,
                seed: *seed,
            },
            SplitSpec::Time {
                test_after,
                validation_users,
                seed,
            } => {
                let test_after = test_after.seconds("data.split.test_after")?;
                Splitter::Time {
                    test_after,
                    validation_users: *validation_users,
                    seed: *seed,
                }
            }
        })
    }

    /// `column` is the row's own value, where the source has a split column; `Err(got)` where it is unknown.
    pub(crate) fn assign<'a>(
        &self,
        user: &str,
        time: i64,
        column: Option<&'a str>,
    ) -> Result<Split, &'a str> {
        match *self {
            Splitter::Column => {
                let name = column.unwrap_or("");
                Split::parse(name).ok_or(name)
            }
            Splitter::HeldOutUsers {
                validation,
                test,
                seed,
            } => {
                let position = keyed_fraction(seed, user);
                Ok(if position < validation {
                    Split::Validation
                } else if position < validation + test {
                    Split::Test
                } else {
                    Split::Train
                })
            }
            Splitter::Time {
                test_after,
                validation_users,
                seed,
            } => Ok(if keyed_fraction(seed, user) < validation_users {
                Split::Validation
            } else if time > test_after {
                Split::Test
            } else {
                Split::Train
            }),
        }
    }
}

/// The partition of a row, or an error that names the row.
pub(crate) fn assign(splitter: &Splitter, rows: &Rows, row: usize) -> Result<Split> {
    assign_as(splitter, rows, row, rows.users.get(row))
}

/// The partition of a row whose user has this name.
pub(crate) fn assign_as(splitter: &Splitter, rows: &Rows, row: usize, user: &str) -> Result<Split> {
    if matches!(splitter, Splitter::Time { .. }) {
        rows.need_time(row, "a split by time")?;
    }
    splitter
        .assign(user, rows.times[row], rows.split(row))
        .map_err(|got| {
            let expected = "\"train\", \"validation\" or \"test\"".to_owned();
            rows.bad(row, "split column".to_owned(), expected, quoted(got))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_exact_names_choose_a_split() {
        fn check(name: &str, expected: Result<Split, &str>) {
            assert_eq!(Splitter::Column.assign("u", 0, Some(name)), expected);
        }
        check("train", Ok(Split::Train));
        check("validation", Ok(Split::Validation));
        check("test", Ok(Split::Test));
        check("Train", Err("Train"));
        check("", Err(""));
    }

    #[test]
    fn held_out_fractions_are_near_the_requested_ones() {
        let splitter = Splitter::HeldOutUsers {
            validation: 0.1,
            test: 0.2,
            seed: 3,
        };
        let mut counts = [0_u32; 3];
        for user in 0..20_000 {
            counts[splitter.assign(&format!("u{user}"), 0, None).unwrap().index()] += 1;
        }
        // Binomial(20000, 0.1) has standard deviation 42 and Binomial(20000, 0.2) 57: six of them is a false alarm of 2e-9.
        assert!((f64::from(counts[1]) - 2000.0).abs() < 6.0 * 42.5, "{counts:?}");
        assert!((f64::from(counts[2]) - 4000.0).abs() < 6.0 * 56.6, "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_held_out_user_has_one_partition(user in ".{0,12}", times in prop::collection::vec(any::<i64>(), 1..8), seed: u64) {
            let splitter = Splitter::HeldOutUsers { validation: 0.3, test: 0.3, seed };
            let first = splitter.assign(&user, 0, None).unwrap();
            for &time in &times {
                prop_assert_eq!(splitter.assign(&user, time, None).unwrap(), first);
            }
        }

        #[test]
        fn time_split_keeps_order(user in "[a-z]{1,6}", time: i64, test_after in -1_000_000_i64..1_000_000) {
            let splitter = Splitter::Time { test_after, validation_users: 0.2, seed: 5 };
            let split = splitter.assign(&user, time, None).unwrap();
            match split {
                Split::Train => prop_assert!(time <= test_after),
                Split::Test => prop_assert!(time > test_after),
                Split::Validation => {
                    prop_assert_eq!(splitter.assign(&user, test_after, None).unwrap(), Split::Validation);
                }
            }
        }
    }
}
