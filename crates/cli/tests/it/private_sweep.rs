//! `undertone sweep --private`: a secret number of candidates, one guarantee for all, and nothing of a loser.

use serde_json::Value;

use crate::support::{Folder, TINY, contains, json, number};
use crate::verify::{document, sha256};

const SWEEP: &str = r#"
name = "tuned"
run = "run.toml"
set = ["rounds=3"]

[private]
mean_runs = 2.5
score = { public = { kind = "jsonl", path = "public.jsonl" } }

[[axis]]
name = "rate"
values = [
    { name = "slow", set = ["user_update.learning_rate=0.1"] },
    { name = "fast", set = ["user_update.learning_rate=1.0", "privacy.noise_multiplier=0.9"] },
]
"#;

/// A public text in words of the synthetic population.
fn public_text() -> String {
    let line = |user: usize| format!("{{\"user_id\": \"u{user}\", \"text\": \"w1 w2 w3 w4 w1 w5\"}}\n");
    (0..8).map(line).collect()
}

fn folder() -> Folder {
    let folder = Folder::with(TINY.replace("seed = 3\n", ""));
    folder.write("public.jsonl", public_text());
    folder.write("sweep.toml", SWEEP);
    folder
}

fn names(folder: &Folder, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path(name)).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    names.sort();
    names
}

#[test]
#[ignore = "slow"]
fn only_the_best_candidate_is_left_with_one_guarantee_for_all() {
    let folder = folder();
    let output = folder.run("sweep sweep.toml --private");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shown =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // No score, accuracy or round of any candidate is shown.
    for private in ["top-1", "perplexity", "round ", "candidate 1"] {
        assert!(!shown.contains(private), "{private}: {shown}");
    }
    let left = names(&folder, "runs/tuned");
    assert_eq!(left.len(), 1, "{left:?}");
    let run = format!("runs/tuned/{}", left[0]);
    let report: Value = json(&folder.text(&format!("{run}/privacy.json")));
    let figure = |record: &str| number(&report[record]["epsilon"]);
    assert!(figure("selected") > figure("observed"), "{report}");
    contains(
        &report["warnings"].to_string(),
        "private sweep ... `selected` is the guarantee",
    );

    // The figure of another program: the weaker combination's curve through the theorem, at delta 1e-4.
    let verified = folder.json(format!("verify {run}"));
    assert_eq!(verified["recomputed"], report["selected"]);

    // The statement of the model is that of the sweep.
    let model = folder.read(&format!("{run}/model.safetensors"));
    let header = String::from_utf8_lossy(&model[..4096.min(model.len())]).into_owned();
    let stated = report["selected"]["epsilon"].to_string();
    assert!(header.contains(&stated), "{stated} is not in {header}");

    // A sweep that has ended is not made again.
    let again = folder.json("sweep sweep.toml --private");
    assert_eq!(again["selected"], report["selected"]);
    assert_eq!(names(&folder, "runs/tuned"), left);

    // A published winner states the sweep, too.
    folder.succeed(format!("publish {run} published"));
    let published = folder.json("verify published");
    assert_eq!(published["recomputed"], report["selected"]);

    // A loser beside it is found: one without a model, and one with another.
    std::fs::create_dir(folder.path("runs/tuned/loser")).expect("a folder");
    folder.write(
        "runs/tuned/loser/sweep.json",
        folder.read(&format!("{run}/sweep.json")),
    );
    folder.write("runs/tuned/loser/metrics.jsonl", "{}\n");
    contains(
        &folder.disproved(&run),
        "loser: another candidate of the same private sweep",
    );
    folder.write("runs/tuned/loser/model.safetensors", "another");
    contains(&folder.disproved(&run), "loser: another candidate");
    folder.write("runs/tuned/loser/model.safetensors", &model);
    folder.succeed(format!("verify {run}"));
    std::fs::remove_dir_all(folder.path("runs/tuned/loser")).expect("removing");
    std::fs::create_dir(folder.path("runs/tuned/.candidates")).expect("a folder");
    contains(&folder.disproved(&run), ".candidates");
    std::fs::remove_dir(folder.path("runs/tuned/.candidates")).expect("removing");

    // A smaller sweep, or none, claims less than was spent.
    let sweep = folder.text(&format!("{run}/sweep.json"));
    let manifest = folder.text(&format!("{run}/manifest.json"));
    let forged = document(&sweep, |sweep| sweep["mean_runs"] = 1.1.into());
    folder.write(&format!("{run}/sweep.json"), &forged);
    folder.write(
        &format!("{run}/manifest.json"),
        document(&manifest, |manifest| {
            manifest["files"]["sweep.json"] = sha256(forged.as_bytes()).into();
        }),
    );
    contains(&folder.disproved(&run), "expected to follow");
    std::fs::remove_file(folder.path(&format!("{run}/sweep.json"))).expect("removing");
    folder.write(
        &format!("{run}/manifest.json"),
        document(&manifest, |manifest| {
            manifest["files"]
                .as_object_mut()
                .expect("files")
                .remove("sweep.json");
        }),
    );
    contains(&folder.disproved(&run), "expected to follow");
}

/// A process that is killed while candidates train goes on with the draws that it has made.
#[test]
#[ignore = "slow"]
fn a_killed_sweep_goes_on_with_the_same_draws() {
    let folder = folder();
    folder.write(
        "sweep.toml",
        SWEEP.replace("rounds=3", "rounds=400").replace("2.5", "3.5"),
    );
    let mut child = folder
        .command("sweep sweep.toml --private")
        .spawn()
        .expect("starting");
    let state = folder.path("runs/tuned/.candidates/state.json");
    let started = std::time::Instant::now();
    while !state.exists() {
        assert!(started.elapsed().as_secs() < 60, "no candidate began");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    child.kill().expect("killing");
    child.wait().expect("waiting");
    let Ok(text) = std::fs::read_to_string(&state) else {
        // The sweep was faster than the kill.
        return;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &std::path::Path| std::fs::metadata(path).expect("metadata").permissions().mode();
        assert_eq!(mode(&state) & 0o077, 0);
        assert_eq!(mode(state.parent().expect("a folder")) & 0o077, 0);
    }
    // The same draws, cut to two rounds' worth of work: one candidate that was drawn.
    let drawn: Value = json(&text);
    folder.refuse(
        "sweep sweep.toml --private --set rounds=5",
        "belongs to a different private sweep",
    );
    let unchanged: Value = json(&std::fs::read_to_string(&state).expect("the state"));
    assert_eq!(drawn["draws"], unchanged["draws"]);
    let one = document(&text, |state| {
        let draws = state["draws"].as_array().expect("draws")[..1].to_vec();
        state["draws"] = draws.into();
        state["done"] = 0.into();
        state["best"] = Value::Null;
        state["keep"] = Value::Null;
    });
    std::fs::write(&state, &one).expect("writing");
    let result = folder.json("sweep sweep.toml --private");
    let name = match drawn["draws"][0].as_u64() {
        Some(0) => "slow",
        _ => "fast",
    };
    assert_eq!(result["combination"], name);
    assert_eq!(names(&folder, "runs/tuned"), [name]);
}

#[test]
fn what_a_private_sweep_cannot_account_for_is_refused_by_key() {
    let folder = folder();
    for (from, to, words) in [
        ("mean_runs = 2.5", "mean_runs = 1.0", "private.mean_runs"),
        ("[private]", "seeds = [1, 2]\n[private]", "`seeds`"),
        (
            "set = [\"rounds=3\"]",
            "set = [\"rounds=3\", \"seed=4\"]",
            "`seed`",
        ),
        (
            "{ kind = \"jsonl\", path = \"public.jsonl\" }",
            "{ kind = \"synthetic\", users = 300, words = 60 }",
            "`private.score.public`",
        ),
        (
            "set = [\"rounds=3\"]",
            "set = [\"rounds=3\", \"privacy.max_epsilon=0.01\"]",
            "0.01",
        ),
        ("user_update.learning_rate=0.1", "data.max_tokens=50", "`data`"),
        (
            "user_update.learning_rate=0.1",
            "user_update.weight_cap=3",
            "weight",
        ),
        ("score = {", "score = { kind = 1, ", "kind"),
    ] {
        assert!(SWEEP.contains(from), "{from}");
        folder.write("sweep.toml", SWEEP.replacen(from, to, 1));
        folder.refuse("sweep sweep.toml --private", words);
        let _ = std::fs::remove_dir_all(folder.path("runs"));
    }
    folder.write("sweep.toml", SWEEP);
    folder.refuse("sweep sweep.toml", "[private] ... give --private");
    folder.write(
        "sweep.toml",
        SWEEP.split("[private]").next().expect("a part").to_owned()
            + "[[axis]]\nname = \"a\"\nvalues = [{ name = \"b\" }]\n",
    );
    folder.refuse("sweep sweep.toml --private", "`private`");
}
