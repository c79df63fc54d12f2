//! `undertone-lab binomial`: the theorem and the exact value against reference numbers.

use serde_json::Value;

use crate::support::Folder;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn json(line: &str) -> Value {
    let text = Folder::new().succeed(&[&["--json"][..], &words(line)].concat());
    serde_json::from_str(&text).expect("JSON")
}

fn close(value: &Value, expected: f64, tolerance: f64) {
    let value = value.as_f64().expect("a number");
    assert!(
        (value - expected).abs() <= tolerance * expected,
        "{value} is not {expected}"
    );
}

#[test]
fn binomial_answers_by_theorem_and_exactly() {
    let answer = json("binomial --trials 2000 --l1 1 --delta 1e-6");
    close(&answer["epsilon_theorem"], 0.637_513_410_643_578, 1e-9);
    close(&answer["epsilon_exact"], 0.168_253_358_679_362_2, 1e-8);
    // Too little variance for the theorem; the exact value stands.
    let answer = json("binomial --trials 100 --l1 1 --delta 1e-5");
    assert_eq!(answer["epsilon_theorem"], Value::Null);
    close(&answer["epsilon_exact"], 0.752_737_848_746_517_6, 1e-8);
    let message = Folder::new().fail(&words(
        "binomial --dimension 10 --trials 100 --l1 3 --l2 1 --l-inf 1 --delta 1e-5",
    ));
    for word in ["Theorem 1", "N p (1 - p)"] {
        assert!(message.contains(word), "{message}");
    }
    let found = json("binomial --epsilon 0.6375135 --l1 1 --delta 1e-6");
    assert_eq!(found["trials"], 2000);
}
