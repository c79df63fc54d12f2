//! Sessions, from the first round to `verify`, and everything that they refuse.

mod adaptive;
mod gpu;
mod stops;

use std::fs;
use std::path::Path;
use undertone_run_directory::error::DirectoryError;

use tempfile::TempDir;
use undertone_models::ExternalTensor;

use super::*;
use undertone_run_directory::files::names::LEDGER_FILE;
use undertone_verify::verify;

const ULS: &str = "name = \"s\"\nrounds = 12\n[cohort]\nsampling = \"shuffled_epochs\"\nusers_per_round = 4\n\
    [user_update]\nalgorithm = \"uls\"\ngroup_size = 3\n[clip]\nkind = \"flat\"\nnorm = 0.5\nnormalised = true\n\
    [privacy]\nnoise_multiplier = 3.0\ndelta = 1e-5\nmechanism = { kind = \"blt\", buffers = 2 }\n[checkpoint]\nevery = 5\n";
const POISSON: &str = "name = \"s\"\nrounds = 6\n[cohort]\nusers_per_round = 8\n[privacy]\nnoise_multiplier = 1.5\ndelta = 1e-5\n";
const ELS: &str = "name = \"s\"\nrounds = 6\n[cohort]\nexamples_per_round = 12\n[user_update]\nalgorithm = \"els\"\ngroup_size = 2\n\
    [privacy]\nnoise_multiplier = 1.5\ndelta = 1e-5\n";
const ADAPTIVE: &str = "name = \"s\"\nrounds = 12\n[cohort]\nsampling = \"shuffled_epochs\"\nusers_per_round = 4\n\
    [clip]\nkind = \"adaptive\"\ninitial_norm = 1.0\nbit_noise_std = 3.0\n[privacy]\nnoise_multiplier = 4.0\ndelta = 1e-5\n\
    mechanism = { kind = \"tree\", restarts = { first = 3, every = 4 } }\n[checkpoint]\nevery = 5\n";
const USERS: u64 = 20;
const DIM: usize = 6;

fn config(text: &str) -> SessionConfig {
    let tensors = [
        ExternalTensor {
            name: "w".to_owned(),
            shape: vec![2, 2],
        },
        ExternalTensor {
            name: "b".to_owned(),
            shape: vec![2],
        },
    ];
    SessionConfig::new(text, Path::new("config"), USERS, &tensors).unwrap()
}

fn counts(text: &str) -> Option<Vec<u32>> {
    text.contains("els")
        .then(|| (0..USERS as u32).map(|user| user % 4).collect())
}

fn create(out: &Path, text: &str, resume: bool) -> Result<Session> {
    Session::create(out, config(text), Path::new("."), counts(text).as_deref(), resume)
}

/// One round in which every unit contributes. Returns the released values.
fn one_round(session: &mut Session) -> Result<Option<Vec<f32>>> {
    let Some(round) = session.next_round()? else {
        return Ok(None);
    };
    let users = round.users().to_vec();
    let units = round.examples().map_or(users.len(), <[_]>::len);
    let index = round.index();
    for unit in 0..units {
        if let (Algorithm::Uls, Some(&user)) = (session.config.task.user_update.algorithm, users.get(unit)) {
            let places = session.choose(user, 5)?;
            assert_eq!(places, session.choose(user, 5)?);
            assert_eq!(places.len(), 3);
        }
        let update: Vec<f32> = (0..DIM)
            .map(|place| (index as usize + unit + place) as f32)
            .collect();
        session.open_round().unwrap().add(unit, &update)?;
    }
    let mut out = vec![0.0; DIM];
    let released = session.release(&mut out)?;
    assert_eq!((released.round, session.round()), (index, index + 1));
    assert_eq!(released.sha256, undertone_coordinator::identity::digest_of(&out));
    Ok(Some(out))
}

fn all_rounds(session: &mut Session) -> Vec<Vec<f32>> {
    std::iter::from_fn(|| one_round(session).unwrap()).collect()
}

/// The problems that `verify` finds, in one text.
fn problems(folder: &Path) -> String {
    let found = verify(folder).unwrap();
    let all = found.checks.into_iter().flat_map(|check| check.problems);
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_finished_session_is_verified_for_each_kind_of_sampling() {
    for text in [ULS, POISSON, ELS, ADAPTIVE] {
        let out = TempDir::new().unwrap();
        let mut session = create(out.path(), text, false).unwrap();
        let planned = session.planned().unwrap().epsilon;
        let released = all_rounds(&mut session);
        assert_eq!(released.len() as u64, session.rounds());
        let folder = session.finish(&[1.0; DIM]).unwrap();
        assert_eq!(problems(&folder), "", "{text}");
        let verified = verify(&folder).unwrap();
        assert!(verified.recomputed.unwrap().epsilon <= planned * (1.0 + 1e-9));
        let found = |name: &str| {
            let check = verified.checks.iter().find(|check| check.name == name).unwrap();
            check.found.clone()
        };
        for name in ["model", "metrics", "settings"] {
            assert!(
                found(name).contains("trained outside: not recomputed"),
                "{}",
                found(name)
            );
        }
        assert!(!folder.join("checkpoint").exists());
        let line = fs::read_to_string(folder.join(LEDGER_FILE)).unwrap();
        assert!(line.contains("released_sha256") && !line.contains("parameters_sha256"));
        assert!(matches!(
            session.next_round(),
            Err(RunError::Session("is finished"))
        ));
        assert!(matches!(
            create(out.path(), text, true),
            Err(RunError::RunFinished { .. })
        ));
    }
}

#[test]
fn a_changed_byte_is_found_in_each_file() {
    let out = TempDir::new().unwrap();
    let mut session = create(out.path(), ULS, false).unwrap();
    all_rounds(&mut session);
    let folder = session.finish(&[1.0; DIM]).unwrap();
    for (name, from, to, expected) in [
        (
            "ledger.jsonl",
            "\"noise_std\":",
            "\"noise_std\":1",
            "ledger.jsonl is damaged: line 2: expected to follow the line before",
        ),
        (
            "config.toml",
            "users = 20",
            "users = 21",
            "config.toml: changed since the run ended",
        ),
        (
            "model.safetensors",
            "\u{0}\u{0}",
            "\u{0}\u{1}",
            "model.safetensors: changed since the run ended",
        ),
    ] {
        let path = folder.join(name);
        let whole = fs::read(&path).unwrap();
        let mut windows = whole.windows(from.len());
        let is_it = |window: &[u8]| window == from.as_bytes();
        let place = match name {
            "ledger.jsonl" => windows.position(is_it),
            _ => windows.rposition(is_it),
        };
        let place = place.unwrap();
        let changed = [&whole[..place], to.as_bytes(), &whole[place + from.len()..]].concat();
        fs::write(&path, changed).unwrap();
        let found = problems(&folder);
        assert!(found.contains(expected), "{name}: {found}");
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(problems(&folder), "");
}

/// The state of the noise of a session, without keys.
fn secret(session: &Session) -> Vec<u8> {
    let Stage::Between(head) = &session.stage else {
        panic!("the session has an open round")
    };
    let mut bytes = Vec::new();
    head.save_secret(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_resumed_session_draws_the_rows_of_the_ledger_again_bit_for_bit() {
    for text in [ULS, ADAPTIVE] {
        let out = TempDir::new().unwrap();
        let mut session = create(out.path(), text, false).unwrap();
        for _ in 0..8 {
            one_round(&mut session).unwrap();
        }
        // The last state is that of round 5, and the rows of rounds 5 to 7 are in the journal. A tree restarts before round 7.
        assert_eq!(session.saved, 5);
        let journal = out.path().join("s/checkpoint/journal.jsonl");
        assert_eq!(fs::read_to_string(&journal).unwrap().lines().count(), 3);
        let (expected, clip) = (secret(&session), clip_of(&session));
        drop(session);
        let ledger = fs::read(out.path().join("s").join(LEDGER_FILE)).unwrap();
        let mut resumed = create(out.path(), text, true).unwrap();
        // The state names the key of the next row, which is a new one; everything else is equal.
        assert_eq!(resumed.round(), 8);
        let state = secret(&resumed);
        let differ = state.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert_eq!((state.len(), differ), (expected.len(), 0));
        assert_eq!(clip_of(&resumed), clip);
        assert_eq!(fs::read(out.path().join("s").join(LEDGER_FILE)).unwrap(), ledger);
        assert_eq!(fs::read(&journal).unwrap(), b"");
        all_rounds(&mut resumed);
        let folder = resumed.finish(&[0.0; DIM]).unwrap();
        assert_eq!(problems(&folder), "");
    }
}

/// The clip norms of a session, where clipping is adaptive.
fn clip_of(session: &Session) -> Option<undertone_coordinator::adaptive_clip::AdaptiveClip> {
    let Stage::Between(head) = &session.stage else {
        panic!("the session has an open round")
    };
    head.clip()
}

#[test]
fn seeded_sessions_are_equal_also_when_one_is_resumed() {
    for text in [ULS, ADAPTIVE] {
        let seeded = format!("seed = 7\n{text}");
        let (whole, parts) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut session = create(whole.path(), &seeded, false).unwrap();
        let expected = all_rounds(&mut session);
        let folder = session.finish(&[1.0; DIM]).unwrap();
        let mut found = Vec::new();
        for stop in [0, 3, 5, 8, 12] {
            let mut session = create(parts.path(), &seeded, stop > 0).unwrap();
            // An open round that was not released is opened again.
            while found.len() < stop {
                found.extend(one_round(&mut session).unwrap());
            }
            session.next_round().unwrap();
        }
        assert_eq!(found, expected);
        let mut session = create(parts.path(), &seeded, true).unwrap();
        let other = session.finish(&[1.0; DIM]).unwrap();
        for name in [
            "config.toml",
            "ledger.jsonl",
            "mechanism.json",
            "privacy.json",
            "manifest.json",
        ] {
            assert_eq!(
                fs::read(folder.join(name)).unwrap(),
                fs::read(other.join(name)).unwrap(),
                "{name}"
            );
        }
    }
}

#[test]
fn a_ledger_that_is_newer_than_its_journal_is_refused() {
    let out = TempDir::new().unwrap();
    let mut session = create(out.path(), ULS, false).unwrap();
    for _ in 0..3 {
        one_round(&mut session).unwrap();
    }
    drop(session);
    let journal = out.path().join("s/checkpoint/journal.jsonl");
    let rows = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    let error = |text: String| {
        fs::write(&journal, text).unwrap();
        create(out.path(), ULS, true).unwrap_err().to_string()
    };
    let found = error(format!("{}\n{}\n", lines[0], lines[1]));
    assert!(
        found.contains("it ends before round 2, and ledger.jsonl has 3 rounds"),
        "{found}"
    );
    // The entropy of another row has another name.
    let digits = lines[1].rsplit('"').nth(1).unwrap();
    let found = error(rows.replace(digits, &"0".repeat(64)));
    assert!(found.contains("line 2, noise_key"), "{found}");
    let found = error(rows.replace(digits, "00"));
    assert!(found.contains("line 2: entropy"), "{found}");
    // A row that no line follows was never released.
    fs::write(
        &journal,
        format!("{rows}{}\n", lines[2].replace("\"round\":2", "\"round\":3")),
    )
    .unwrap();
    assert_eq!(create(out.path(), ULS, true).unwrap().round(), 3);
}

#[test]
fn a_torn_line_is_cut_and_a_whole_one_is_kept() {
    let out = TempDir::new().unwrap();
    let mut session = create(out.path(), POISSON, false).unwrap();
    one_round(&mut session).unwrap();
    drop(session);
    let path = out.path().join("s").join(LEDGER_FILE);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], b"{\"round\":1,\"samp"].concat()).unwrap();
    let session = create(out.path(), POISSON, true).unwrap();
    assert_eq!(session.round(), 1);
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn a_unit_contributes_once_and_by_no_more_than_the_clip_norm() {
    let out = TempDir::new().unwrap();
    let text = POISSON.replace("users_per_round = 8", "sampling_probability = 1.0");
    let mut session = create(out.path(), &text, false).unwrap();
    assert!(session.open_round().is_none());
    let round = session.next_round().unwrap().unwrap();
    assert_eq!(round.users().len() as u64, USERS);
    for update in [[f32::NAN; DIM], [f32::INFINITY; DIM]] {
        let unit = usize::from(update[0].is_nan());
        assert_eq!(
            round.add(unit, &update).unwrap(),
            undertone_aggregation::Added::Discarded
        );
    }
    let report = round.add(2, &[1e30; DIM]).unwrap().report();
    assert!(report.clipped && report.norm > 1e30);
    let message = |unit, update: &[f32]| round.add(unit, update).unwrap_err().to_string();
    assert_eq!(
        message(2, &[0.0; DIM]),
        "round 0, unit 2: it has contributed before"
    );
    assert_eq!(
        message(20, &[0.0; DIM]),
        "round 0, unit 20: expected a unit from 0 to 19"
    );
    assert_eq!(message(3, &[0.0; 2]), "update: expected 6 values, got 2");
    // The unit of the wrong length has not contributed.
    round.add(3, &[0.1; DIM]).unwrap();
    assert!(
        session
            .next_round()
            .err()
            .unwrap()
            .to_string()
            .contains("open round")
    );
    let error = session.release(&mut [0.0; 2]).unwrap_err().to_string();
    assert_eq!(error, "out: expected 6 values, got 2");
    session.release(&mut [0.0; DIM]).unwrap();
    let error = session.release(&mut [0.0; DIM]).unwrap_err().to_string();
    assert_eq!(error, "the session has no open round");
}

#[test]
fn a_budget_ends_a_session_one_round_before_it_would_be_exceeded() {
    let out = TempDir::new().unwrap();
    let mut session = create(out.path(), POISSON, false).unwrap();
    for _ in 0..3 {
        one_round(&mut session).unwrap();
    }
    let spent = session.epsilon().unwrap().unwrap();
    let other = TempDir::new().unwrap();
    let text = POISSON.replace(
        "delta = 1e-5",
        &format!("delta = 1e-5\nmax_epsilon = {}", spent * 1.0001),
    );
    let mut session = create(other.path(), &text, false).unwrap();
    for _ in 0..3 {
        one_round(&mut session).unwrap();
    }
    for _ in 0..2 {
        let error = session.next_round().err().unwrap().to_string();
        assert!(error.contains("round 3 would raise epsilon"), "{error}");
    }
    let folder = session.finish(&[0.0; DIM]).unwrap();
    assert_eq!(problems(&folder), "");
}

#[test]
fn a_folder_of_other_settings_or_people_is_not_resumed() {
    let out = TempDir::new().unwrap();
    drop(create(out.path(), ELS, false).unwrap());
    let error = create(out.path(), &ELS.replace("1.5", "1.6"), true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("different configuration"), "{error}");
    let mut others = counts(ELS).unwrap();
    others[3] += 1;
    let error = Session::create(out.path(), config(ELS), Path::new("."), Some(&others), true);
    // With another number of kept examples the probability differs, and with it nothing of the plan is that of the ledger.
    let error = error.unwrap_err().to_string();
    assert!(error.contains("different corpus"), "{error}");
    for examples in [None, Some(&[1_u32, 2][..])] {
        let error = Session::create(out.path(), config(ELS), Path::new("."), examples, true);
        assert!(error.unwrap_err().to_string().contains("`examples`"));
    }
    let held = create(out.path(), ELS, true).unwrap();
    assert!(matches!(
        create(out.path(), ELS, true),
        Err(RunError::RunLocked { .. })
    ));
    drop(held);
    assert!(matches!(
        create(out.path(), ELS, false),
        Err(RunError::Directory(DirectoryError::RunExists { .. }))
    ));
    create(out.path(), ELS, true).unwrap();
}

#[cfg(unix)]
#[test]
fn the_journal_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let out = TempDir::new().unwrap();
    let mut session = create(out.path(), POISSON, false).unwrap();
    one_round(&mut session).unwrap();
    let mode = |name: &str| {
        let path = out.path().join("s").join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("checkpoint"), mode("checkpoint/journal.jsonl")),
        (0o700, 0o600)
    );
    // No digit of the entropy stands in the ledger.
    let journal = fs::read_to_string(out.path().join("s/checkpoint/journal.jsonl")).unwrap();
    let digits = journal.rsplit('"').nth(1).unwrap();
    assert_eq!(digits.len(), 64);
    let ledger = fs::read_to_string(out.path().join("s").join(LEDGER_FILE)).unwrap();
    assert!(!ledger.contains(&digits[..16]));
}

fn is_send<T: Send>() {}

#[test]
fn a_session_can_go_to_another_thread() {
    is_send::<Session>();
    is_send::<Round>();
}
