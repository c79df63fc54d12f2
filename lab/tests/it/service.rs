//! The benchmark of the service, in sizes that take seconds.

use crate::support::Folder;

/// The lines `RESULT {json}` of an output.
fn results(output: &str) -> Vec<serde_json::Value> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("RESULT "))
        .map(|line| serde_json::from_str(line).expect("one JSON document per line"))
        .collect()
}

fn bench<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let small = [
        "bench",
        "service",
        "--devices",
        "200",
        "--parameters",
        "2000",
        "--connections",
        "2",
        "--callers",
        "4",
        "--seconds",
        "0.1",
        "--folder",
        ".",
    ];
    small.into_iter().chain(more.iter().copied()).collect()
}

#[test]
#[ignore = "slow"]
fn every_item_of_the_service_is_measured_beside_its_limit() {
    let folder = Folder::new();
    let lines = results(&folder.succeed(&bench(&[])));
    for item in [
        "board",
        "checkin",
        "assign",
        "assign-room",
        "upload",
        "upload-tls",
        "cohort",
        "secagg",
        "secagg-server",
        "secagg-clients",
        "release",
        "commit",
        "training",
        "restart",
    ] {
        let found = lines.iter().find(|line| line["item"] == item);
        let line = found.unwrap_or_else(|| panic!("no line of {item}: {lines:#?}"));
        for field in ["figure", "limit", "of_limit"] {
            let number = line[field].as_f64().unwrap_or_else(|| panic!("{field}: {line}"));
            assert!(number >= 0.0 && number.is_finite(), "{field}: {line}");
        }
    }
    // The memory of the server at three sizes, and their spread.
    assert_eq!(lines.iter().filter(|line| line["item"] == "cohort").count(), 3);
    if cfg!(target_os = "linux") {
        assert_eq!(lines.iter().filter(|line| line["item"] == "memory").count(), 3);
    }
    let machines = lines.iter().filter(|line| line["item"] == "machine").count();
    assert_eq!(machines, 1, "the conditions are printed once");
    assert!(folder.is_empty(), "a server left its data behind");
}

#[test]
#[ignore = "slow"]
fn one_item_runs_alone_and_an_item_that_lacks_memory_says_so() {
    let folder = Folder::new();
    let lines = results(&folder.succeed(&bench(&["--only", "commit"])));
    let items: Vec<&str> = lines
        .iter()
        .map(|line| line["item"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(items, ["machine", "commit", "item"]);
    if cfg!(target_os = "linux") {
        let large = [
            "bench",
            "service",
            "--only",
            "cohort",
            "--parameters",
            "1000000000",
            "--connections",
            "256",
        ];
        let error = folder.fail(&large);
        assert!(
            error.contains("measuring cohort: this needs") && error.contains("--parameters"),
            "{error}"
        );
    }
}
