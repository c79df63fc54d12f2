//! `undertone simulate`.

use crate::support::{Folder, contains, json};

const SMALL: &str = r#"
name = "small"
seed = 5
rounds = 60
population = 1500

[timers]
report_goal = 40
timer_hours = 48

[mechanism]
strategy = { kind = "tree", restarts = { first = 20, period = 32 } }
noise_multiplier = 7.0
delta = 1e-10
"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("timers.toml", SMALL);
    folder
}

#[test]
fn a_simulation_as_tables_files_and_json() {
    let folder = folder();
    let text = folder.succeed("simulate timers.toml --out result");
    contains(
        &text,
        "60 rounds of 40 reports in ... MinS ... Devices by number of participations ... Rounds per hour of the day (UTC) ... TreeAgg(restarts 20+32), noise multiplier 7, delta 1e-10, zero-out ... promised by the timer ... observed in the ledger ... exact for the ledger",
    );
    let ledger = folder.text("result/ledger.jsonl");
    assert_eq!(ledger.lines().count(), 60);
    let line = json(ledger.lines().next().expect("a line"));
    assert_eq!((&line["round"], &line["cohort_size"]), (&0.into(), &40.into()));
    let svg = folder.text("result/rounds.svg");
    assert!(svg.contains("Minutes per round; 1500 devices, report goal 40, timer 48 hours"));

    // The same seed, the same simulation; JSON is what the summary holds.
    let printed = folder.json("simulate timers.toml");
    assert_eq!(printed, json(&folder.text("result/summary.json")));
    let privacy = &printed["privacy"];
    let rho = |basis: &str| privacy[basis]["rho"].as_f64().expect("a number");
    assert!(rho("exact") > 0.0 && rho("exact") <= rho("observed"), "{privacy}");
    assert_eq!(
        privacy["observed"]["participation"]["gap"]
            .as_u64()
            .map(|gap| gap - 1),
        printed["min_sep"].as_u64()
    );
    let devices: u64 = printed["participations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(serde_json::Value::as_u64)
        .sum();
    assert_eq!(devices, 1500);
}

#[test]
fn a_sweep_shows_that_longer_timers_raise_min_sep() {
    let folder = folder();
    // A goal so low that the timer binds, not the population.
    folder.write(
        "timers.toml",
        SMALL
            .replace("report_goal = 40", "report_goal = 10")
            .replace("rounds = 60", "rounds = 400"),
    );
    let sweep = "simulate timers.toml --sweep timer_hours=24,72";
    let text = folder.succeed(format!("{sweep} --out sweep"));
    contains(
        &text,
        "timers.timer_hours ... rho promised ... epsilon observed ... max MinS",
    );
    let report = folder.json(sweep);
    let min_sep = |point: usize| {
        let simulation = &report["points"][point]["simulation"];
        simulation["min_sep"].as_u64().expect("a number")
    };
    assert!(min_sep(0) < min_sep(1), "{} {}", min_sep(0), min_sep(1));
    let svg = folder.text("sweep/sweep.svg");
    assert!(svg.contains("MinS over timers.timer_hours"));
    assert!(!folder.path("sweep/ledger.jsonl").exists());
}

#[test]
fn a_described_mechanism_or_none_is_simulated() {
    let folder = folder();
    folder.write(
        "blt.json",
        r#"{"kind":"blt","decay_complements":[0.1],"output_scales":[0.3]}"#,
    );
    let described = "mechanism={description='blt.json',noise_multiplier=5.0,delta=1e-6}";
    folder.show(
        format!("simulate timers.toml --set {described}"),
        "noise multiplier 5, delta 1e-6",
    );
    let bare = SMALL.split("[mechanism]").next().expect("a part");
    folder.write("bare.toml", bare);
    let text = folder.succeed("simulate bare.toml");
    assert!(text.contains("MaxP") && !text.contains("rho"), "{text}");
}

#[test]
fn bad_simulations_are_refused_by_key() {
    let folder = folder();
    folder.write("file", "");
    folder.refuses(
        "
        $ simulate absent.toml
        cannot read absent.toml
        $ simulate timers.toml --set timers.timer_hours=0
        `timers.timer_hours` ... from 1 to 8760 ... got 0
        $ simulate timers.toml --set timers.report_goal=2000
        `timers.report_goal` ... population of 1500 devices ... got 2000
        $ simulate timers.toml --set timers.zones=[{utc_offset_hours=0,share=-1}]
        `timers.zones[0].share` ... above 0 ... -1
        $ simulate timers.toml --set timers.goal=3
        unknown field `goal`
        $ simulate timers.toml --set mechanism.delta=2
        `mechanism.delta` ... (0, 1) ... 2
        $ simulate timers.toml --set mechanism={description='absent.json',delta=1e-6}
        cannot read ... absent.json
        $ simulate timers.toml --set timers.report_goal=1400
        `timers.report_goal` ... abandoned ... 100 simulated days
        $ simulate timers.toml --sweep timer_hours
        --sweep ... KEY=VALUE,...
        $ simulate timers.toml --sweep timer_hours=24,0
        --sweep ... `timers.timer_hours` ... got 0
        $ simulate timers.toml --out file/below
        cannot create file/below
        ",
    );
}
