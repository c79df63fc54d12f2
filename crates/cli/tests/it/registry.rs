//! `undertone report --registry`: a record with facts of a person and claims that were verified.

use serde_json::Value;

use crate::support::{Folder, TINY, contains, json, over};

pub(crate) const FACTS: &str = r#"
curator = "Example Society"
intended_use = "Suggestions of next words."
data_product = "A next-word model."
publication_date = "2026-11-24"
data_domain = "Short texts of a synthetic population."
rationale = "An example."
"#;

fn unseeded() -> Folder {
    let folder = Folder::trained(TINY.replace("seed = 3\n", ""));
    folder.write("facts.toml", FACTS);
    folder
}

/// The keywords of JSON Schema that the schema of the record uses. Any other keyword is a failure, so the schema cannot ask for
/// something that this test passes over.
fn validate(root: &Value, schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().expect("a schema") {
        let holds = match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let pointer = rule.as_str().expect("a reference").trim_start_matches('#');
                validate(
                    root,
                    root.pointer(pointer).expect("a definition"),
                    value,
                    path,
                    problems,
                );
                true
            }
            "type" => match rule.as_str().expect("a type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_u64() || value.is_i64(),
                "number" => value.is_number(),
                other => panic!("unknown type {other}"),
            },
            "required" => (rule.as_array().expect("a list").iter())
                .all(|key| value.get(key.as_str().expect("a key")).is_some()),
            "properties" => {
                for (key, rule) in rule.as_object().expect("properties") {
                    if let Some(value) = value.get(key) {
                        validate(root, rule, value, &format!("{path}/{key}"), problems);
                    }
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(*rule, Value::Bool(false));
                let known = schema["properties"].as_object().expect("properties");
                value
                    .as_object()
                    .is_none_or(|fields| fields.keys().all(|key| known.contains_key(key)))
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    validate(root, rule, item, path, problems);
                }
                true
            }
            "const" => value == rule,
            "enum" => rule.as_array().expect("a list").contains(value),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().expect("a number")),
            "minItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 >= rule.as_u64().expect("a number")),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= rule.as_f64().expect("a number")),
            "exclusiveMinimum" => value
                .as_f64()
                .is_none_or(|number| number > rule.as_f64().expect("a number")),
            "exclusiveMaximum" => value
                .as_f64()
                .is_none_or(|number| number < rule.as_f64().expect("a number")),
            // The command checks the only pattern, that of a date.
            "pattern" => value.as_str().is_some_and(|text| text.len() == 10),
            other => panic!("the test does not know the keyword {other}"),
        };
        if !holds {
            problems.push(format!("{path}: {keyword} {rule}"));
        }
    }
}

fn problems(record: &Value) -> Vec<String> {
    let schema = json(include_str!("../../../report/schema/registry.schema.json"));
    let mut problems = Vec::new();
    validate(&schema, &schema, record, "", &mut problems);
    problems
}

#[test]
#[ignore = "slow"]
fn a_record_follows_the_schema_and_holds_the_verified_figures() {
    let folder = unseeded();
    let record = folder.json("report runs/tiny --registry facts.toml");
    assert_eq!(record, json(&folder.text("runs/tiny/registry.json")));
    assert_eq!(problems(&record), Vec::<String>::new());
    let verified = folder.json("verify runs/tiny");
    assert_eq!(record["tier_2"]["epsilon"], verified["recomputed"]["epsilon"]);
    assert_eq!(record["tier_3"]["not_tested"], verified["notes"]);
    assert_eq!(record["tier_1"]["curator"], "Example Society");
    // Changes of the record that the schema refuses.
    for (pointer, value) in [
        ("/tier_2/epsilon", Value::from(-1.0)),
        ("/tier_2/delta", Value::from(1.0)),
        ("/tier_3/accounting/figure", Value::from("planned")),
        ("/tier_3/not_tested", Value::Array(Vec::new())),
        ("/tier_1/curator", Value::from("")),
    ] {
        let mut changed = record.clone();
        *changed.pointer_mut(pointer).expect(pointer) = value;
        assert!(!problems(&changed).is_empty(), "{pointer}");
    }
    // A published folder gives the same claims and keeps its files as they are.
    folder.succeed("publish runs/tiny published");
    let published = folder.json("report published --registry facts.toml");
    assert_eq!(problems(&published), Vec::<String>::new());
    assert_eq!(published["tier_2"], record["tier_2"]);
    folder.succeed("verify published");
}

#[test]
#[ignore = "slow"]
fn facts_that_are_missing_and_claims_that_do_not_hold_are_refused() {
    let folder = unseeded();
    for (from, to, words) in [
        ("curator = \"Example Society\"\n", "", "curator"),
        ("\"Example Society\"", "\" \"", "`curator`: expected a sentence"),
        (
            "2026-11-24",
            "24 November 2026",
            "`publication_date`: expected a date YYYY-MM-DD",
        ),
        ("2026-11-24", "2026-13-24", "`publication_date`"),
        ("rationale", "reasons", "reasons"),
    ] {
        folder.write("facts.toml", FACTS.replacen(from, to, 1));
        folder.refuse("report runs/tiny --registry facts.toml", words);
    }
    folder.write("facts.toml", FACTS);
    let page = folder.text("runs/tiny/privacy.md");
    folder.write("runs/tiny/privacy.md", page.replace("Observed", "Proven"));
    folder.refuse(
        "report runs/tiny --registry facts.toml",
        "claims that do not hold ... privacy.md",
    );
    assert!(!folder.path("runs/tiny/registry.json").exists());
    let seeded = Folder::trained(TINY);
    seeded.write("facts.toml", FACTS);
    seeded.refuse(
        "report runs/tiny --registry facts.toml",
        "cannot be published ... config.toml, seed",
    );
}

/// A record says of a run what `publish` would, and refuses what it would refuse.
#[test]
#[ignore = "slow"]
fn no_record_is_made_of_a_run_that_is_not_published() {
    let counted = over(
        "{ kind = \"csv\", path = \"crowd.csv\" }\nvocabulary = { kind = \"training_data\", size = 20 }",
    );
    let folder = Folder::new();
    let rows = (0..60).map(|user| format!("u{user},\"the cat sat on a mat\"\n"));
    folder.write("crowd.csv", format!("user_id,text\n{}", rows.collect::<String>()));
    folder.write("facts.toml", FACTS);
    folder.write("run.toml", counted.replace("seed = 3\n", ""));
    folder.succeed("train run.toml");
    for command in [
        "publish runs/tiny published",
        "report runs/tiny --registry facts.toml",
    ] {
        folder.refuse(
            command,
            "data.vocabulary: the words were counted on the text of the users",
        );
    }
    assert!(!folder.path("runs/tiny/registry.json").exists());
    // An export is made, says so once, and bears the list.
    let output = folder.run("export runs/tiny --layout undertone -o exported");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said.matches("the words were counted on the text").count(),
        1,
        "{said}"
    );
    for model in ["runs/tiny", "exported"] {
        let header = folder.read(&format!("{model}/model.safetensors"));
        let header = String::from_utf8_lossy(&header[..header.len().min(4096)]).into_owned();
        contains(
            &header,
            "obstacles ... the words were counted on the text of the users",
        );
    }
}
