//! Adaptive clipping in sessions: norms that follow the updates, and come back after a crash.

use std::fs;

use tempfile::TempDir;

use super::{ADAPTIVE, DIM, create, one_round};

#[test]
fn clip_norms_that_do_not_fit_the_ledger_are_refused() {
    let out = TempDir::new().unwrap();
    let mut session = create(out.path(), ADAPTIVE, false).unwrap();
    for _ in 0..4 {
        one_round(&mut session).unwrap();
    }
    drop(session);
    let journal = out.path().join("s/checkpoint/journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let rows: Vec<serde_json::Value> = (whole.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let error = |change: &dyn Fn(&mut [serde_json::Value])| {
        let mut rows = rows.clone();
        change(&mut rows);
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        fs::write(&journal, text).unwrap();
        create(out.path(), ADAPTIVE, true).unwrap_err().to_string()
    };
    let found = error(&|rows| drop(rows[1].as_object_mut().unwrap().remove("clip")));
    assert!(
        found.contains("after round 1: missing, and clipping is adaptive"),
        "{found}"
    );
    let found = error(&|rows| rows[0]["clip"]["active"] = 2.0.into());
    assert!(
        found.contains("after round 0: the norm in force changes"),
        "{found}"
    );
    // The segment of round 3 begins with another norm than the ledger says.
    let found = error(&|rows| rows[2]["clip"]["active"] = 2.0.into());
    assert!(found.contains("line 4, clip_norm: expected 2, got "), "{found}");
    fs::write(&journal, whole).unwrap();
    assert_eq!(create(out.path(), ADAPTIVE, true).unwrap().round(), 4);
}

/// Sums of known bits, with noise too small to matter: the norm grows where every update is longer, and shrinks where none is.
#[test]
fn the_clip_norm_follows_the_updates() {
    for (length, grows) in [(1e6, true), (1e-6, false)] {
        let out = TempDir::new().unwrap();
        let text = ADAPTIVE
            .replace("bit_noise_std = 3.0", "bit_noise_std = 1e-3")
            .replace("noise_multiplier = 4.0", "noise_multiplier = 1e-3");
        let mut session = create(out.path(), &text, false).unwrap();
        let mut norms = Vec::new();
        while let Some(round) = session.next_round().unwrap() {
            for unit in 0..round.users().len() {
                round.add(unit, &[length; DIM]).unwrap();
            }
            norms.push(session.release(&mut [0.0; DIM]).unwrap().clip_norm.unwrap());
        }
        assert_eq!(norms[..3], [1.0; 3]);
        for (earlier, later) in [(2, 3), (6, 7)] {
            assert_eq!(norms[later] > norms[earlier], grows, "{norms:?}");
        }
    }
}
