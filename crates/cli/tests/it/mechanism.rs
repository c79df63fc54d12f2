//! `undertone mechanism`: what is found, compared and shown, and what is said of bad input.

use serde_json::Value;

use crate::support::{Folder, close, contains, number};

fn text(folder: &Folder, line: &str) -> String {
    folder.succeed(format!("mechanism {line}"))
}

fn json(folder: &Folder, line: &str) -> Value {
    folder.json(format!("mechanism {line}"))
}

fn rms_loss(value: &Value) -> f64 {
    number(&value["losses"]["rms_loss"])
}

/// The setting of [BLT] Table 3.
const TABLE_3: &str = "--rounds 2052 --min-sep 342 --max-participation 6";

#[test]
fn optimize_writes_what_show_reads() {
    let folder = Folder::new();
    let line = format!("optimize blt {TABLE_3} --buffers 2 --target-epsilon 8 --delta 1e-10 --dim 4050748");
    let shown = text(&folder, &format!("{line} --out blt.json"));
    contains(
        &shown,
        "BLT(2) ... 6 participations at least 342 rounds apart (341 rounds between) ... 1 - theta ... omega ... (exact) ... 2 vectors x 4050748 coordinates x 8 bytes = 64.81 MB ... (found for the target) ... zero out one user ... The mechanism was written to blt.json",
    );
    let found = json(&folder, &line);
    // The optimum of an independent search.
    close(&found["losses"]["rms_loss"], 9.182_751_892_488, 1e-6);
    let guarantee = &found["privacy"]["guarantee"];
    let epsilon = number(&guarantee["epsilon"]);
    assert!(epsilon <= 8.0 && epsilon > 8.0 * (1.0 - 1e-6), "{epsilon}");
    assert_eq!(guarantee["adjacency"], "zero-out");
    // The file brings its run and its noise along.
    let back = &json(&folder, "show blt.json --delta 1e-10")[0];
    assert_eq!(back["name"], "BLT(2)");
    assert_eq!(back["losses"], found["losses"]);
    assert_eq!(back["sensitivity"], found["sensitivity"]);
    assert_eq!(
        back["privacy"]["noise_multiplier"],
        found["privacy"]["noise_multiplier"]
    );
    assert_eq!(back["privacy"]["guarantee"], *guarantee);
    // Without noise there is a strategy but no mechanism: its run has to be said again.
    text(&folder, &format!("optimize lambda {TABLE_3} --out lambda.json"));
    folder.refuses("$ mechanism show lambda.json\n lambda.json holds DP-lambda-CGD ... --rounds");
    assert!(text(&folder, &format!("show lambda.json {TABLE_3}")).contains("of the inverse"));
}

#[test]
fn every_kind_is_optimised() {
    let folder = Folder::new();
    let run = "--rounds 60 --rounds-between 11 --objective max";
    for (kind, name) in [
        ("blt", "BLT("),
        ("normalised-blt", "normalised BLT("),
        ("banded-toeplitz --bands 5", "BandToep(5)"),
        ("normalised-banded-toeplitz", "normalised BandToep(12)"),
        ("banded", "BandMF(12)"),
        ("inverse-toeplitz --bands 3", "BandInvMF(3)"),
        ("lambda", "DP-lambda-CGD("),
        ("normalised-lambda", "normalised DP-lambda-CGD("),
        ("dense", "dense"),
    ] {
        let shown = text(&folder, &format!("optimize {kind} {run}"));
        assert!(shown.starts_with(name), "{kind}: {shown}");
        contains(&shown, "60 rounds, 5 participations at least 12 rounds apart");
        assert!(!shown.contains("\\n"), "{kind}: {shown}");
    }
}

#[test]
fn losses_follow_the_workload_and_fixed_epochs() {
    let folder = Folder::new();
    folder.write("rates.txt", "1 ".repeat(30) + &"0.1,".repeat(10));
    let run = "--rounds 40 --min-sep 10 --buffers 2";
    let plain = json(&folder, &format!("optimize blt {run}"));
    let line = format!("optimize blt {run} --momentum 0.9 --learning-rates rates.txt");
    let suited = json(&folder, &line);
    assert_eq!(suited["workload"], "momentum 0.9, learning rates of rates.txt");
    assert!(rms_loss(&suited) > 2.0 * rms_loss(&plain));
    let epochs = json(&folder, "optimize dense --rounds 40 --min-sep 10 --fixed-epochs");
    let any = json(&folder, "optimize dense --rounds 40 --min-sep 10");
    assert_eq!(epochs["run"]["participation"]["spacing"], "exactly");
    assert!(rms_loss(&epochs) < rms_loss(&any));
}

/// The rows of [BLT] Table 3 that take no long search, with MaxLoss and RmsLoss as printed there.
#[test]
fn a_comparison_shows_the_losses_of_table_3() {
    let line = format!("compare {TABLE_3} --objective max --kinds blt,tree-full --buffers 2");
    let shown = text(&Folder::new(), &line);
    for (name, printed) in [
        ("BLT(2)", ["10.81", "9.34"]),
        ("TreeAgg-Full", ["14.98", "12.47"]),
    ] {
        let row = shown
            .lines()
            .map(str::trim)
            .find_map(|line| line.strip_prefix(name));
        let losses = row.expect(name).split_whitespace().take(2);
        let losses: Vec<String> = losses
            .map(|loss| format!("{:.2}", loss.parse::<f64>().expect("a loss")))
            .collect();
        assert_eq!(losses, printed, "{name}");
    }
}

#[test]
#[ignore = "slow"]
fn a_comparison_is_sorted_by_loss_and_noise_is_proportional() {
    let folder = Folder::new();
    let line = format!("compare {TABLE_3} --dim 4050748 --target-epsilon 8 --delta 1e-10 --svg bars.svg");
    let answer = json(&folder, &line);
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &answer["refused"]), (14, &Value::Array(Vec::new())));
    let row = |kind: &str| rows.iter().find(|row| row["kind"] == kind).expect(kind);
    // Reference losses of [BLT] Table 3's setting: trees online and with the full decoder, the best BLT.
    close(&row("tree")["losses"]["max_loss"], 27.272, 1e-4);
    close(&row("tree-full")["losses"]["rms_loss"], 12.471_496, 1e-6);
    close(&row("blt")["losses"]["rms_loss"], 9.1713, 2e-3);
    let loss = |kind: &str| rms_loss(row(kind));
    assert!(
        loss("normalised-blt") <= 9.15 && loss("blt") < loss("tree") && loss("tree") < loss("independent")
    );
    assert_eq!(row("tree")["memory"]["vectors"], 12);
    assert_eq!(row("bisr")["memory"]["remade_rows"], 3);
    assert!(rows.is_sorted_by_key(rms_loss), "{rows:?}");
    assert!(rms_loss(&rows[13]) > 3.0 * rms_loss(&rows[0]));
    let noise_per_loss = |row: &Value| number(&row["iterate_noise"]) / rms_loss(row);
    for row in rows {
        let ratio = noise_per_loss(row) / noise_per_loss(&rows[0]);
        assert!((ratio - 1.0).abs() < 1e-9, "{row}");
    }
    let svg = folder.text("bars.svg");
    assert!(svg.contains("RmsLoss: 2052 rounds") && svg.contains("TreeAgg") && svg.contains("(bar cut)"));
}

#[test]
fn a_comparison_gives_each_kind_the_sizes_that_it_has() {
    let line = "compare --rounds 64 --min-sep 16 --kinds blt,fhu,tree --buffers 2 --bands 8";
    let shown = text(&Folder::new(), line);
    for name in ["BLT(2)", "BandFHU(8)"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
}

#[test]
#[ignore = "slow"]
fn a_comparison_at_equal_noise_is_sorted_by_epsilon() {
    let folder = Folder::new();
    let line = "compare --rounds 64 --min-sep 16 --kinds tree,banded,lambda --iterate-noise 20 --delta 1e-6";
    let answer = json(&folder, line);
    let epsilons: Vec<f64> = answer["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| number(&row["epsilon"]))
        .collect();
    assert!(epsilons.len() == 3 && epsilons.is_sorted(), "{epsilons:?}");
    let shown = text(&folder, &format!("{line} --measure-time"));
    contains(
        &shown,
        "BandMF(16) ... epsilon ... time per round ... recomputes 1 ... 20 clip norms in the iterates",
    );
    let with = text(&folder, "compare --rounds 24 --max-participation 1 --with-bandmf");
    contains(&with, "BandMF(24) ... normalised square root");
}

/// The rows of a matrix as text, as a program of statistics writes them.
const OWN: &str = "1 0 0 0\n0.5 1 0 0\n0.25 0.5 1 0\n0.1 0.25 0.5 1\n";

#[test]
fn a_matrix_of_ones_own_is_shown_compared_and_accounted() {
    let folder = Folder::new();
    folder.write("own.txt", OWN);
    let entries =
        r#"{"kind": "dense", "rounds": 4, "entries": [1, 0.5, 1, 0.25, 0.5, 1, 0.1, 0.25, 0.5, 1]}"#;
    folder.write("own.json", entries);
    let run = "--rounds 4 --max-participation 1";
    let text_form = &json(&folder, &format!("show own.txt {run}"))[0];
    let json_form = &json(&folder, &format!("show own.json {run}"))[0];
    assert_eq!(text_form["losses"], json_form["losses"]);
    // The first column is the largest: 1 + 1/4 + 1/16 + 1/100.
    close(&text_form["sensitivity"]["squared"], 1.322_5, 1e-12);

    let line = format!("compare own.txt {run} --kinds independent --target-epsilon 2 --delta 1e-6");
    let answer = json(&folder, &format!("{line} --svg bars.svg --csv bars.csv"));
    let rows = answer["rows"].as_array().expect("rows");
    let own = rows
        .iter()
        .find(|row| row["file"] == "own.txt")
        .expect("the row of the file");
    assert_eq!(
        (&own["name"], &own["losses"]),
        (&"own.txt: dense".into(), &text_form["losses"])
    );
    assert!(
        folder.text("bars.svg").contains("epsilon 2, delta 1e-6"),
        "{}",
        folder.text("bars.svg")
    );
    let table = folder.text("bars.csv");
    assert!(
        table.starts_with("mechanism,max_loss") && table.lines().count() == 3,
        "{table}"
    );

    let line = "account ftrl --mechanism matrix --coefficients own.txt --rounds 4 --max-participation 1 --noise-multiplier 4 --delta 1e-6";
    let stated = folder.json(line);
    close(&stated["setting"]["squared_sensitivity"], 1.322_5, 1e-12);
}

#[test]
fn mechanisms_are_compared_over_a_quantity() {
    let folder = Folder::new();
    folder.write("own.txt", OWN);
    let line = "compare own.txt --rounds 4 --max-participation 1 --kinds independent,tree";
    let over = json(
        &folder,
        &format!("{line} --over epsilon --at 1,4 --delta 1e-6 --csv over.csv --svg over.svg"),
    );
    let curves = over["curves"].as_array().expect("curves");
    assert_eq!(curves.len(), 3);
    for curve in curves {
        let [low, high] = [0, 1].map(|place| number(&curve["figures"][place]));
        assert!(low > 2.0 * high, "{curve}");
    }
    // Each figure is that of a comparison at this epsilon alone.
    let alone = json(&folder, &format!("{line} --target-epsilon 4 --delta 1e-6"));
    let rows = alone["rows"].as_array().expect("rows");
    let own = rows
        .iter()
        .find(|row| row["file"] == "own.txt")
        .expect("the row of the file");
    close(&own["iterate_noise"], number(&curves[2]["figures"][1]), 1e-12);
    assert_eq!(folder.text("over.csv").lines().count(), 1 + 3 * 2);
    assert!(folder.text("over.svg").contains("epsilon"));
    // A matrix of four rounds has no fifth one, and the others have.
    let shown = text(&folder, &format!("{line} --over rounds --at 2,8"));
    contains(
        &shown,
        "own.txt ... - ... not possible: own.txt at 8: rounds must be at most",
    );
    let bands = json(
        &folder,
        "compare --rounds 32 --min-sep 8 --kinds banded-toeplitz,tree --over bands --at 1,4,8",
    );
    let losses: Vec<f64> = (0..3)
        .map(|place| number(&bands["curves"][0]["figures"][place]))
        .collect();
    assert!(losses.is_sorted_by(|more, fewer| more > fewer), "{losses:?}");
    assert_eq!(bands["curves"][1]["figures"][0], bands["curves"][1]["figures"][2]);
    folder.write("upper.json", "[[1, 0.5], [0, 1]]");
    folder.write("zero.json", "[[1], [1, 0]]");
    folder.write("nan.txt", "1\nnan\n");
    folder.write(
        "many.json",
        r#"{"kind": "dense", "rounds": 100000, "entries": [1]}"#,
    );
    folder.refuses(
        "
        $ mechanism compare upper.json --rounds 2 --max-participation 1
        upper.json: expected a lower-triangular matrix ... got 0.5 in row 0, column 1
        $ mechanism compare zero.json --rounds 2 --max-participation 1
        zero.json: diagonal entry of a matrix must be positive, got 0
        $ mechanism compare nan.txt --rounds 2 --max-participation 1
        nan.txt ... finite
        $ mechanism compare many.json --rounds 2 --max-participation 1
        many.json ... number of entries of a matrix ... got 1
        $ mechanism compare own.txt --rounds 8 --max-participation 1
        own.txt: rounds must be at most the rounds that the matrix was made for, got 8
        $ mechanism compare --rounds 8 --max-participation 1 --over epsilon
        --over epsilon needs --delta
        $ mechanism compare --rounds 8 --max-participation 1 --over rounds --at 0
        --at: expected whole numbers from 1 to 16777216, got 0
        $ mechanism compare --rounds 8 --min-sep 2 --over bands --bands 3
        --over bands: the numbers of bands stand in --at; remove --bands
        $ mechanism compare --rounds 8 --max-participation 1 --svg picture.png
        expected a name that ends in .svg
        $ account ftrl --mechanism toeplitz --coefficients own.txt --rounds 4 --max-participation 1 --noise-multiplier 4 --delta 1e-6
        own.txt: --mechanism toeplitz expects a list of coefficients, got dense; give --mechanism matrix for it
        ",
    );
}

#[test]
fn named_mechanisms_are_shown() {
    let folder = Folder::new();
    // [BLT] Table 4, id-ID: 0.1949, printed rounded up.
    let line = "show blt-400 --rounds 2350 --rounds-between 447 --max-participation 5 --noise-multiplier 7.379 --delta 1e-10";
    let shown = &json(&folder, line)[0];
    close(&shown["privacy"]["rho"], 0.1949, 3e-4);
    close(
        &shown["privacy"]["guarantee"]["epsilon"],
        3.929_212_098_053_503,
        1e-9,
    );
    let pattern = &shown["sensitivities"]["rows"][2];
    assert_eq!(pattern["gap"], 448);
    assert_eq!(pattern["sensitivities"][4], shown["sensitivity"]);
    let several = format!("show tree tree-full square-root normalised-square-root bisr {TABLE_3}");
    let several = text(&folder, &several);
    contains(
        &several,
        "tree: TreeAgg ... 12 heights ... 1 0.5 0.375 0.3125 ... 1 -0.5 -0.125 ... column norms ... k = 6",
    );
}

#[test]
fn swept_losses_fall_and_never_beat_the_optimum() {
    let folder = Folder::new();
    let line = "show blt-400 tree --rounds 2000 --sweep min-sep --with-optimum 3";
    let swept = json(&folder, &format!("{line} --svg sweep.svg"));
    let curves = swept["curves"].as_array().expect("curves");
    assert_eq!(curves.len(), 3);
    let column = |curve: usize, value: &dyn Fn(&Value) -> f64| -> Vec<f64> {
        let points = curves[curve]["points"].as_array().expect("points");
        points.iter().map(value).collect()
    };
    let gaps = column(0, &|point| number(&point["value"]));
    assert!(gaps.len() > 8 && gaps.is_sorted_by(|a, b| a < b), "{gaps:?}");
    let optimum = column(2, &rms_loss);
    for curve in 0..3 {
        assert_eq!(column(curve, &|point| number(&point["value"])), gaps);
        let losses = column(curve, &rms_loss);
        assert!(losses.is_sorted_by(|a, b| a > b), "{curve}: {losses:?}");
        let beaten = losses
            .iter()
            .zip(&optimum)
            .find(|(loss, best)| **best > **loss * (1.0 + 1e-9));
        assert_eq!(beaten, None, "{curve}");
    }
    let svg = folder.text("sweep.svg");
    assert!(svg.contains("RmsLoss over actual gap, rounds; 2000 rounds") && svg.contains("optimum(3)"));
    let line = "show blt-1000 --sweep rounds --at 1000,2000 --max-participation 2";
    let at = text(&folder, line);
    for start in [["1000", "1"], ["2000", "2"]] {
        let found = |line: &str| line.split_whitespace().take(2).eq(start);
        assert!(at.lines().any(found), "{at}");
    }
}

#[test]
fn bad_runs_are_named() {
    let folder = Folder::new();
    folder.refuses(
        "
        $ mechanism optimize blt --rounds 100 --min-sep 0
        --min-sep: gap: expected a whole number >= 1, got 0
        $ mechanism optimize blt --rounds 100 --min-sep 10 --max-participation 0
        --max-participation: max_participation: expected a whole number >= 1, got 0
        $ mechanism optimize blt --rounds 100 --max-participation 0
        --max-participation: max_participation: expected a whole number >= 1, got 0
        $ mechanism optimize blt --rounds 99999999 --min-sep 3
        --rounds: expected at most 16777216, got 99999999
        $ mechanism optimize blt --rounds 0 --min-sep 10
        --rounds: expected at least 1, got 0
        $ mechanism compare --min-sep 10
        expected --rounds, the number of rounds
        $ mechanism compare --rounds 10
        expected --min-sep or --rounds-between (how far apart
        $ mechanism compare --rounds 10 --min-sep 2 --rounds-between 1
        --min-sep ... cannot be used with
        $ mechanism optimize blt --rounds 100 --min-sep 10 --noise-multiplier 1 --delta 1
        --delta: delta: expected a number in (0, 1), got 1
        $ mechanism optimize blt --rounds 100 --min-sep 10 --target-epsilon 1
        --delta
        $ mechanism optimize blt --rounds 100 --min-sep 10 --target-epsilon -1 --delta 0.1
        --target-epsilon ... got -1
        $ mechanism optimize blt --rounds 100 --min-sep 10 --noise-multiplier 0
        --noise-multiplier ... got 0
        $ mechanism optimize blt --rounds 100 --min-sep 10 --delta 0.1
        --delta needs --noise-multiplier or --target-epsilon
        $ mechanism compare --rounds 9 --min-sep 3 --delta 0.1
        --delta needs --target-epsilon or --iterate-noise
        $ mechanism compare --rounds 9 --min-sep 3 --delta 0.1 --iterate-noise 0
        --iterate-noise ... got 0
        ",
    );
    let line = "optimize lambda --rounds 100 --min-sep 40 --max-participation 7";
    let lowered = text(&folder, line);
    let note =
        "note: max participation lowered from 7 to 3: no more fit into 100 rounds with a gap of 40 rounds";
    assert!(lowered.contains(note), "{lowered}");
}

#[test]
fn bad_kinds_sizes_and_workloads_are_named() {
    let folder = Folder::new();
    folder.write("short.txt", "1 1 1");
    folder.write("words.txt", "1 fast");
    folder.write("negative.txt", "-1 ".repeat(20));
    folder.refuses(
        "
        $ mechanism optimize magic --rounds 20 --min-sep 5
        'magic' ... normalised-blt ... banded-toeplitz
        $ mechanism optimize tree --rounds 20 --min-sep 5
        tree: this kind has nothing to optimise ... expected one of blt,
        $ mechanism compare --rounds 20 --min-sep 5 --kinds tree,magic
        'magic' ... tree-full
        $ mechanism compare --rounds 20 --min-sep 5 --max-participation 2 --kinds blt,tree --bands 3
        --bands: none of the compared kinds has such a size
        $ mechanism compare --rounds 20 --min-sep 5 --max-participation 2 --kinds fhu,tree --buffers 3
        --buffers: none of the compared kinds has such a size
        $ mechanism optimize blt --rounds 20 --min-sep 5 --bands 3
        --bands: blt takes no number of bands
        $ mechanism optimize lambda --rounds 20 --min-sep 5 --buffers 3
        --buffers: lambda has no buffers
        $ mechanism optimize banded --rounds 20 --min-sep 5 --buffers 3
        --buffers: banded has no buffers
        $ mechanism optimize blt --rounds 20 --min-sep 5 --buffers 40
        --buffers ... from 1 to 16, got 40
        $ mechanism optimize banded --rounds 20 --min-sep 5 --bands 0
        --bands: expected at least 1, got 0
        $ mechanism optimize dense --rounds 5000 --min-sep 5
        rounds of a dense matrix must be at most 4096 ... got 5000
        $ mechanism optimize blt --rounds 20 --min-sep 5 --momentum 1
        --momentum ... in [0, 1), got 1
        $ mechanism optimize blt --rounds 20 --min-sep 5 --dim 0
        --dim: expected at least 1, got 0
        $ mechanism optimize blt --rounds 20 --min-sep 5 --learning-rates short.txt
        --learning-rates short.txt ... each of the 20 rounds, got 3
        $ mechanism optimize blt --rounds 20 --min-sep 5 --learning-rates words.txt
        words.txt: expected numbers, got 'fast'
        $ mechanism optimize blt --rounds 20 --min-sep 5 --learning-rates negative.txt
        negative.txt ... finite number >= 0, got -1
        $ mechanism optimize blt --rounds 20 --min-sep 5 --learning-rates absent.txt
        absent.txt ... cannot read
        $ mechanism optimize blt --rounds 20 --min-sep 5 --out absent/blt.json
        absent/blt.json
        $ mechanism compare --rounds 20 --min-sep 5 --svg absent/bars.svg
        absent/bars.svg
        ",
    );
}

#[test]
fn bad_files_are_named() {
    let folder = Folder::new();
    folder.write("text.json", "theta = [0.5]");
    folder.write("foreign.json", r#"{"theta": [0.5], "omega": [0.1]}"#);
    folder.write("list.json", "[1]");
    folder.write("kind.json", r#"{"kind": "magic"}"#);
    let wrong = r#"{"kind": "blt", "decay_complements": [2], "output_scales": [1]}"#;
    folder.write("wrong.json", wrong);
    let cancelling = r#"{"kind": "inverse-toeplitz", "coefficients": [1, -1e200]}"#;
    folder.write("cancelling.json", cancelling);
    let line = "optimize normalised-lambda --rounds 20 --min-sep 5 --noise-multiplier 2 --out made.json";
    text(&folder, line);
    let later = folder.text("made.json");
    let later = later.replacen("\"version\":1", "\"version\":9", 1);
    folder.write("later.json", later);
    folder.refuses(
        "
        $ mechanism show absent.json
        absent.json: no such file or name; the names are blt-100, blt-400, blt-1000, independent, tree
        $ mechanism show blt --rounds 9 --min-sep 3
        blt: this kind must be optimised first ... optimize blt --out FILE
        $ mechanism show text.json
        text.json: expected JSON with `kind` ... theta ... in the place of a number
        $ mechanism show foreign.json
        foreign.json: expected JSON with `kind` ... [omega, theta]
        $ mechanism show list.json
        list.json holds BandFHU(1) without a run ... --rounds
        $ mechanism show kind.json
        kind.json: expected a strategy that this version can read ... magic
        $ mechanism show wrong.json --rounds 9 --min-sep 3
        wrong.json ... buffer decay must be in [0, 1], got -1
        $ mechanism show cancelling.json --rounds 9 --min-sep 3
        coefficient must be a finite number, got inf
        $ mechanism show made.json --rounds 21
        --rounds: made.json holds ... for 20 rounds; expected at most 20, got 21
        $ mechanism show later.json
        later.json ... version ... got 9
        $ mechanism show made.json --sweep rounds --at 10,40
        --at: expected rounds from 1 to 20, got 40
        $ mechanism show made.json --at 10
        --sweep
        $ mechanism show tree --rounds 50 --max-participation 1 --sweep min-sep
        --sweep min-sep ... --rounds-between
        ",
    );
}
