//! `undertone plan`.

use crate::support::Folder;

#[test]
fn a_plan_as_table_json_and_picture() {
    let folder = Folder::new();
    let question = [
        "plan",
        "--population",
        "4210000",
        "--rounds",
        "1900",
        "--epsilon",
        "5",
    ];
    let text = folder.succeed(&question);
    for word in [
        "At report goal 6500",
        "blt-1000",
        "not met at any report goal",
        "zero-out",
    ] {
        assert!(text.contains(word), "expected {word:?} in: {text}");
    }
    let json = folder.succeed(
        &[
            &question[..],
            &["--json", "--svg", "plan.svg", "--over", "rounds"],
        ]
        .concat(),
    );
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    // [Gboard] section 2.2: a gap of 647, so MinS 646; three participations have 34 squares.
    let tree = &json["at_report_goal"][0];
    assert_eq!(tree["mechanism"], "tree");
    assert_eq!(tree["min_sep"], 646);
    assert_eq!(tree["squared_sensitivity"], 34.0);
    assert_eq!(json["smallest_report_goal"][0]["option"], serde_json::Value::Null);
    let svg = String::from_utf8(folder.read("plan.svg")).expect("UTF-8");
    assert!(svg.contains("epsilon over rounds, 4210000 users, report goal 6500"));
}

#[test]
fn bad_input_is_named() {
    let folder = Folder::new();
    let check = |arguments: &str, words: &[&str]| {
        let line: Vec<&str> = ["plan"].into_iter().chain(arguments.split_whitespace()).collect();
        let message = folder.fail(&line);
        for word in words {
            assert!(message.contains(word), "expected {word:?} in: {message}");
        }
    };
    check(
        "--population 1000 --rounds 10 --rho 1",
        &["--report-goal", "got 6500 of a population of 1000"],
    );
    check(
        "--population 10000 --rounds 0 --rho 1",
        &["rounds: expected a whole number >= 1, got 0"],
    );
    check(
        "--population 10000 --rounds 10 --rho 0",
        &["target rho: expected a finite number > 0, got 0"],
    );
    check(
        "--population 10000 --rounds 10 --rho 1 --delta 1",
        &["delta: expected a number in (0, 1), got 1"],
    );
    check(
        "--population 10000 --rounds 10 --rho 1 --max-participation 0",
        &["max_participation", "got 0"],
    );
    check("--population 10000 --rounds 10", &["--epsilon", "--rho"]);
    check(
        "--population 10000 --rounds 10 --rho 1 --mechanism bandmf",
        &["tree, blt-100", "bandmf"],
    );
    check(
        "--population 10000 --rounds 10 --rho 1 --svg absent/plan.svg",
        &["writing absent/plan.svg"],
    );
}
