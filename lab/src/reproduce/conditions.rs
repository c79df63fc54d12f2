use std::fmt;
use std::path::Path;

/// The resources that a check may spend, and the clock that its timings are read from.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    clock: &'a dyn Fn() -> f64,
    slow: bool,
    data: Option<&'a Path>,
}

impl<'a> Conditions<'a> {
    /// Within seconds a check, with a clock that gives seconds since any fixed moment and never goes back.
    #[must_use]
    pub const fn new(clock: &'a dyn Fn() -> f64) -> Self {
        Self {
            clock,
            slow: false,
            data: None,
        }
    }

    /// Allows minutes: optimal banded matrices over thousands of rounds instead of what stands for them.
    #[must_use]
    pub fn with_slow(self, slow: bool) -> Self {
        Self { slow, ..self }
    }

    /// With a folder of real text, for checks that otherwise take the built-in population.
    #[must_use]
    pub fn with_data(self, data: Option<&'a Path>) -> Self {
        Self { data, ..self }
    }

    pub(crate) fn data(&self) -> Option<&'a Path> {
        self.data
    }

    pub(crate) fn slow(&self) -> bool {
        self.slow
    }

    /// Seconds of the fastest of so many calls, and what the last returned.
    pub(crate) fn time<T, E>(
        &self,
        calls: usize,
        mut call: impl FnMut() -> Result<T, E>,
    ) -> Result<(f64, T), E> {
        let mut timed = || {
            let start = (self.clock)();
            let value = call()?;
            Ok(((self.clock)() - start, value))
        };
        let (mut fastest, mut value) = timed()?;
        for _ in 1..calls {
            let (seconds, next) = timed()?;
            fastest = fastest.min(seconds);
            value = next;
        }
        Ok((fastest, value))
    }
}

impl fmt::Debug for Conditions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conditions")
            .field("slow", &self.slow)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_fastest_call_counts() {
        let readings = [0.0, 5.0, 10.0, 12.0, 20.0, 24.0];
        let at = Cell::new(0);
        let clock = || readings[at.replace(at.get() + 1)];
        let conditions = Conditions::new(&clock).with_slow(true);
        let mut calls = 0;
        let timed = conditions.time(3, || {
            calls += 1;
            Ok::<_, ()>(calls)
        });
        assert_eq!(timed, Ok((2.0, 3)));
        assert!(conditions.slow() && at.get() == 6);
        let refused = Conditions::new(&|| 0.0).time(2, || Err::<(), _>("no"));
        assert_eq!(refused, Err("no"));
    }
}
