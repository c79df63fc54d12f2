//! All users in random order, at a bounded memory.

use std::ops::Range;

use super::Grouped;
use super::read::{UserRows, Wanted};
use crate::error::Result;
use crate::random::Stream;

/// Limits on the memory of a stream of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// Users of a window: those read together, in the order of their places on disk.
    pub window_users: usize,
    /// Rows of a window; it ends before the user who would exceed them.
    pub window_rows: u64,
    /// Maximum number of rows per user. A user with more rows contributes a uniform choice of them, in order, so users of any size fit.
    pub max_rows: Option<u64>,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            window_users: 4096,
            window_rows: 262_144,
            max_rows: None,
        }
    }
}

/// Users in random order, as an iterator. See [`Grouped::stream`].
#[derive(Debug)]
pub struct UserStream<'a> {
    grouped: &'a Grouped,
    options: StreamOptions,
    seed: u64,
    order: Vec<u32>,
    next: usize,
    window: std::vec::IntoIter<UserRows>,
}

impl Grouped {
    /// Every user once, in an order that is a uniform permutation under `seed` (up to the 64 bits of the seed and a bias below
    /// 2^-32): the permutation is of all users, and only the reading of a window is in the order of the disk.
    ///
    /// Memory: 4 bytes per user, and a window; a user of more than `window_rows` is a window alone, all in memory unless
    /// `max_rows` is set. For a Poisson sample of users, draw indices and use [`Grouped::read_users`].
    #[must_use]
    pub fn stream(&self, seed: u64, options: &StreamOptions) -> UserStream<'_> {
        let mut order: Vec<u32> = (0..self.num_users() as u32).collect();
        Stream::new("user order", seed, 0).shuffle(&mut order);
        UserStream {
            grouped: self,
            options: *options,
            seed,
            order,
            next: 0,
            window: Vec::new().into_iter(),
        }
    }
}

impl UserStream<'_> {
    fn read_window(&mut self) -> Result<()> {
        let (mut wanted, mut rows) = (Vec::new(), 0);
        while let Some(&user) = self.order.get(self.next) {
            let user = user as usize;
            let entry = self.grouped.entries()[user];
            let of_user = entry.rows.min(self.options.max_rows.unwrap_or(u64::MAX));
            let full =
                wanted.len() >= self.options.window_users.max(1) || rows + of_user > self.options.window_rows;
            if full && !wanted.is_empty() {
                break;
            }
            let chosen = if of_user < entry.rows {
                let mut stream = Stream::new("rows of a user", self.seed, user as u64);
                choose(entry.rows, of_user, entry.first_row, &mut stream)
            } else {
                std::iter::once(entry.first_row..entry.first_row + entry.rows).collect()
            };
            wanted.push(Wanted {
                place: wanted.len(),
                user,
                ranges: chosen,
            });
            rows += of_user;
            self.next += 1;
        }
        self.window = self.grouped.read_wanted(wanted)?.into_iter();
        Ok(())
    }
}

/// A uniform choice of `count` of `rows` rows, counted from `first`, as increasing ranges. Floyd's algorithm.
fn choose(rows: u64, count: u64, first: u64, stream: &mut Stream) -> Vec<Range<u64>> {
    let mut chosen = std::collections::BTreeSet::new();
    for last in rows - count..rows {
        let row = stream.below(last as usize + 1) as u64;
        if !chosen.insert(row) {
            chosen.insert(last);
        }
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for row in chosen {
        let row = first + row;
        match ranges.last_mut() {
            Some(range) if range.end == row => range.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

impl Iterator for UserStream<'_> {
    type Item = Result<UserRows>;

    fn next(&mut self) -> Option<Result<UserRows>> {
        if self.window.len() == 0
            && self.next < self.order.len()
            && let Err(error) = self.read_window()
        {
            // What cannot be read once is not tried again.
            self.next = self.order.len();
            return Some(Err(error));
        }
        self.window.next().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_uniform() {
        // Every row is in a choice of 3 of 10 with probability 0.3: of 20,000 choices 6000, standard deviation 65; six of them
        // for ten rows are a false alarm of 2e-8 (and the seed is fixed).
        let mut counts = [0_u32; 10];
        for index in 0..20_000 {
            let ranges = choose(10, 3, 100, &mut Stream::new("test", 1, index));
            let rows: Vec<u64> = ranges.into_iter().flatten().collect();
            assert_eq!(rows.len(), 3);
            assert!(rows.is_sorted_by(|one, other| one < other));
            rows.iter().for_each(|row| counts[(row - 100) as usize] += 1);
        }
        for count in counts {
            assert!((f64::from(count) - 6000.0).abs() < 390.0, "{counts:?}");
        }
        let all: Vec<u64> = choose(5, 5, 7, &mut Stream::new("test", 2, 0))
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(all, [7, 8, 9, 10, 11]);
    }
}
