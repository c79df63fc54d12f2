//! Files of mechanisms and strategies: written whole or not at all, read with an error that says what they are not.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;
use undertone_mechanisms::{Mechanism, Strategy};
use undertone_run_directory::files::write_atomic;

/// The content of a file.
#[derive(Debug)]
pub(super) enum Description {
    Mechanism(Box<Mechanism>),
    Strategy(Strategy),
}

/// Writes the mechanism, or the strategy where there is no noise yet.
pub(super) fn write(file: &Path, strategy: &Strategy, mechanism: Option<&Mechanism>) -> anyhow::Result<()> {
    let text = match mechanism {
        Some(mechanism) => serde_json::to_vec(mechanism),
        None => serde_json::to_vec(strategy),
    };
    let mut text = text.context("cannot write the mechanism as JSON")?;
    text.push(b'\n');
    write_atomic(file, &text).context("--out")
}

/// Reads what [`write()`] wrote.
pub(super) fn read(file: &Path) -> anyhow::Result<Description> {
    let place = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {place}"))?;
    let value: Value =
        serde_json::from_str(&text).with_context(|| format!("{place}: expected a JSON file"))?;
    let wrong = || format!("{place} is not a mechanism or strategy that this version can read");
    if value.get("strategy").is_some() {
        let mechanism = serde_json::from_value(value).with_context(wrong)?;
        return Ok(Description::Mechanism(Box::new(mechanism)));
    }
    if value.get("kind").is_some() {
        return Ok(Description::Strategy(
            serde_json::from_value(value).with_context(wrong)?,
        ));
    }
    let got = match &value {
        Value::Object(map) => {
            let keys: Vec<&str> = map.keys().map(String::as_str).take(5).collect();
            format!("an object with the keys [{}]", keys.join(", "))
        }
        Value::Array(_) => "a list".to_owned(),
        value => value.to_string().chars().take(80).collect(),
    };
    bail!(
        "{place}: expected a mechanism (with `strategy`) or a strategy (with `kind`), as `undertone mechanism optimize \
         --out` writes them, got {got}"
    )
}
