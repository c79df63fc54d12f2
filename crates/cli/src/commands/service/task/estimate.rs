//! `undertone task estimate`: the size of a task before it starts.

use std::path::PathBuf;

use anyhow::bail;
use serde::Serialize;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_coordinator::task::Seeding;
use undertone_operate::estimate::{Estimate, PopulationAssumptions, Rates, SizedTask, Source, estimate};
use undertone_present::numbers::{epsilon_delta, grouped, number};

use crate::commands::parsed_file;
use crate::output::{Output, facts};

/// Arguments of `undertone task estimate`.
#[derive(Debug, clap::Args)]
pub(super) struct EstimateArgs {
    /// Read the task file (TOML) from this path.
    file: PathBuf,
    /// Set the number of people with the app (default: `cohort.population` of the task file).
    #[arg(long, value_name = "N")]
    population: Option<f64>,
    /// Set the part of the people whose device has the text and the version that the task needs.
    #[arg(long, value_name = "PART", default_value_t = PopulationAssumptions::default().eligible)]
    eligible: f64,
    /// Set the part of the eligible devices that are ready at one moment: charging, idle, on a free network. A mean over the day.
    #[arg(long, value_name = "PART", default_value_t = PopulationAssumptions::default().availability)]
    availability: f64,
    /// Set the part of the sessions that end before their report.
    #[arg(long, value_name = "PART", default_value_t = PopulationAssumptions::default().drop_out)]
    drop_out: f64,
    /// Set the download rate of a device in Mbit/s.
    #[arg(long, value_name = "MBPS", default_value_t = PopulationAssumptions::default().download_mbps)]
    download_mbps: f64,
    /// Set the upload rate of a device in Mbit/s.
    #[arg(long, value_name = "MBPS", default_value_t = PopulationAssumptions::default().upload_mbps)]
    upload_mbps: f64,
    /// Set the speed of a device's core over a core of this machine.
    #[arg(long, value_name = "RATIO", default_value_t = PopulationAssumptions::default().device_speed)]
    device_speed: f64,
    /// Set the number of examples of a device.
    #[arg(long, value_name = "N", default_value_t = PopulationAssumptions::default().examples)]
    examples: f64,
    /// Set the number of words of an example.
    #[arg(long, value_name = "N", default_value_t = PopulationAssumptions::default().words)]
    words: f64,
    /// Read the rates of machines from this file (TOML) instead of measuring this one.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    task: &'a str,
    /// The guarantee of all rounds, by the plan that `activate` checks.
    planned: Option<GuaranteeRecord>,
    max_epsilon: Option<f64>,
    conditions: PopulationAssumptions,
    rates_from: Source,
    rates: Rates,
    estimate: &'a Estimate,
    /// The warning that the noise leaves nothing of what the task learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'a str>,
}

/// Estimates a task, and refuses one that cannot be done.
pub(super) fn run(args: &EstimateArgs, output: &Output) -> anyhow::Result<()> {
    let (file, base) = undertone_run_directory::task::read(&args.file, &[], Seeding::Refused)?;
    let conditions = PopulationAssumptions {
        population: args
            .population
            .unwrap_or(file.task.cohort.population.unwrap_or(0) as f64),
        eligible: args.eligible,
        availability: args.availability,
        drop_out: args.drop_out,
        download_mbps: args.download_mbps,
        upload_mbps: args.upload_mbps,
        device_speed: args.device_speed,
        examples: args.examples,
        words: args.words,
    };
    conditions.validate()?;
    let rates = args.rates.as_deref();
    let given: Option<Rates> = rates
        .map(|path| parsed_file(path, "expected rates of machines"))
        .transpose()?;
    let spinner = output.spinner("planning the task and timing this machine");
    let sized = SizedTask::of(&file, &base, "estimate");
    let measured = sized.and_then(|sized| {
        let rates = match given {
            Some(rates) => rates,
            None => sized
                .work
                .measure(&sized.privacy, args.words as usize, Rates::default())?,
        };
        let found = estimate(&sized.shape, &conditions, &rates)?;
        Ok((sized, rates, found))
    });
    spinner.finish_and_clear();
    let (sized, rates, found) = measured?;
    let mut obstacles = found.obstacles.clone();
    // The same check as that of `activate`.
    if let Err(error) = sized.privacy.check_budget() {
        obstacles.insert(0, error.to_string());
    }
    if !obstacles.is_empty() {
        bail!("the task cannot be done: {}", obstacles.join("; "));
    }
    let document = Document {
        task: &file.task.name,
        planned: sized.privacy.planned()?,
        max_epsilon: file.task.privacy.as_ref().and_then(|privacy| privacy.max_epsilon),
        conditions,
        rates_from: match given {
            None => Source::Calibrated,
            Some(_) => Source::File,
        },
        rates,
        estimate: &found,
        warning: sized.warning.as_deref(),
    };
    output.show(&document, || facts(rows(&document)))?;
    document
        .warning
        .into_iter()
        .for_each(|warning| output.warn(warning));
    output.note(match document.rates_from {
        Source::Calibrated => {
            "training and encoding were timed on this machine for two seconds; the rates of the server are those of the project's \
             benches; docs/guide/size-a-service.md states the formulas"
        }
        Source::File => "the rates are those of the file; docs/guide/size-a-service.md states the formulas",
    });
    Ok(())
}

fn rows(document: &Document<'_>) -> Vec<(&'static str, String)> {
    let found = document.estimate;
    let whole = |value: f64| grouped(value.ceil() as u64);
    let guarantee = document.planned.as_ref().map_or_else(
        || "none, since the task adds no noise".to_owned(),
        |planned| epsilon_delta(planned.epsilon, planned.delta),
    );
    let (device, server) = (&found.device, &found.server);
    vec![
        ("task", document.task.to_owned()),
        ("days", number(found.days)),
        (
            "a round",
            format!(
                "{} s, of which {} s until enough devices have come; {} rounds per day",
                number(found.round_seconds),
                number(found.selection_seconds),
                number(found.rounds_per_day)
            ),
        ),
        (
            "eligible devices",
            format!(
                "{}; the task needs {}",
                whole(found.eligible_devices),
                whole(found.needed.max())
            ),
        ),
        (
            "needed by",
            format!(
                "separation {}, max participations {}, pace {}",
                whole(found.needed.by_separation),
                whole(found.needed.by_participations),
                whole(found.needed.by_pace)
            ),
        ),
        ("planned guarantee", guarantee),
        (
            "a device, per round",
            format!(
                "loads {}, sends {}, computes {} s, is busy for {} s",
                bytes(device.down_bytes),
                bytes(device.up_bytes),
                number(device.cpu_seconds),
                number(device.session_seconds)
            ),
        ),
        (
            "a device, in all",
            format!("{} rounds on average", number(device.participations)),
        ),
        (
            "server",
            format!(
                "{} cores, {} of memory, {} of uploads and {} downloads on their way, {} of disk",
                whole(server.cores),
                bytes(server.memory_bytes),
                bytes(server.spool_bytes),
                whole(server.downloads),
                bytes(server.disk_bytes)
            ),
        ),
        (
            "network",
            format!(
                "{} out and {} in per round, {} Mbit/s out; {} out in all",
                bytes(server.egress_bytes),
                bytes(server.ingress_bytes),
                number(server.egress_mbps),
                bytes(server.total_egress_bytes)
            ),
        ),
    ]
}

/// Bytes with a unit.
fn bytes(count: f64) -> String {
    let (value, unit) = match count {
        ..1e3 => (count, "B"),
        ..1e6 => (count / 1e3, "kB"),
        ..1e9 => (count / 1e6, "MB"),
        ..1e12 => (count / 1e9, "GB"),
        _ => (count / 1e12, "TB"),
    };
    format!("{} {unit}", number(value))
}
