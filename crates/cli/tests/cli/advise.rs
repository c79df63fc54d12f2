//! `undertone advise`.

use crate::support::{Folder, TINY};

const ASK: [&str; 12] = [
    "advise",
    "run.toml",
    "--compute-budget",
    "64",
    "--epsilon",
    "4",
    "--delta",
    "1e-4",
    "--start-cohort",
    "16",
    "--probe-users",
    "20",
];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    folder
}

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ASK.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn advice_as_text_and_json() {
    let folder = folder();
    let text = folder.succeed(&with(&[]));
    for words in [
        "median user size",
        "epsilon 0.0999",
        "tau_G",
        "tau_M",
        "recommended: ",
        "NOT private: the gradient norms",
        "asking again spends it again",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = |more: &[&str]| -> serde_json::Value {
        let text = folder.succeed(&with(more));
        serde_json::from_str(&text).expect("JSON")
    };
    let seeded = json(&["--json", "--seed", "1", "--threads", "1"]);
    assert_eq!(seeded, json(&["--json", "--seed", "1", "--threads", "2"]));
    assert_eq!(seeded["doubling"]["steps"].as_array().map(Vec::len), Some(2));
    assert_eq!(seeded["rounds"], 6);
    let given = json(&[
        "--json",
        "--group-size",
        "7",
        "--proxy",
        "run.toml",
        "--rounds",
        "9",
    ]);
    assert_eq!(
        (&given["els"]["group_size"], &given["rounds"]),
        (&7.into(), &9.into())
    );
    assert!(given["median"].is_null() && given["probed_proxy"] == true);
    assert_eq!(given["training_epsilon"], 4.0);
}

#[test]
fn budgets_that_do_not_fit() {
    let folder = folder();
    let mut asked = ASK;
    asked[3] = "100";
    let error = folder.fail(&asked);
    assert!(
        error.contains("expected group size 1 times cohort size 16 times a power of two, got 100"),
        "{error}"
    );
    let error = folder.fail(&with(&["--median-epsilon", "4"]));
    assert!(error.contains("more than the 4 of the median, got 4"), "{error}");
    let error = folder.fail(&with(&["--largest-group", "2000000"]));
    assert!(error.contains("largest median"), "{error}");
}
