//! The numbers behind mutations: the same seed, the same mutations, on every machine.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own for every pair.
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        let mut random = Self(seed ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`; 0 where that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        match end {
            0 => 0,
            _ => (self.next() % end as u64) as usize,
        }
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them; `values` is not empty.
    pub(crate) fn choose<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}
