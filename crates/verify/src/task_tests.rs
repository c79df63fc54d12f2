//! Tasks made by hand, exported and verified: verification passes on what was written, and names the place of every change.

mod forge;
mod world;

use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;

use sha2::Digest;
use tempfile::TempDir;
use undertone_coordinator::record::{EndReason, PrivacyReport};
use undertone_coordinator::task::TaskPurpose;

use self::world::{EVALUATION, Made, PLAIN, SECURE, World};
use crate::verify::{Verification, verify};
use undertone_coordinator::task::Seeding;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::task::{parse, text as text_of};

fn problems(verification: &Verification) -> Vec<String> {
    let checks = verification.checks.iter();
    checks.flat_map(|check| check.problems.clone()).collect()
}

/// Exports the task into a folder that is thrown away.
fn exported(made: &Made<'_>) -> (TempDir, PathBuf, PrivacyReport) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exported");
    let report = made.export(&path).unwrap();
    (folder, path, report)
}

/// Verifies and returns all problems.
fn verified(folder: &Path) -> Vec<String> {
    problems(&verify(folder).unwrap())
}

fn found(verification: &Verification, name: &str) -> String {
    let check = verification.checks.iter().find(|check| check.name == name);
    check.unwrap_or_else(|| panic!("no check {name}")).found.clone()
}

#[test]
fn an_exported_task_verifies_and_says_who_vouched_for_its_users() {
    for text in [PLAIN, SECURE] {
        let world = World::new(text);
        let (_folder, path, report) = exported(&world.completed());
        let verification = verify(&path).unwrap();
        assert_eq!(problems(&verification), Vec::<String>::new(), "{text}");
        assert!(verification.holds());
        let identity = found(&verification, "identity");
        assert!(
            identity.contains("one subject of the issuer") && identity.contains(&"07".repeat(32)),
            "{identity}"
        );
        assert!(
            found(&verification, "ledger").contains("6 rounds, chained from the settings on, to the end")
        );
        let participation = found(&verification, "participation");
        assert!(
            participation.contains("at most 2 times, MinS 2"),
            "{participation}"
        );
        let observed = verification.recomputed.unwrap();
        assert_eq!(Some(&observed), report.observed.as_ref());
        assert_eq!(observed.schema.unwrap().max_part, 2);
        let said = report.statements.join("\n");
        for words in [
            "Identity: one user is one subject",
            "was too slow or had too few examples, is not hidden",
            "Other tasks of the same population",
            "groups of at least 3 devices",
        ] {
            assert_eq!(
                said.contains(words),
                words != "groups of at least 3 devices" || text == SECURE,
                "{words}"
            );
        }
        assert!(report.warnings.iter().all(|warning| !warning.contains("vouches")));
        // The directory is read as that of a run is.
        let data = undertone_run_directory::read::read(&path).unwrap();
        assert_eq!((data.rounds.len(), data.start.train_tokens), (6, None));
        assert!(data.rounds.iter().all(|round| round.train_loss.is_none()));
        assert!(data.config.unwrap().contains("check_in"));
    }
}

#[test]
fn an_exported_evaluation_has_no_model_and_verifies() {
    let world = World::new(EVALUATION);
    assert!(matches!(world.file.purpose, TaskPurpose::Evaluate { .. }));
    let (_folder, path, report) = exported(&world.completed());
    assert!(!path.join("model.safetensors").exists());
    assert_eq!(verified(&path), Vec::<String>::new());
    let said = report.statements.join("\n");
    assert!(said.contains("three rates that users report"), "{said}");
    assert!(
        report.warnings.iter().any(|warning| warning.contains("vouches")),
        "an evaluation in development says so"
    );
}

#[test]
fn a_task_that_was_stopped_names_its_last_attempts_and_verifies() {
    let world = World::new(PLAIN);
    let (_folder, path, report) = exported(&world.made(3, EndReason::Stopped));
    assert_eq!(verified(&path), Vec::<String>::new());
    assert_eq!(report.observed.unwrap().rounds, 3);
    assert_eq!(report.stopped.unwrap().claimed, report.planned);
    let ledger = std::fs::read_to_string(path.join("ledger.jsonl")).unwrap();
    let last = ledger.lines().last().unwrap();
    assert!(
        last.starts_with(r#"{"end":"stopped","rounds":3,"attempts":[{"attempt":0,"#),
        "{last}"
    );
}

/// An operator who stops a task may have looked at its models first. A lack of users is no such choice, and the ledger says which of both it was.
#[test]
fn a_task_that_its_operator_stopped_claims_all_rounds_and_a_starved_one_those_that_were_made() {
    let world = World::new(PLAIN);
    let (_folder, path, report) = exported(&world.made(3, EndReason::Stopped));
    let verification = verify(&path).unwrap();
    assert!(verification.holds() && verification.warnings.is_empty());
    assert_eq!(verification.recomputed, report.planned);
    let header =
        undertone_models::weights::description(&std::fs::read(path.join("model.safetensors")).unwrap());
    let header: serde_json::Value = serde_json::from_str(&header.unwrap().unwrap()).unwrap();
    let stated = &header["trained_on"][0]["guarantee"]["epsilon"];
    assert_eq!(stated.as_f64(), report.planned.map(|planned| planned.epsilon));

    let (_folder, path, report) = exported(&world.made(3, EndReason::Starved));
    let verification = verify(&path).unwrap();
    assert!(verification.holds() && verification.warnings.is_empty());
    assert_eq!((report.stopped, verification.recomputed), (None, report.observed));
}

/// The whole unit of privacy of a task rests on its issuer.
#[test]
fn another_issuer_than_that_of_the_ledger_is_named_and_changes_of_its_keys_are_shown() {
    let world = World::new(SECURE);
    let (_folder, path, _) = exported(&world.completed());
    let verification = verify(&path).unwrap();
    let identity = found(&verification, "identity");
    let (name, next) = ("07".repeat(32), "08".repeat(32));
    assert!(
        identity.ends_with(&format!(
            "Issuer: {name}. Certificates counted from round 0 on: {name}. Certificates counted from round 3 on: {name}, {next}."
        )),
        "{identity}"
    );
    let record = path.join("service.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replace(&name, &"ab".repeat(32))).unwrap();
    let problems = verified(&path);
    assert!(
        problems.iter().any(|problem| problem
            .contains("the ledger, line 1, issuer.name: expected the issuer of service.json, abab")),
        "{problems:?}"
    );
}

/// The ledger of devices names nobody, so participation is what the task declares.
#[test]
fn a_ledger_of_devices_states_the_declared_schema() {
    let world = World::changed(PLAIN, &[("service.ledger", "\"device\"")]);
    let (_folder, path, report) = exported(&world.completed());
    assert_eq!(verified(&path), Vec::<String>::new());
    let schema = report.observed.unwrap().schema.unwrap();
    assert_eq!((schema.min_sep, schema.max_part), (3, 2));
    assert!(
        report
            .statements
            .iter()
            .any(|said| said.contains("declared, not observed"))
    );
}

#[test]
fn a_parity_test_says_that_its_noise_is_known() {
    let world = World::changed(PLAIN, &[("seed", "7")]);
    let (_folder, path, report) = exported(&world.completed());
    assert_eq!(verified(&path), Vec::<String>::new());
    assert!(report.warnings.iter().any(|warning| warning.contains("seeded")));
    let ledger = std::fs::read_to_string(path.join("ledger.jsonl")).unwrap();
    assert!(ledger.contains(r#""mode":"parity_test""#));
}

/// The trainings that an initial model names are part of the settings that the ledger follows.
#[test]
fn a_task_that_starts_from_a_model_names_its_trainings() {
    let world = World::changed(PLAIN, &[("initial_model", "\"public.safetensors\"")]);
    let (_folder, path, _) = exported(&world.completed());
    assert_eq!(verified(&path), Vec::<String>::new());
    let described = std::fs::read_to_string(path.join("initial_model.json")).unwrap();
    assert!(described.contains("undescribed"), "{described}");
    std::fs::remove_file(path.join("initial_model.json")).unwrap();
    let problems = verified(&path);
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("initial_model.json: missing"))
            && problems
                .iter()
                .any(|problem| problem.contains("line 1: expected to follow")),
        "{problems:?}"
    );
}

/// A running guarantee may stand in the record of any round, and is then recomputed.
#[test]
fn an_epsilon_of_a_round_is_recomputed() {
    let world = World::new(PLAIN);
    let folder = tempfile::tempdir().unwrap();
    for (name, factor, holds) in [("true", 1.0, true), ("better", 0.99, false)] {
        let mut made = world.completed();
        made.state_epsilon(4, factor);
        let path = folder.path().join(name);
        made.export(&path).unwrap();
        let problems = verified(&path);
        assert_eq!(problems.is_empty(), holds, "{problems:?}");
        assert!(
            holds || problems[0].contains("metrics.jsonl, round 4, epsilon"),
            "{problems:?}"
        );
    }
}

#[test]
fn an_export_appears_whole_or_not_at_all() {
    let world = World::new(PLAIN);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exported");
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let mut without_end = world.completed();
    without_end.ledger.pop();
    let error = without_end.export(&path).unwrap_err().to_string();
    assert!(error.contains("the key `end`"), "{error}");
    let mut after = world.completed();
    after.ledger.push(after.ledger[0].clone());
    let error = after.export(&path).unwrap_err().to_string();
    assert!(error.contains("line 8: it follows the end"), "{error}");
    assert!(names().is_empty(), "{:?}", names());
    world.completed().export(&path).unwrap();
    assert_eq!(names(), ["exported"]);
    // Neither a task nor an empty folder is replaced.
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for taken in ["exported", "empty"] {
        let error = world.completed().export(&folder.path().join(taken)).unwrap_err();
        assert!(matches!(error, DirectoryError::RunExists { .. }), "{error}");
    }
    assert_eq!(names(), ["empty", "exported"]);
}

#[test]
fn the_text_of_a_task_reads_back_with_all_its_settings() {
    for text in [PLAIN, SECURE, EVALUATION] {
        let file = parse(text, Path::new("task.toml"), Seeding::Refused).unwrap();
        let written = text_of(&file).unwrap();
        let again = parse(&written, Path::new("task.toml"), Seeding::Refused).unwrap();
        assert_eq!(again, file);
        assert_eq!(again.canonical().unwrap(), file.canonical().unwrap());
        assert_eq!(text_of(&again).unwrap(), written);
    }
    let syntax = parse("name = 3", Path::new("task.toml"), Seeding::Refused);
    let error = syntax.unwrap_err().to_string();
    assert!(error.contains("task.toml") && error.contains("line 1"), "{error}");
}

#[test]
fn a_run_refuses_devices_that_check_in() {
    let text = "name = \"t\"\nrounds = 4\ndata = { source = { kind = \"synthetic\", users = 60, words = 40 } }\n\
                model = { family = \"dplm\", embed = 4, hidden = 6 }\n\
                cohort = { sampling = \"check_in\", users_per_round = 10, population = 60 }\n\
                user_update = { batch_size = 4, learning_rate = 0.5 }\n";
    let error = RunConfig::parse(text, Path::new("run.toml"), &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cohort.sampling") && error.contains("undertone serve"),
        "{error}"
    );
}

/// A published task names no file of its author, and its users in the participation of its ledger alone, by names of the publication.
#[test]
fn a_published_task_has_no_path_and_its_pseudonyms_are_those_of_one_publication() {
    let world = World::changed(
        PLAIN,
        &[
            ("vocabulary.path", "\"/home/ann/w0rds-of-ann.txt\""),
            ("initial_model", "\"/home/ann/st4rt.safetensors\""),
        ],
    );
    let (folder, path, _) = exported(&world.made(5, EndReason::Stopped));
    let task = std::fs::read(path.join("task.toml")).unwrap();
    let pseudonym = |number: u64| format!("{number:016x}").into_bytes();
    let mut hidden: Vec<Vec<u8>> = ["w0rds-of-ann", "st4rt", "/home/ann"]
        .map(|path| path.as_bytes().to_vec())
        .into();
    for whole in ["/home/ann/w0rds-of-ann.txt", "/home/ann/st4rt.safetensors"] {
        hidden.push(undertone_present::numbers::hex(&sha2::Sha256::digest(whole)).into_bytes());
    }
    let mut joined = std::collections::BTreeSet::new();
    for publication in ["one", "other"] {
        let to = folder.path().join(publication);
        crate::publish::publish(&path, &to).unwrap();
        assert_eq!(verified(&to), Vec::<String>::new());
        let holds = |bytes: &[u8], form: &[u8]| bytes.windows(form.len()).any(|window| window == form);
        for entry in std::fs::read_dir(&to).unwrap() {
            let entry = entry.unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            let private = (0..60).chain([980, 990]).map(pseudonym);
            for form in hidden.iter().cloned().chain(private) {
                let shown = String::from_utf8_lossy(&form).into_owned();
                assert!(!holds(&bytes, &form), "{:?}: {shown}", entry.file_name());
            }
        }
        // Here the search finds them where they belong.
        assert!(hidden[..3].iter().all(|form| holds(&task, form)));
        let ledger = std::fs::read(path.join("ledger.jsonl")).unwrap();
        assert!(holds(&ledger, &pseudonym(4)) && holds(&ledger, &pseudonym(990)));
        for line in std::fs::read_to_string(to.join("ledger.public.jsonl"))
            .unwrap()
            .lines()
        {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let names = line["participation"]["participants"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            for name in names {
                let name = name.as_str().unwrap().to_owned();
                joined.insert((publication, name));
            }
        }
    }
    let names: std::collections::BTreeSet<_> = joined.iter().map(|(_, name)| name).collect();
    assert_eq!(names.len(), joined.len(), "a name stands in both publications");
}
