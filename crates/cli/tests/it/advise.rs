//! `undertone advise`.

use crate::support::{Folder, TINY, contains};

const ASK: &str = "advise run.toml --epsilon 4 --delta 1e-4 --start-cohort 16 --probe-users 20";

#[test]
#[ignore = "slow"]
fn advice_is_shown_as_text_and_json() {
    let folder = Folder::with(TINY);
    let text = folder.succeed(format!("{ASK} --compute-budget 64"));
    contains(
        &text,
        "median user size ... epsilon 0.0999 ... tau_G ... tau_M ... recommended:  ... NOT private: the gradient norms ... asking again spends it again",
    );
    let json = |more: &str| folder.json(format!("{ASK} --compute-budget 64 {more}"));
    let seeded = json("--seed 1 --threads 1");
    assert_eq!(seeded, json("--seed 1 --threads 2"));
    assert_eq!(seeded["doubling"]["steps"].as_array().map(Vec::len), Some(2));
    assert_eq!(seeded["rounds"], 6);
    let given = json("--group-size 7 --proxy run.toml --rounds 9");
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
        $ ASK --compute-budget 64 --median-epsilon 4
        more than the 4 of the median, got 4
        $ ASK --compute-budget 64 --largest-group 2000000
        largest median
        ";
    folder.refuses(&transcript.replace("ASK", ASK));
}
