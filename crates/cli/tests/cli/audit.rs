//! `undertone audit`: plans, rehearsals, replays, and their exit status.

use crate::support::{Folder, TINY, contains, ftrl, json, number};

#[test]
fn a_plan_states_bounds_guesses_and_the_smallest_error() {
    let folder = Folder::new();
    let line = "audit plan --epsilon 4 --delta 1e-5 --canaries 1000";
    let plan = folder.json(line);
    // Simulated audits of another program: medians 1.6, 2.2 and 3.5.
    for (key, want) in [("any", 1.6), ("fdp", 2.2)] {
        let reach = &plan[key];
        assert!((number(&reach["epsilon"]) - want).abs() < 0.3, "{reach}");
        assert!(number(&reach["most"]) > number(&reach["epsilon"]));
        assert!(number(&reach["correct"]) <= number(&reach["guesses"]));
    }
    assert!((number(&plan["gaussian"]) - 3.5).abs() < 0.1, "{plan}");
    assert!((number(&plan["smallest_ratio"]) - 0.83).abs() < 0.01, "{plan}");
    folder.show(line, "never confirms the claim ... 95 %");
    folder.refuses(
        "
        $ audit plan --epsilon 4 --delta 2
        --delta
        $ audit plan --epsilon -1 --delta 1e-5
        --epsilon
        $ audit plan --epsilon 4 --delta 1e-5 --canaries 3
        canaries: expected a number in [10, 2^24], got 3
        $ audit plan --epsilon 4 --delta 1e-5 --confidence 1
        --confidence: expected a number in [0.5, 1), got 1
        ",
    );
}

#[test]
fn a_clean_rehearsal_exits_with_0_and_half_the_noise_with_3() {
    let folder = Folder::with(TINY);
    folder.write("schema.toml", ftrl("kind = \"blt\""));
    for file in ["run.toml", "schema.toml"] {
        let line = format!("audit canaries {file} --users 300 --canaries 300 --probes 64 --seed 2");
        let audit = folder.json(format!("{line} --out audit.json"));
        assert_eq!(audit, json(&folder.text("audit.json")));
        assert_eq!(audit["verdict"], "nothing contradicts the claim");
        let headline = &audit["canaries"][0];
        assert_eq!(headline["headline"], true);
        assert!(number(&headline["epsilon_lower"]) <= number(&audit["claim"]["epsilon"]));
        folder.show(
            &line,
            "95 % confidence ... does not show that no better attack exists",
        );
        let control = folder.run(format!("{line} --control"));
        assert_eq!(control.status.code(), Some(3), "{file}");
        contains(
            &String::from_utf8_lossy(&control.stderr),
            "the claim is contradicted",
        );
        let noise = folder.json(format!("audit noise {file} --users 300 --probes 64 --seed 2"));
        assert!(noise.get("canaries").is_none() && number(&noise["noise"]["smallest_p_holm"]) > 1e-3);
    }
}

#[test]
fn a_clean_replay_exits_with_0_and_its_differences_are_not_shown() {
    let folder = Folder::trained(TINY);
    let line = "audit replay runs/tiny --users 5";
    let audit = folder.json(format!("{line} --out audit.json"));
    assert_eq!(audit, json(&folder.text("audit.json")));
    assert_eq!(audit["verdict"], "nothing contradicts the claim");
    assert!(number(&audit["replay"]["pairs"]) > 0.0);
    for check in audit["replay"]["checks"].as_array().into_iter().flatten() {
        assert_eq!(check["failed"], 0, "{check}");
        let keys: Vec<&String> = check
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .collect();
        assert_eq!(keys, ["compared", "failed", "first_failure", "name", "property"]);
    }
    folder.show(line, "R1 ... holds in ... and of no others");
    folder.succeed("audit noise runs/tiny --seed 1 --probes 64");
}

#[test]
fn an_audit_that_cannot_run_exits_with_1_and_says_why() {
    let folder = Folder::with(TINY);
    let output = folder.run("audit noise run.toml");
    assert_eq!(output.status.code(), Some(1));
    folder.refuses(
        "
        $ audit noise run.toml
        --users: expected the number of users
        $ audit noise run.toml --users 300 --canaries 4
        expected at least 10 and at least 2, got 4 and 256
        $ audit noise run.toml --users 300 --canaries 99999999999
        --canaries: expected at most 536870912 values
        $ audit noise run.toml --users 300 --set aggregation={sum='plain',encoding={kind='rounding'}}
        error
        $ audit replay nowhere
        nowhere
        $ audit canaries run.toml --users 300 --level text
        invalid value
        ",
    );
}
