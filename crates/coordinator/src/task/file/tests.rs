mod plans;

use undertone_present::numbers::hex;

use super::*;
use crate::head::RunHead;

/// The task of the design, with noise of the server on secure sums.
const DESIGN: &str = r#"
name = "next-word-en"
rounds = 2000
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg" }
cohort = { sampling = "check_in", users_per_round = 1000, population = 400000 }
participation = { min_sep = 100, max_part = 8 }
privacy = { noise_multiplier = 7.0, delta = 1e-10, max_epsilon = 8.0, mechanism = { kind = "blt", buffers = 4 } }
aggregation = { sum = "secagg", encoding = { kind = "rotated_rounding", scale = 10000.0 }, min_clients = 1000, max_clients = 1400, graph = { drop_out_rate = 0.1, corrupt_rate = 0.05 } }
user_update = { batch_size = 8, learning_rate = 0.5 }
[service]
over_selection = 1.3
group = { target = 500, min = 200 }
deadlines = { select = "10m", report = "20m", lobby = "60s", keys = "20s", shares = "20s", upload = "120s", unmask = "20s", attempt = "60m" }
eligibility = { min_examples = 8, max_examples = 256, timer = "24h", min_client_version = 3 }
identity = "certificate"
ledger = "server"
budget = { cpu = "120s", upload_kbps_min = 128, battery_percent = 2 }
pace = { checkins_per_needed = 3.0, min_interval = "15m" }
"#;

/// A task with sums of numbers that the server sees.
const PLAIN: &str = r#"
name = "plain"
rounds = 12
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 10, population = 500 }
participation = { min_sep = 3, max_part = 2 }
privacy = { noise_multiplier = 4.0, delta = 1e-5, mechanism = { kind = "tree" } }
user_update = { batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
service = { group = { target = 8, min = 5 } }
"#;

const EVALUATION: &str = r#"
kind = "evaluate"
of = "plain"
name = "accuracy"
rounds = 4
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 10, population = 500 }
participation = { min_sep = 1, max_part = 1 }
privacy = { noise_multiplier = 3.0, delta = 1e-5, mechanism = { kind = "independent" } }
service = { group = { target = 8, min = 5 } }
"#;

fn file(text: &str) -> TaskFile {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The file with changes, `key = value` in tables by dotted keys; a value `-` takes the key away.
fn changed(text: &str, changes: &[(&str, &str)]) -> Result<TaskFile, String> {
    let mut table: toml::Table = toml::from_str(text).unwrap();
    for (key, value) in changes {
        let (parents, last) = key.rsplit_once('.').unwrap_or(("", key));
        let mut here = &mut table;
        for name in parents.split('.').filter(|name| !name.is_empty()) {
            here = here
                .entry(name)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()))
                .as_table_mut()
                .unwrap();
        }
        if *value == "-" {
            assert!(here.remove(last).is_some(), "{key}");
            continue;
        }
        let parsed: toml::Table = toml::from_str(&format!("value = {value}")).unwrap();
        here.insert(last.to_owned(), parsed["value"].clone());
    }
    toml::from_str(&toml::to_string(&table).unwrap()).map_err(|error| error.to_string())
}

/// Changes of a file, and the words of its refusal.
type Row = (&'static [(&'static str, &'static str)], &'static [&'static str]);

/// Checks that the changed file is refused with these words.
fn refused(text: &str, changes: &[(&str, &str)], words: &[&str]) {
    let error = match changed(text, changes) {
        Err(error) => error,
        Ok(file) => file
            .validate(Seeding::Refused)
            .expect_err(&format!("{changes:?} was taken"))
            .to_string(),
    };
    for word in words {
        assert!(error.contains(word), "{changes:?}: {error} lacks {word:?}");
    }
}

#[test]
fn the_task_of_the_design_is_valid_and_its_figures_are_those_of_the_file() {
    let file = file(DESIGN);
    file.validate(Seeding::Refused).unwrap();
    assert_eq!((file.goal(), file.sessions(), file.floor()), (1000, 1300, 1000));
    assert_eq!(file.population().users, 400_000);
    let service = &file.service;
    assert_eq!(service.deadlines.attempt.millis(), 3_600_000);
    assert_eq!(service.eligibility.timer.millis(), 86_400_000);
    assert_eq!(
        (service.identity, service.ledger),
        (IdentityLevel::Certificate, LedgerPlace::Server)
    );
    assert_eq!(file.threat_model(), ThreatModel::Active);
    assert!(file.assumptions().unwrap().is_some());
    let dev = changed(DESIGN, &[("service.identity", "\"dev\"")]).unwrap();
    assert_eq!(dev.threat_model(), ThreatModel::HonestButCurious);
}

#[test]
fn left_out_settings_get_the_defaults_of_the_design() {
    let mut short = DESIGN.split("over_selection").next().unwrap().to_owned();
    short.push_str("group = { target = 500, min = 200 }\n");
    let (short, long) = (file(&short), file(DESIGN));
    let expected = ServiceConfig {
        eligibility: super::super::EligibilityConfig {
            min_client_version: 1,
            ..long.service.eligibility
        },
        ..long.service
    };
    assert_eq!(short.service, expected);
}

#[test]
fn the_canonical_form_reads_back_and_every_change_gives_another_identifier() {
    for text in [DESIGN, PLAIN, EVALUATION] {
        let one = file(text);
        let canonical = one.canonical().unwrap();
        assert_eq!(TaskFile::from_canonical(&canonical).unwrap(), one);
        // Layout, comments and the order of keys are no part of it, and defaults are.
        let again = changed(&format!("# a comment\n{text}"), &[]).unwrap();
        assert_eq!(again.canonical().unwrap(), canonical);
        assert_eq!(again.digest().unwrap(), one.digest().unwrap());
    }
    let task = file(PLAIN);
    let mut seen = vec![task.id("en").unwrap(), task.id("de").unwrap()];
    for change in [
        ("name", "\"other\""),
        ("rounds", "13"),
        ("privacy.delta", "1e-6"),
        ("service.group.min", "6"),
        ("service.pace.min_interval", "\"16m\""),
        ("vocabulary.path", "\"words.txt\""),
        ("text.max_sentence_tokens", "21"),
        ("text.words", "\"unicode\""),
        ("seed", "7"),
    ] {
        seen.push(changed(PLAIN, &[change]).unwrap().id("en").unwrap());
    }
    let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len());
    // The identifier is a hash of the three parts, each after its length.
    let mut hash = Sha256::new();
    hash.update(b"undertone task\0");
    for part in ["en", "plain", &task.canonical().unwrap()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    assert_eq!(hex(&task.id("en").unwrap()), hex(&hash.finalize()));
}

/// Stored tasks are found by the digest of their canonical form. A new setting that is written while it has its default changes them all.
#[test]
fn tasks_that_were_stored_keep_their_digests() {
    let digests = [DESIGN, PLAIN, EVALUATION].map(|text| hex(&file(text).digest().unwrap())[..16].to_owned());
    assert_eq!(
        digests,
        ["5ba3152f5f155dd0", "521a9bd17cfd3030", "b8f5cdb62fc84293"]
    );
}

/// Tasks of earlier versions name no rule of words, and have that of English.
#[test]
fn a_task_names_its_rule_of_words_unless_it_is_that_of_english() {
    assert!(!file(PLAIN).canonical().unwrap().contains("english"));
    let named = changed(PLAIN, &[("text.words", "\"english\"")]).unwrap();
    assert_eq!(named.digest().unwrap(), file(PLAIN).digest().unwrap());
    let unicode = changed(PLAIN, &[("text.words", "\"unicode\"")]).unwrap();
    assert!(unicode.canonical().unwrap().contains("\"words\":\"unicode\""));
    let error = changed(PLAIN, &[("text.words", "\"klingon\"")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown variant `klingon`"), "{error}");
}

#[test]
fn a_number_that_json_cannot_hold_has_no_canonical_form() {
    let mut task = file(PLAIN);
    task.service.over_selection = f64::NAN;
    let error = task.canonical().unwrap_err().to_string();
    assert!(error.contains("values that JSON can hold"), "{error}");
    task.validate(Seeding::Refused).unwrap_err();
}

#[test]
fn check_in_refuses_what_a_service_cannot_know() {
    let rows: [Row; 20] = [
        // Figures of a Poisson sample.
        (
            &[("cohort.sampling_probability", "0.1")],
            &["cohort.sampling_probability", "must be left out"],
        ),
        (
            &[("privacy.accountant", "\"pld\"")],
            &["privacy.accountant", "Poisson figures"],
        ),
        (
            &[("cohort.users_per_round", "-")],
            &["cohort.users_per_round", "report goal"],
        ),
        (
            &[("cohort.population", "-")],
            &["cohort.population", "upper bound on the subjects"],
        ),
        (
            &[("cohort.population", "9")],
            &["cohort.users_per_round", "cohort.population = 9"],
        ),
        (&[("cohort.users_per_round", "1")], &["at least 2"]),
        (
            &[("cohort.users_per_round", "10.5")],
            &["cohort.users_per_round", "a whole number"],
        ),
        (
            &[("privacy", "-")],
            &["privacy", "a service trains with privacy only"],
        ),
        (&[("privacy.delta", "-")], &["privacy.delta", "not known"]),
        (
            &[("privacy.mechanism", "-")],
            &["privacy.mechanism", "do not amplify privacy"],
        ),
        (
            &[("participation", "-")],
            &["participation", "the guarantee depends"],
        ),
        (
            &[("participation.on_violation", "\"account\"")],
            &["participation.on_violation", "nobody beyond the schema"],
        ),
        (
            &[("user_update", "{ algorithm = \"els\", group_size = 4 }")],
            &["user_update.algorithm", "Poisson sample of examples"],
        ),
        (
            &[("user_update", "{ algorithm = \"uls\", group_size = 4 }")],
            &["user_update.algorithm", "never learns"],
        ),
        (
            &[("user_update.weight_cap", "8.0")],
            &["user_update.weight_cap", "weight 1"],
        ),
        (
            &[(
                "estimator",
                "{ kind = \"clipped_denominator\", min_weight = 0.5 }",
            )],
            &["estimator.kind", "fixed_denominator"],
        ),
        (
            &[("schedule", "[{ from_round = 3, clip_norm = 0.2 }]")],
            &["schedule", "cannot be combined with `privacy.mechanism`"],
        ),
        (
            &[("cohort.sampling", "\"fixed_size\"")],
            &["cohort.sampling", "`check_in`"],
        ),
        (&[("seed", "7")], &["seed", "parity tests"]),
        (
            &[("estimate", "{ population = 1000, users_per_round = 10.0 }")],
            &["unknown field `estimate`"],
        ),
    ];
    for (changes, words) in rows {
        refused(PLAIN, changes, words);
    }
    file(PLAIN).validate(Seeding::Refused).unwrap();
}

#[test]
fn a_task_names_the_max_clip_norm_of_adaptive_clipping_and_of_no_other() {
    const ADAPTIVE: (&str, &str) = ("clip", "{ kind = \"adaptive\", initial_norm = 0.5 }");
    const TREE: (&str, &str) = (
        "privacy.mechanism",
        "{ kind = \"tree\", restarts = { first = 4, every = 4 } }",
    );
    const WHOLE: (&str, &str) = ("user_update.clip_every_step", "false");
    assert_eq!(file(PLAIN).max_clip_norm(), None);
    assert_eq!(changed(PLAIN, &[ADAPTIVE]).unwrap().max_clip_norm(), Some(50.0));
    let named = changed(PLAIN, &[ADAPTIVE, TREE, WHOLE, ("service.max_clip_norm", "0.5")]).unwrap();
    assert_eq!(named.max_clip_norm(), Some(0.5));
    named.validate(Seeding::Refused).unwrap();
    for max in ["0.4", "inf", "nan", "-1.0"] {
        let changes = [ADAPTIVE, TREE, WHOLE, ("service.max_clip_norm", max)];
        refused(
            PLAIN,
            &changes,
            &["service.max_clip_norm", "at least clip.initial_norm = 0.5"],
        );
    }
    refused(
        PLAIN,
        &[("service.max_clip_norm", "2.0")],
        &["service.max_clip_norm", "adaptive"],
    );
}

/// The tables of a run share the type, so what only a run file can say is refused there.
#[test]
fn a_declared_population_and_a_larger_run_are_refused_with_the_other_schemes() {
    let mut task = file(PLAIN).task;
    task.estimate = Some(super::super::EstimateConfig {
        population: 1000,
        users_per_round: 10.0,
        rounds: None,
        delta: None,
    });
    let error = task.validate().unwrap_err().to_string();
    assert!(
        error.contains("`estimate` must be left out") && error.contains("its own cohorts"),
        "{error}"
    );
    let mut task = file(PLAIN).task;
    task.cohort.sampling = Sampling::FixedSize;
    let error = task.validate().unwrap_err().to_string();
    assert!(
        error.contains("cohort.population") && error.contains("fixed_size"),
        "{error}"
    );
}

#[test]
fn floors_hold_for_each_sum_that_the_server_sees() {
    let rows: [Row; 9] = [
        (
            &[("aggregation.min_clients", "199")],
            &["aggregation.min_clients", "service.group.min = 200"],
        ),
        (
            &[("aggregation.max_clients", "1299")],
            &["aggregation.max_clients", "1300 sessions"],
        ),
        (
            &[("aggregation.max_clients", "-")],
            &["aggregation.max_clients", "modulus"],
        ),
        (
            &[("aggregation.min_clients", "1001"), ("service.group.min", "100")],
            &["`min_clients` of at most", "1001 and 1400"],
        ),
        (
            &[("aggregation.dropout", "{ before_keys = 0.1 }")],
            &["aggregation.dropout", "fail by themselves"],
        ),
        (
            &[("service.group.min", "1")],
            &["service.group.min", "at least 2"],
        ),
        (
            &[("service.group.target", "199")],
            &["service.group.target", "min = 200"],
        ),
        (
            &[("service.group.min", "1001"), ("service.group.target", "1001")],
            &["service.group.min", "cohort.users_per_round = 1000"],
        ),
        // Noise in shares: each group's sum is seen on its own.
        (
            &[
                ("aggregation.encoding", "{ kind = \"skellam\", scale = 1e4 }"),
                ("privacy.mechanism", "-"),
                ("aggregation.min_clients", "201"),
            ],
            &["aggregation.min_clients", "sum of each group", "min = 200"],
        ),
    ];
    for (changes, words) in rows {
        refused(DESIGN, changes, words);
    }
    let shares = [
        ("aggregation.encoding", "{ kind = \"skellam\", scale = 1e4 }"),
        ("privacy.mechanism", "-"),
        ("aggregation.min_clients", "200"),
    ];
    let shares = changed(DESIGN, &shares).unwrap();
    shares.validate(Seeding::Refused).unwrap();
    assert_eq!(shares.floor(), 200);
    // The bits of adaptive clipping have no place in a secure sum.
    refused(
        DESIGN,
        &[
            ("clip", "{ kind = \"adaptive\", initial_norm = 0.5 }"),
            (
                "privacy.mechanism",
                "{ kind = \"tree\", restarts = { first = 128, every = 1024 } }",
            ),
        ],
        &["clip.kind", "a bit of each device"],
    );
}

#[test]
fn settings_of_the_service_are_checked_by_name() {
    let rows: [(&str, &str, &[&str]); 14] = [
        (
            "over_selection",
            "0.9",
            &["service.over_selection", "from 1 to 4"],
        ),
        ("over_selection", "4.1", &["service.over_selection"]),
        ("over_selection", "nan", &["service.over_selection"]),
        (
            "deadlines.attempt",
            "\"9m\"",
            &["service.deadlines.attempt", "select = \"10m\""],
        ),
        ("deadlines.keys", "\"0s\"", &["a length of time", "got \"0s\""]),
        ("deadlines.keys", "20", &["string"]),
        ("eligibility.min_examples", "0", &["service.eligibility"]),
        (
            "eligibility.max_examples",
            "7",
            &["service.eligibility", "8 and 7"],
        ),
        (
            "budget.battery_percent",
            "101",
            &["service.budget.battery_percent"],
        ),
        (
            "pace.checkins_per_needed",
            "0.0",
            &["service.pace.checkins_per_needed"],
        ),
        ("pace.every", "1", &["unknown field `every`"]),
        ("identity", "\"none\"", &["unknown variant `none`"]),
        ("ledger", "\"both\"", &["unknown variant `both`"]),
        ("group", "-", &["missing field `group`"]),
    ];
    for (key, value, words) in rows {
        refused(PLAIN, &[(&format!("service.{key}"), value)], words);
    }
    refused(PLAIN, &[("service", "-")], &["missing field `service`"]);
    refused(
        PLAIN,
        &[("text.max_sentence_tokens", "0")],
        &["text.max_sentence_tokens", "at least 1"],
    );
    refused(
        PLAIN,
        &[(
            "model",
            "{ family = \"transformer\", layers = 1, width = 4, heads = 1, context = 20 }",
        )],
        &["text", "model.context = 20"],
    );
}

#[test]
fn a_parity_test_needs_a_seed_and_a_ledger_of_the_server() {
    let seeded = changed(PLAIN, &[("seed", "7")]).unwrap();
    seeded.validate(Seeding::ParityTest).unwrap();
    let error = file(PLAIN).validate(Seeding::ParityTest).unwrap_err().to_string();
    assert!(error.contains("`seed` is missing"), "{error}");
    let on_devices = changed(PLAIN, &[("seed", "7"), ("service.ledger", "\"device\"")]).unwrap();
    let error = on_devices.validate(Seeding::ParityTest).unwrap_err().to_string();
    assert!(error.contains("service.ledger"), "{error}");
}
