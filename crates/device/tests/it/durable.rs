//! The system calls of a device: the row of a participation is durable before the first byte of an update leaves.
//!
//! A kill does not test this, because the operating system keeps what a killed process has written. A list of the calls does.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undertone_device::{
    AlwaysMet, Clock, Device, DeviceConfig, Ended, Example, FileKeyStore, NetworkLost, Reply, Request, Stop,
    Transport,
};
use undertone_protocol::{Enrol, Enrolled, SumMode, Verdict, limits, read, write};

use crate::harness::{self, POPULATION, START, Service, TIMER_S, floors, plan};

/// The variable that makes the test a device in this folder.
const FOLDER: &str = "UNDERTONE_TEST_DEVICE_FOLDER";

#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// The service in memory. Each request is a line of a file before it leaves the device.
struct Wire {
    service: Service,
    clock: TestClock,
    sent: PathBuf,
}

impl Transport for Wire {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let line = format!("{} {}\n", request.method.name(), request.target);
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.sent)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
        self.service.now = self.clock.now_ms();
        if request.target.ends_with("/enrol") {
            let enrol: Enrol = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
            let key = enrol.device_key.try_into().unwrap();
            let certificate = Some(harness::certificate(&key));
            return Ok(Reply {
                status: 200,
                offset: None,
                body: write(&Enrolled { certificate }),
            });
        }
        Ok(self.service.handle(request))
    }
}

/// A device that takes part in a round; nothing without its folder in the environment.
#[test]
fn a_child_process_takes_part_in_a_round() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let clock = TestClock(Arc::new(AtomicU64::new(START - 2 * TIMER_S * 1000)));
    let keystore = Box::new(FileKeyStore::open(folder.join("keys")).unwrap());
    let setup = harness::setup(floors());
    let mut config = DeviceConfig::new(folder.join("store"), POPULATION, keystore);
    config.board_keys = setup.board_keys;
    config.trusted_task_keys = setup.task_keys;
    config.issuers = setup.issuers;
    config.floors = setup.floors;
    config.clock = Box::new(clock.clone());
    let mut device = Device::open(config).unwrap();
    clock.0.store(START, Ordering::SeqCst);
    for number in 0..12 {
        let text = format!("The cat sat. A dog ran. The dog sat. Number {number}.");
        let example = Example {
            text: &text,
            collected_ms: START - 1000,
            expires_ms: START + 1_000_000_000,
        };
        device.examples().add(example).unwrap();
    }
    let mut wire = Wire {
        service: Service::new(plan(SumMode::Plain)),
        clock,
        sent: folder.join("sent"),
    };
    device.enrol(&mut wire, "an invitation", None).unwrap();
    let outcome = device.run(&mut wire, &AlwaysMet, &Stop::default()).unwrap();
    assert_eq!(outcome.ended, Ended::Reported(Some(Verdict::Included)));
}

/// A system call on a file.
#[derive(Debug, PartialEq)]
enum Call {
    /// The database's log was written.
    Wrote,
    /// The database's log was made durable.
    Synced,
    /// A request is about to leave.
    Sends(String),
}

/// The calls of a list on the log of the database and on the list of requests. A call counts where it ends.
fn calls(list: &str) -> Vec<Call> {
    let mut begun = std::collections::BTreeMap::<&str, String>::new();
    let mut calls = Vec::new();
    for line in list.lines() {
        let Some((process, text)) = line.split_once(' ') else {
            continue;
        };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            begun.insert(process, start.to_owned());
            continue;
        }
        let text = match text.strip_prefix("<... ") {
            Some(_) => begun.remove(process).unwrap_or_default(),
            None => text.to_owned(),
        };
        let Some((name, args)) = text.split_once('(') else {
            continue;
        };
        let file = args.split('>').next().unwrap_or_default();
        match (name, Path::new(file).file_name().and_then(|name| name.to_str())) {
            ("write" | "pwrite64", Some("device.sqlite-wal")) => calls.push(Call::Wrote),
            ("fsync" | "fdatasync", Some("device.sqlite-wal")) => calls.push(Call::Synced),
            ("write", Some("sent")) => {
                let sent = args.split('"').nth(1).unwrap_or_default();
                calls.push(Call::Sends(sent.trim_end_matches("\\n").to_owned()));
            }
            _ => {}
        }
    }
    calls
}

/// The place of the first request whose line begins and ends so.
fn sends(calls: &[Call], start: &str, part: &str) -> usize {
    let found = calls
        .iter()
        .position(|call| matches!(call, Call::Sends(line) if line.starts_with(start) && line.contains(part)));
    found.unwrap_or_else(|| panic!("no {start} {part}: {calls:?}"))
}

#[test]
fn a_participation_is_durable_before_the_first_byte_of_its_update_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("calls");
    let mut tracer = Command::new("strace");
    tracer
        .args([
            "-f",
            "-y",
            "-s",
            "200",
            "-e",
            "trace=write,pwrite64,fsync,fdatasync",
            "-o",
        ])
        .arg(&list);
    let mut probe = Command::new("strace");
    probe.args(["-o", "/dev/null", "true"]);
    let probed = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is missing, or this process may trace nobody");
        return;
    }
    tracer
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "durable::a_child_process_takes_part_in_a_round",
            "--nocapture",
        ])
        .env(FOLDER, folder.path());
    let output = tracer.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let calls = calls(&String::from_utf8_lossy(&fs::read(&list).unwrap()));
    let (joins, uploads) = (sends(&calls, "POST", "/join"), sends(&calls, "PUT", "/upload"));
    let assigned = sends(&calls, "POST", "/check-in");
    assert!(assigned < joins && joins < uploads);
    // Everything that was written before the update leaves is durable, the row of the participation among it.
    let last = |kind: &Call| calls[..uploads].iter().rposition(|call| call == kind).unwrap();
    let (wrote, synced) = (last(&Call::Wrote), last(&Call::Synced));
    assert!(
        assigned < wrote && wrote < synced,
        "{:?}",
        &calls[assigned..=uploads]
    );
}

#[test]
fn calls_are_read_where_they_end() {
    let list = "7 pwrite64(5</d/device.sqlite-wal>, \"..\"..., 9, 0) = 9\n\
                7 fdatasync(5</d/device.sqlite-wal> <unfinished ...>\n\
                8 write(9</d/sent>, \"PUT /upload\\n\", 12) = 12\n\
                7 <... fdatasync resumed>) = 0\n\
                7 write(1</dev/null>, \"x\", 1) = 1\n";
    let expected = [Call::Wrote, Call::Sends("PUT /upload".to_owned()), Call::Synced];
    assert_eq!(calls(list), expected);
}
