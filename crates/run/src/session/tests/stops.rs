//! Sessions that end before their last round, and what they and their readers state.

use serde_json::Value;

use super::*;
use undertone_run_directory::files::names::{PRIVACY_FILE, PRIVACY_PAGE};
use undertone_run_directory::privacy_page;
use undertone_verify::publish;

/// A session that was finished after three of its rounds, with the guarantee of all of them.
fn stopped(out: &Path, text: &str) -> (PathBuf, GuaranteeRecord) {
    let mut session = create(out, text, false).unwrap();
    let planned = session.planned().unwrap().clone();
    for _ in 0..3 {
        one_round(&mut session).unwrap();
    }
    (session.finish(&[1.0; DIM]).unwrap(), planned)
}

fn report(folder: &Path) -> PrivacyReport {
    files::read_json(&folder.join(PRIVACY_FILE)).unwrap()
}

#[test]
fn a_session_that_somebody_finishes_early_claims_all_of_its_rounds_everywhere() {
    // Examples whose number was counted are not published.
    let declared = ELS.replace("examples_per_round = 12", "sampling_probability = 0.4")
        + "[estimator]\nkind = \"fixed_denominator\"\nexpected_weight = 12.0\n";
    for text in [ULS, POISSON, &declared] {
        let out = TempDir::new().unwrap();
        let (folder, planned) = stopped(out.path(), text);
        let report = report(&folder);
        let observed = report.observed.clone().unwrap();
        assert!(observed.epsilon < planned.epsilon, "{text}");
        let stopped = report.stopped.clone().unwrap();
        assert_eq!((stopped.rounds, stopped.planned_rounds), (3, planned.rounds));
        assert_eq!(report.claimed(), Some(&planned));
        assert_eq!(report.of_release(), Some(("stopped.claimed", &planned)));
        let page = fs::read_to_string(folder.join(PRIVACY_PAGE)).unwrap();
        let size = page.lines().find(|line| line.starts_with("| Size of epsilon |"));
        let stated = undertone_present::numbers::epsilon_delta(planned.epsilon, planned.delta);
        assert!(size.unwrap().contains(&stated), "{size:?}");
        assert!(
            page.contains("### Claimed: (") && page.contains("- **Stop.** 3 of"),
            "{page}"
        );
        let verified = verify(&folder).unwrap();
        assert!(verified.holds() && verified.warnings.is_empty(), "{verified:?}");
        assert_eq!(verified.recomputed.as_ref(), Some(&planned));
        let published = publish(&folder, &out.path().join("published")).unwrap();
        assert_eq!(published.verification.recomputed, Some(planned));
    }
}

/// Every claim beside the observed one is bound: a folder that states less is named.
#[test]
fn a_smaller_claim_after_a_stop_is_named() {
    let out = TempDir::new().unwrap();
    let (folder, _) = stopped(out.path(), POISSON);
    let honest = fs::read_to_string(folder.join(PRIVACY_FILE)).unwrap();
    let value: Value = serde_json::from_str(&honest).unwrap();
    for (pointer, forged) in [
        ("/stopped/claimed/epsilon", 0.1.into()),
        ("/stopped/planned_rounds", 3.into()),
        ("/stopped/rounds", 6.into()),
        ("/stopped", Value::Null),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(pointer).unwrap() = forged;
        fs::write(folder.join(PRIVACY_FILE), value.to_string()).unwrap();
        assert!(
            problems(&folder).contains("privacy.json, stopped"),
            "{pointer}: {}",
            problems(&folder)
        );
    }
}

/// A folder as an earlier version wrote it: it claims the epsilon of three rounds, and its statements lack a condition.
#[test]
fn a_session_of_an_earlier_version_holds_with_warnings_that_name_its_faults() {
    let out = TempDir::new().unwrap();
    let (folder, planned) = stopped(out.path(), POISSON);
    let mut earlier = report(&folder);
    earlier.stopped = None;
    earlier
        .statements
        .retain(|statement| !statement.starts_with("Stop: "));
    let page = privacy_page::document("s", &earlier);
    let reworded = |text: &str| {
        text.replace(
            "The guarantee assumes that a unit's update is a function of that unit and of the released model alone, and of no other \
             unit. It covers",
            "The guarantee covers",
        )
        .replace(
            "operating system, each kept in the private folder of the session until the next state; a backup of a live session \
             removes its noise",
            "operating system that are never stored",
        )
    };
    let json = serde_json::to_string_pretty(&earlier).unwrap();
    assert_ne!(reworded(&json), json);
    assert_ne!(reworded(&page), page);
    fs::write(folder.join(PRIVACY_FILE), reworded(&json)).unwrap();
    fs::write(folder.join(PRIVACY_PAGE), reworded(&page)).unwrap();
    // Its model did not say what it was trained on.
    let layout = config(POISSON).task.model.layout(0).unwrap();
    let model = weights::tensors_alone(&layout, &[1.0; DIM]).unwrap();
    fs::write(folder.join(MODEL_FILE), model).unwrap();
    let manifest = Manifest::read(&folder).unwrap();
    let again = Manifest::of(&folder, &FINISHED_FILES, manifest.rounds, &manifest.ledger_head);
    again.unwrap().write(&folder).unwrap();
    let verified = verify(&folder).unwrap();
    assert!(verified.holds(), "{}", problems(&folder));
    let said = verified.warnings.join("\n");
    for words in [
        "privacy.json: it claims the epsilon of the 3 rounds that were made",
        "privacy.json: the statements lack a condition",
        "privacy.md: the statements lack a condition",
        "privacy.md: the checklist says that the keys of the noise are never stored",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(verified.recomputed, Some(planned));
    let error = publish(&folder, &out.path().join("published"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("after a stop it claims the epsilon of the rounds"),
        "{error}"
    );
}

#[test]
fn each_session_states_that_a_unit_depends_on_no_other_unit() {
    let condition = "a unit's update is a function of that unit and of the released model alone";
    for (text, of_caller) in [
        (POISSON.to_owned(), false),
        (format!("unit_rng = \"caller\"\n{POISSON}"), true),
    ] {
        let out = TempDir::new().unwrap();
        let mut session = create(out.path(), &text, false).unwrap();
        all_rounds(&mut session);
        let folder = session.finish(&[1.0; DIM]).unwrap();
        let statements = report(&folder).statements.join("\n");
        assert!(statements.contains(condition), "{statements}");
        let page = fs::read_to_string(folder.join(PRIVACY_PAGE)).unwrap();
        assert!(page.contains(condition), "{page}");
        assert_eq!(
            page.contains("- **Random numbers of units.** "),
            of_caller,
            "{page}"
        );
        assert!(!page.contains("never stored"), "{page}");
        assert_eq!(problems(&folder), "");
        assert_eq!(report(&folder).stopped, None);
    }
}

/// A reader would take any text in the header of a model for a statement of the run.
#[test]
fn a_foreign_text_in_the_header_of_a_model_is_named() {
    let out = TempDir::new().unwrap();
    let (folder, _) = stopped(out.path(), POISSON);
    let path = folder.join(MODEL_FILE);
    let model = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
    let honest = String::from_utf8(model[8..8 + length].to_vec()).unwrap();
    let parsed = |header: &str| -> Value { serde_json::from_str(header).unwrap() };
    let with = |change: &dyn Fn(&mut Value)| {
        let mut header = parsed(&honest);
        change(&mut header);
        header.to_string()
    };
    for (header, place) in [
        (
            with(&|header| header["__metadata__"]["guarantee"] = "epsilon 0.01, certified".into()),
            "__metadata__, guarantee",
        ),
        (with(&|header| header["w"]["forged"] = 1.into()), "w, forged"),
        (
            honest.replacen('{', &format!("{{\"w\":{},", parsed(&honest)["w"]), 1),
            "a key that stands there twice",
        ),
    ] {
        let mut forged = (header.len() as u64).to_le_bytes().to_vec();
        forged.extend_from_slice(header.as_bytes());
        forged.extend_from_slice(&model[8 + length..]);
        fs::write(&path, forged).unwrap();
        let found = problems(&folder);
        let expected = format!("model.safetensors, its header, \"{place}");
        assert!(found.contains(&expected), "{expected}: {found}");
    }
}
