//! `data prose` and `init`: a run file from public and declared facts, which trains unchanged.

use std::fmt::Write;

use crate::support::{Folder, number};

const NOUNS: [&str; 12] = [
    "parser", "server", "driver", "module", "kernel", "client", "test", "build", "cache", "index", "socket",
    "timer",
];
const VERBS: [&str; 6] = ["fixes", "adds", "removes", "updates", "tests", "checks"];

/// A sentence of five words that follows from a number.
fn sentence(number: usize) -> String {
    let noun = |shift: usize| NOUNS[(number + shift) % NOUNS.len()];
    format!("The {} {} the {}.", noun(0), VERBS[number % VERBS.len()], noun(5))
}

/// A folder with `posts.jsonl` of 1,000 authors, and with `public.jsonl` from documents.
fn folder() -> Folder {
    let folder = Folder::new();
    let mut posts = String::new();
    for author in 0..1000 {
        let text = sentence(author);
        writeln!(posts, "{{\"author\": \"a{author}\", \"body\": \"{text}\"}}").expect("writing text");
    }
    folder.write("posts.jsonl", posts);
    std::fs::create_dir(folder.path("docs")).expect("a folder");
    for document in 0..120 {
        let text: Vec<String> = (0..8)
            .map(|each| sentence(document * 7 + each * (1 + document / 12)))
            .collect();
        folder.write(&format!("docs/{document}.md"), text.join(" "));
    }
    folder.show("data prose docs -o public.jsonl", "documents ... words");
    folder
}

const FACTS: &str = "--jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 8";

#[test]
#[ignore = "slow"]
fn the_written_files_train_unchanged_and_the_run_verifies() {
    let folder = folder();
    let chosen = folder.json(format!("init {FACTS} --public public.jsonl --minutes 1"));
    assert_eq!(chosen["delta"], 1e-4);
    assert_eq!(chosen["choice"]["training_users"], 800);
    assert!(number(&chosen["choice"]["reach"]) >= 2.0, "{chosen}");
    let steps: Vec<&str> = chosen["next"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|step| step.as_str())
        .collect();
    assert_eq!(
        steps,
        [
            "undertone pretrain start.toml",
            "undertone train run.toml",
            "undertone predict runs/run"
        ]
    );
    // Fewer steps suffice here: the text has 50 sentences.
    folder.succeed("pretrain start.toml --set steps=300");
    let summary = folder.json("train run.toml");
    let planned = &summary["privacy"]["planned"];
    assert!((7.9..=8.0).contains(&number(&planned["epsilon"])), "{planned}");
    assert_eq!(number(&planned["delta"]), 1e-4);
    assert_eq!(summary["rounds"], chosen["choice"]["rounds"]);
    let about = number(&planned["noise_multiplier"]) / number(&chosen["choice"]["noise_multiplier"]);
    assert!(
        (0.8..1.25).contains(&about),
        "the declared users are about those of the run: {about}"
    );
    let (top1, commonest) = (
        number(&summary["metrics"]["top1"]),
        number(&summary["unigram_accuracy"]),
    );
    assert!(top1 > commonest, "{top1} beside {commonest}");
    folder.succeed("verify runs/run");
    assert_eq!(
        folder.json("predict runs/run the").as_array().map(Vec::len),
        Some(5)
    );

    // A start that is there serves a second run, also from another folder.
    std::fs::create_dir(folder.path("second")).expect("a folder");
    let second = folder.json(format!(
        "init second/again.toml {FACTS} --start runs/start --minutes 1"
    ));
    assert_eq!(second["next"][0], "undertone train second/again.toml");
    assert!(second.get("start_file").is_none());
    folder.succeed("train second/again.toml --set rounds=2");
}

#[test]
fn nothing_is_overwritten_unasked_and_of_the_text_of_users_names_alone_are_read() {
    let folder = folder();
    // A user cannot be a list, which nobody sees who reads names alone.
    folder.write("posts.jsonl", "{\"author\": [], \"body\": []}\n");
    folder.write("run.toml", "mine");
    let init = format!("init {FACTS} --public public.jsonl");
    folder.refuse(&init, "run.toml already exists; give --force");
    assert_eq!(folder.text("run.toml"), "mine");
    assert!(!folder.path("start.toml").exists());
    folder.show(
        format!("{init} --force"),
        "accuracy to expect ... next ... undertone pretrain start.toml",
    );
    assert!(folder.text("run.toml").contains("target_epsilon = 8.0"));
    for file in ["run.toml", "start.toml"] {
        assert!(folder.text(file).contains("\nwords = \"unicode\"\n"), "{file}");
    }
}

#[test]
#[ignore = "slow"]
fn hopeless_and_wrong_facts_are_refused_with_a_sentence() {
    let folder = folder();
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    folder.refuses(
        "
        $ init --jsonl posts.jsonl
        needs flags for every fact; missing: --users, --epsilon, --public
        $ init --jsonl posts.jsonl --user-column author --text-column body --users 60 --epsilon 1 --public public.jsonl
        60 users, epsilon 1 and 5 minutes are too little ... Enough would be about ... users
        $ init --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 40 --public public.jsonl
        --epsilon: expected a number above 0 and at most 20
        $ init --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 4 --delta 0.01 --public public.jsonl
        --delta: expected a number above 0 and below 1 / users
        $ init --jsonl nowhere.jsonl --users 1000 --epsilon 4 --public public.jsonl
        the corpus nowhere.jsonl does not exist
        $ init --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 4 --public docs/1.md
        expected a file whose name ends in .jsonl, .csv or .parquet
        $ init --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 4 --start empty
        expected the folder of a run of `undertone pretrain`
        $ init start.toml --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 4 --public public.jsonl
        start is the public start
        $ data prose empty -o x.jsonl
        empty
        ",
    );
    assert!(!folder.path("run.toml").exists() && !folder.path("x.jsonl").exists());
}

#[test]
fn columns_that_the_posts_lack_are_named_together_with_those_that_they_have() {
    let folder = folder();
    let line = "init --jsonl posts.jsonl --users 1000 --epsilon 8 --public public.jsonl";
    folder.refuse(
        line,
        "posts.jsonl: it lacks the column \"user_id\" that --user-column names; its columns are \"author\", \"body\"; it also lacks \
         \"text\" (--text-column)",
    );
    folder.refuse(
        format!("{line} --user-column author"),
        "it lacks the column \"text\" that --text-column names",
    );
    assert!(!folder.path("run.toml").exists() && !folder.path("start.toml").exists());
}

#[test]
#[ignore = "slow"]
fn a_dollar_sign_in_a_path_is_a_letter() {
    let folder = folder();
    std::fs::create_dir(folder.path("ü$1")).expect("a folder");
    std::fs::rename(folder.path("posts.jsonl"), folder.path("ü$1/posts.jsonl")).expect("moving");
    folder.write("ü$1/words.txt", NOUNS.join("\n"));
    let facts = FACTS.replace("posts.jsonl", "ü$1/posts.jsonl");
    folder.json(format!("init {facts} --words ü$1/words.txt --minutes 1"));
    let text = folder.text("run.toml");
    assert!(
        text.contains("\"ü$$1/posts.jsonl\"") && text.contains("\"ü$$1/words.txt\""),
        "{text}"
    );
    let stats = folder.json("data stats --config run.toml");
    assert!(number(&stats["stats"]["train"]["users"]) > 0.0, "{stats}");
}

#[test]
#[ignore = "slow"]
fn without_a_public_text_of_their_language_a_run_starts_from_words_alone() {
    let folder = folder();
    let words: Vec<&str> = ["the"].into_iter().chain(NOUNS).chain(VERBS).collect();
    folder.write("words.txt", words.join("\n"));
    let line = format!("init {FACTS} --words words.txt --minutes 1");
    let chosen = folder.json(&line);
    assert_eq!(chosen["next"][0], "undertone train run.toml");
    assert!(
        chosen.get("start_file").is_none() && number(&chosen["choice"]["reach"]) >= 5.0,
        "{chosen}"
    );
    let text = folder.text("run.toml");
    assert!(
        !text.contains("initial_model") && text.contains("path = \"words.txt\""),
        "{text}"
    );
    let summary = folder.json("train run.toml");
    let planned = &summary["privacy"]["planned"];
    assert!((7.9..=8.0).contains(&number(&planned["epsilon"])), "{planned}");
    folder.succeed("verify runs/run");
    folder.write("none.txt", "\n");
    folder.refuses(
        "
        $ init --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 4 --words words.txt --public public.jsonl
        --words
        $ init other.toml --jsonl posts.jsonl --user-column author --text-column body --users 1000 --epsilon 4 --words none.txt
        none.txt holds no words
        $ init other.toml --jsonl posts.jsonl --user-column author --text-column body --users 60 --epsilon 1 --words words.txt
        no better than the commonest word ... A public text in the language of the users (--public) needs less
        ",
    );
    assert!(!folder.path("other.toml").exists());
}

#[test]
fn init_takes_no_public_text_or_words_that_a_record_calls_peoples() {
    let folder = Folder::new();
    let row =
        |user: usize| format!("{{\"author\": \"a{user}\", \"body\": \"the same words of everybody\"}}\n");
    folder.write("posts.jsonl", (0..40).map(row).collect::<String>());
    let columns = "--jsonl posts.jsonl --user-column author --text-column body";
    folder.succeed(format!("data vocab {columns} -o words.txt"));
    folder.refuse(
        format!("init {FACTS} --words words.txt --minutes 1"),
        "words.txt: expected a public list of words, got one with a privacy record",
    );
    folder.succeed(format!("data import {columns} -o people.parquet"));
    folder.refuse(
        format!("init {FACTS} --public people.parquet --minutes 1"),
        "people.parquet: expected a public text, got one with a privacy record",
    );
    folder.succeed(format!("data import {columns} --public -o public.parquet"));
    assert!(!folder.path("public.parquet.privacy.json").exists());
    folder.succeed(format!("data group {columns} -o grouped"));
    assert!(
        folder
            .text("grouped/manifest.json.privacy.json")
            .contains("\"not private\"")
    );
}
