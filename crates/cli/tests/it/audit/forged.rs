//! Forged `audit.json` files: `verify` finds every figure that does not follow from the others or from the run.

use serde_json::{Value, json};

use crate::support::{self, Folder, TINY, contains};
use crate::verify::document;

const NAME: &str = "runs/tiny/audit.json";

/// A run whose recorded audit holds, and the text of that audit.
struct Recorded {
    folder: Folder,
    honest: String,
}

impl Recorded {
    fn by(folder: Folder, audits: [&str; 2]) -> Self {
        for audit in audits {
            folder.succeed(format!("audit {audit} --record"));
        }
        folder.show("verify runs/tiny", "nothing contradicts the claim");
        let honest = folder.text(NAME);
        Self { folder, honest }
    }

    /// Asserts that `verify` names this place of the audit after the change.
    #[track_caller]
    fn forge(&self, place: &str, change: impl Fn(&mut Value)) {
        self.folder.write(NAME, document(&self.honest, change));
        contains(
            &self.folder.disproved("runs/tiny"),
            &format!("audit.json ... {place}"),
        );
    }
}

/// Puts a value at a path such as `canaries.0.guesses`.
fn put(audit: &mut Value, path: &str, value: Value) {
    let place = path.split('.').fold(audit, |at, key| match key.parse::<usize>() {
        Ok(index) => &mut at[index],
        Err(_) => &mut at[key],
    });
    *place = value;
}

fn push_copy(list: &mut Value, index: usize) {
    let copy = list[index].clone();
    list.as_array_mut().expect("a list").push(copy);
}

#[test]
#[ignore = "slow"]
fn a_recorded_audit_is_verified_figure_by_figure() {
    let recorded = Recorded::by(
        Folder::trained(TINY),
        [
            "replay runs/tiny --users 5",
            "canaries runs/tiny --seed 1 --canaries 200 --probes 64",
        ],
    );
    // What `verify` names, the figure that is changed, and its new value.
    for (place, path, value) in [
        ("run.name", "run.name", json!("other")),
        ("run.config_sha256", "run.config_sha256", json!("00")),
        ("run.ledger_head", "run.ledger_head", json!("00")),
        ("plan_sha256", "plan_sha256", json!("00")),
        ("guesses", "canaries.0.guesses", json!(3)),
        ("epsilon_lower", "canaries.0.epsilon_lower", json!(0.0123)),
        (
            "most_that_could_show",
            "canaries.1.most_that_could_show",
            json!(99.0),
        ),
        ("p_at_claim", "canaries.0.p_at_claim", json!(0.123)),
        ("headline", "canaries.0.headline", json!(false)),
        ("claim", "claim.epsilon", json!(0.01)),
        ("claim.population", "claim.population", json!(1)),
        ("claim.rounds", "claim.rounds", json!(1)),
        ("claim.group_size", "claim.group_size", json!(u32::MAX)),
        ("plan.guesses", "plan.guesses", json!(7)),
        ("plan.guesses_fdp", "plan.guesses_fdp", json!(7)),
        (
            "plan.canaries`: expected at least 10",
            "plan.canaries",
            json!(3_000_000),
        ),
        ("confidence", "canaries.0.confidence", json!(0.5)),
        ("noise.tests[0].p", "noise.tests.0.p", json!(0.5017)),
        ("noise.values", "noise.values", json!(385)),
        ("p_holm", "noise.tests.0.p_holm", json!(0.5017)),
        ("smallest_p_holm", "noise.smallest_p_holm", json!(0.5017)),
        ("clip_norms_per_round", "replay.clip_norms_per_round", json!(2)),
        ("conditional_on", "replay.conditional_on", json!(["nothing"])),
        ("tested", "replay.tested", json!("all runs")),
        ("replay.pairs", "replay.pairs", json!(1000)),
        ("R1", "replay.checks.1.failed", json!(3)),
        ("property", "replay.checks.1.property", json!("all is well")),
        ("adjacency", "replay.adjacency", json!("zero-out")),
        ("verdict", "verdict", json!("all is well")),
        ("statements", "statements.0", json!("all is well")),
        ("new", "new", json!(1)),
    ] {
        recorded.forge(place, |audit| put(audit, path, value.clone()));
    }
    recorded.forge("adversary", |audit| {
        put(audit, "canaries.0.adversary", json!("final_model"));
        put(audit, "canaries.0.headline", json!(false));
    });
    recorded.forge("bounds", |audit| push_copy(&mut audit["canaries"], 2));
    recorded.forge("noise.tests", |audit| {
        put(audit, "noise.tests", json!([]));
        put(audit, "noise.smallest_p_holm", json!(1));
    });
    // A failure that stands in the figures is a verdict of its own.
    recorded.forge("verdict", |audit| {
        put(audit, "replay.checks.1.failed", json!(1));
        put(audit, "replay.checks.1.first_failure", json!(0));
    });
    recorded.folder.write(NAME, "{");
    contains(&recorded.folder.disproved("runs/tiny"), "audit.json");
}

/// Sections of another level stand beside the figures of the file. They are made again as well, each kind and level once.
#[test]
#[ignore = "slow"]
fn audits_beside_the_figures_of_the_file_are_verified_as_well() {
    let folder = Folder::with(TINY);
    folder.succeed("train run.toml --set audit={lane=40,noise_probe=32}");
    let recorded = Recorded::by(
        folder,
        [
            "canaries runs/tiny --level lane",
            "canaries runs/tiny --seed 1 --canaries 40 --probes 32",
        ],
    );
    let others = &support::json(&recorded.honest)["others"];
    assert_eq!(others.as_array().map(Vec::len), Some(2), "{others}");
    for place in 0..2 {
        recorded.forge(&format!("others[{place}].verdict"), |audit| {
            audit["others"][place]["verdict"] = "all is well".into();
        });
        recorded.forge("sections of different kinds or levels", |audit| {
            push_copy(&mut audit["others"], place);
        });
    }
    recorded.forge("one section", |audit| {
        for section in ["noise", "canaries"] {
            audit["others"][0][section] = audit[section].clone();
        }
    });
    recorded.forge("an alarm of a section", |audit| {
        audit["alarms"] = json!([{ "kind": "noise", "level": "text", "verdict": "contradicted" }]);
    });
}
