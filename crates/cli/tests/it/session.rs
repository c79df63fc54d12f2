//! The folder of a session, whose model another program trains: what the commands make of it, and which refuse it.

use std::path::Path;
use undertone_run_directory::session_config::SessionConfig;

use undertone_run::session::Session;

use crate::publish::check_publication;
use crate::registry::FACTS;
use crate::support::{Folder, contains};

const POISSON: &str = r#"
name = "s"
rounds = 4
users = 40
model = { family = "external", tensors = [{ name = "w", shape = [2, 3] }] }
cohort = { users_per_round = 10 }
privacy = { noise_multiplier = 1.5, delta = 1e-5 }
"#;

/// A session whose guarantee rests on a participation schema.
fn by_schema() -> String {
    let mechanism = "mechanism = { kind = \"blt\", buffers = 2 }";
    POISSON
        .replace("{ users", "{ sampling = \"shuffled_epochs\", users")
        .replace("delta = 1e-5 }", &format!("delta = 1e-5, {mechanism} }}"))
}

/// A session of example-level sampling, with these settings of its cohorts.
fn els(cohort: &str) -> String {
    format!("{POISSON}user_update = {{ algorithm = \"els\", group_size = 2 }}\n")
        .replace("{ users_per_round = 10 }", cohort)
}

/// Example-level sampling whose numbers of examples all stand in the settings.
fn declared() -> String {
    let estimator = "estimator = { kind = \"fixed_denominator\", expected_weight = 12.0 }\n";
    els("{ sampling_probability = 0.2 }") + estimator
}

fn start(folder: &Folder, text: &str) -> Session {
    let config = SessionConfig::parse(text, Path::new("config")).expect("settings");
    let counts: Vec<u32> = (0..40).map(|user| user % 4).collect();
    let examples = text.contains("els").then_some(&counts[..]);
    Session::create(&folder.path("runs"), config, Path::new("."), examples, false).expect("a session")
}

/// Makes up to this number of rounds, in which every unit contributes.
fn advance(session: &mut Session, rounds: usize) {
    for _ in 0..rounds {
        let Some(round) = session.next_round().expect("a round") else {
            return;
        };
        let units = round.examples().map_or(round.users().len(), <[_]>::len);
        for unit in 0..units {
            round.add(unit, &[0.5; 6]).expect("an update");
        }
        session.release(&mut [0.0; 6]).expect("a release");
    }
}

/// A folder with a finished session in `runs/s`.
fn finished(text: &str) -> Folder {
    let folder = Folder::new();
    let mut session = start(&folder, text);
    advance(&mut session, 4);
    session.finish(&[1.0; 6]).expect("a folder");
    folder
}

#[test]
#[ignore = "slow"]
fn a_stranger_verifies_each_kind_of_session() {
    for (text, names_users) in [
        (POISSON.to_owned(), false),
        (declared(), false),
        (by_schema(), true),
    ] {
        let folder = finished(&text);
        let published = check_publication(&folder, "runs/s", names_users);
        let ledger = String::from_utf8_lossy(&published["ledger.public.jsonl"]).into_owned();
        assert_eq!(ledger.matches("released_sha256").count(), 4);
        let notes = folder.json("verify published")["notes"].to_string();
        contains(&notes, "Model: another program trained");
        let refused = "published/config.toml is the configuration of a session ... another program";
        folder.refuse("predict published w1", refused);
    }
}

#[test]
#[ignore = "slow"]
fn a_session_that_its_guarantee_does_not_cover_is_not_published() {
    let unfit = |text: &str, parts: &str| {
        finished(text).refuse("publish runs/s published", parts);
    };
    unfit(
        &format!("seed = 3\n{POISSON}"),
        "config.toml, seed ... subtract the noise",
    );
    unfit(
        &els("{ examples_per_round = 12 }"),
        "counted on the text ... cohort.sampling_probability and estimator.expected_weight",
    );
    let folder = Folder::new();
    let mut session = start(&folder, POISSON);
    advance(&mut session, 1);
    drop(session);
    folder.refuse("publish runs/s published", "manifest.json ... has not ended");
    assert!(!folder.path("published").exists());
}

#[test]
fn a_session_has_a_report_at_any_time() {
    let folder = Folder::new();
    let mut session = start(&folder, POISSON);
    advance(&mut session, 1);
    let shown = folder.json("report runs/s");
    assert_eq!(
        (&shown["rounds"], &shown["planned_rounds"]),
        (&1.into(), &4.into())
    );
    advance(&mut session, 3);
    session.finish(&[1.0; 6]).expect("a folder");
    let shown = folder.json("report runs/s");
    assert_eq!(
        (&shown["rounds"], &shown["model"]),
        (&4.into(), &"external".into())
    );
    assert_eq!(shown["evaluation"], serde_json::Value::Null);
    assert_eq!(
        shown["privacy"]["observed"]["epsilon"],
        folder.json("verify runs/s")["recomputed"]["epsilon"]
    );
    let page = folder.text("runs/s/report.html");
    contains(
        &page,
        "another program computed for a population of 40 users ... Users that contributed to a round",
    );
    assert!(folder.path("runs/s/plots/cohort-sizes.svg").exists());
    // Only the program that trained knows its times and losses.
    let table = folder.succeed("report runs/s");
    contains(&table, "rounds ... 4 of 4 ... observed");
    for unknown in ["training time", "Training loss", "op-1"] {
        assert!(!page.contains(unknown) && !table.contains(unknown), "{unknown}");
    }
    folder.write("facts.toml", FACTS);
    folder.succeed("report runs/s --registry facts.toml");
    folder.succeed("verify runs/s");
    let mut text = folder.text("runs/s/ledger.jsonl");
    text.insert_str(0, "{}\n");
    folder.write("runs/s/ledger.jsonl", text);
    folder.refuse(
        "report runs/s",
        "ledger.jsonl, line 1: expected one round of a session",
    );
}

#[test]
fn commands_that_need_words_or_text_say_what_a_session_has() {
    let folder = finished(POISSON);
    for line in [
        "predict runs/s w1",
        "generate runs/s",
        "eval runs/s",
        "export runs/s --layout undertone --out x",
        "audit replay runs/s",
        "audit attack runs/s",
        "audit noise runs/s",
    ] {
        folder.refuse(
            line,
            "config.toml is the configuration of a session ... words and text ... Load model.safetensors in that program ... \
             `undertone verify`, `report` and `publish`",
        );
    }
}
