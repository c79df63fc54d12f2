//! The system calls of a service: everything is durable before the step that relies on it.
//!
//! A kill does not test this, because the operating system keeps what a killed process has written. A list of the calls does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use undertone_fleet::{Fleet, FleetConfig};
use undertone_service_testing::users;

use super::agreement::check;
use super::outside::{Outside, ToChild};
use super::task::{Size, Template, fleet_config};

const CALLS: &str = "trace=write,pwrite64,writev,fsync,fdatasync,link,linkat,rename,renameat,renameat2";

/// A system call with the places of its begin and its end in the list.
#[derive(Debug)]
struct Call {
    name: String,
    args: String,
    began: usize,
    ended: usize,
}

impl Call {
    /// `true` if its first argument is a file of this name.
    fn of(&self, end_of_path: &str) -> bool {
        let file = self.args.split('>').next().unwrap_or_default();
        file.ends_with(end_of_path)
    }

    fn syncs(&self) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync")
    }

    fn writes(&self) -> bool {
        matches!(self.name.as_str(), "write" | "pwrite64" | "writev")
    }

    /// The two paths of a call that gives a file a name.
    fn names(&self) -> Option<(&str, &str)> {
        let names = ["link", "linkat", "rename", "renameat", "renameat2"];
        if !names.contains(&self.name.as_str()) {
            return None;
        }
        let mut quoted = self.args.split('"').skip(1).step_by(2);
        Some((quoted.next()?, quoted.next()?))
    }
}

/// The calls of a list that have ended, in the order of their ends.
fn calls(list: &str) -> Vec<Call> {
    let mut begun = BTreeMap::<&str, (usize, String)>::new();
    let mut calls = Vec::new();
    for (place, line) in list.lines().enumerate() {
        let Some((process, text)) = line.split_once(' ') else {
            continue;
        };
        let text = text.trim_start();
        let (began, whole) = if let Some(text) = text.strip_suffix("<unfinished ...>") {
            begun.insert(process, (place, text.to_owned()));
            continue;
        } else if let Some(rest) = text.strip_prefix("<... ") {
            let Some((began, start)) = begun.remove(process) else {
                continue;
            };
            let rest = rest.split_once("resumed>").map_or("", |(_, rest)| rest);
            (began, format!("{start}{rest}"))
        } else {
            (place, text.to_owned())
        };
        // A call that failed has done nothing.
        if let Some((name, args)) = whole.split_once('(')
            && !whole.contains(" = -1 ")
        {
            calls.push(Call {
                name: name.to_owned(),
                args: args.to_owned(),
                began,
                ended: place,
            });
        }
    }
    calls
}

/// The fail points that were visited, each with the place in the list.
fn marks(calls: &[Call]) -> Vec<(String, usize)> {
    let visits = calls.iter().filter(|call| call.writes() && call.of("/visits"));
    let name = |call: &Call| {
        let text = call.args.split('"').nth(1)?;
        Some((text.strip_suffix("\\n")?.to_owned(), call.began))
    };
    visits.filter_map(name).collect()
}

/// `true` if the last commit of the database before a place has synced what it wrote.
fn last_commit_is_durable(calls: &[Call], marks: &[(String, usize)], before: usize) -> bool {
    let last = |name: &str, before: usize| {
        let found = marks.iter().rev().find(|(mark, at)| mark == name && *at < before);
        found.map(|(_, at)| *at).unwrap()
    };
    let ended = last("writer: after commit", before);
    let began = last("writer: before commit", ended);
    let of_log = |call: &&Call| {
        call.of("service.sqlite-wal") && (began..ended).contains(&call.began) && call.ended < ended
    };
    let wrote = calls
        .iter()
        .filter(of_log)
        .filter(|call| call.writes())
        .map(|call| call.ended)
        .max();
    let synced = calls
        .iter()
        .filter(of_log)
        .filter(|call| call.syncs())
        .map(|call| call.began)
        .max();
    let wrote = wrote.unwrap_or_else(|| panic!("no commit before line {before}"));
    synced.is_some_and(|synced| synced > wrote)
}

/// A file gets its name after its bytes are durable, and the name is durable before this place.
fn named_durably(calls: &[Call], named: &Call, until: usize) {
    let (from, to) = named.names().unwrap();
    let of_source = |call: &&Call| call.of(from) && call.ended < named.began;
    let wrote = calls
        .iter()
        .filter(of_source)
        .filter(|call| call.writes())
        .map(|call| call.ended)
        .max();
    let synced = calls
        .iter()
        .filter(of_source)
        .filter(|call| call.syncs())
        .map(|call| call.began)
        .max();
    assert!(
        wrote.is_some() && synced > wrote,
        "{to} got its name before its bytes were durable"
    );
    let folder = Path::new(to).parent().unwrap().to_str().unwrap();
    let durable =
        |call: &Call| call.syncs() && call.of(folder) && call.began > named.ended && call.ended < until;
    assert!(
        calls.iter().any(durable),
        "the name of {to} is not durable in time"
    );
}

/// Plays a task under the tracer, and returns the list of its calls.
fn traced() -> String {
    let template = Template::new(Size::default());
    let folder = template.copy();
    let list = folder.path().join("calls");
    let outside = Outside::traced(folder.path(), CALLS, &list);
    let config = FleetConfig {
        clock: outside.fleet_clock(),
        max_pause_ms: 20_000,
        ..fleet_config(folder.path(), 60)
    };
    let fleet = Fleet::new(config, users(60), ToChild(outside.clone())).unwrap();
    fleet.enrol().unwrap();
    fleet.run_until(|| outside.tick()).unwrap();
    let seen = outside.end();
    check(folder.path(), template.task, template.size, &seen, &fleet);
    let started = Instant::now();
    loop {
        let text = String::from_utf8_lossy(&fs::read(&list).unwrap()).into_owned();
        if text.contains("+++ killed by SIGKILL +++") || started.elapsed() > Duration::from_secs(20) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `true` if this process may trace another one.
fn can_trace() -> bool {
    let mut tracer = Command::new("strace");
    tracer.args(["-o", "/dev/null", "true"]);
    let status = tracer.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
#[ignore = "slow"]
fn every_step_of_a_release_is_durable_before_the_next_begins() {
    if !can_trace() {
        eprintln!("skipped: strace is missing, or this process may trace nobody");
        return;
    }
    let list = traced();
    let calls = calls(&list);
    let marks = marks(&calls);
    let at = |name: &str| -> Vec<usize> {
        let found = marks.iter().filter(|(mark, _)| mark == name);
        found.map(|(_, at)| *at).collect()
    };
    let count = |name: &str, number: usize| assert_eq!(at(name).len(), number, "{name}");

    // The order of the steps, over all rounds.
    let steps = [
        "attempt.opened",
        "admit.assigned",
        "release.reserved",
        "release.sealed",
        "release.closed",
        "release.model_staged",
        "release.staged",
        "commit: before the users are checked",
        "release.committed",
        "publish.head",
        "publish.witness",
        "publish.blobs",
        "publish.done",
    ];
    let mut order: Vec<&str> = marks
        .iter()
        .map(|(mark, _)| mark.as_str())
        .filter(|mark| steps.contains(mark))
        .collect();
    order.dedup();
    assert_eq!(order, steps.repeat(3));

    // The rows of the database that are durable: the lease and the attempt before an assignment, the reservation before a sum is
    // sealed, the commit before its head.
    for name in [
        "lead.leased",
        "attempt.opened",
        "release.reserved",
        "release.committed",
    ] {
        assert!(!at(name).is_empty());
        for place in at(name) {
            assert!(
                last_commit_is_durable(&calls, &marks, place),
                "{name} at line {place}"
            );
        }
    }
    count("release.reserved", 3);
    // Admissions need not be durable, and are not: so this test sees the difference.
    let admissions = at("admit.held");
    let durable = |place: &&usize| last_commit_is_durable(&calls, &marks, **place);
    assert!(admissions.iter().filter(durable).count() < admissions.len() / 2);

    // Files: model and state before the commit, the head before the witness, both before the model is served.
    let limits = [
        ("/staged/", "release.staged", "release.closed", 2),
        ("/heads/", "publish.head", "release.committed", 1),
        ("/witness/", "publish.witness", "publish.head", 1),
        ("/blobs/blobs/", "publish.blobs", "publish.witness", 2),
    ];
    for (folder, until, from, number) in limits {
        for (from, until) in at(from).into_iter().zip(at(until)) {
            let named: Vec<&Call> = calls
                .iter()
                .filter(|call| (from..until).contains(&call.began))
                .filter(|call| call.names().is_some_and(|(_, to)| to.contains(folder)))
                .collect();
            assert_eq!(named.len(), number, "{folder} between lines {from} and {until}");
            for call in named {
                named_durably(&calls, call, until);
            }
        }
    }
}

#[test]
fn calls_are_read_in_the_order_of_their_ends() {
    let list = "7 write(3</a/visits>, \"x\\n\", 2) = 2\n\
                8 fsync(4</a/b> <unfinished ...>\n\
                7 write(5</a/service.sqlite-wal>, \"..\"..., 9) = 9\n\
                7 fsync(6</a/c>) = -1 EIO (Input/output error)\n\
                8 <... fsync resumed>) = 0\n\
                7 linkat(AT_FDCWD</w>, \"/t/1\", AT_FDCWD</w>, \"/h/2\", 0) = 0\n";
    let calls = calls(list);
    let places: Vec<(&str, usize, usize)> = calls
        .iter()
        .map(|call| (call.name.as_str(), call.began, call.ended))
        .collect();
    assert_eq!(
        places,
        [
            ("write", 0, 0),
            ("write", 2, 2),
            ("fsync", 1, 4),
            ("linkat", 5, 5)
        ]
    );
    assert!(calls[2].of("/a/b") && calls[2].syncs() && calls[1].of("sqlite-wal"));
    assert_eq!(calls[3].names(), Some(("/t/1", "/h/2")));
    assert_eq!(marks(&calls), [("x".to_owned(), 0)]);
}
