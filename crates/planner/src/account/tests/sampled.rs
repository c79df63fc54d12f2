//! The unit of `account sampled`, its epochs, and the warnings about delta.

use serde_json::Value;

use super::{answered, refused};

const EXAMPLES: &str =
    "sampled --examples 1900000 --batch 512 --epochs 20 --noise-multiplier 0.6 --delta 1e-6";

fn epsilon(value: &Value) -> String {
    format!("{:.4}", value["epsilon"].as_f64().expect("an epsilon"))
}

fn warnings(answer: &Value) -> Vec<&str> {
    let warnings = answer["warnings"].as_array().expect("warnings");
    warnings.iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_question_about_examples_has_an_answer_for_one_example_and_one_for_a_whole_user() {
    let (answer, text) = answered(&format!("{EXAMPLES} --max-examples-per-user 16 --no-lower-bound"));
    let (one, user) = (&answer, &answer["whole_user"]);
    assert_eq!(answer["unit"], "example");
    assert_eq!(answer["setting"]["rounds"], 74_219);
    let enough = |value: &Value, text: &str| {
        let epsilon = value["epsilon"].as_f64().expect("an epsilon");
        assert_eq!(
            undertone_present::numbers::upper_bound(epsilon),
            text,
            "{epsilon}"
        );
    };
    enough(one, "2.008");
    enough(user, "32.22");
    assert!(text.contains("add-or-remove one example"), "{text}");
    assert!(text.contains("for at most 16 examples per user"), "{text}");
    // The same epsilons by the questions about one of the two alone.
    let probability = 512.0 / 1_900_000.0;
    let bare = format!(
        "sampled --sampling-probability {probability:e} --rounds 74219 --noise-multiplier 0.6 --delta 1e-6 --no-lower-bound"
    );
    assert_eq!(
        answered(&format!("{bare} --unit example")).0["epsilon"],
        one["epsilon"]
    );
    assert_eq!(
        answered(&format!("{bare} --group-size 16")).0["epsilon"],
        user["epsilon"]
    );
    let (of_users, _) = answered(&format!(
        "{EXAMPLES} --group-size 16 --unit user --no-lower-bound"
    ));
    assert_eq!(
        (&of_users["unit"], &of_users["epsilon"]),
        (&"user".into(), &user["epsilon"])
    );
    assert_eq!(of_users["whole_user"], Value::Null);
}

#[test]
fn steps_are_rounded_up() {
    for (examples, batch, epochs, steps) in [
        (100, "10", "3", 30),
        (101, "10", "3", 31),
        (100, "10", "0.25", 3),
        (3, "3", "0.1", 1),
        (100, "7.5", "1", 14),
    ] {
        let question = format!(
            "sampled --examples {examples} --batch {batch} --epochs {epochs} --noise-multiplier 4 --delta 1e-6 --no-lower-bound"
        );
        assert_eq!(answered(&question).0["setting"]["rounds"], steps, "{question}");
    }
}

#[test]
fn a_bare_probability_has_a_unit_only_if_one_is_named() {
    let bare =
        "sampled --sampling-probability 0.01 --noise-multiplier 4 --rounds 10 --delta 1e-6 --no-lower-bound";
    let (answer, text) = answered(bare);
    assert_eq!(answer["unit"], "record");
    assert!(
        text.contains("add-or-remove one record that the sampling draws (--unit)"),
        "{text}"
    );
    assert!(
        warnings(&answer)[0].contains("give --unit user or --unit example"),
        "{answer}"
    );
    for unit in ["user", "example"] {
        let (named, text) = answered(&format!("{bare} --unit {unit}"));
        assert_eq!(named["unit"], unit);
        assert_eq!(epsilon(&named), epsilon(&answer));
        assert!(warnings(&named).is_empty(), "{named}");
        assert!(text.contains(&format!("add-or-remove one {unit}\n")), "{text}");
    }
    assert_eq!(answered(&format!("{bare} --group-size 8")).0["unit"], "user");
    let both = answered(&format!("{bare} --group-size 8 --unit example")).0;
    assert_eq!(both["whole_user"]["max_examples_per_user"], 8);
}

#[test]
fn a_delta_that_a_program_without_noise_meets_has_a_warning() {
    let users = "sampled --population 50000 --cohort 500 --noise-multiplier 4 --rounds 10 --no-lower-bound";
    let examples = "sampled --examples 50000 --batch 500 --noise-multiplier 4 --rounds 10 --no-lower-bound";
    for (question, unit) in [(users, "user"), (examples, "example")] {
        for delta in ["2e-5", "1e-3"] {
            let (answer, _) = answered(&format!("{question} --delta {delta}"));
            let expected = format!("delta = {delta} is not below 1 / 50000, one over the number of {unit}s");
            assert!(
                warnings(&answer)[0].contains(&expected.replace("1e-3", "0.001")),
                "{answer}"
            );
        }
        let (answer, _) = answered(&format!("{question} --delta 1e-6"));
        assert!(warnings(&answer).is_empty(), "{answer}");
    }
    // A delta that is found counts as one that is given.
    let (answer, _) = answered(&format!("{users} --epsilon 0.01"));
    assert_eq!(warnings(&answer).len(), 1, "{answer}");
}

#[test]
fn cohorts_of_fixed_size_have_a_note_on_their_noise_and_their_population() {
    let (answer, text) = answered("compose src/account/tests/texts/fixed-size.toml --delta 1e-3");
    assert!(
        text.contains("note: noise_multiplier of fixed-size-gaussian"),
        "{text}"
    );
    assert_eq!(answer["notes"].as_array().map(Vec::len), Some(1));
    assert!(warnings(&answer)[0].contains("1 / 50000"), "{answer}");
}

#[test]
fn options_about_the_unit_that_contradict_each_other_are_refused() {
    let rest = "--noise-multiplier 4 --delta 1e-6";
    for (options, expected) in [
        (
            "--population 100 --cohort 10 --rounds 2 --unit example",
            "--unit: expected user",
        ),
        (
            "--population 100 --cohort 10 --rounds 2 --group-size 2",
            "--group-size and --population",
        ),
        (
            "--examples 100 --batch 10 --rounds 2 --unit user",
            "--max-examples-per-user",
        ),
        (
            "--examples 100 --batch 200 --rounds 2",
            "--batch: expected a number of examples in (0, 100], got 200",
        ),
        (
            "--examples 100 --batch 0 --epochs 2",
            "--batch: expected a number of examples in (0, 100], got 0",
        ),
        (
            "--examples 100 --batch 10 --epochs -1",
            "--epochs: expected a finite number above 0, got -1",
        ),
        ("--examples 100 --batch 10 --epochs 2 --rounds 2", "--epochs"),
        ("--examples 100 --rounds 2", "--batch"),
        (
            "--examples 100 --batch 10 --sampling-probability 0.1 --rounds 2",
            "--sampling-probability",
        ),
        ("--sampling-probability 0.1 --epochs 2", "--epochs"),
        (
            "--sampling-probability 0.1 --rounds 2 --statement",
            "--statement: expected --unit",
        ),
        ("--sampling-probability 0.1 --rounds 2 --unit person", "person"),
    ] {
        let error = refused(&format!("sampled {options} {rest}"));
        assert!(error.contains(expected), "{options}: {error}");
    }
    let error = refused(
        "sampled --examples 100 --batch 10 --epochs 2 --noise-multiplier 4 --epsilon 1 --delta 1e-6 --calibrate rounds",
    );
    assert!(error.contains("leave out --epochs"), "{error}");
}
