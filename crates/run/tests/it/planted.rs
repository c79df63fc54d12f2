//! The text of people and the secrets of the operator are planted in each kind of run. No published file holds them, as they stand or as
//! a digest, and the private side holds them all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::session_config::SessionConfig;
use undertone_run_directory::sweep_statement::{Score, SweepStatement};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use serde_json::Value;
use sha2::{Digest, Sha256};
use undertone_data::{Corpus, MemoryTable, NoProgress};
use undertone_models::ExternalTensor;
use undertone_present::numbers::hex;
use undertone_run::export::{ExportOptions, Layout, export};
use undertone_run::session::Session;
use undertone_run::{RunFile, Silent, train, train_candidate};
use undertone_settings::SourceSpec;
use undertone_verify::publish;

use crate::support::{holds, options};

/// A word that one user wrote, the name of that user, and the names of folders and files of the operator.
const WORD: &str = "xq7secretword";
const USER: &str = "ann.q9.walker";
const FOLDER: &str = "clinic-p4";
const WORDS: &str = "w0rds-of-ann.txt";
const START: &str = "st4rt-of-ann";
const MECHANISM: &str = "m3chanism-of-ann.json";
const SCORE: &str = "sc0re-of-ann.jsonl";

/// Users and the rows of each. The product is the number of rows, which is planted as well.
const USERS: usize = 61;
const ROWS: usize = 49;

/// A value that must be in no published file.
struct Planted {
    name: &'static str,
    value: Vec<u8>,
    /// `true` if the private side must hold it.
    kept: bool,
}

/// The folder of an operator: the text of users, files with telling names, and runs.
struct House {
    _kept: tempfile::TempDir,
    path: PathBuf,
}

impl House {
    fn new() -> Self {
        let kept = tempfile::tempdir().expect("a folder");
        let house = Self {
            path: kept.path().join(FOLDER),
            _kept: kept,
        };
        std::fs::create_dir(&house.path).expect("a folder");
        let (users, texts) = columns();
        let lines = users.iter().zip(&texts).map(|(user, text)| {
            let row = serde_json::json!({ "user_id": user, "text": text });
            format!("{row}\n")
        });
        let path = house.path.join("people.jsonl");
        std::fs::write(path, lines.collect::<String>()).expect("writing");
        std::fs::write(house.path.join(WORDS), "we\nmeet\nat\nnoon\nsee\nyou\n").expect("writing");
        house
    }

    /// A run file over the text of the users.
    fn settings(&self, changes: &[&str]) -> RunFile {
        let data = format!(
            "data={{source={{kind='jsonl',path='{}'}},vocabulary={{kind='file',path='{WORDS}'}},max_examples=8}}",
            self.path.join("people.jsonl").display()
        );
        self.file(&[&[data.as_str()], changes].concat())
    }

    fn file(&self, changes: &[&str]) -> RunFile {
        const BASE: &str = "name = 'test'\nrounds = 6\ndata = { source = { kind = 'synthetic' } }\n\
            model = { family = 'dplm', embed = 4, hidden = 5 }\ncohort = { sampling = 'poisson', users_per_round = 12 }\n\
            user_update = { algorithm = 'fedavg', batch_size = 4, learning_rate = 0.5 }\nclip = { kind = 'flat', norm = 0.3 }\n\
            privacy = { noise_multiplier = 2.0, delta = 1e-5 }\n";
        let changes = crate::support::overrides(changes);
        let config = RunConfig::parse(BASE, Path::new("run.toml"), &changes).expect("a configuration");
        RunFile::new(config, &self.path)
    }

    fn train(&self, file: &RunFile) -> PathBuf {
        train(file, &options(&self.path), &Silent).expect("a run").run_dir
    }

    /// The values that are planted in a run on the text.
    fn planted(&self, run: &Path, digests: &[String]) -> Vec<Planted> {
        let kept = |name, value: &str| Planted {
            name,
            value: value.as_bytes().to_vec(),
            kept: true,
        };
        let mut planted = vec![
            kept("a word", WORD),
            kept("a user", USER),
            kept("a folder", FOLDER),
            kept("the words' file", WORDS),
        ];
        planted.push(Planted {
            name: "the rows",
            value: (USERS * ROWS).to_string().into_bytes(),
            // Only a table is known by the number of its rows.
            kept: run.join("table.json").exists(),
        });
        planted.extend(digests.iter().map(|digest| kept("a digest", digest)));
        planted.extend(
            pseudonyms(run)
                .iter()
                .take(8)
                .map(|name| kept("a pseudonym", name)),
        );
        planted.push(Planted {
            name: "the text",
            value: std::fs::read(self.path.join("people.jsonl")).expect("a file"),
            kept: true,
        });
        planted
    }
}

/// Users and texts, row by row.
fn columns() -> (Vec<String>, Vec<String>) {
    let rows = (0..USERS * ROWS).map(|row| {
        let user = match row % USERS {
            7 => USER.to_owned(),
            user => format!("user-{user}"),
        };
        let text = match row == 7 {
            true => format!("we meet {WORD}"),
            false => "we meet at noon see you".to_owned(),
        };
        (user, text)
    });
    rows.unzip()
}

/// The pseudonyms of the private ledger.
fn pseudonyms(run: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(run.join("ledger.jsonl")).expect("a ledger");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let names = lines.flat_map(|line| line["participants"].as_array().cloned().unwrap_or_default());
    names
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// All files below a folder, by their path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        for entry in std::fs::read_dir(here).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path
                        .strip_prefix(folder)
                        .expect("a path")
                        .to_string_lossy()
                        .into_owned();
                    found.insert(name, std::fs::read(path).expect("a file"));
                }
            }
        }
    }
    found
}

/// The forms in which a value could be in a file: as it stands, and by the SHA-256 of it and of its usual decorations, as bytes and as
/// digits.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let decorated = [
        value.to_vec(),
        [value, b"\n"].concat(),
        [b"\"", value, b"\""].concat(),
        [b"undertone source\0", value].concat(),
        [b"undertone table\0", value].concat(),
    ];
    let digests = decorated.iter().map(Sha256::digest);
    let mut forms = vec![value.to_vec()];
    for digest in digests {
        forms.push(hex(&digest).into_bytes());
        forms.push(digest.to_vec());
    }
    forms
}

/// The files that hold one of the forms. A number is found where no digit stands before or behind it.
fn holders(files: &BTreeMap<String, Vec<u8>>, forms: &[Vec<u8>]) -> Vec<String> {
    let is_number = |form: &[u8]| form.iter().all(u8::is_ascii_digit) && form.len() < 8;
    let holds = |bytes: &[u8], form: &[u8]| {
        let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        let mut windows = bytes.windows(form.len()).enumerate();
        windows.any(|(at, window)| {
            window == form
                && (!is_number(form) || !(digit(at.checked_sub(1)) || digit(Some(at + form.len()))))
        })
    };
    let found = files
        .iter()
        .filter(|(_, bytes)| forms.iter().any(|form| holds(bytes, form)));
    found.map(|(name, _)| name.clone()).collect()
}

/// Publishes and exports a run, verifies the copy, and searches both for what was planted. Returns the published files.
#[track_caller]
fn search(house: &House, run: &Path, planted: &[Planted]) -> BTreeMap<String, Vec<u8>> {
    let published = tempfile::tempdir().expect("a folder");
    let folder = published.path().join("release");
    publish(run, &folder).expect("a publication");
    holds(&folder);
    holds(run);
    if run.join("metrics.jsonl").exists() {
        let to = published.path().join("exported");
        export(run, &to, ExportOptions::new(Layout::Undertone)).expect("an export");
    }
    let (open, private) = (files(published.path()), files(&house.path));
    for Planted { name, value, kept } in planted {
        let forms = forms(value);
        let shown = String::from_utf8_lossy(&value[..value.len().min(80)]).into_owned();
        assert_eq!(holders(&open, &forms), Vec::<String>::new(), "{name}: {shown}");
        // This search finds it where it belongs.
        let found = holders(&private, &forms[..1]);
        assert!(!kept || !found.is_empty(), "{name}: {shown}");
    }
    classed(&folder);
    files(&folder)
}

/// The search itself: it finds each form, and a number only as a number.
#[test]
fn the_search_finds_a_value_by_each_of_its_forms() {
    let forms = forms(b"people.csv");
    for form in &forms {
        let files = BTreeMap::from([("a".to_owned(), [b"x", &form[..], b"y"].concat())]);
        assert_eq!(holders(&files, &forms), ["a"]);
    }
    let number = [b"2989".to_vec()];
    let text = |text: &str| BTreeMap::from([("a".to_owned(), text.as_bytes().to_vec())]);
    assert_eq!(holders(&text("{\"rows\":2989}"), &number), ["a"]);
    assert!(holders(&text("0.12989,29891"), &number).is_empty());
}

/// The participation of the lines of a public ledger, and all of the folder without it.
fn without_participation(
    release: &BTreeMap<String, Vec<u8>>,
) -> (BTreeSet<String>, BTreeMap<String, Vec<u8>>) {
    let mut rest = release.clone();
    let mut names = BTreeSet::new();
    let ledger = String::from_utf8(release["ledger.public.jsonl"].clone()).expect("UTF-8");
    let lines = ledger.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        if let Some(shown) = line.as_object_mut().expect("a line").remove("participation") {
            let participants = shown["participants"].as_array().expect("a list");
            names.extend(
                participants
                    .iter()
                    .map(|name| name.as_str().expect("a name").to_owned()),
            );
        }
        line.to_string()
    });
    let ledger = lines.collect::<Vec<_>>().join("\n");
    rest.insert("ledger.public.jsonl".to_owned(), ledger.into_bytes());
    (names, rest)
}

#[test]
#[ignore = "slow"]
fn a_sampled_run_publishes_no_word_digest_row_count_path_or_name() {
    for changes in [
        &[][..],
        &["cohort={sampling='fixed_size',users_per_round=12}"],
        &[
            "user_update={algorithm='uls',group_size=3}",
            "audit={lane=20,noise_probe=8,replay_every=3}",
        ],
        &[
            "user_update={algorithm='els',group_size=3,batch_size=1}",
            "cohort={sampling='poisson',sampling_probability=0.1}",
            "estimator={kind='fixed_denominator',expected_weight=16.0}",
        ],
    ] {
        let house = House::new();
        let file = house.settings(changes);
        let cache = house.path.join(".corpora");
        let corpus = Corpus::open(&file.config.data, &house.path, &cache, &NoProgress).expect("a corpus");
        let run = house.train(&file);
        let digest = corpus.digest().to_owned();
        let release = search(&house, &run, &house.planted(&run, &[digest]));
        let ledger = String::from_utf8_lossy(&release["ledger.public.jsonl"]).into_owned();
        assert!(!ledger.contains("participation"), "{ledger}");
    }
}

#[test]
#[ignore = "slow"]
fn two_publications_of_a_run_by_schema_cannot_be_joined_and_name_users_in_the_participation_alone() {
    let house = House::new();
    let mechanism = [
        "cohort={sampling='shuffled_epochs',users_per_round=12}",
        "privacy.mechanism={kind='tree'}",
        "audit={lane=20,noise_probe=8}",
    ];
    // A strategy in a file with a telling name.
    let first = house.train(&house.settings(&mechanism));
    let made: Value =
        serde_json::from_slice(&std::fs::read(first.join("mechanism.json")).expect("a mechanism"))
            .expect("JSON");
    std::fs::write(house.path.join(MECHANISM), made.to_string()).expect("writing");
    let of_file = format!("privacy.mechanism={{file='{MECHANISM}'}}");
    let file = house.settings(&[mechanism[0], &of_file, mechanism[2], "name=second"]);
    let run = house.train(&file);
    let mut planted = house.planted(&run, &[]);
    planted.push(Planted {
        name: "a mechanism's file",
        value: MECHANISM.into(),
        kept: true,
    });
    let (one, rest) = without_participation(&search(&house, &run, &planted));
    let (other, _) = without_participation(&search(&house, &run, &planted));
    assert_eq!(one.len(), other.len());
    assert!(one.len() > 20, "{one:?}");
    assert!(one.is_disjoint(&other) && one.is_disjoint(&pseudonyms(&run)));
    for name in &one {
        assert_eq!(
            holders(&rest, &forms(name.as_bytes())),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

#[test]
#[ignore = "slow"]
fn the_file_that_a_run_starts_from_is_not_named_in_its_publication() {
    let house = House::new();
    let start = format!("name='{START}'");
    let first = house.train(&house.settings(&[&start]));
    let initial = format!("initial_model='{START}/model.safetensors'");
    let run = house.train(&house.settings(&[&initial]));
    let mut planted = house.planted(&run, &[]);
    planted.push(Planted {
        name: "the start",
        value: START.into(),
        kept: true,
    });
    let release = search(&house, &run, &planted);
    // Both trainings bear one name, though nobody else can tell which text that is.
    let read = |path: &Path| std::fs::read(path.join("source.json")).expect("a name");
    assert_eq!(read(&first), release["source.json"]);
    let report: Value = serde_json::from_slice(&release["privacy.json"]).expect("JSON");
    assert!(report["with_initial_model"].is_object(), "{report}");
}

#[test]
#[ignore = "slow"]
fn a_table_in_memory_publishes_neither_its_digest_nor_the_number_of_its_rows() {
    let house = House::new();
    let (users, texts) = columns();
    let column = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
    let batch =
        RecordBatch::try_from_iter([("user_id", column(users)), ("text", column(texts))]).expect("a table");
    let data =
        format!("data={{source={{kind='memory'}},vocabulary={{kind='file',path='{WORDS}'}},max_examples=8}}");
    let mut file = house.file(&[&data]);
    let SourceSpec::Memory(source) = &file.config.data.source else {
        unreachable!("a table in memory");
    };
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let table = MemoryTable::new(reader, source, &NoProgress).expect("a table");
    let mut data = file.config.data.clone();
    data.source = SourceSpec::Memory(table.source().clone());
    let corpus = Corpus::from_table(&data, &table, &house.path, &house.path, &NoProgress).expect("a corpus");
    file = file.with_corpus(corpus).expect("the corpus of the run");
    let run = house.train(&file);
    let digest = table.source().sha256.clone();
    let private = std::fs::read_to_string(run.join("table.json")).expect("a private file");
    assert!(
        private.contains(&digest) && private.contains(&(USERS * ROWS).to_string()),
        "{private}"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(run.join("table.json"))
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let config = std::fs::read_to_string(run.join("config.toml")).expect("a configuration");
    assert!(!config.contains(&digest) && !config.contains("rows"), "{config}");
    search(&house, &run, &house.planted(&run, &[digest]));
}

#[test]
#[ignore = "slow"]
fn the_statement_of_a_private_sweep_publishes_no_path() {
    let house = House::new();
    let (slow, fast) = (
        house.settings(&["name='slow'", "rounds=3"]),
        house.settings(&["name='fast'", "rounds=3", "user_update.learning_rate=1.0"]),
    );
    let public = format!("kind = 'jsonl'\npath = '{}/{SCORE}'\n", house.path.display());
    let score = Score {
        public: toml::from_str(&public).expect("a source"),
    };
    // The private side, where the sweep measures its candidates.
    std::fs::write(house.path.join("sweep.toml"), public).expect("writing");
    let runs = serde_json::from_value(2.5.into()).expect("an expected number");
    let configs = [&slow.config, &fast.config];
    let statement = SweepStatement::new(&configs, runs, &score, [7; 16]).expect("a statement");
    let made = train_candidate(&fast, &options(&house.path), &statement, &Silent).expect("a candidate");
    let mut planted = house.planted(&made.run_dir, &[]);
    planted.push(Planted {
        name: "the text of the score",
        value: SCORE.into(),
        kept: true,
    });
    let release = search(&house, &made.run_dir, &planted);
    assert!(release.contains_key("sweep.json"));
    // Blank paths hide nothing from the check that a score is not one on the text of the users.
    let on_people = Score {
        public: slow.config.data.source.clone(),
    };
    let refused = SweepStatement::new(&configs, statement.mean_runs, &on_people, [7; 16]).unwrap_err();
    assert!(refused.to_string().contains("private.score.public"), "{refused}");
    let other = house.settings(&["name='other'", "rounds=3", "data.source.path='elsewhere.jsonl'"]);
    let configs = [&slow.config, &other.config];
    let refused = SweepStatement::new(&configs, statement.mean_runs, &score, [7; 16]).unwrap_err();
    assert!(refused.to_string().contains("the same data"), "{refused}");
}

#[test]
#[ignore = "slow"]
fn a_session_publishes_no_path_and_no_name() {
    let house = House::new();
    let text = format!(
        "name = 'session'\nrounds = 4\ncohort = {{ sampling = 'shuffled_epochs', users_per_round = 12 }}\n\
         privacy = {{ noise_multiplier = 4.0, delta = 1e-5, mechanism = {{ file = '{MECHANISM}' }} }}\n"
    );
    let strategy = house.train(&house.file(&[
        "data.source={kind='synthetic',users=60,words=40}",
        "rounds=4",
        "cohort={sampling='shuffled_epochs',users_per_round=12}",
        "privacy.mechanism={kind='tree'}",
    ]));
    std::fs::copy(strategy.join("mechanism.json"), house.path.join(MECHANISM)).expect("a copy");
    let tensors = [ExternalTensor {
        name: "w".to_owned(),
        shape: vec![2, 3],
    }];
    let settings = SessionConfig::new(&text, Path::new("config"), 60, &tensors).expect("settings");
    let mut session = Session::create(&house.path, settings, &house.path, None, false).expect("a session");
    let mut average = vec![0.0; session.dim()];
    while let Some(round) = session.next_round().expect("a round") {
        let units = round.users().len();
        for unit in 0..units {
            let round = session.open_round().expect("a round");
            round.add(unit, &[0.1; 6]).expect("an update");
        }
        session.release(&mut average).expect("a release");
    }
    let folder = session.finish(&average).expect("a folder");
    let mut planted: Vec<Planted> = (pseudonyms(&folder).into_iter())
        .map(|name| Planted {
            name: "a pseudonym",
            value: name.into_bytes(),
            kept: true,
        })
        .collect();
    planted.push(Planted {
        name: "a mechanism's file",
        value: MECHANISM.into(),
        kept: true,
    });
    search(&house, &folder, &planted);
}

/// The keys of published files that a person writes for strangers, or that are computed from releases. Anything else has no business in a
/// release. Those of `config.toml` and `task.toml` have a test beside their types.
const CLASSED: &[(&str, &str)] = &[
    (
        "initial_model.json",
        "adjacency guarantee:delta guarantee:epsilon kind seeded source_sha256",
    ),
    (
        "lane.json",
        "canaries coins_sha256 noise_probe schema shadow_rounds",
    ),
    (
        "ledger.public.jsonl",
        "clip_norm group_size noise_multiplier noise_std parameters_sha256 participation:cohort_size participation:participants population previous_sha256 quarantined released_sha256 round sampling sampling_probability sensitivity summed_on_device total_weight",
    ),
    ("manifest.json", "files:* ledger_head rounds version"),
    (
        "mechanism.json",
        "noise_multiplier participation:gap participation:max_participation participation:spacing rounds strategy:kind strategy:restarts version",
    ),
    (
        "model.safetensors",
        "model:embed model:family model:hidden model:unit_norm obstacles rounds trained_on:adjacency trained_on:guarantee:delta trained_on:guarantee:epsilon trained_on:kind trained_on:seeded trained_on:source_sha256 vocabulary vocabulary_sha256",
    ),
    (
        "replays.json",
        "adjacency clip_norms_per_round every replays:passed replays:round schema",
    ),
    ("source.json", "name"),
    (
        "sweep.json",
        "combinations:config combinations:name id mean_runs score:public:kind score:public:path score:public:text score:public:user version",
    ),
    ("privacy.json", "private statements warnings"),
];

/// The guarantees of `privacy.json`, and the keys of each.
const GUARANTEES: &str = "planned observed worst_case selected estimate with_vocabulary with_initial_model";
const FIGURES: &str = "group_size adjacency delta epsilon noise_multiplier points:delta points:epsilon population recipe rounds sampler_delta sampling schema:exact_sep schema:max_part schema:mechanism schema:min_sep schema:rho schema:sensitivity users_per_round";

/// Checks that each key of each published file has a class.
#[track_caller]
fn classed(folder: &Path) {
    let of_file = |(file, keys): &(&'static str, &'static str)| -> Vec<String> {
        keys.split_whitespace()
            .map(|key| format!("{file}:{key}"))
            .collect()
    };
    let mut known: BTreeSet<String> = CLASSED.iter().flat_map(of_file).collect();
    for guarantee in GUARANTEES.split_whitespace() {
        known.insert(format!("privacy.json:{guarantee}"));
        known.extend(
            FIGURES
                .split_whitespace()
                .map(|key| format!("privacy.json:{guarantee}:{key}")),
        );
    }
    let mut strangers = BTreeSet::new();
    for (name, bytes) in files(folder) {
        let values: Vec<Value> = match name.rsplit('.').next() {
            Some("json") => vec![serde_json::from_slice(&bytes).expect("JSON")],
            Some("jsonl") => (bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()))
                .map(|line| serde_json::from_slice(line).expect("JSON"))
                .collect(),
            Some("safetensors") => {
                let end = 8 + u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
                let header: Value = serde_json::from_slice(&bytes[8..end]).expect("JSON");
                let text = header["__metadata__"]["undertone"].as_str();
                text.map(|text| serde_json::from_str(text).expect("JSON"))
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        };
        for value in values {
            leaves(&value, &name, &mut |key| {
                if !known.contains(key) {
                    strangers.insert(key.to_owned());
                }
            });
        }
    }
    assert!(strangers.is_empty(), "keys without a class: {strangers:#?}");
}

fn leaves(value: &Value, path: &str, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // The names of the files are those of the folder, which `verify` compares.
                let name = if path == "manifest.json:files" { "*" } else { name };
                leaves(value, &format!("{path}:{name}"), found);
            }
        }
        Value::Array(values) => {
            for value in values {
                leaves(value, path, found);
            }
        }
        _ => found(path),
    }
}
