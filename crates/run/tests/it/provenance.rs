//! The memory of a model: its trainings, its words and its texts, and the readers that believe it.

use std::path::{Path, PathBuf};
use undertone_run_directory::session_config::SessionConfig;

use undertone_coordinator::record::PrivacyReport;
use undertone_data::{
    DedupOptions, DedupSource, ImportOptions, NoProgress, TokenizerKind, WordCounts, WordRule, dedup, import,
    train_tokenizer,
};
use undertone_models::ExternalTensor;
use undertone_run::export::{ExportOptions, Layout, export};
use undertone_run::pretrain::{PretrainFile, pretrain};
use undertone_run::session::Session;
use undertone_run::{RunError, RunFile, Silent, Summary};
use undertone_run_directory::config::RunConfig;
use undertone_settings::CorpusSpec;
use undertone_verify::publish;

use crate::support::{World, config, holds, options, problems};

fn report(folder: &Path) -> PrivacyReport {
    let bytes = std::fs::read(folder.join("privacy.json")).expect("a report");
    serde_json::from_slice(&bytes).expect("a report")
}

/// The description in the header of a model.
fn header(model: &Path) -> serde_json::Value {
    let bytes = std::fs::read(model).expect("a model");
    let text = undertone_models::weights::description(&bytes).expect("a header");
    serde_json::from_str(&text.expect("a description")).expect("a description")
}

/// A finished session over the tensors of the run's model.
fn session(out: &Path, run: &RunConfig, privacy: &str) -> PathBuf {
    let world = World::new(run);
    let tensors: Vec<ExternalTensor> = (world.model.layout().tensors().iter())
        .map(|tensor| ExternalTensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
        })
        .collect();
    let text = format!(
        "name = \"session\"\nrounds = 2\ncohort = {{ users_per_round = 12 }}\nclip = {{ kind = \"flat\", norm = 0.3 }}\n\
         privacy = {privacy}\n"
    );
    let settings = SessionConfig::new(&text, "config".as_ref(), 48, &tensors).expect("settings");
    let mut session = Session::create(out, settings, ".".as_ref(), None, false).expect("a session");
    let mut average = vec![0.0; session.dim()];
    while session.next_round().expect("a round").is_some() {
        session.release(&mut average).expect("a release");
    }
    session.finish(&average).expect("a folder")
}

/// A run that starts from a model.
fn from(out: &Path, model: &Path, name: &str, changes: &[&str]) -> Result<Summary, RunError> {
    let start = format!("initial_model='{}'", model.display());
    let own = format!("name='{name}'");
    let all: Vec<&str> = changes.iter().copied().chain([&*start, &*own]).collect();
    undertone_run::train(&RunFile::new(config(&all), out), &options(out), &Silent)
}

const RUN: [&str; 3] = [
    "rounds=2",
    "evaluation={every=0}",
    "privacy={target_epsilon=3.0,delta=1e-5,max_epsilon=3.1}",
];

#[test]
#[ignore = "slow"]
fn a_session_of_7_5_and_a_run_of_3_are_refused_under_a_limit_of_3_1() {
    let out = tempfile::tempdir().expect("a folder");
    let folder = session(
        out.path(),
        &config(&RUN),
        "{ target_epsilon = 7.5, delta = 1e-5 }",
    );
    holds(&folder);
    let model = folder.join("model.safetensors");
    let described = header(&model);
    assert_eq!(described["trained_on"][0]["kind"], "undescribed", "{described}");
    assert_eq!(described["trained_on"][1]["kind"], "private", "{described}");

    let error = from(out.path(), &model, "within", &RUN)
        .expect_err("a refusal")
        .to_string();
    assert!(
        error.contains("above the budget of 3.1; the run has spent 7.5"),
        "{error}"
    );
    // With room for both, everything together is stated, and nobody calls the start public.
    let room = "privacy={target_epsilon=3.0,delta=1e-5,max_epsilon=11}";
    let run = from(out.path(), &model, "both", &[RUN[0], RUN[1], room]).expect("a run");
    let report = report(&run.run_dir);
    let together = report
        .with_initial_model
        .expect("a figure for everything")
        .epsilon;
    assert!((10.0..10.6).contains(&together), "{together}");
    let text = report.warnings.join("\n");
    assert!(
        text.contains("by a session, whose text nobody here knows"),
        "{text}"
    );
    let statements = report.statements.join("\n");
    assert!(statements.contains("is not public"), "{statements}");
    holds(&run.run_dir);
}

#[test]
fn a_session_whose_model_hides_its_own_training_does_not_verify() {
    let out = tempfile::tempdir().expect("a folder");
    let folder = session(
        out.path(),
        &config(&RUN),
        "{ target_epsilon = 7.5, delta = 1e-5 }",
    );
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("a model");
    let text = b"private";
    let place = bytes
        .windows(text.len())
        .position(|found| found == text)
        .expect("a training");
    bytes[place..place + text.len()].copy_from_slice(b"PRIVATE");
    std::fs::write(&path, bytes).expect("writing");
    let problems = problems(&folder);
    assert!(
        problems.contains("model.safetensors, its description"),
        "{problems}"
    );
}

/// A word that two users wrote.
const SECRET: &str = "xq7secretword";

/// A folder with the text of people, a public text in the same words, and a list of these words.
fn world() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let row = |user: usize, text: usize| {
        let secret = if (user % 30, text) == (7, 1) {
            SECRET
        } else {
            "and"
        };
        let word = |place: usize| ["one", "two", "three", "four", "five", "six"][(user + text * place) % 6];
        let text = format!("{} {secret} {} {}", word(1), word(2), word(3));
        format!("{{\"user_id\": \"u{user}\", \"text\": \"{text}\"}}\n")
    };
    let people: String = (0..60)
        .flat_map(|user| (0..4).map(move |text| row(user, text)))
        .collect();
    let public = people.replace(SECRET, "and").replace(": \"u", ": \"p");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writing");
    write("people.jsonl", &people);
    write("public.jsonl", &public);
    write("public.txt", "and\none\ntwo\nthree\nfour\nfive\nsix\n");
    folder
}

/// A run over people's text with these words, unseeded, so that nothing but its origin stands against its release.
fn text(name: &str, words: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nrounds = 2\n{more}\n\
         data = {{ source = {{ kind = \"jsonl\", path = \"people.jsonl\" }}, vocabulary = {words} }}\n\
         model = {{ family = \"dplm\", embed = 4, hidden = 6 }}\ncohort = {{ users_per_round = 12 }}\n\
         user_update = {{ batch_size = 4, learning_rate = 0.5 }}\nclip = {{ kind = \"flat\", norm = 0.3 }}\n\
         evaluation = {{ every = 0 }}\nprivacy = {{ target_epsilon = 3.0, delta = 1e-3, max_epsilon = 3.1 }}\n"
    )
}

fn run(folder: &Path, text: &str) -> Result<Summary, RunError> {
    let config = RunConfig::parse(text, "run.toml".as_ref(), &[])?;
    undertone_run::train(&RunFile::new(config, folder), &options(folder), &Silent)
}

const PUBLIC_WORDS: &str = "{ kind = \"file\", path = \"public.txt\" }";

/// The reasons for which a run is not published; empty where it is.
fn reasons(folder: &Path, run: &Summary) -> String {
    let name = run
        .run_dir
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    match publish(&run.run_dir, &folder.join(format!("published-{name}"))) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// Checks a run whose words are people's: it says so, it verifies, it hands the record on, and it is not published.
#[track_caller]
fn has_words_of_people(folder: &Path, run: &Summary) {
    holds(&run.run_dir);
    let warnings = run.privacy.warnings.join("\n");
    assert!(
        warnings.contains("is not private: its words are outside"),
        "{warnings}"
    );
    let statements = run.privacy.statements.join("\n");
    assert!(!statements.contains("words are declared public"), "{statements}");
    let described = header(&run.run_dir.join("model.safetensors"));
    assert_eq!(described["vocabulary_provenance"], "training_data", "{described}");
    let record = format!(
        "{}.privacy.json",
        described["vocabulary"].as_str().expect("a name")
    );
    assert!(run.run_dir.join(record).is_file());
    let reasons = reasons(folder, run);
    assert!(
        reasons.contains("data.vocabulary: the words were counted on the text of the users"),
        "{reasons}"
    );
}

#[test]
#[ignore = "slow"]
fn words_of_people_do_not_become_public_through_the_model_over_them() {
    let folder = world();
    let first = run(
        folder.path(),
        &text("a", "{ kind = \"training_data\", size = 40 }", ""),
    )
    .expect("a run");
    has_words_of_people(folder.path(), &first);
    let words = std::fs::read_to_string(first.run_dir.join("vocab.txt")).expect("words");
    assert!(words.contains(SECRET));
    std::fs::write(folder.path().join("copied.txt"), &words).expect("writing");
    let start = "initial_model = \"a/model.safetensors\"";
    let wide = |text: String| text.replace("max_epsilon = 3.1", "max_epsilon = 20");
    for (name, path, more) in [
        // The record stands beside the words of the run; a copy without it is known by the header of the model.
        ("beside", "a/vocab.txt", ""),
        ("goes-on", "a/vocab.txt", start),
        ("by-header", "copied.txt", start),
    ] {
        let words = format!("{{ kind = \"file\", path = \"{path}\" }}");
        let next = run(folder.path(), &wide(text(name, &words, more))).expect("a run");
        has_words_of_people(folder.path(), &next);
    }
    // An export takes the record along.
    let options = ExportOptions::new(Layout::Undertone);
    export(&first.run_dir, &folder.path().join("export"), options).expect("an export");
    let words = "{ kind = \"file\", path = \"export/vocab.txt\" }";
    has_words_of_people(
        folder.path(),
        &run(folder.path(), &text("exported", words, "")).expect("a run"),
    );
    // A list of other words under the old record is refused, and public words are published.
    std::fs::write(folder.path().join("export/vocab.txt"), "one\ntwo\n").expect("writing");
    let error = run(folder.path(), &text("stale", words, ""))
        .expect_err("a refusal")
        .to_string();
    assert!(error.contains("it is that of other words"), "{error}");
    let public = run(folder.path(), &text("public", PUBLIC_WORDS, "")).expect("a run");
    assert_eq!(reasons(folder.path(), &public), "");
    let statements = public.privacy.statements.join("\n");
    assert!(
        statements.contains("The words are declared public by the run file."),
        "{statements}"
    );
    let described = header(&public.run_dir.join("model.safetensors"));
    assert!(described.get("vocabulary_provenance").is_none(), "{described}");
}

#[test]
#[ignore = "slow"]
fn words_and_tokens_counted_on_people_do_not_become_public_through_a_file() {
    let folder = world();
    let place = |name: &str| folder.path().join(name);
    let spec: CorpusSpec =
        toml::from_str("source = { kind = \"jsonl\", path = \"people.jsonl\" }").expect("a source");
    let counts = WordCounts::of_training_data(&spec, folder.path(), &NoProgress).expect("counts");
    counts
        .write_vocab(&place("nv.txt"), 40, false, false)
        .expect("words");
    let words = "{ kind = \"file\", path = \"nv.txt\" }";
    has_words_of_people(
        folder.path(),
        &run(folder.path(), &text("words", words, "")).expect("a run"),
    );

    let tokens = |name: &str, declared_public| {
        let sources = [place("people.jsonl").display().to_string()];
        let kind = (TokenizerKind::Bpe, 270);
        let from = (&sources[..], declared_public);
        train_tokenizer(kind, from, "text", (&place(name), false), &NoProgress).expect("a tokenizer")
    };
    assert!(tokens("people.json", false).not_private);
    let words = "{ kind = \"tokenizer\", path = \"people.json\" }";
    has_words_of_people(
        folder.path(),
        &run(folder.path(), &text("tokens", words, "")).expect("a run"),
    );
    // What a person declares public is public, until a record says otherwise.
    assert!(!tokens("declared.json", true).not_private);
    assert!(!place("declared.json.privacy.json").exists());
    let options = ImportOptions {
        salt: b"salt",
        keep_user_ids: false,
        join_users: false,
        drop_users: &[],
        split: None,
        public: false,
        overwrite: false,
    };
    import(
        &spec.source,
        folder.path(),
        &place("people.parquet"),
        &options,
        &NoProgress,
    )
    .expect("an import");
    let sources = [place("people.parquet").display().to_string()];
    let summary = train_tokenizer(
        (TokenizerKind::Bpe, 270),
        (&sources, true),
        "text",
        (&place("recorded.json"), false),
        &NoProgress,
    );
    assert!(summary.expect("a tokenizer").not_private);
    let counts = WordCounts::of_public_corpus(
        "people.parquet",
        "text",
        folder.path(),
        WordRule::English,
        &NoProgress,
    );
    assert!(!counts.expect("counts").provenance().is_private_safe());
    // The users' own text is no public corpus, under whichever name.
    let words = "{ kind = \"public_corpus\", path = \"./people.jsonl\", size = 40 }";
    has_words_of_people(
        folder.path(),
        &run(folder.path(), &text("own", words, "")).expect("a run"),
    );
}

/// A pre-training on a text, over the public words.
fn start_on(folder: &Path, name: &str, path: &str) -> PathBuf {
    let text = format!(
        "name = \"{name}\"\nsteps = 2\nmodel = {{ family = \"dplm\", embed = 4, hidden = 6 }}\n\
         data = {{ source = {{ kind = \"jsonl\", path = \"{path}\" }}, vocabulary = {PUBLIC_WORDS} }}\n\
         training = {{ batch_size = 8, learning_rate = 0.1 }}\nevaluation = {{ every = 0 }}\n"
    );
    let file = PretrainFile {
        config: undertone_run_directory::config::parse_as(&text, "start.toml".as_ref(), &[])
            .expect("a configuration"),
        base: folder.to_owned(),
    };
    pretrain(&file, &options(folder), &Silent)
        .expect("a pre-training")
        .run_dir
}

#[test]
#[ignore = "slow"]
fn rows_filtered_by_people_do_not_become_public_through_a_model_or_its_words() {
    let folder = world();
    let source = |name: &str| DedupSource {
        path: folder.path().join(name).display().to_string(),
        text: "text".to_owned(),
        url: None,
    };
    let row =
        |user| format!("{{\"user_id\": \"q{user}\", \"text\": \"six and two and six and two and six\"}}\n");
    let more: String = (0..20).map(row).collect();
    let public = std::fs::read_to_string(folder.path().join("public.jsonl")).expect("a text");
    std::fs::write(folder.path().join("public.jsonl"), public + &more).expect("writing");
    let output = folder.path().join("kept.jsonl");
    let (from, against) = (source("public.jsonl"), source("people.jsonl"));
    dedup(&from, &against, &output, &DedupOptions::default(), &NoProgress).expect("kept rows");
    let words = "{ kind = \"public_corpus\", path = \"kept.jsonl\", size = 40 }";
    has_words_of_people(
        folder.path(),
        &run(folder.path(), &text("words", words, "")).expect("a run"),
    );

    let started = start_on(folder.path(), "start", "kept.jsonl");
    let described = header(&started.join("model.safetensors"));
    assert_eq!(described["trained_on"][0]["from_people"], true, "{described}");
    let more = "initial_model = \"start/model.safetensors\"";
    let error = run(folder.path(), &text("goes-on", PUBLIC_WORDS, more))
        .expect_err("a refusal")
        .to_string();
    assert!(
        error.contains("was trained without privacy on people's text, as its file says"),
        "{error}"
    );
    let without = text("goes-on", PUBLIC_WORDS, more).replace(", max_epsilon = 3.1", "");
    let next = run(folder.path(), &without).expect("a run");
    holds(&next.run_dir);
    assert!(reasons(folder.path(), &next).contains("initial_model: "));
    // The same rows, declared public, are a public start.
    std::fs::remove_file(folder.path().join("kept.jsonl.privacy.json")).expect("removing");
    start_on(folder.path(), "declared", "kept.jsonl");
    let more = "initial_model = \"declared/model.safetensors\"";
    let next = run(folder.path(), &text("from-declared", PUBLIC_WORDS, more)).expect("a run");
    assert_eq!(reasons(folder.path(), &next), "");
    let verification = undertone_verify::verify(&next.run_dir).expect("a verification");
    let settings = verification.checks.iter().find(|check| check.name == "settings");
    let found = &settings.expect("a check").found;
    assert_eq!(
        found,
        "vocabulary (declared public by the run file), model (its start declared public by the run file) and mechanism fit the \
         configuration"
    );
    let statements = next.privacy.statements.join("\n");
    assert!(
        statements.contains("on another source. It is declared public by the run file."),
        "{statements}"
    );
}

/// `train` reads text of users, so what it made without noise is no public start of a run over other people.
#[test]
#[ignore = "slow"]
fn a_model_that_train_made_without_noise_is_not_public_for_other_people() {
    let folder = world();
    let private = text("other", PUBLIC_WORDS, "");
    let plain = private.split("privacy =").next().expect("a run file");
    let other = run(folder.path(), &plain.replace("people.jsonl", "public.jsonl")).expect("a run");
    holds(&other.run_dir);
    let described = header(&other.run_dir.join("model.safetensors"));
    assert_eq!(described["trained_on"][0]["from_people"], true, "{described}");
    let start = other.run_dir.join("model.safetensors");
    let more = format!("initial_model = '{}'", start.display());
    let limited = text("limited", PUBLIC_WORDS, &more);
    let error = run(folder.path(), &limited).expect_err("a refusal").to_string();
    assert!(
        error.contains("was trained without privacy on people's text, as its file says"),
        "{error}"
    );
    let next = run(folder.path(), &limited.replace(", max_epsilon = 3.1", "")).expect("a run");
    let report = report(&next.run_dir);
    assert!(report.with_initial_model.is_none());
    let statements = report.statements.join("\n");
    assert!(statements.contains("is not public"), "{statements}");
    assert!(reasons(folder.path(), &next).contains("initial_model: "));
}

#[cfg(unix)]
#[test]
#[ignore = "slow"]
fn one_file_under_two_names_is_one_source_and_the_release_does_not_show_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = world();
    let place = |name: &str| folder.path().join(name);
    let started = start_on(folder.path(), "start", "people.jsonl");
    let local = started.join(".sources.json");
    let mode = std::fs::metadata(&local)
        .expect("a private file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    std::os::unix::fs::symlink(place("people.jsonl"), place("link.jsonl")).expect("a link");
    std::fs::hard_link(place("people.jsonl"), place("hard.jsonl")).expect("a link");
    std::fs::create_dir(place("many")).expect("a folder");
    std::fs::hard_link(place("people.jsonl"), place("many/part.jsonl")).expect("a link");
    std::fs::copy(place("public.jsonl"), place("many/other.jsonl")).expect("a copy");
    let absolute = place("people.jsonl").display().to_string();
    let more = "initial_model = \"start/model.safetensors\"";
    let named = |name: &str, path: &str| {
        text(name, PUBLIC_WORDS, more).replace("\"people.jsonl\"", &format!("\"{path}\""))
    };
    for path in [
        "people.jsonl",
        "./people.jsonl",
        &absolute,
        "link.jsonl",
        "hard.jsonl",
        "many",
    ] {
        let error = run(folder.path(), &named("refused", path))
            .expect_err(path)
            .to_string();
        assert!(
            error.contains("on the same source without privacy"),
            "{path}: {error}"
        );
    }
    // Without the limit it trains, and the figures say what they are; nobody publishes it.
    let without = named("warned", "./people.jsonl").replace(", max_epsilon = 3.1", "");
    let next = run(folder.path(), &without).expect("a run");
    holds(&next.run_dir);
    assert!(reasons(folder.path(), &next).contains("on the same source without privacy"));
    // What goes on from there knows the file, too.
    let more = "initial_model = \"warned/model.safetensors\"";
    let again = text("again", PUBLIC_WORDS, more).replace("people.jsonl", "hard.jsonl");
    let error = run(folder.path(), &again).expect_err("a refusal").to_string();
    assert!(error.contains("on the same source without privacy"), "{error}");
    // Another text is another source, and no file of a release names a path of this machine.
    start_on(folder.path(), "elsewhere", "public.jsonl");
    let more = "initial_model = \"elsewhere/model.safetensors\"";
    let public = run(folder.path(), &text("public", PUBLIC_WORDS, more)).expect("a run");
    assert_eq!(reasons(folder.path(), &public), "");
    let published = place("published-public");
    let machine = folder.path().display().to_string();
    for entry in std::fs::read_dir(&published).expect("a folder") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a file");
        let holds = bytes
            .windows(machine.len())
            .any(|part| part == machine.as_bytes());
        assert!(!holds && !path.ends_with(".sources.json"), "{}", path.display());
    }
    assert!(
        std::fs::read_to_string(&local)
            .expect("a file")
            .contains(&machine)
    );
    std::fs::write(&local, "{").expect("writing");
    let error = run(folder.path(), &named("damaged", "people.jsonl"))
        .expect_err("a refusal")
        .to_string();
    assert!(error.contains(".sources.json"), "{error}");
}

#[test]
#[ignore = "slow"]
fn a_run_from_a_seeded_model_of_the_same_people_is_not_published() {
    let folder = world();
    let wide = |text: String| text.replace("max_epsilon = 3.1", "max_epsilon = 20");
    run(folder.path(), &wide(text("seeded", PUBLIC_WORDS, "seed = 7"))).expect("a run");
    let start = "initial_model = \"seeded/model.safetensors\"";
    let next = run(folder.path(), &wide(text("next", PUBLIC_WORDS, start))).expect("a run");
    let reasons = reasons(folder.path(), &next);
    assert!(
        reasons.contains("initial_model: it was trained on the same people with noise from a known seed"),
        "{reasons}"
    );
}
