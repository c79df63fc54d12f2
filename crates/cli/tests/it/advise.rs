//! `undertone advise`.

use crate::support::{Folder, TINY, contains, number};

const QUESTION: &str = "advise run.toml --epsilon 4 --delta 1e-4 --start-cohort 16 --probe-users 20";
const ASK: &str =
    "advise run.toml --epsilon 4 --delta 1e-4 --start-cohort 16 --probe-users 20 --median-epsilon 0.1";

#[test]
#[ignore = "slow"]
fn advice_is_shown_as_text_and_json() {
    let folder = Folder::with(TINY);
    let text = folder.succeed(format!("{ASK} --compute-budget 64"));
    contains(
        &text,
        "median user size ... epsilon 0.1, delta 0 ... tau_G ... tau_M ... recommended:  ... NOT private: the gradient norms ... asking again spends it again ... group_size = ... [privacy]\nnoise_multiplier = ",
    );
    let json = |more: &str| folder.json(format!("{ASK} --compute-budget 64 {more}"));
    let seeded = json("--seed 1 --threads 1");
    assert_eq!(seeded, json("--seed 1 --threads 2"));
    assert_eq!(seeded["doubling"]["steps"].as_array().map(Vec::len), Some(2));
    assert_eq!(seeded["rounds"], 6);
    let given = folder.json(format!(
        "{QUESTION} --compute-budget 64 --group-size 7 --proxy run.toml --rounds 9"
    ));
    assert_eq!(
        (&given["els"]["group_size"], &given["rounds"]),
        (&7.into(), &9.into())
    );
    assert!(given["median"].is_null() && given["probed_proxy"] == true);
    assert_eq!(given["training_epsilon"], 4.0);
}

#[test]
fn budgets_that_do_not_fit_are_refused() {
    let folder = Folder::with(TINY);
    let transcript = "
        $ ASK --compute-budget 100
        expected group size 1 times cohort size 16 times a power of two, got 100
        $ QUESTION --compute-budget 64
        expected --group-size NUMBER ... it spends nothing), or --median-epsilon EPSILON (for example 0.1; each call spends
        $ QUESTION --compute-budget 64 --median-epsilon 4
        more than the 4 of the median, got 4
        $ ASK --compute-budget 64 --largest-group 2000000
        largest median
        ";
    folder.refuses(&transcript.replace("ASK", ASK).replace("QUESTION", QUESTION));
}

#[test]
#[ignore = "slow"]
fn the_keys_of_an_advice_make_a_run_within_its_epsilon() {
    let folder = Folder::with(TINY);
    let text = folder.succeed(format!("{QUESTION} --compute-budget 64 --group-size 7"));
    let (_, keys) = text.split_once("for the recommendation:\n\n").expect("keys");
    let (_, model) = TINY.split_once("[data]").expect("data");
    let (model, _) = model.split_once("[cohort]").expect("a cohort");
    folder.write("run.toml", format!("name = \"tiny\"\n{keys}\n[data]{model}"));
    let planned = &folder.json("train run.toml")["privacy"]["planned"];
    let epsilon = number(&planned["epsilon"]);
    assert!((3.9..=4.0).contains(&epsilon), "{planned}");
}
