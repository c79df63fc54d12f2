//! The number of devices behind the check-ins, without a list of them.

use undertone_coordinator::participation::ParticipantId;
use undertone_store::Millis;

const HOUR: Millis = 3_600_000;
/// Hours that are kept: a week.
const HOURS: u64 = 168;
/// Registers of a sketch; the relative standard error is `1.04 / sqrt(2048)`, 2.3 percent.
const REGISTERS: usize = 2048;
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();

/// The max first set bit of the pseudonyms of an hour, by register.
struct Hour {
    number: u64,
    registers: Box<[u8]>,
}

/// An estimate of the number of distinct subjects that checked in, over a sliding time of a day to a week.
///
/// It keeps one sketch of 2 KiB per hour and no list of subjects. Pseudonyms are keyed hashes, so their bits are uniform.
///
/// # Source
/// Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA 2007.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sketch of a few subjects shows who they are"
)]
pub struct CheckInCounter {
    hours: Vec<Hour>,
    prior: u64,
    since: Millis,
}

impl CheckInCounter {
    /// A sketch that has seen nobody. For the first day the estimate is at least `prior`, the number that an earlier process had found.
    /// Windows would otherwise be far too short until the devices were counted.
    #[must_use]
    pub fn new(now: Millis, prior: u64) -> Self {
        Self {
            hours: Vec::new(),
            prior,
            since: now,
        }
    }

    /// Notes a check-in of a subject.
    pub fn seen(&mut self, now: Millis, user: ParticipantId) {
        let number = now / HOUR;
        self.hours
            .retain(|hour| hour.number + HOURS > number && hour.number <= number);
        let place = self.hours.iter().position(|hour| hour.number == number);
        let place = place.unwrap_or_else(|| {
            self.hours.push(Hour {
                number,
                registers: vec![0; REGISTERS].into(),
            });
            self.hours.len() - 1
        });
        let hash = user.get();
        let rank = ((hash << INDEX_BITS) | 1).leading_zeros() as u8 + 1;
        let register = (hash >> (64 - INDEX_BITS)) as usize;
        let register = &mut self.hours[place].registers[register];
        *register = rank.max(*register);
    }

    /// The estimated number of subjects seen in the last `hours` hours, the present one included.
    #[must_use]
    pub(crate) fn distinct(&self, now: Millis, hours: u64) -> u64 {
        let number = now / HOUR;
        let mut all = vec![0u8; REGISTERS];
        let recent = |hour: &&Hour| hour.number + hours > number && hour.number <= number;
        for hour in self.hours.iter().filter(recent) {
            for (all, register) in all.iter_mut().zip(&hour.registers) {
                *all = (*all).max(*register);
            }
        }
        let count = REGISTERS as f64;
        let harmonic: f64 = all.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / harmonic;
        let empty = all.iter().filter(|rank| **rank == 0).count();
        let estimate = match empty {
            1.. if raw <= 2.5 * count => count * (count / empty as f64).ln(),
            _ => raw,
        };
        estimate.round() as u64
    }

    /// The estimated number of devices, where `offered` check-ins per second are asked for.
    ///
    /// A device that comes back every second day is missed by the count of one day, and the windows would then be too short. So the
    /// count reaches over twice the interval that it leads to, up to a week.
    #[must_use]
    pub fn estimate(&self, now: Millis, offered: f64) -> u64 {
        let mut hours = 24;
        loop {
            let count = self.distinct(now, hours);
            let interval = count as f64 / offered.max(1e-9) / 3600.0;
            if hours >= HOURS || 2.0 * interval <= hours as f64 {
                let young = now.saturating_sub(self.since) < 24 * HOUR;
                return if young { count.max(self.prior) } else { count };
            }
            hours = (2 * hours).min(HOURS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniform pseudonyms, by the finaliser of MurmurHash3.
    fn user(number: u64) -> ParticipantId {
        let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        ParticipantId::new(hash ^ (hash >> 33))
    }

    /// The standard error is 2.3 percent, so 8 percent is 3.5 of them; the users are fixed.
    #[test]
    fn the_estimate_is_near_the_number_of_subjects() {
        for number in [0, 1, 10, 100, 3_000, 20_000, 1_000_000] {
            let mut population = CheckInCounter::new(0, 0);
            for index in 0..number {
                population.seen(HOUR, user(index));
                population.seen(HOUR, user(index));
            }
            let estimate = population.distinct(HOUR, 24);
            let error = estimate.abs_diff(number) as f64;
            assert!(error <= 0.08 * number as f64, "{number} {estimate}");
        }
    }

    #[test]
    fn subjects_are_forgotten_after_their_time() {
        let mut population = CheckInCounter::new(0, 0);
        (0..500).for_each(|index| population.seen(0, user(index)));
        (500..600).for_each(|index| population.seen(30 * HOUR, user(index)));
        let near = |estimate: u64, number: u64| estimate.abs_diff(number) * 20 <= number;
        assert!(near(population.distinct(30 * HOUR, 24), 100));
        assert!(near(population.distinct(30 * HOUR, 48), 600));
        population.seen(190 * HOUR, user(7));
        assert!(near(population.distinct(190 * HOUR, HOURS), 101));
        assert_eq!(population.hours.len(), 2);
        // A clock that was set back forgets the future.
        population.seen(3 * HOUR, user(9));
        assert_eq!(population.distinct(3 * HOUR, HOURS), 1);
    }

    #[test]
    fn a_process_that_starts_again_knows_the_number_of_before() {
        let mut population = CheckInCounter::new(5 * HOUR, 1000);
        population.seen(5 * HOUR, user(1));
        assert_eq!(population.estimate(28 * HOUR, 10.0), 1000);
        assert_eq!(population.estimate(29 * HOUR, 10.0), 0);
    }

    #[test]
    fn rare_devices_are_counted_over_a_longer_time() {
        let mut population = CheckInCounter::new(0, 0);
        // 50 devices per hour, each once in 80 hours.
        for hour in 0..HOURS {
            (0..50).for_each(|index| population.seen(hour * HOUR, user((hour % 80) * 50 + index)));
        }
        let now = (HOURS - 1) * HOUR;
        assert!(population.distinct(now, 24).abs_diff(1200) < 100);
        assert!(population.estimate(now, 50.0 / 3600.0).abs_diff(4000) < 300);
        // Where devices come often, a day is enough.
        assert_eq!(population.estimate(now, 10.0), population.distinct(now, 24));
    }
}
