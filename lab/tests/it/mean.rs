//! `undertone-lab mean`: what is measured meets what is expected, and what is said of bad input.

use serde_json::Value;

use crate::support::Folder;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn json(folder: &Folder, line: &str) -> Value {
    let text = folder.succeed(&[&["mean", "--json"][..], &words(line)].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Runs and expects an error that contains every one of the words.
fn refused(folder: &Folder, line: &str, expected: &[&str]) {
    let message = folder.fail(&[&["mean"][..], &words(line)].concat());
    for word in expected {
        assert!(message.contains(word), "{line}: expected {word:?} in: {message}");
    }
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

/// A numpy file of `rows` vectors of two coordinates.
fn npy(rows: &[[f32; 2]]) -> Vec<u8> {
    let header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 2), }}\n",
        rows.len()
    );
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(rows.iter().flatten().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// Measured errors lie within 6 standard errors of what is expected, or below it where that is a bound; false alarms below
/// 1e-5, since the standard errors are estimated too.
#[test]
#[ignore = "slow"]
fn errors_are_as_expected() {
    let folder = Folder::new();
    let found = json(
        &folder,
        "--clients 400 --dim 200 --repeats 12 --levels 16,64 --epsilon 6 --delta 1e-6",
    );
    let rows = found["rows"].as_array().expect("rows");
    let mut schemes: Vec<&str> = rows
        .iter()
        .map(|row| row["scheme"].as_str().expect("a name"))
        .collect();
    schemes.dedup();
    assert_eq!(
        schemes,
        [
            "gaussian",
            "binomial",
            "rotated-binomial",
            "discrete-gaussian",
            "skellam"
        ],
        "{found}"
    );
    assert_eq!(found["refused"], serde_json::json!([]));
    for row in rows {
        let (expected, measured) = (number(&row["expected_error"]), number(&row["measured_error"]));
        let error = number(&row["standard_error"]);
        assert!(measured <= expected + 6.0 * error, "{row}");
        // Roundings vary by less than a bound says; noise is most of it.
        assert!(measured >= 0.5 * expected - 6.0 * error, "{row}");
        assert!(number(&row["epsilon"]) <= 6.0, "{row}");
    }
    // More levels bring every scheme nearer to the Gaussian, and take more bits.
    let gaussian = number(&rows[0]["expected_error"]);
    for pair in rows[1..].chunks(2) {
        let of = |row: &Value, name: &str| number(&row[name]);
        assert!(
            of(&pair[0], "expected_error") > of(&pair[1], "expected_error"),
            "{pair:?}"
        );
        assert!(of(&pair[1], "expected_error") > 0.99 * gaussian, "{pair:?}");
        assert!(
            of(&pair[0], "message_bits") < of(&pair[1], "message_bits"),
            "{pair:?}"
        );
    }
}

#[test]
fn a_file_is_measured_and_a_seed_repeats_it() {
    let folder = Folder::new();
    folder.write("updates.npy", npy(&[[3.0, 4.0], [0.0, 0.5], [0.3, 0.0]]));
    let line =
        "--file updates.npy --schemes gaussian,rotated-binomial --levels 64 --repeats 3 --svg mean.svg";
    let found = json(&folder, line);
    assert_eq!(
        (&found["clients"], &found["dim"], &found["clipped"]),
        (&3.into(), &2.into(), &1.into())
    );
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(json(&folder, line), found);
    assert_ne!(json(&folder, &format!("{line} --seed 2"))["rows"], found["rows"]);
    let svg = String::from_utf8(folder.read("mean.svg")).expect("UTF-8");
    assert!(
        svg.contains("rotated-binomial") && svg.contains("gaussian"),
        "{svg}"
    );
    let shown = folder.succeed(&[&["mean"][..], &words(line)].concat());
    for word in [
        "3 vectors of 2 coordinates",
        "1 clipped",
        "rotated-binomial",
        "expected error",
    ] {
        assert!(shown.contains(word), "expected {word:?} in: {shown}");
    }
}

#[test]
fn bad_settings_and_files_are_refused() {
    let folder = Folder::new();
    folder.write("text.npy", "not numpy");
    folder.write("nan.npy", npy(&[[0.0, 1.0], [f32::NAN, 0.0]]));
    folder.write("bad.safetensors", "nothing");
    for (line, expected) in [
        ("--clients 0", &["--clients", "at least 1"][..]),
        ("--dim 0", &["--dim", "at least 1"]),
        ("--clients 1000000 --dim 1000000", &["2^30"]),
        ("--repeats 1", &["--repeats", "at least 2"]),
        ("--clip-norm 0", &["--clip-norm", "got 0"]),
        ("--clip-norm NaN", &["--clip-norm", "NaN"]),
        ("--levels 1", &["--levels", "2 to 2^17", "got 1"]),
        ("--epsilon -1", &["--epsilon"]),
        ("--epsilon 0", &["--epsilon"]),
        ("--delta 1", &["--delta"]),
        ("--schemes laplace", &["laplace", "rotated-binomial"]),
        ("--file none.npy", &["none.npy", "reading"]),
        ("--file updates.csv", &["updates.csv"]),
        ("--file text.npy", &["text.npy", "numpy"]),
        ("--file nan.npy", &["nan.npy", "NaN", "vector 1, coordinate 0"]),
        ("--file bad.safetensors", &["bad.safetensors", "safetensors"]),
        ("--file nan.npy --dim 5", &["--file", "--dim"]),
    ] {
        refused(&folder, line, expected);
    }
}
