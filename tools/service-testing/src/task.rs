//! The texts of tasks.

use toml::{Table, Value};

/// A task of plain sums: three rounds of eight devices.
pub const PLAIN: &str = r#"
name = "words"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 2, max_part = 2 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2, epochs = 1 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "blt", buffers = 2 } }
server = { optimizer = { kind = "sgd" }, learning_rate = 1.0 }

[service]
over_selection = 1.5
group = { target = 4, min = 4 }
deadlines = { select = "60s", report = "120s", attempt = "300s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

/// A task of secure sums: two rounds of nine devices.
pub fn secure() -> String {
    let changes = r#"
rounds = 2
cohort.users_per_round = 9
participation.max_part = 1
aggregation = { sum = "secagg", encoding = { kind = "rotated_rounding", scale = 10000.0 }, min_clients = 6, max_clients = 24 }
service.group.target = 7
service.deadlines = { lobby = "5s", keys = "10s", shares = "10s", upload = "30s", unmask = "10s" }
"#;
    changed(PLAIN, changes)
}

/// The text of a task with other values of some keys, as TOML. The other keys of a table stay.
pub fn changed(text: &str, changes: &str) -> String {
    let mut task: Table = text.parse().unwrap();
    merge(&mut task, changes.parse().unwrap());
    task.to_string()
}

fn merge(task: &mut Table, changes: Table) {
    for (key, change) in changes {
        match (task.get_mut(&key), change) {
            (Some(Value::Table(inner)), Value::Table(change)) => merge(inner, change),
            (_, change) => drop(task.insert(key, change)),
        }
    }
}
