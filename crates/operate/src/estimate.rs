//! The size of a task before it starts: days, devices, bytes, processor time, and the server that it needs.
//!
//! [`TaskShape`] holds the numbers of a task file, [`PopulationAssumptions`] those of its population, and [`Rates`] those of
//! machines. [`estimate`] is arithmetic over the three. `docs/guide/size-a-service.md` states each formula.

mod calibrate;
mod rates;
mod shape;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use undertone_service::{Result, ServiceError};

pub use calibrate::DeviceWork;
pub use rates::{Rates, Source};
pub use shape::{Groups, SizedTask, TaskShape};

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// Part of a core that work may take on average, so that waves of uploads do not wait.
const UTILISATION: f64 = 0.6;

/// The memory of a server without a task, in bytes.
const BASE_MEMORY: f64 = 300e6;

/// The default limit of memory for uploads on their way, `serve --spool-ram`.
const SPOOL_RAM: f64 = 2.147_483_648e9;

/// The default of `serve --bodies-ram`, in bytes.
const BODIES_RAM: f64 = undertone_service::capacity::DEFAULT_IN_FLIGHT as f64;

/// Max memory of a download, in bytes.
const DOWNLOAD: f64 = undertone_service::capacity::DOWNLOAD_MEMORY as f64;

/// Bytes of the largest body of a request of a device.
const BODY: f64 = undertone_protocol::limits::MAX_CHUNK as f64;

/// Memory of an open connection with its buffers, over TLS, in bytes.
const CONNECTION: f64 = 64e3;

/// Vectors of `f64` per parameter in memory during a release, without the buffers of the noise.
const VECTORS: f64 = 4.0;

/// Bytes of a check-in with its certificate and signature, and of its answer.
const CHECKIN_BYTES: (f64, f64) = (600.0, 1_000.0);

/// Bytes of a board with one task.
const BOARD_BYTES: f64 = 500.0;

/// Bytes of one pseudonym in a line of the ledger.
const PSEUDONYM_BYTES: f64 = 19.0;

/// The numbers of a population that no file of a task holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationAssumptions {
    /// Number of people with the app.
    pub population: f64,
    /// Part of them whose device has the text and the version that the task needs.
    pub eligible: f64,
    /// Part of the eligible devices that are ready at one moment: charging, idle, on a free network. A mean over the day.
    pub availability: f64,
    /// Part of the sessions that end before their report.
    pub drop_out: f64,
    /// Download rate of a device in Mbit/s.
    pub download_mbps: f64,
    /// Upload rate of a device in Mbit/s.
    pub upload_mbps: f64,
    /// Speed of a device's core over a core of the calibrated machine.
    pub device_speed: f64,
    /// Examples of a device in a round; at most `service.eligibility.max_examples` count.
    pub examples: f64,
    /// Words of an example.
    pub words: f64,
}

impl Default for PopulationAssumptions {
    fn default() -> Self {
        Self {
            population: 1_000_000.0,
            eligible: 0.5,
            availability: 0.1,
            drop_out: 0.1,
            download_mbps: 20.0,
            upload_mbps: 5.0,
            device_speed: 0.25,
            examples: 100.0,
            words: 8.0,
        }
    }
}

impl PopulationAssumptions {
    /// Checks that each number is in its range.
    ///
    /// # Errors
    /// [`ServiceError::Value`] naming the option.
    pub fn validate(&self) -> Result<()> {
        let part = |key: &str, value: f64, zero: bool| {
            let holds = value <= 1.0 && (value > 0.0 || (zero && value == 0.0));
            let range = if zero {
                "a part from 0 to below 1"
            } else {
                "a part above 0 and at most 1"
            };
            check(key, holds && !(zero && value >= 1.0), range, value)
        };
        let above =
            |key: &str, value: f64| check(key, value.is_finite() && value > 0.0, "a number above 0", value);
        above("--population", self.population)?;
        part("--eligible", self.eligible, false)?;
        part("--availability", self.availability, false)?;
        part("--drop-out", self.drop_out, true)?;
        above("--download-mbps", self.download_mbps)?;
        above("--upload-mbps", self.upload_mbps)?;
        above("--device-speed", self.device_speed)?;
        above("--examples", self.examples)?;
        above("--words", self.words)
    }
}

fn check(key: &str, holds: bool, expected: &str, got: f64) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(ServiceError::Value {
            key: key.to_owned(),
            expected: expected.to_owned(),
            got: got.to_string(),
        }),
    }
}

/// Eligible devices that a task needs, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Needed {
    /// Number of eligible devices for the separation: `b r`.
    pub by_separation: f64,
    /// Number of eligible devices for the max number of participations: `n r / k`.
    pub by_participations: f64,
    /// Number of eligible devices for the pace: enough ready devices within the time of a selection.
    pub by_pace: f64,
}

impl Needed {
    /// The largest of the three.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.by_separation.max(self.by_participations).max(self.by_pace)
    }
}

/// The cost of a task for one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceCost {
    /// Bytes that it loads in a round.
    pub down_bytes: f64,
    /// Bytes that it sends in a round.
    pub up_bytes: f64,
    /// Processor seconds of a round.
    pub cpu_seconds: f64,
    /// Seconds of a session, from the assignment to the report.
    pub session_seconds: f64,
    /// Mean number of rounds that an eligible device takes part in.
    pub participations: f64,
}

/// The server that a task needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ServerCost {
    /// Core seconds of a round.
    pub core_seconds: f64,
    /// Number of cores.
    pub cores: f64,
    /// Memory in bytes, with the default limits for uploads on their way and for bodies that are being received.
    pub memory_bytes: f64,
    /// Downloads that are open at one time. `serve --max-downloads` must allow them.
    pub downloads: f64,
    /// Uploads on their way at one time, in bytes. The part beyond the limit of memory stands in an encrypted temporary file.
    pub spool_bytes: f64,
    /// Bytes to devices per round.
    pub egress_bytes: f64,
    /// Bytes from devices per round.
    pub ingress_bytes: f64,
    /// Bytes to devices over the whole task.
    pub total_egress_bytes: f64,
    /// Mean rate to devices, in Mbit/s.
    pub egress_mbps: f64,
    /// Disk in bytes at the end: all models, two states of the noise, and the ledger.
    pub disk_bytes: f64,
}

/// The size of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Eligible devices.
    pub eligible_devices: f64,
    /// Eligible devices that the task needs.
    pub needed: Needed,
    /// Sessions that a round starts, those that are lost included.
    pub sessions_per_round: f64,
    /// Seconds until enough devices have come.
    pub selection_seconds: f64,
    /// Seconds of a round.
    pub round_seconds: f64,
    /// Rounds per day.
    pub rounds_per_day: f64,
    /// Days until the last round.
    pub days: f64,
    /// The cost for one device.
    pub device: DeviceCost,
    /// The server.
    pub server: ServerCost,
    /// The reasons for which the task cannot be done, one sentence each.
    pub obstacles: Vec<String>,
}

/// Computes the size of a task.
///
/// # Errors
/// [`ServiceError::Value`] naming a condition that is out of its range.
pub fn estimate(shape: &TaskShape, conditions: &PopulationAssumptions, rates: &Rates) -> Result<Estimate> {
    conditions.validate()?;
    rates.validate()?;
    let goal = shape.goal as f64;
    let (rounds, gap, max_part) = (shape.rounds as f64, shape.min_sep as f64, shape.max_part as f64);
    let eligible = conditions.population * conditions.eligible;
    let sessions = goal / (1.0 - conditions.drop_out);
    let needed = needed(shape, conditions, sessions);
    let device = device(shape, conditions, rates, rounds * sessions / eligible);

    // The subjects of the last rounds wait for the separation.
    let free = (eligible - (gap - 1.0) * sessions).max(0.0);
    let arrivals = conditions.availability * free / shape.min_interval_s;
    let waves = (sessions / shape.sessions as f64 - 1.0).max(0.0) * device.session_seconds;
    let selection = (sessions / arrivals).max(waves);
    let release = shape.parameters as f64 * rates.release_s_per_parameter;
    let timer = shape.timer_s * sessions / eligible;
    let round = (selection + device.session_seconds + release).max(timer);
    let sending = device.up_bytes * 8.0 / (conditions.upload_mbps * 1e6);
    let loading = device.down_bytes * 8.0 / (conditions.download_mbps * 1e6);
    let server = server(shape, rates, &device, sessions, (round, loading, sending), rounds);

    let mut obstacles = Vec::new();
    let short = |name: &str, wanted: f64| {
        format!(
            "{name} needs {} eligible devices, and {} of {} people are eligible",
            whole(wanted),
            whole(eligible),
            whole(conditions.population)
        )
    };
    if needed.by_separation > eligible {
        obstacles.push(short(
            &format!(
                "participation.min_sep = {gap} with {} sessions per round",
                whole(sessions)
            ),
            needed.by_separation,
        ));
    }
    if needed.by_participations > eligible {
        obstacles.push(short(
            &format!("participation.max_part = {max_part} over {rounds} rounds"),
            needed.by_participations,
        ));
    }
    if needed.by_pace > eligible {
        obstacles.push(short(
            &format!(
                "service.deadlines.select = {} s with {} of the devices ready at one moment",
                shape.select_s, conditions.availability
            ),
            needed.by_pace,
        ));
    }
    obstacles.extend(limits(shape, conditions, &device));
    Ok(Estimate {
        eligible_devices: eligible,
        needed,
        sessions_per_round: sessions,
        selection_seconds: selection,
        round_seconds: round,
        rounds_per_day: DAY / round,
        days: rounds * round / DAY,
        device,
        server,
        obstacles,
    })
}

/// Eligible devices for `sessions` sessions per round.
fn needed(shape: &TaskShape, conditions: &PopulationAssumptions, sessions: f64) -> Needed {
    let waiting = (shape.min_sep as f64 - 1.0) * sessions;
    // A ready device checks in once per interval, so a short selection meets a part of them.
    let met = (shape.select_s / shape.min_interval_s).min(1.0);
    Needed {
        by_separation: shape.min_sep as f64 * sessions,
        by_participations: shape.rounds as f64 * sessions / shape.max_part as f64,
        by_pace: waiting + sessions / (conditions.availability * met),
    }
}

/// The cost of a round for one device.
fn device(
    shape: &TaskShape,
    conditions: &PopulationAssumptions,
    rates: &Rates,
    participations: f64,
) -> DeviceCost {
    let messages = shape.groups.as_ref().map_or((0.0, 0.0), Groups::message_bytes);
    let down =
        shape.model_bytes as f64 + shape.plan_bytes as f64 + BOARD_BYTES + CHECKIN_BYTES.1 + messages.0;
    let up = shape.upload_bytes as f64 + CHECKIN_BYTES.0 + messages.1;
    let examples = conditions.examples.min(shape.max_examples as f64);
    let words = examples * conditions.words * shape.epochs as f64;
    let masks = shape.groups.as_ref().map_or(0.0, |groups| {
        (f64::from(groups.neighbours) + 1.0) * shape.coordinates as f64 / rates.mask_words_per_core_s
    });
    let work = words * rates.train_s_per_word + rates.encode_s;
    let cpu = (work + masks) / conditions.device_speed;
    let seconds = |bytes: f64, mbps: f64| bytes * 8.0 / (mbps * 1e6);
    let waits = shape.groups.as_ref().map_or(0.0, |groups| groups.phases_s);
    DeviceCost {
        down_bytes: down,
        up_bytes: up,
        cpu_seconds: cpu,
        session_seconds: seconds(down, conditions.download_mbps)
            + cpu
            + waits
            + seconds(up, conditions.upload_mbps),
        participations,
    }
}

/// The server of rounds of `round` seconds, in which a device loads for `loading` seconds and sends for `sending` seconds.
fn server(
    shape: &TaskShape,
    rates: &Rates,
    device: &DeviceCost,
    sessions: f64,
    (round, loading, sending): (f64, f64, f64),
    rounds: f64,
) -> ServerCost {
    let checkins = shape.checkins_per_needed * sessions;
    let (parameters, length) = (shape.parameters as f64, shape.coordinates as f64);
    let egress = sessions * device.down_bytes + checkins * (BOARD_BYTES + CHECKIN_BYTES.1);
    let ingress = sessions * device.up_bytes + checkins * CHECKIN_BYTES.0;
    let secure = shape.groups.as_ref().map_or(0.0, |groups| {
        let lost = sessions - shape.goal as f64;
        let masks = shape.goal as f64 + lost * f64::from(groups.neighbours);
        masks * length / rates.mask_words_per_core_s
    });
    let core_seconds = ingress / rates.upload_bytes_per_core_s
        + egress / rates.download_bytes_per_core_s
        + sessions / rates.assignments_per_core_s
        + checkins * (1.0 / rates.checkins_per_core_s + 1.0 / rates.boards_per_core_s)
        + parameters * rates.release_s_per_parameter
        + secure;
    // What is on its way at one time, by Little's law: the rate of devices times the time of one.
    let at_one_time = |seconds: f64| (sessions / round * seconds).min(sessions);
    let (on_their_way, downloads) = (at_one_time(sending), at_one_time(loading));
    let bodies = (on_their_way * BODY.min(device.up_bytes)).min(BODIES_RAM);
    let connections = at_one_time(device.session_seconds) * CONNECTION;
    let spool = on_their_way * device.up_bytes;
    let buffers = f64::from(shape.noise_buffers);
    ServerCost {
        core_seconds,
        cores: (core_seconds / round / UTILISATION).ceil().max(1.0),
        memory_bytes: BASE_MEMORY
            + 8.0 * length * (VECTORS + buffers)
            + spool.min(SPOOL_RAM)
            + bodies
            + downloads * DOWNLOAD
            + connections,
        downloads,
        spool_bytes: spool,
        egress_bytes: egress,
        ingress_bytes: ingress,
        total_egress_bytes: rounds * egress,
        egress_mbps: egress * 8.0 / round / 1e6,
        disk_bytes: rounds * (shape.model_bytes as f64 + sessions * PSEUDONYM_BYTES)
            + 2.0 * 8.0 * parameters * (1.0 + buffers),
    }
}

/// The limits of the task file that the session of a device would pass.
fn limits(shape: &TaskShape, conditions: &PopulationAssumptions, device: &DeviceCost) -> Vec<String> {
    let mut found = Vec::new();
    if device.cpu_seconds > shape.cpu_limit_s {
        found.push(format!(
            "service.budget.cpu = {} s is less than the {} s of processor time that a device needs",
            shape.cpu_limit_s,
            whole(device.cpu_seconds)
        ));
    }
    if device.session_seconds > shape.report_s {
        found.push(format!(
            "service.deadlines.report = {} s is less than the {} s of a session",
            shape.report_s,
            whole(device.session_seconds)
        ));
    }
    if shape.groups.is_some() && device.session_seconds > shape.attempt_s {
        found.push(format!(
            "service.deadlines.attempt = {} s is less than the {} s of a session",
            shape.attempt_s,
            whole(device.session_seconds)
        ));
    }
    if conditions.upload_mbps * 1000.0 < shape.upload_kbps_min {
        found.push(format!(
            "service.budget.upload_kbps_min = {} is above the upload rate of {} kbit/s",
            shape.upload_kbps_min,
            conditions.upload_mbps * 1000.0
        ));
    }
    if (conditions.examples as u64) < shape.min_examples {
        found.push(format!(
            "service.eligibility.min_examples = {} is above the {} examples of a device",
            shape.min_examples, conditions.examples
        ));
    }
    found
}

/// A number without its fraction, with a separator per thousand.
fn whole(number: f64) -> String {
    let digits = (number.ceil().max(0.0) as u64).to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
