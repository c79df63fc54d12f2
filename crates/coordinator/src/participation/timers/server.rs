//! The server: makes one round after another from the available devices.

use rand_chacha::ChaCha20Rng;

use super::SimulatedRound;
use super::calendar::Calendar;
use super::config::TimersConfig;
use super::devices::{DAY, Devices, EPOCH, Pending};
use crate::error::{CoordinatorError, Result};

/// Days without a released round after which the population is said not to reach its goal.
const PATIENCE_DAYS: u32 = 100;

/// Simulated years are counted in 32 bits of seconds; the last decade is room for timers.
const END: u32 = u32::MAX - 3650 * DAY;

/// The server and its devices between two seconds.
#[derive(Debug)]
pub(super) struct Server {
    devices: Devices,
    calendar: Calendar,
    /// Devices that wait to be selected. The window of some may have closed since they came. They are recognised when they are
    /// picked, so that windows that close cost nothing. A pick among those whose windows are open is still uniform.
    waiting: Vec<u32>,
    now: u32,
    /// The earliest second at which an attempt begins.
    free_at: u32,
    attempt: Option<Attempt>,
    attempts: u32,
    released: u64,
    abandoned: u64,
    goal: usize,
    selection_target: usize,
    timer: u32,
    timeout: u32,
    min_round: u32,
}

/// A round in the making.
#[derive(Debug)]
struct Attempt {
    started: u32,
    /// Number of selected devices that have neither reported nor dropped out.
    outstanding: usize,
    selected: u64,
    dropped_out: u64,
    reports: Vec<u32>,
}

impl Server {
    pub(super) fn new(population: u32, config: &TimersConfig, generator: ChaCha20Rng) -> Self {
        let mut devices = Devices::new(population, config, generator);
        let mut calendar = Calendar::new(EPOCH);
        for device in 0..population {
            if let Some(open) = devices.next_window(device, EPOCH) {
                calendar.schedule(device, open);
            }
        }
        Self {
            devices,
            calendar,
            waiting: Vec::new(),
            now: EPOCH,
            free_at: EPOCH,
            attempt: None,
            attempts: 0,
            released: 0,
            abandoned: 0,
            goal: config.report_goal as usize,
            selection_target: config.selection_target(),
            timer: config.timer_seconds(),
            timeout: config.timeout_seconds(),
            min_round: config.min_round_seconds(),
        }
    }

    /// Simulates second after second until a round meets its goal.
    pub(super) fn next_round(&mut self) -> Result<SimulatedRound> {
        let begun = self.now;
        let give_up = begun.saturating_add(PATIENCE_DAYS * DAY).min(END);
        loop {
            if self.now >= give_up {
                return Err(CoordinatorError::value(
                    "timers.report_goal",
                    format!(
                        "a goal that the available devices reach within timers.round_timeout_minutes; round {} was abandoned \
                         {} times in {} simulated days",
                        self.released,
                        self.abandoned,
                        (self.now - begun) / DAY
                    ),
                    self.goal,
                ));
            }
            if let Some(round) = self.second() {
                return Ok(round);
            }
        }
    }

    /// Simulates the current second, and returns the round that it releases, if any.
    fn second(&mut self) -> Option<SimulatedRound> {
        let now = self.now;
        if self.attempt.is_none() && now >= self.free_at {
            self.attempts += 1;
            self.attempt = Some(Attempt {
                started: now,
                outstanding: 0,
                selected: 0,
                dropped_out: 0,
                reports: Vec::with_capacity(self.goal),
            });
            self.select();
        }
        let mut released = None;
        if self.calendar.advance(now) {
            self.devices.read_ahead(self.calendar.current());
        }
        while let Some(device) = self.calendar.next(now) {
            match self.devices.all[device as usize].pending {
                Pending::Window => self.waiting.push(device),
                Pending::Report => {
                    if self.report(device) {
                        released = self.release();
                    }
                }
                Pending::DropOut => self.drop_out(device),
            }
            // A device that came may be selected, and one that left has to be replaced.
            self.select();
        }
        // An attempt has `timeout` whole seconds, this one included.
        if let Some(attempt) = &self.attempt
            && now + 1 >= attempt.started + self.timeout
        {
            self.attempt = None;
            self.abandoned += 1;
            self.free_at = now + 1;
        }
        self.now += 1;
        released
    }

    /// `true` if the device was selected in the current attempt.
    fn counts(&self, device: u32) -> bool {
        self.attempt.is_some() && self.devices.all[device as usize].attempt == self.attempts
    }

    /// Takes a report or turns it away. Returns `true` if it was the last that the round needed.
    fn report(&mut self, device: u32) -> bool {
        if !self.counts(device) {
            self.waiting.push(device);
            return false;
        }
        let Some(attempt) = &mut self.attempt else {
            return false;
        };
        attempt.outstanding -= 1;
        attempt.reports.push(device);
        let complete = attempt.reports.len() == self.goal;
        // PRIVACY: the timer runs from the report, whether or not the round is released.
        self.schedule_window(device, self.now + self.timer);
        complete
    }

    fn drop_out(&mut self, device: u32) {
        if self.counts(device)
            && let Some(attempt) = &mut self.attempt
        {
            attempt.outstanding -= 1;
            attempt.dropped_out += 1;
        }
        self.devices.leave(device, self.now);
        self.schedule_window(device, self.now + 1);
    }

    fn schedule_window(&mut self, device: u32, from: u32) {
        if let Some(open) = self.devices.next_window(device, from) {
            self.devices.all[device as usize].pending = Pending::Window;
            self.calendar.schedule(device, open);
        }
    }

    fn release(&mut self) -> Option<SimulatedRound> {
        let attempt = self.attempt.take()?;
        self.free_at = u32::max(self.now + 1, attempt.started + self.min_round);
        let mut participants = attempt.reports;
        participants.sort_unstable();
        let round = SimulatedRound {
            round: self.released,
            started: u64::from(attempt.started - EPOCH),
            ended: u64::from(self.now - EPOCH),
            abandoned: std::mem::take(&mut self.abandoned),
            selected: attempt.selected,
            dropped_out: attempt.dropped_out,
            participants,
        };
        self.released += 1;
        Some(round)
    }

    /// Selects waiting devices until the attempt has as many as it wants.
    fn select(&mut self) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        while attempt.reports.len() + attempt.outstanding < self.selection_target {
            let Some(device) = pick(&mut self.waiting, &mut self.devices, &mut self.calendar, self.now)
            else {
                return;
            };
            let at = self.devices.select(device, self.now, self.attempts);
            self.calendar.schedule(device, at);
            attempt.outstanding += 1;
            attempt.selected += 1;
        }
    }
}

/// A uniform choice among the waiting devices whose windows are open. Others that come up go to wait for their next window,
/// unless that has begun in the meantime.
fn pick(waiting: &mut Vec<u32>, devices: &mut Devices, calendar: &mut Calendar, now: u32) -> Option<u32> {
    while !waiting.is_empty() {
        let device = waiting.swap_remove(devices.random.below(waiting.len()));
        if devices.is_open(device, now) {
            return Some(device);
        }
        match devices.next_window(device, now) {
            Some(open) if open <= now => return Some(device),
            Some(open) => {
                devices.all[device as usize].pending = Pending::Window;
                calendar.schedule(device, open);
            }
            None => {}
        }
    }
    None
}
