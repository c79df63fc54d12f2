//! `undertone account`: every answer names what it holds for, printed numbers come out, bad input is named.

use serde_json::Value;

use crate::support::{Folder, close, contains, number};

fn json(line: impl AsRef<str>) -> Value {
    Folder::new().json(format!("account {}", line.as_ref()))
}

fn text(line: impl AsRef<str>) -> String {
    Folder::new().succeed(format!("account {}", line.as_ref()))
}

#[test]
#[ignore = "slow"]
fn an_answer_names_what_it_holds_for() {
    let poisson = "sampled --population 763430 --cohort 5000 --noise-multiplier 1 --rounds 5000 --delta 1e-9";
    let shown = text(poisson);
    contains(
        &shown,
        "epsilon ... upper bound; the true value is at least ... add-or-remove one user ... Poisson: every user joins every round independently ... PLD upper bound ... sampling probability",
    );
    let answer = json(poisson);
    let (lower, upper) = (number(&answer["epsilon_lower_bound"]), number(&answer["epsilon"]));
    assert!(0.0 < lower && lower <= upper && upper < lower * 1.001, "{answer}");
    assert_eq!(answer["adjacency"], "add-or-remove-one");
    assert_eq!(answer["sampling"], "poisson");
    assert_eq!(answer["recipe"], "pld");
    close(
        &answer["setting"]["sampling_probability"],
        5000.0 / 763_430.0,
        1e-12,
    );
}

#[test]
#[ignore = "slow"]
fn recipes_are_ordered_and_printed_numbers_come_out() {
    let epsilon = |recipe: &str| {
        let line =
            "sampled --population 763430 --cohort 5000 --noise-multiplier 1 --rounds 5000 --delta 1e-9";
        number(&json(format!("{line} --recipe {recipe}"))["epsilon"])
    };
    let (pld, rdp, moments) = (epsilon("pld"), epsilon("rdp"), epsilon("moments-2016"));
    assert!(pld < rdp && rdp < moments, "{pld} {rdp} {moments}");
    assert_eq!(format!("{moments:.3}"), "4.634"); // [DPLM] Table 2
    // The exact Gaussian and its loss distribution, and the conversion that holds for any mechanism of its rho.
    let gaussian = |recipe: &str| {
        let line = format!("gaussian --noise-multiplier 2 --delta 1e-6 --recipe {recipe}");
        number(&json(line)["epsilon"])
    };
    let (exact, pld, zcdp) = (gaussian("gaussian"), gaussian("pld"), gaussian("zcdp"));
    assert!(
        exact <= pld * (1.0 + 1e-9) && pld < exact * (1.0 + 1e-5) && pld < zcdp,
        "{exact} {pld} {zcdp}"
    );
}

#[test]
fn production_runs_have_their_published_guarantees() {
    // [Gboard] Table 1, de-DE.
    let tree = "ftrl --mechanism tree --rounds 930 --rounds-between 212 --max-participation 4 --noise-multiplier 7 \
                --delta 1e-10";
    let answer = json(tree);
    close(&answer["setting"]["squared_sensitivity"], 47.0, 0.0);
    close(&answer["setting"]["rho"], 47.0 / 98.0, 1e-12);
    close(&answer["epsilon"], 6.400_009_602_276_592, 1e-9);
    assert_eq!(answer["adjacency"], "zero-out");
    // The same separation as a distance.
    let gap = tree.replace("--rounds-between 212", "--gap 213");
    assert_eq!(json(&gap)["epsilon"], answer["epsilon"]);
    // [BLT] Table 4, id-ID, which prints 3.93.
    let blt = "ftrl --mechanism blt --coefficients blt-400 --rounds 2350 --rounds-between 447 --max-participation 5 \
               --noise-multiplier 7.379 --delta 1e-10";
    close(&json(blt)["epsilon"], 3.929_212_098_053_503, 1e-9);
}

#[test]
fn coefficients_come_from_files() {
    let folder = Folder::new();
    folder.write("prefix.txt", "1, 1, 1 1\n");
    folder.write("buffers.toml", "theta = [0.9]\nomega = [0.5]\n");
    let ask = |line: &str| folder.json(format!("account ftrl {line}"));
    let answer = ask(
        "--mechanism toeplitz --coefficients prefix.txt --rounds 4 --gap 2 --noise-multiplier 1 --delta 1e-5",
    );
    close(&answer["setting"]["squared_sensitivity"], 10.0, 1e-12);
    let answer = ask(
        "--mechanism blt --coefficients buffers.toml --rounds 2 --max-participation 1 --noise-multiplier 1 --delta 1e-5",
    );
    close(&answer["setting"]["squared_sensitivity"], 1.25, 1e-12);
    folder.write("rising.txt", "1 2 3");
    let line = "account ftrl --mechanism toeplitz --coefficients rising.txt --rounds 3 --gap 1";
    folder.refuse(
        format!("{line} --noise-multiplier 1 --delta 1e-5"),
        "--coefficients ... position 1",
    );
}

#[test]
fn what_does_not_fit_is_lowered_and_said() {
    let tree = "ftrl --mechanism tree --rounds 930 --rounds-between 212 --max-participation 9 --noise-multiplier 7 \
                --delta 1e-10";
    let shown = text(tree);
    contains(&shown, "warning: max participation lowered from 9 to 5");
    // Without a limit of its own there is nothing to lower.
    let unlimited = tree.replace(" --max-participation 9", "");
    let answer = json(&unlimited);
    assert_eq!(answer["warnings"], Value::Array(Vec::new()), "{answer}");
    close(&answer["setting"]["max_participation"], 5.0, 0.0);
}

#[test]
fn restarts_cost_more_than_one_tree() {
    let squared = |extra: &str| {
        let arguments = format!(
            "ftrl --mechanism tree --rounds 2176 --max-participation 1 --noise-multiplier 7 --delta 1e-10 {extra}"
        );
        number(&json(&arguments)["setting"]["squared_sensitivity"])
    };
    // One participation lies in one tree.
    assert_eq!(squared(""), 12.0);
    assert_eq!(squared("--first-restart 128 --restart-every 1024"), 11.0);
}

#[test]
fn example_level_sampling_lies_between_one_example_and_group_privacy() {
    let of_examples = |examples: u32| {
        let arguments = format!(
            "sampled --group-size {examples} --sampling-probability 0.01 --noise-multiplier 4 --rounds 2000 --delta 1e-6"
        );
        number(&json(&arguments)["epsilon"])
    };
    let one = of_examples(1);
    let users = "sampled --sampling-probability 0.01 --noise-multiplier 4 --rounds 2000 --delta 1e-6";
    close(&json(users)["epsilon"], one, 1e-5);
    let eight = of_examples(8);
    assert!(one < eight && eight < 16.0 * one, "{one} {eight}");
    assert!((eight - 4.4437).abs() < 1e-3, "{eight}"); // an independent loss distribution
}

#[test]
fn converting_epsilon_inverts_converting_rho() {
    let answer = json("convert --rho 1.86 --delta 1e-10");
    close(&answer["epsilon_gaussian_exact"], 13.688_307_591_393_851, 1e-9);
    close(&answer["epsilon"], 14.262_707_842_468_554, 1e-8);
    let back = json("convert --epsilon 13.688307591393852 --delta 1e-10");
    close(&back["rho_gaussian_exact"], 1.86, 1e-9);
    assert!(number(&back["rho"]) < 1.86, "{back}");
    let back = json("convert --epsilon 14.262707842468556 --delta 1e-10");
    close(&back["rho"], 1.86, 1e-6);
}

#[test]
#[ignore = "slow"]
fn calibration_holds_the_target() {
    let poisson = "sampled --sampling-probability 0.01 --rounds 1000 --epsilon 2 --delta 1e-6 --calibrate noise-multiplier";
    let answer = json(format!("{poisson} --recipe rdp"));
    close(&answer["setting"]["noise_multiplier"], 1.093_872, 1e-5);
    assert!(number(&answer["epsilon"]) <= 2.0);
    assert_eq!(answer["calibrated"], "noise_multiplier");
    let tight = json(poisson);
    assert!(
        number(&tight["setting"]["noise_multiplier"]) < number(&answer["setting"]["noise_multiplier"]),
        "{tight}"
    );
    let shown = text(poisson);
    contains(&shown, "(found for the target)");

    let rounds = "sampled --sampling-probability 0.01 --noise-multiplier 1.1 --epsilon 2 --delta 1e-6 --calibrate rounds";
    let answer = json(rounds);
    let found = answer["setting"]["rounds"].as_u64().expect("rounds");
    assert!(number(&answer["epsilon"]) <= 2.0 && found > 1000, "{answer}");
    let one_more = format!(
        "sampled --sampling-probability 0.01 --noise-multiplier 1.1 --delta 1e-6 --rounds {}",
        found + 1
    );
    assert!(number(&json(&one_more)["epsilon"]) > 2.0);

    let probability = "sampled --noise-multiplier 1 --rounds 1000 --epsilon 2 --delta 1e-6 --calibrate sampling-probability --recipe rdp";
    let answer = json(probability);
    let found = number(&answer["setting"]["sampling_probability"]);
    assert!(number(&answer["epsilon"]) <= 2.0 && found > 0.005, "{answer}");

    let tree = "ftrl --mechanism tree --rounds 930 --rounds-between 212 --max-participation 4 --epsilon 6.4 --delta 1e-10";
    let answer = json(format!("{tree} --calibrate noise-multiplier"));
    close(&answer["setting"]["noise_multiplier"], 7.0, 1e-4);
    assert!(number(&answer["epsilon"]) <= 6.4);
    let longest = tree.replace("--rounds 930", "--noise-multiplier 7") + " --calibrate rounds";
    let answer = json(&longest);
    assert!(number(&answer["epsilon"]) <= 6.4, "{answer}");
}

#[test]
#[ignore = "slow"]
fn tables_show_epsilon_over_rounds() {
    let poisson =
        "sampled --sampling-probability 0.01 --noise-multiplier 1.1 --rounds 500 --delta 1e-6 --table";
    let answer = json(poisson);
    let table = answer["table"].as_array().expect("a table");
    let rounds: Vec<u64> = table
        .iter()
        .map(|line| line["rounds"].as_u64().unwrap())
        .collect();
    assert_eq!(rounds, [1, 10, 100, 500]);
    assert_eq!(table[3]["epsilon"], answer["epsilon"]);
    assert!(
        table
            .windows(2)
            .all(|pair| number(&pair[0]["epsilon"]) < number(&pair[1]["epsilon"]))
    );
    let listed = json(format!("{poisson}=50,200"));
    assert_eq!(listed["table"].as_array().map(Vec::len), Some(2));
    let shown = text(format!("{poisson}=50,200"));
    contains(&shown, "rounds ... lower bound");
}

#[test]
#[ignore = "slow"]
fn a_file_of_events_is_composed_and_bad_events_are_refused() {
    let folder = Folder::new();
    let event = |q: f64, z: f64| {
        format!(
            "[[event]]\nkind = \"poisson-gaussian\"\nsampling_probability = {q}\nnoise_multiplier = {z}\ncount = 500\n"
        )
    };
    folder.write("run.toml", event(0.01, 1.0) + &event(0.02, 1.5));
    let ask = |extra: &str| folder.json(format!("account compose run.toml --delta 1e-6 {extra}"));
    let epsilon = number(&ask("")["epsilon"]);
    assert!((epsilon - 2.184_08).abs() < 1e-3, "{epsilon}"); // dp-accounting, on a grid of 1e-4
    close(&ask("--recipe rdp")["epsilon"], 2.473_121_860_280_633, 1e-9);

    // The smallest answer of all valid recipes, and no lower bound above an upper one.
    folder.write(
        "run.toml",
        "[[event]]\nkind = \"bounded-range\"\nepsilon = 0.0148\ncount = 289\n",
    );
    let (best, pld) = (ask(""), ask("--recipe pld"));
    assert_eq!(best["recipe"], "rdp");
    assert!(number(&best["epsilon"]) < 0.95 * number(&pld["epsilon"]));
    assert!(number(&pld["epsilon_lower_bound"]) <= number(&best["epsilon"]));
    let sampled = event(0.01, 1.0) + "[[event]]\nkind = \"zero-concentrated\"\nrho = 0.1\n";
    folder.write("run.toml", sampled);
    assert_eq!(ask("")["recipe"], "rdp");

    let bad = |file: String, parts: &str| {
        folder.write("bad.toml", file);
        let message = folder.fail("account compose bad.toml --delta 1e-6");
        contains(&message, "bad.toml");
        contains(&message, parts);
    };
    let good = event(0.5, 1.0);
    bad(String::new(), "[[event]]");
    bad("event = []".to_owned(), "at least one");
    bad(
        event(1.5, 1.0),
        "event 1 ... sampling_probability ... (0, 1] ... 1.5",
    );
    let never = good.replace("500", "0");
    bad(good.clone() + &never, "event 2 ... count ... at least 1");
    let of_kind = |kind: &str| good.replace("poisson-gaussian", kind);
    bad(
        of_kind("shuffled"),
        "event 1: `kind`: shuffled batches amplify nothing here; expected \"gaussian\" with the number of epochs as count",
    );
    bad(
        of_kind("poison"),
        "event 1: unknown variant `poison`, expected one of",
    );
    assert!(
        !folder
            .fail("account compose bad.toml --delta 1e-6")
            .contains("\\n")
    );
    let unnamed = good.replace("noise_multiplier", "noise");
    bad(unnamed, "event 1 ... noise");
}

#[test]
fn bad_questions_are_refused_by_option() {
    let transcript = "
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10 --delta 1
        delta ... (0, 1) ... got 1
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10 --delta 0
        delta ... (0, 1)
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10 --delta nan
        delta ... NaN
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10
        --delta
        $ POISSON 1.5 --noise-multiplier 1 --rounds 10 --delta 1e-6
        sampling_probability ... (0, 1] ... 1.5
        $ POISSON -0.1 --noise-multiplier 1 --rounds 10 --delta 1e-6
        sampling_probability ... -0.1
        $ POISSON 0.01 --noise-multiplier inf --rounds 10 --delta 1e-6
        noise_multiplier ... finite ... inf
        $ POISSON 0.01 --noise-multiplier 1 --rounds 0 --delta 1e-6
        --rounds ... at least 1 ... 0
        $ POISSON 0.01 --noise-multiplier 1 --delta 1e-6
        --rounds ... --calibrate rounds
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10 --epsilon 1 --delta 1e-6
        --calibrate
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10 --epsilon 1 --delta 1e-6 --calibrate rounds
        --rounds ... --calibrate rounds
        $ account gaussian --calibrate sampling-probability --epsilon 1 --delta 1e-6 --noise-multiplier 1
        --calibrate sampling-probability ... has no --sampling-probability
        $ account sampled --population 100 --cohort 200 --noise-multiplier 1 --rounds 1 --delta 1e-6
        --cohort ... 100 ... 200
        $ POISSON 0.01 --noise-multiplier 1 --rounds 10 --delta 1e-6 --recipe gaussian
        exact Gaussian ... Poisson-sampled
        $ account ftrl --mechanism tree --rounds 10 --noise-multiplier 7 --delta 1e-10
        --rounds-between ... --gap
        $ account ftrl --mechanism tree --rounds 10 --gap 0 --noise-multiplier 7 --delta 1e-10
        gap ... >= 1 ... 0
        $ account ftrl --mechanism tree --rounds 10 --gap 2 --max-participation 0 --noise-multiplier 7 --delta 1e-10
        max_participation ... >= 1 ... 0
        $ account ftrl --mechanism blt --rounds 10 --gap 2 --noise-multiplier 7 --delta 1e-10
        needs --coefficients: a file with the lists theta and omega ... or a production set: blt-100, blt-400 or blt-1000
        $ account ftrl --mechanism blt --coefficients nowhere.toml --rounds 10 --gap 2 --noise-multiplier 7 --delta 1e-10
        nowhere.toml
        $ account poisson --sampling-probability 0.01 --noise-multiplier 1 --rounds 10 --delta 1e-6
        unrecognized subcommand ... poisson
        $ account convert --delta 1e-6
        --rho ... --epsilon
        $ account sampled --group-size 8 --population 1000 --cohort 10 --noise-multiplier 4 --rounds 2 --delta 1e-6
        --population ... --sampling-probability
        $ POISSON 0.01 --noise-multiplier 1.1 --rounds 500 --delta 1e-6 --table=0,5
        --table ... at least 1 ... 0
        ";
    let poisson = "account sampled --sampling-probability";
    Folder::new().refuses(&transcript.replace("POISSON", poisson));
}
