//! `undertone data`: a git log becomes a corpus that trains, numbers are right, nothing is overwritten unasked.

mod dedup;
mod group;
mod private;
mod tokenizer;

use std::process::Command;

use crate::support::{Folder, contains, json, over};

const POSTS: &str =
    "who,what\nann,\"The cat sat. The dog ran away.\"\nbob,The cat ran\nann,A third text of ann\n";

#[test]
fn stats_count_what_is_there() {
    let folder = Folder::new();
    folder.write("posts.csv", POSTS);
    let line = "data stats --csv posts.csv --user-column who --text-column what --validation 0 --test 0";
    let stats = folder.json(line);
    let train = &stats["stats"]["train"];
    // Sentences: the cat sat / the dog ran away / the cat ran / a third text of ann.
    assert_eq!(
        (&train["users"], &train["examples"], &train["words"]),
        (&json("2"), &json("4"), &json("15")),
        "{stats}"
    );
    folder.show(line, "training data (not private)");
}

#[test]
fn vocabularies_are_ordered_and_never_overwritten_unasked() {
    let folder = Folder::new();
    folder.write("posts.csv", POSTS);
    let line = "data vocab --csv posts.csv --user-column who --text-column what -o words.txt --size 3";
    folder.succeed(line);
    let words = folder.text("words.txt");
    assert_eq!(words.lines().next(), Some("the"), "{words}");
    assert_eq!(words.lines().count(), 3);
    folder.refuse(line, "words.txt");
    folder.succeed(format!("{line} --force"));
}

#[test]
#[ignore = "slow"]
fn a_git_log_is_imported_with_hashed_authors_and_trains() {
    let folder = Folder::new();
    let git = |arguments: &[&str]| {
        let status = Command::new("git")
            .args(["-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"])
            .args(arguments)
            .current_dir(folder.path(""))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .envs([
                ("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z"),
                ("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z"),
            ])
            .stdout(std::process::Stdio::null())
            .status()
            .expect("running git");
        assert!(status.success(), "git {arguments:?}");
    };
    git(&["init", "-q", "repository"]);
    let commit = |author: &str, message: &str| {
        let (name, email) = ("user.name=Somebody".to_owned(), format!("user.email={author}"));
        git(&[
            "-C",
            "repository",
            "-c",
            &name,
            "-c",
            &email,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            message,
        ]);
    };
    commit(
        "ann@example.org",
        "Fix the parser of dates. It read the month first.",
    );
    commit("ann@example.org", "Fix the test of the parser");
    // The import hashes authors under a salt of its own, so which of them the split holds out differs from run to run. None of 40
    // is held out with probability 0.6^40 < 2e-9.
    for author in 1..40 {
        commit(
            &format!("author-{author}@example.org"),
            "Add a test of the parser",
        );
    }
    folder.succeed("data import --git repository -o log.parquet");
    let bytes = folder.read("log.parquet");
    assert!(
        !String::from_utf8_lossy(&bytes).contains("example.org"),
        "an address was stored"
    );
    let stats = folder.json("data stats --parquet log.parquet --validation 0 --test 0");
    assert_eq!(stats["stats"]["train"]["users"], 40, "{stats}");

    let config = over(
        "{ kind = \"parquet\", path = \"log.parquet\", time = \"timestamp\" }\n\
         vocabulary = { kind = \"training_data\", size = 20 }\n\
         split = { kind = \"held_out_users\", validation = 0.4, test = 0.0, seed = 2 }",
    )
    .replace("users_per_round = 20", "users_per_round = 1");
    folder.write("run.toml", config);
    let summary = folder.json("train run.toml");
    contains(&summary["privacy"]["warnings"].to_string(), "vocabulary");
    folder.refuses("$ data import --git nowhere -o other.parquet\n nowhere");
}
