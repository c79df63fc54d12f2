//! `undertone plan`.

use crate::support::{Folder, TINY, contains, number, over, with_algorithm};

#[test]
fn a_plan_as_table_json_and_picture() {
    let folder = Folder::new();
    let question = "plan --population 4210000 --rounds 1900 --epsilon 5";
    let text = folder.succeed(question);
    contains(
        &text,
        "At report goal 6500 ... blt-1000 ... not met at any report goal ... zero-out",
    );
    let json = folder.json(format!("{question} --svg plan.svg --over rounds"));
    // [Gboard] section 2.2: a gap of 647, so MinS 646; three participations have 34 squares.
    let tree = &json["at_report_goal"][0];
    assert_eq!(tree["mechanism"], "tree");
    assert_eq!(tree["min_sep"], 646);
    assert_eq!(tree["squared_sensitivity"], 34.0);
    assert_eq!(json["smallest_report_goal"][0]["option"], serde_json::Value::Null);
    let svg = folder.text("plan.svg");
    assert!(svg.contains("epsilon over rounds, 4210000 users, report goal 6500"));
}

#[test]
fn a_picture_names_its_target_and_every_mechanism() {
    let folder = Folder::new();
    for (target, title) in [
        (
            "--epsilon 8",
            "epsilon over report goals, 1000000 users, 300 rounds",
        ),
        (
            "--rho 0.5 --over rounds",
            "rho over rounds, 1000000 users, report goal 2000",
        ),
    ] {
        let line = "plan --population 1000000 --rounds 300 --report-goal 2000 --svg plan.svg";
        folder.succeed(format!("{line} {target}"));
        let svg = folder.text("plan.svg");
        contains(&svg, title);
        contains(
            &svg,
            "tree ... blt-100 ... blt-400 ... blt-1000 ... independent ... target",
        );
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.matches("<polyline").count() >= 5);
    }
}

#[test]
fn a_row_says_whether_its_mechanism_meets_the_target() {
    let folder = Folder::new();
    let line = "plan --population 4210000 --rounds 1280 --epsilon 5 --mechanism tree,independent";
    let text = folder.succeed(line);
    let (at_goal, smallest) = text.split_once("Smallest report goal").expect("a second table");
    // Mechanism, report goal, noise multiplier, MinS, MaxP, rho, epsilon, target.
    let row = |table: &str, name: &str| -> Option<Vec<String>> {
        let mut rows = table
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect());
        rows.find(|row: &Vec<String>| row.first().is_some_and(|first| first == name))
    };
    for (name, start, target) in [
        ("tree", ["tree", "6500", "7", "646", "2"], "met"),
        (
            "independent",
            ["independent", "6500", "0.4712", "646", "2"],
            "missed",
        ),
    ] {
        let row = row(at_goal, name).expect(name);
        assert_eq!(
            (&row[..5], row[7].as_str()),
            (&start.map(str::to_owned)[..], target)
        );
        let epsilon: f64 = row[6].parse().expect("epsilon");
        assert_eq!(epsilon <= 5.0, target == "met", "{row:?}");
    }
    assert_eq!(row(smallest, "tree").expect("a row")[7], "met");
    assert_eq!(row(smallest, "independent"), None);
    contains(smallest, "not met at any report goal up to 6500 by: independent.");
    assert!(!text.contains("blt"), "{text}");
}

#[test]
fn what_was_lowered_and_what_is_missed_is_said() {
    Folder::new().show(
        "plan --population 65000 --rounds 100 --rho 0.001 --max-participation 40",
        "note: max participation lowered from 40 to 10: no more fit into 100 rounds ... \
         not met at any report goal up to 6500 by: tree",
    );
}

#[test]
fn matrices_made_for_the_question_meet_its_target() {
    let folder = Folder::new();
    let question = "plan --population 100000 --rounds 60 --rho 0.5 --report-goal 6500 \
                    --kinds tree,blt,tree-restarts,independent --restarts 16,16 --buffers 2";
    let text = folder.succeed(question);
    contains(
        &text,
        "Matrices optimised for this run ... Least noise at equal guarantee: blt ... tree-restarts ... Report goals that meet the target and keep utility:",
    );
    // Without --mechanism, production runs are left out.
    assert!(!text.contains("blt-400"), "{text}");
    let json = folder.json(format!("{question} --mechanism tree --svg plan.svg"));
    let candidates = json["made"]["candidates"].as_array().expect("candidates");
    let noise: Vec<f64> = candidates
        .iter()
        .map(|row| number(&row["at_report_goal"]["at_target"]["iterate_noise"]))
        .collect();
    assert!(noise.len() == 4 && noise.is_sorted(), "{noise:?}");
    for row in candidates {
        let option = &row["at_report_goal"];
        // floor(100000 / 6500) = 15, so MinS is 14 and four participations fit.
        assert_eq!(option["min_sep"], 14);
        assert_eq!(option["participation"]["participation"]["max_participation"], 4);
        let (rho, squared, noise) = (
            number(&option["at_target"]["rho"]),
            number(&option["sensitivity"]["squared"]),
            number(&option["at_target"]["noise_multiplier"]),
        );
        assert!(rho <= 0.5 && rho > 0.499_999, "{rho}");
        assert!((squared / (2.0 * noise * noise) - rho).abs() < 1e-12);
    }
    assert_eq!(json["made"]["least_noise"]["candidate"], "blt");
    // The tree that keeps utility is the production tree: both plans agree on it.
    let tree = candidates
        .iter()
        .find(|row| row["candidate"] == "tree")
        .expect("a tree");
    let (ours, theirs) = (
        number(&tree["at_report_goal"]["at_utility"]["rho"]),
        number(&json["at_report_goal"][0]["rho"]),
    );
    assert!((ours / theirs - 1.0).abs() < 1e-12, "{ours} {theirs}");
    let svg = folder.text("plan.svg");
    assert!(svg.contains("Noise at the target over report goals, 100000 users, 60 rounds"));
    let over_rounds = "--over rounds --svg rounds.svg --objective max --momentum 0.9";
    let text = folder.succeed(format!("{question} {over_rounds}"));
    contains(&text, "in the worst iterate, momentum 0.9");
    let svg = folder.text("rounds.svg");
    assert!(svg.contains("keeps utility") && svg.contains("tree-restarts"));
}

#[test]
fn a_smaller_report_goal_can_leave_less_noise() {
    let folder = Folder::new();
    let line = "plan --population 10000 --rounds 20 --rho 0.5 --report-goal 520 --kinds tree";
    let json = folder.json(line);
    // 10000 users last for 20 rounds of 500 clients, and for 19 of 520: one of them comes back.
    let row = &json["made"]["candidates"][0];
    assert_eq!(row["best"]["report_goal"], 500);
    assert_eq!(json["made"]["least_noise"]["report_goal"], 500);
    let noise = |option: &str| number(&row[option]["at_target"]["iterate_noise"]);
    assert!(noise("best") < noise("at_report_goal"));
}

#[test]
fn bad_plans_are_refused_by_option() {
    let transcript = "
        $ plan --population 1000 --rounds 10 --rho 1
        --report-goal ... got 6500 of a population of 1000
        $ PLAN --rounds 0 --rho 1
        rounds: expected a whole number >= 1, got 0
        $ PLAN --rounds 10 --rho 0
        target rho: expected a finite number > 0, got 0
        $ PLAN --rounds 10 --rho 1 --delta 1
        delta: expected a number in (0, 1), got 1
        $ PLAN --rounds 10 --rho 1 --epsilon 1
        cannot be used with
        $ PLAN --rounds 10 --rho 1 --separation-share 2
        separation_share
        $ PLAN --rounds 10 --rho 1 --max-participation 0
        max_participation ... got 0
        $ PLAN --rounds 10
        --epsilon ... --rho
        $ PLAN --rounds 10 --rho 1 --mechanism bandmf
        expected one of tree, blt-100 ... bandmf
        $ PLAN --rounds 10 --rho 1 --kinds maybe
        --kinds ... independent, tree, tree-full, blt ... tree-restarts ... 'maybe'
        $ PLAN --rounds 10 --rho 1 --kinds tree --buffers 2
        --buffers needs a kind with buffers, blt
        $ PLAN --rounds 10 --rho 1 --kinds blt --bands 2
        --bands needs a banded kind
        $ PLAN --rounds 10 --rho 1 --kinds banded-toeplitz --bands 0
        --kinds banded-toeplitz ... bands must be at least 1, got 0
        $ PLAN --rounds 10 --rho 1 --kinds blt --restarts 1,2
        --restarts needs tree-restarts
        $ PLAN --rounds 10 --rho 1 --kinds tree-restarts --restarts 8
        --restarts: expected two whole numbers of at least 1, got 8
        $ PLAN --rounds 10 --rho 1 --kinds tree-restarts --restarts 8,0
        --restarts ... got 8,0
        $ PLAN --rounds 10 --rho 1 --kinds tree --momentum 1
        --momentum ... momentum
        $ PLAN --rounds 5000 --rho 1 --kinds dense
        --kinds dense ... at most 4096 ... 5000
        $ PLAN --rounds 10 --rho 1 --momentum 0.5
        --kinds
        $ PLAN --rounds 10 --rho 1 --svg absent/plan.svg
        cannot write absent/plan.svg
        ";
    Folder::new().refuses(&transcript.replace("PLAN", "plan --population 10000"));
}

/// A run file plans for a number of users as the run plans that counts as many.
#[test]
#[ignore = "slow"]
fn the_plan_of_a_run_file_is_the_plan_of_its_run() {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    let summary = folder.json("train run.toml");
    let planned = &summary["privacy"]["planned"];
    let users = &planned["population"];
    let plan = folder.json(format!("plan run.toml --population {users}"));
    assert_eq!(&plan["guarantee"], planned);
    assert!(
        number(&plan["parameters"]) > 0.0 && number(&plan["reach"]) > 0.0,
        "{plan}"
    );
    assert_eq!(plan["open"], serde_json::json!([]));
    folder.show(
        format!("plan run.toml --population {users} --set rounds=12"),
        "rounds ... 12 ... users ... as declared ... cohort ... poisson ... noise multiplier ... planned ... (eps =",
    );
    folder.show(
        "plan run.toml",
        "rounds ... 6 ... open ... The number of users to train on is not in a run file: give it as --population",
    );
}

#[test]
fn the_plan_of_a_run_file_opens_no_text_and_names_what_is_missing() {
    let folder = Folder::new();
    let source = "{ kind = \"jsonl\", path = \"nowhere.jsonl\" }\nvocabulary = { kind = \"file\", path = \"words.txt\" }";
    folder.write("run.toml", over(source));
    folder.write("words.txt", "the\nof\n");
    folder.show(
        "plan run.toml --population 100",
        "users ... 100 to train on, as declared ... planned ... (eps =",
    );
    let els =
        with_algorithm(TINY, "els").replace("learning_rate = 1.0\nmax_examples = 8\n", "group_size = 4\n");
    folder.write("els.toml", els);
    folder.show(
        "plan els.toml --population 90 --examples 300",
        "each example with probability 0.2 ... planned ... (eps =",
    );
    folder.show(
        "plan els.toml --population 90",
        "open ... The number of examples that users keep ... --examples",
    );
    folder.refuses(
        "
        $ plan run.toml --population 100 --rounds 5
        --rounds
        $ plan run.toml --population 100 --examples 400
        --examples: expected a run file with `user_update.algorithm` = \"els\"
        $ plan run.toml --population 3
        cohort
        $ plan --set rounds=5
        --set
        $ plan --population 100
        --epsilon or --rho: expected the target of the plan, got none
        $ plan nowhere.toml --population 100
        nowhere.toml
        ",
    );
}
