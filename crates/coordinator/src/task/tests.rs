//! Keys that exclude each other are named as a file has them.

use super::TaskConfig;

const BASE: &str = r#"
name = "pairs"
rounds = 40
model = { family = "dplm", embed = 4, hidden = 6 }
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
estimator = { kind = "fixed_denominator" }
"#;

/// A key with its value.
type Key = (&'static str, &'static str);

/// Sets a dotted key.
fn set(table: &mut toml::Table, (key, value): Key) {
    let value: toml::Table = format!("value = {value}").parse().unwrap();
    let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
    let tables = tables.split('.').filter(|name| !name.is_empty());
    let table = tables.fold(table, |table, name| {
        let entry = table.entry(name).or_insert_with(|| toml::Table::new().into());
        entry.as_table_mut().unwrap()
    });
    table.insert(last.to_owned(), value["value"].clone());
}

/// The error of the base with these keys; empty if there is none.
fn error_of(keys: &[Key]) -> String {
    let mut table: toml::Table = BASE.parse().unwrap();
    keys.iter().for_each(|key| set(&mut table, *key));
    let task: TaskConfig = table.try_into().unwrap();
    task.validate()
        .map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn two_keys_that_exclude_each_other_are_named_and_each_alone_is_not() {
    const SAMPLING: Key = ("cohort.sampling", "\"fixed_size\"");
    const SCHEMA: Key = ("participation", "{ min_sep = 3 }");
    const USERS: Key = ("cohort.users_per_round", "4.0");
    const CLIP: [Key; 2] = [("clip.kind", "\"flat\""), ("clip.norm", "0.5")];
    const NOISE: Key = ("privacy.noise_multiplier", "1.0");
    const KIND: Key = ("privacy.mechanism.kind", "\"tree\"");
    const SCHEDULE: Key = ("schedule", "[{ from_round = 3, clip_norm = 0.1 }]");
    const ESTIMATE: Key = ("estimate", "{ population = 1000, users_per_round = 10.0 }");
    let rows: [(&[Key], Key, Key, &str); 9] = [
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1]],
            SCHEDULE,
            ("aggregation", "{ min_clients = 2 }"),
            ": an encoding is made for one clip norm",
        ),
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1], SCHEMA, NOISE],
            SCHEDULE,
            ("privacy.mechanism", "{ kind = \"tree\" }"),
            ": correlated noise has one size (`clip.kind = \"adaptive\"` changes the clip norm)",
        ),
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1], SCHEMA, NOISE],
            ("privacy.accountant", "\"rdp\""),
            ("privacy.mechanism", "{ kind = \"tree\" }"),
            ": correlated noise is a single Gaussian, whose epsilon is exact",
        ),
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1], SCHEMA, NOISE],
            KIND,
            ("privacy.mechanism.file", "\"tree.json\""),
            "",
        ),
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1], SCHEMA, NOISE, KIND],
            ("privacy.max_epsilon", "8.0"),
            ESTIMATE,
            ": a run with [estimate] has no budget",
        ),
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1], SCHEMA, KIND],
            NOISE,
            ("privacy.target_epsilon", "8.0"),
            "",
        ),
        (
            &[SAMPLING, USERS, CLIP[0], CLIP[1]],
            ("schedule", "[{ from_round = 3, noise_multiplier = 2.0 }]"),
            ("privacy.target_epsilon", "8.0"),
            ": the target chooses one noise multiplier for the whole run",
        ),
        (
            &[SAMPLING, USERS, ("clip.kind", "\"per_layer\"")],
            CLIP[1],
            ("clip.norms", "[0.5, 0.5]"),
            "",
        ),
        (
            &[SAMPLING, CLIP[0], CLIP[1]],
            USERS,
            ("cohort.sampling_probability", "0.1"),
            "",
        ),
    ];
    for (base, key, with, reason) in rows {
        let both = [base, &[key, with]].concat();
        // A point of a schedule is named with its key.
        let name = match key.1.contains("noise_multiplier") {
            true => "schedule[0].noise_multiplier",
            false => key.0,
        };
        assert_eq!(
            error_of(&both),
            format!(
                "`{name}` cannot be combined with `{}`; remove one of them{reason}",
                with.0
            )
        );
        for alone in [key, with] {
            let error = error_of(&[base, &[alone]].concat());
            assert!(!error.contains("cannot be combined"), "{alone:?}: {error}");
        }
    }
}
