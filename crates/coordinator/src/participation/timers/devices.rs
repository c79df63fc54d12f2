//! Devices and their habits: when each is idle, charging and on an unmetered network.

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;

use super::config::{HOUR, TimersConfig, ZoneConfig};

/// Seconds of a day.
pub(super) const DAY: u32 = 86_400;

/// Midnight UTC at which simulated time begins, in the seconds that devices count, so that nights which began on the days
/// before have no negative times.
pub(super) const EPOCH: u32 = 3 * DAY;

/// Windows are at least a minute long.
const SHORTEST: f64 = 60.0;

/// Days after which a device without a window is given up: twenty years.
const PATIENCE: u32 = 7300;

/// One device: its habits, and the window it is in or waits for. It fills half a cache line, since devices come up in no
/// order, and each costs one access to memory.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(super) struct Device {
    /// End of the current window.
    close: u32,
    /// Number of the current window: two a day, by day and by night.
    slot: u32,
    /// The habitual start of a night, in seconds from midnight UTC; negative east of the evening.
    night: i32,
    /// The habitual length of a night, in seconds.
    length: u32,
    /// Index into `timers.zones`.
    zone: u8,
    /// Index into `timers.devices`.
    class: u8,
    /// Factor of the time to a report.
    slowness: f32,
    /// The attempt it was selected in last.
    pub(super) attempt: u32,
    /// The pending event of the device.
    pub(super) pending: Pending,
}

/// The meaning of a device's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    /// The device becomes available.
    Window,
    /// The device reports.
    Report,
    /// The device drops out.
    DropOut,
}

/// All devices, and the process that moves them.
#[derive(Debug)]
pub(super) struct Devices {
    pub(super) all: Vec<Device>,
    config: TimersConfig,
    pub(super) random: Random,
}

impl Devices {
    pub(super) fn new(population: u32, config: &TimersConfig, generator: ChaCha20Rng) -> Self {
        let mut random = Random::new(generator);
        let zones = CumulativeRates::new(config.zones.iter().map(|zone| zone.fraction));
        let classes = CumulativeRates::new(config.devices.iter().map(|class| class.fraction));
        let charging = config.charging;
        let device = |_| {
            let (zone, class) = (zones.draw(&mut random), classes.draw(&mut random));
            let midnight = midnight_in(&config.zones[zone]);
            let (start, length) = random.normals();
            let start = HOUR * (charging.start_hour + charging.start_spread_hours * start);
            let length = HOUR * (charging.length_hours + charging.length_spread_hours * length);
            Device {
                close: 0,
                slot: 0,
                night: (start + midnight) as i32,
                length: length.max(SHORTEST) as u32,
                zone: zone as u8,
                class: class as u8,
                slowness: (config.device_spread * random.normals().0).exp() as f32,
                attempt: 0,
                pending: Pending::Window,
            }
        };
        Self {
            all: (0..population).map(device).collect(),
            config: config.clone(),
            random,
        }
    }

    /// Prefetches devices that come up soon. Read one after another without waiting for each, they arrive in a fraction of the
    /// time.
    pub(super) fn read_ahead(&self, soon: impl Iterator<Item = u32>) {
        let sum = soon.fold(0, |sum: u32, device| {
            sum.wrapping_add(self.all[device as usize].close)
        });
        std::hint::black_box(sum);
    }

    /// `true` if the device's window is open after this second.
    pub(super) fn is_open(&self, device: u32, now: u32) -> bool {
        self.all[device as usize].close > now
    }

    /// Takes the device out of its window.
    pub(super) fn leave(&mut self, device: u32, now: u32) {
        let device = &mut self.all[device as usize];
        device.close = device.close.min(now);
    }

    /// The first second from `from` on in which the device is available: inside the window it is in, or else in the first
    /// one that is not over by then. `None` if there is none for twenty years.
    ///
    /// Every window is drawn once: what is drawn here is later than all that was drawn before.
    pub(super) fn next_window(&mut self, device: u32, from: u32) -> Option<u32> {
        let device = &mut self.all[device as usize];
        if device.close > from {
            return Some(from);
        }
        let daytime = self.config.daytime;
        let local_midnight = midnight_in(&self.config.zones[usize::from(device.zone)]);
        let night_probability = self.config.devices[usize::from(device.class)].night_probability;
        let spread = HOUR * self.config.charging.nightly_spread_hours;
        // The first day whose windows may reach beyond `from`; a night six deviations late is not looked for.
        let mut reach = f64::from(device.night) + f64::from(device.length) + 6.0 * spread;
        if let Some(day) = daytime {
            reach = reach.max(local_midnight + HOUR * (day.until_hour + day.length_hours));
        }
        let first_day = (f64::from(from) - reach) / f64::from(DAY);
        let first = 2 * (first_day.ceil().max(0.0) as u32);
        let first = first.max(device.slot + 1);
        for slot in first..first + 2 * PATIENCE {
            let midnight = f64::from(slot / 2) * f64::from(DAY);
            let (start, end) = if slot % 2 == 0 {
                let Some(day) = daytime else { continue };
                if !self.random.happens(day.probability) {
                    continue;
                }
                let hour = day.from_hour + (day.until_hour - day.from_hour) * self.random.uniform();
                let start = midnight + local_midnight + HOUR * hour;
                (start, start + HOUR * day.length_hours)
            } else {
                if !self.random.happens(night_probability) {
                    continue;
                }
                let (early, late) = self.random.normals();
                let usual = midnight + f64::from(device.night);
                let start = usual + spread * early;
                let end = usual + f64::from(device.length) + spread * late;
                (start, end.max(start + SHORTEST))
            };
            if end as u32 > from {
                device.slot = slot;
                device.close = end as u32;
                return Some(from.max(start as u32));
            }
        }
        None
    }

    /// Selects the device, and draws the kind and the time of its next event.
    pub(super) fn select(&mut self, device: u32, now: u32, attempt: u32) -> u32 {
        let median = 60.0 * self.config.report_minutes;
        let time = median * (self.config.report_spread * self.random.normals().0).exp();
        let drops_out = self.random.happens(self.config.drop_out);
        let fraction = if drops_out { self.random.uniform() } else { 1.0 };
        let device = &mut self.all[device as usize];
        let time = (time * f64::from(device.slowness) * fraction).clamp(1.0, f64::from(DAY));
        let at = now + time as u32;
        device.attempt = attempt;
        // The window ends before the report: the same as dropping out then.
        let in_window = at < device.close;
        device.pending = if in_window && !drops_out {
            Pending::Report
        } else {
            Pending::DropOut
        };
        if in_window { at } else { device.close.max(now + 1) }
    }
}

/// Seconds from midnight UTC to the zone's midnight of the same date.
fn midnight_in(zone: &ZoneConfig) -> f64 {
    -HOUR * zone.utc_offset_hours
}

/// Relative frequencies as a cumulative distribution.
#[derive(Debug)]
struct CumulativeRates(Vec<f64>);

impl CumulativeRates {
    fn new(rates: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = rates
            .map(|fraction| {
                sum += fraction;
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|fraction| *fraction /= sum);
        Self(cumulative)
    }

    fn draw(&self, random: &mut Random) -> usize {
        let uniform = random.uniform();
        self.0
            .partition_point(|fraction| *fraction <= uniform)
            .min(self.0.len() - 1)
    }
}

/// The simulation's draws.
#[derive(Debug)]
pub(super) struct Random {
    generator: ChaCha20Rng,
}

impl Random {
    fn new(generator: ChaCha20Rng) -> Self {
        Self { generator }
    }

    /// Uniform in `[0, 1)`.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.generator.next_u64() >> 11) as f64 * (-53f64).exp2()
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Two independent standard normals (Box and Muller).
    fn normals(&mut self) -> (f64, f64) {
        // In (0, 1]: the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        (radius * cosine, radius * sine)
    }

    /// Uniform below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        undertone_mechanisms::draws::below(bound as u64, &mut self.generator) as usize
    }
}
