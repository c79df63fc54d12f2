//! A small simulation, from the text of its ledger: each reported figure is computed again by other means.

use std::collections::BTreeMap;

use undertone_accounting::participation::RoundsBetween;

use super::*;

const ROUNDS: usize = 40;

const TEXT: &str = r#"
name = "copy"
seed = 11
rounds = 40
population = 1000

[timers]
report_goal = 60
timer_hours = 48

[mechanism]
strategy = STRATEGY
noise_multiplier = 7.0
delta = 1e-10
"#;

const TREE: &str = r#"{ kind = "tree", restarts = { first = 13, period = 16 } }"#;
/// One buffer: theta = 0.8, omega = 0.4.
const BLT: &str = r#"{ kind = "blt", decay_complements = [0.2], output_scales = [0.4] }"#;

fn config(strategy: &str) -> SimulationConfig {
    let text = TEXT.replace("STRATEGY", strategy);
    SimulationFile::parse(&text, "copy.toml".as_ref(), &[]).unwrap()
}

/// One row per tree node, from the definition.
fn tree_matrix() -> Vec<Vec<f64>> {
    let mut rows = Vec::new();
    for (begin, length) in [(0, 13), (13, 16), (29, 11)] {
        for size in [1, 2, 4, 8, 16] {
            for node in 0..length / size {
                let low = begin + node * size;
                let below = |j: usize| f64::from(u8::from((low..low + size).contains(&j)));
                rows.push((0..ROUNDS).map(below).collect());
            }
        }
    }
    rows
}

fn blt_matrix() -> Vec<Vec<f64>> {
    let entry = |i: usize, j: usize| match i.checked_sub(j) {
        None => 0.0,
        Some(0) => 1.0,
        Some(lag) => 0.4 * 0.8f64.powi(lag as i32 - 1),
    };
    (0..ROUNDS)
        .map(|i| (0..ROUNDS).map(|j| entry(i, j)).collect())
        .collect()
}

fn squared_norm(matrix: &[Vec<f64>], set: &[usize]) -> f64 {
    matrix
        .iter()
        .map(|row| set.iter().map(|&round| row[round]).sum::<f64>().powi(2))
        .sum()
}

/// The largest over all sets of at most `left` more rounds from `from` on, any two at least `gap` apart.
fn largest(matrix: &[Vec<f64>], set: &mut Vec<usize>, from: usize, gap: usize, left: usize) -> f64 {
    let mut best = squared_norm(matrix, set);
    if left > 0 {
        for round in from..ROUNDS {
            set.push(round);
            best = best.max(largest(matrix, set, round + gap, gap, left - 1));
            set.pop();
        }
    }
    best
}

fn check(strategy: &str, matrix: &[Vec<f64>]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let mut rounds = 0;
    let simulation = run(&config(strategy), folder.path(), Some(&path), &mut |_| {
        rounds += 1;
    })
    .unwrap();
    assert_eq!(rounds, ROUNDS);

    // From the text alone.
    let text = std::fs::read_to_string(&path).unwrap();
    let mut sets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (line["round"].as_u64(), line["cohort_size"].as_u64()),
            (Some(number as u64), Some(60))
        );
        for name in line["participants"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            assert_eq!(name.len(), 16);
            sets.entry(name.to_owned()).or_default().push(number);
        }
    }
    let mut smallest = usize::MAX;
    for set in sets.values() {
        for i in 0..set.len() {
            for j in i + 1..set.len() {
                smallest = smallest.min(set[j] - set[i]);
            }
        }
    }
    let max = sets.values().map(Vec::len).max().unwrap();
    assert_eq!(simulation.min_sep, Some(smallest as u64 - 1));
    assert_eq!(simulation.max_participation, max as u64);
    assert!(
        max > 1 && smallest > 1,
        "a test that says nothing: {max} {smallest}"
    );
    for (times, users) in simulation.participations.iter().enumerate().skip(1) {
        let count = sets.values().filter(|set| set.len() == times).count();
        assert_eq!(*users, count as u64);
    }
    assert_eq!(simulation.participations.iter().sum::<u64>(), 1000);

    let privacy = simulation.privacy.unwrap();
    let rho = |squared: f64| squared / (2.0 * 7.0 * 7.0);
    let close = |got: f64, want: f64| assert!((got - want).abs() <= 1e-12 * want, "{got} instead of {want}");
    let exact = sets
        .values()
        .map(|set| squared_norm(matrix, set))
        .fold(0.0, f64::max);
    close(privacy.exact.rho, rho(exact));
    let schema = largest(matrix, &mut Vec::new(), 0, smallest, max);
    close(privacy.observed.rho, rho(schema));
    assert!(privacy.observed.sensitivity.exact && privacy.exact.sensitivity.exact);
    assert!(exact <= schema && privacy.exact.epsilon <= privacy.observed.epsilon);

    // Read back by the library, the ledger shows the same.
    let mut observed = Observed::new();
    ledger::read(&path, |line| Ok(observed.record(line.round, &line.participants)?)).unwrap();
    assert_eq!(observed.min_sep().map(RoundsBetween::get), simulation.min_sep);
    assert_eq!(observed.max_participation(), simulation.max_participation);
}

#[test]
fn figures_of_a_small_run_match_brute_force() {
    check(TREE, &tree_matrix());
    check(BLT, &blt_matrix());
}

#[test]
fn equal_seeds_make_equal_rounds_and_no_seed_makes_new_ones() {
    let made = |seed: Option<u64>| {
        let mut config = config(TREE);
        (config.seed, config.rounds) = (seed, 10);
        let mut rounds = Vec::new();
        run(&config, ".".as_ref(), None, &mut |round| {
            rounds.push(round.clone());
        })
        .unwrap();
        rounds
    };
    assert_eq!(made(Some(1)), made(Some(1)));
    assert_ne!(made(Some(1)), made(Some(2)));
    assert_ne!(made(None), made(None));
}

#[test]
fn damaged_ledgers_name_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let mut config = config(TREE);
    config.rounds = 3;
    run(&config, folder.path(), Some(&path), &mut |_| ()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let check = |from: &str, to: &str, words: &str| {
        assert!(text.contains(from));
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = ledger::read(&path, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains(words), "{error}");
    };
    check(
        r#""cohort_size":60"#,
        r#""cohort_size":61"#,
        "61 participants, got 60",
    );
    check(r#""round":0"#, r#""round":-1"#, "invalid value");
    check(
        "participants\":[\"",
        "participants\":[\"X",
        "16 lower-case hexadecimal digits",
    );
}

#[test]
fn a_ledger_that_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent").join("ledger.jsonl");
    let error = run(&config(TREE), folder.path(), Some(&path), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot write"), "{error}");
    // A simulation that fails on its way leaves no ledger either.
    let mut stuck = config(TREE);
    stuck.timers.report_goal = 1000;
    let path = folder.path().join("ledger.jsonl");
    run(&stuck, folder.path(), Some(&path), &mut |_| ()).unwrap_err();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
